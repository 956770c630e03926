"""Typed command lines by tyro, with its boxed errors brought down to one line."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar

import tyro

from self_imitation.errors import UsageError

T = TypeVar("T")

# What tyro says, and how we say it: field, value, what is allowed.
_SAYINGS = (
    (r"^Error parsing (\S+): ", r"\1: "),
    (r"invalid literal for int\(\) with base 10: (.*)$", r"\1 is not a whole number"),
    (r"no type matching (.+?) could be instantiated from \[(.*?)\]\. Got errors.*$", r"\2 is not allowed; allowed: \1"),
    (r"allowed: \{None\}\|", "allowed: None or "),
    (r"\{\[INT \[INT \.\.\.\]\]\}", "whole numbers"),
    (r"\bINT$", "a whole number"),
    (r"\bFLOAT$", "a number"),
    (r"could not convert string to float: (.*)$", r"\1 is not a number"),
    (r"Could not find valid parse for arguments: \[(.*)\]$", r"\1 is not what it takes"),
    (r"^invalid choice (.*) for argument '(.*)'\. Expected one of \((.*?),?\)$", r"\2: \1 is not allowed; allowed: \3"),
    (r"^Missing value for argument '(.*)'\. Expected \d+ values?$", r"\1: its value is missing"),
    (r"^Missing from sil \S+: \{(\S+)\} .*$", r"one of \1 is missing"),
    (r"^Missing from sil \S+: (\S+) (.*?)\.? \(required\)$", r"\1 is missing: \2"),
)


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
    """The message in tyro's box: its first part, and the nearest option where there is one.

    Where the screen can't show the box's lines, its title stands above a ruler instead of in the frame.
    """
    rows = [row.strip(" │") for row in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    framed = rows[0].startswith("╭")
    body = rows[1:-1] if framed else rows
    text = " ".join("\n" if re.fullmatch("[─-]+", row) else row for row in body)
    parts = [re.sub(r"[ ]+", " ", part).strip() for part in text.split("\n")][0 if framed else 1 :]
    message = parts[0].rstrip(". ")
    for theirs, ours in _SAYINGS:
        message = re.sub(theirs, ours, message)
    nearest = re.search(r"Perhaps you meant: (\S+)", " ".join(parts[1:]))
    return message + (f"; did you mean {nearest[1]}?" if nearest else "")
