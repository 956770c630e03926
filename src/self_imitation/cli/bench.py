"""`sil bench`. The benchmarks are not part of the installed package."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import self_imitation
from self_imitation.errors import UsageError


def bench(arguments: Sequence[str]) -> int:
    """Run the benchmarks of the source checkout: the current directory, or that of an editable install."""
    installed = Path(self_imitation.__file__).resolve().parents[2]
    checkouts = [root for root in (Path.cwd(), installed) if _is_checkout(root)]
    if not checkouts:
        raise UsageError("benchmarks come with the source checkout, not with the installed package: run this there")
    sys.path.insert(0, str(checkouts[0]))
    return importlib.import_module("benchmarks.command").main(arguments)


def _is_checkout(root: Path) -> bool:
    return (root / "benchmarks" / "command.py").is_file() and (root / "src" / "self_imitation").is_dir()
