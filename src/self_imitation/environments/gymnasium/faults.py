"""Whatever an environment raises, also where it tries to end the process, as one kind of error."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

from self_imitation.errors import FaultyEnvironmentError, first_line


class ExitError(SystemExit):
    """An environment tried to end the process. Not an `Exception`, so that its own handlers let it pass."""


@contextlib.contextmanager
def wrap_env_errors() -> Iterator[None]:
    """Raise whatever an environment raises as a `FaultyEnvironmentError`."""
    try:
        with trap_exits():
            yield
    except FaultyEnvironmentError:
        raise
    except (Exception, SystemExit) as error:
        raise FaultyEnvironmentError(in_words(error)) from error


@contextlib.contextmanager
def trap_exits() -> Iterator[None]:
    """Raise `ExitError` for `os._exit`, and for a KeyboardInterrupt without Ctrl-C."""
    really_exit, process, thread = os._exit, os.getpid(), threading.get_ident()

    def refuse(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != (process, thread):
            really_exit(status)  # a forked child, or Ctrl-C pressed twice
        raise ExitError(f"called os._exit({status})")

    os._exit = refuse
    try:
        yield
    except KeyboardInterrupt as error:
        if _was_pressed():
            raise
        raise ExitError("raised KeyboardInterrupt") from error
    finally:
        os._exit = really_exit


def in_words(error: BaseException) -> str:
    """What an environment did, as "raised ValueError: too long"."""
    if isinstance(error, ExitError):
        return str(error)
    return f"raised {type(error).__name__}: {first_line(error)}".rstrip(": ")


def _was_pressed() -> bool:
    """Whether Ctrl-C can be the reason: it reaches the main thread, and raises only while nobody handles the signal."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
