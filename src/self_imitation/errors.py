"""The one error that is the user's to mend: a field, its value, and what is allowed."""

import difflib
from collections.abc import Iterable

MOST = 20
"""Names that one line can hold."""


class UsageError(ValueError):
    """Bad input, told in one line. The command line prints it and exits with status 2."""


class NonFiniteError(RuntimeError):
    """A loss became NaN or infinite; the run stopped, its last good checkpoint is kept."""


class DeviceMemoryError(RuntimeError):
    """What trains does not fit into the device's memory; the run stopped, its last good checkpoint is kept."""


def bad_value(field: str, value: object, allowed: str) -> UsageError:
    return UsageError(f"{field}: {value!r} is not allowed; {allowed}")


def unknown_name(field: str, name: str, known: Iterable[str]) -> UsageError:
    """Names the nearest known name, since most unknown names are misspelt ones; and all, or of many some more."""
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=5, cutoff=0.0)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    all_or_some = f"Known: {', '.join(names)}"
    if len(names) > MOST:
        all_or_some = f"Of {len(names)} known, the nearest are {', '.join(nearest)}"
    return UsageError(f"{field}: {name!r} is unknown; {hint}{all_or_some}")


class FaultyEnvironmentError(RuntimeError):
    """An environment broke its contract or raised; the run stopped, its last good checkpoint is kept."""


def first_line(error: BaseException) -> str:
    """Of its message, which may have none."""
    return next(iter(str(error).splitlines()), "")
