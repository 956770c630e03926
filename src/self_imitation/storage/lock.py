"""The lock of a run directory: only one process trains a run at a time."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from self_imitation.errors import UsageError
from self_imitation.storage import files

FILE = ".lock"


class HeldError(UsageError):
    """Another process holds the lock."""


@contextlib.contextmanager
def hold(directory: Path) -> Iterator[Callable[[], bool]]:
    """The lock is released when its process ends, however that happens. Raises `HeldError` if another one holds it.

    Yields a function that returns whether `directory` is still the same one, neither moved nor deleted.
    """
    path = directory / FILE
    with contextlib.ExitStack() as stack:
        with files.explain_failure(directory):
            file = stack.enter_context(files.open_regular(path, "a+b"))
            if sys.platform != "win32":
                import fcntl

                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise HeldError(f"{str(directory)!r} is being trained by another process") from None
            held = os.fstat(file.fileno())
            if not _is_at(path, held):
                # Its holder has deleted it meanwhile, and another process may hold the file in its place.
                raise HeldError(f"{str(directory)!r} is being trained by another process")
        yield lambda: _is_at(path, held)


def _is_at(path: Path, held: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.lstat(path), held)
    except OSError:
        return False
