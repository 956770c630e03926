"""What the commands say and ask."""

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import IO

from self_imitation.errors import printable


def say(text: str, stream: IO[str] | None = None) -> None:
    """Print a text that may contain names from outside, without their control characters."""
    stream = stream or sys.stdout
    if not getattr(stream, "closed", False):  # an environment can close or replace it
        print(printable(text), file=stream, flush=True)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as one line, without the colours that Gymnasium adds and control characters in their text."""
    before = warnings.formatwarning

    def one_line(message: Warning | str, *_: object) -> str:
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(message)).split())
        return f"sil: warning: {printable(text)}\n"

    warnings.formatwarning = one_line  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before


def ask_to_import(what: str) -> bool:
    """Ask before code from a run is imported; without a terminal, the answer is no."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(f"This run's environment needs the Python {what}, whose code would run.", sys.stderr)
    print("Import it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
