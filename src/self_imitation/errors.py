"""Errors, and how they name a field, its value and what is allowed."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

MAX_LINE = 300
"""Characters of a message from outside."""
MAX_NAMES = 20
"""Names that fit into one line."""
NEAR = 0.58
"""Similarity from which a name is suggested."""


class UsageError(ValueError):
    """Bad input, explained in one line. The command line prints it and exits with status 2."""


class NonFiniteError(RuntimeError):
    """A loss became NaN or infinite; the run stopped, its last checkpoint is kept."""


class DeviceMemoryError(RuntimeError):
    """The run does not fit into memory; it stopped, its last checkpoint is kept."""


def bad_value(field: str, value: object, allowed: str) -> UsageError:
    return UsageError(f"{field}: {shorten(value)} is not allowed; {allowed}")


def unknown_name(field: str, name: str, known: Iterable[str]) -> UsageError:
    """Suggests the nearest known name if one is near, and lists all of them, or the nearest if there are many."""
    names = sorted(known)
    lower = {own.lower(): own for own in names}
    near = [lower[own] for own in difflib.get_close_matches(name[:100].lower(), lower, n=1, cutoff=NEAR)]
    listed = f"known: {', '.join(names)}"
    if len(names) > MAX_NAMES:
        nearest = difflib.get_close_matches(name[:100].lower(), lower, n=5, cutoff=0.0)
        listed = f"of {len(names)} known, the nearest are {', '.join(lower[own] for own in nearest)}"
    return unknown(field, name, near[0] if near else "", listed)


def unknown(field: str, name: str, suggestion: str, known: str) -> UsageError:
    """`known`: a clause that says what is known."""
    rest = f"did you mean {suggestion!r}? {known[:1].upper()}{known[1:]}" if suggestion else known
    return UsageError(f"{field}: {shorten(name)} is unknown; {rest}")


def shorten(value: object, most: int = 200) -> str:
    """The value as Python writes it, cut in the middle if it is long."""
    try:
        text = repr(value)
    except Exception:  # an integer with thousands of digits, or an object from outside
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[: most - 20]} ... {text[-15:]}"


class FaultyEnvironmentError(RuntimeError):
    """An environment raised or broke its contract; the run stopped, its last checkpoint is kept."""


class RunsFailedError(RuntimeError):
    """Some runs of an experiment failed; the others are finished."""


class Interrupted(BaseException):
    """Training was asked to stop between two steps of an environment; the unfinished rollout is dropped."""


@contextlib.contextmanager
def prefix_env_name(env: str) -> Iterator[None]:
    """Name the environment in its errors."""
    try:
        yield
    except FaultyEnvironmentError as error:
        raise FaultyEnvironmentError(f"environment {env}: {error}") from error.__cause__


def one_line(text: str, most: int = 1000) -> str:
    """A message as one line of a sensible length."""
    text = text if len(text) <= most else f"{text[: most - 20]} ... {text[-15:]}"
    return printable(text).replace("\n", "\\n")


def printable(text: str) -> str:
    """The text with control characters escaped: names from outside must not control the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def first_line(error: BaseException) -> str:
    """First line of the message, which may be empty; cut if it is long."""
    try:
        lines = str(error).splitlines()
    except Exception:  # a class from outside
        return ""
    return lines[0][:MAX_LINE] if lines else ""
