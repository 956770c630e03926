"""Typed command lines by tyro, with its boxed errors brought down to one line."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar

import tyro

from self_imitation.errors import UsageError

T = TypeVar("T")

_KINDS = {
    "invalid literal for int() with base 10": "a whole number",
    "could not convert string to float": "a number",
}


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None, summary: str = "") -> T:
    """The dataclass `kind`, filled from the arguments. Help goes to the screen; a mistake becomes a `UsageError`."""
    errors = io.StringIO()
    start = tyro.MISSING_NONPROP if default is None else default
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(kind, prog=f"sil {command}", args=list(arguments), description=summary, default=start)
    except SystemExit as stopped:
        if not stopped.code:
            raise
        raise UsageError(f"{_one_line(errors.getvalue())} (see sil {command} --help)") from None


def _one_line(box: str) -> str:
    """The message in tyro's box: its first part, and the nearest option where there is one."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│ ").strip() for row in text.splitlines() if row.startswith("│")]
    parts = " ".join("\n" if set(row) == {"─"} else row for row in rows).split("\n")
    message = parts[0].strip().rstrip(".")
    message = re.sub(r"^Error parsing (\S+): ", r"\1: ", message)
    for theirs, ours in _KINDS.items():
        message = re.sub(rf"{re.escape(theirs)}: (.*)$", rf"\1 is not {ours}", message)
    nearest = re.search(r"Perhaps you meant: (\S+)", re.sub(r"\s+", " ", " ".join(parts[1:])))
    return message + (f"; did you mean {nearest[1]}?" if nearest else "")
