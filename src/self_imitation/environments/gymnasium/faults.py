"""Whatever an environment raises, also where it tries to end the process, as one kind of error."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import NoReturn

from self_imitation.errors import FaultyEnvironmentError, Interrupted, first_line


class ExitError(Exception):
    """An environment raised or called something that would end the process. The message says what."""


class _Exit(BaseException):
    """Raised in place of `os._exit`. Not an `Exception`, so that an environment's own handlers let it pass."""


@contextlib.contextmanager
def wrap_env_errors() -> Iterator[None]:
    """Raise whatever an environment raises as a `FaultyEnvironmentError`."""
    try:
        with TrapExits():
            yield
    except FaultyEnvironmentError:
        raise
    except Exception as error:
        raise FaultyEnvironmentError(in_words(error)) from error


class TrapExits:
    """A context that raises `ExitError` for `os._exit`, for what is not an `Exception`, such as SystemExit, and for
    StopIteration, which generators treat as their own. Ctrl-C and `Interrupted` pass.
    """

    def __enter__(self) -> None:
        self._exit, self._caller = os._exit, (os.getpid(), threading.get_ident())
        os._exit = self._refuse

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        os._exit = self._exit
        ordinary = isinstance(error, Exception | Interrupted) and not isinstance(error, StopIteration)
        if error is None or ordinary:
            return
        if isinstance(error, KeyboardInterrupt) and _ctrl_c_raises():
            return
        raise ExitError(str(error) if isinstance(error, _Exit) else in_words(error)) from error

    def _refuse(self, status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != self._caller:
            self._exit(status)  # a forked child, or Ctrl-C pressed twice
        raise _Exit(f"called os._exit({status})")


def in_words(error: BaseException) -> str:
    """What an environment did, as "raised ValueError: too long"."""
    if isinstance(error, ExitError):
        return str(error)
    return f"raised {type(error).__name__}: {first_line(error)}".rstrip(": ")


def _ctrl_c_raises() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in this thread: only in the main one, while nobody handles the signal."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
