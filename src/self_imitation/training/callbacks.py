"""Callbacks: what may happen at certain moments of a run, given by its user."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from self_imitation.errors import bad_value, first_line
from self_imitation.storage.metrics_file import Row
from self_imitation.training.context import Context
from self_imitation.training.evaluation import Evaluation


class Callback:
    """Override any of these methods; they do nothing by themselves.

    All are called in the thread that called `train`, and training waits for them. `context.stop()` ends the run. If a
    method raises, whatever it is, the run is saved, and then the exception goes on to the caller of `train`.
    """

    def started(self, context: Context) -> None:
        """Before the first iteration of this part of the run."""

    def advanced(self, context: Context) -> None:
        """A few times per second. Networks are being updated: the policy can't be read here."""

    def logged(self, context: Context, rows: Sequence[Row]) -> None:
        """After a row of metrics.csv was written for each seed: `rows`, values by the names of their columns."""

    def evaluated(self, context: Context, evaluation: Evaluation) -> None:
        """After an evaluation (`eval_every`), whose results are in the rows that were logged just before."""

    def saved(self, context: Context, checkpoint: Path) -> None:
        """After a checkpoint was written; its path."""

    def message(self, text: str) -> None:
        """What the run tells its user, as one line; also before `started`."""

    def ended(self, context: Context) -> None:
        """At the end, when all files are written; also after an error (`context.error`)."""


CallbackLike: TypeAlias = Callback | Callable[[Context], object]
"""A callback, or a function that is called with the context after each row of metrics.csv."""


class _Function(Callback):
    def __init__(self, function: Callable[[Context], object]):
        self.function = function

    def logged(self, context: Context, rows: Sequence[Row]) -> None:
        self.function(context)


class Callbacks:
    """Calls all callbacks of a run. The first exception is kept in `failure`, and the run is expected to stop."""

    def __init__(self, callbacks: Iterable[CallbackLike] | CallbackLike, more: Iterable[Callback] = ()):
        given = callbacks if isinstance(callbacks, Iterable) else [callbacks]
        self._callbacks = [*(_as_callback(callback) for callback in given), *more]
        self.failure: BaseException | None = None
        self._failed: Callback | None = None

    def started(self, context: Context) -> None:
        self._call("started", lambda callback: callback.started(context))

    def advanced(self, context: Context) -> None:
        self._call("advanced", lambda callback: callback.advanced(context))

    def logged(self, context: Context, rows: Sequence[Row]) -> None:
        self._call("logged", lambda callback: callback.logged(context, rows))

    def evaluated(self, context: Context, evaluation: Evaluation) -> None:
        self._call("evaluated", lambda callback: callback.evaluated(context, evaluation))

    def saved(self, context: Context, checkpoint: Path) -> None:
        self._call("saved", lambda callback: callback.saved(context, checkpoint))

    def message(self, text: str) -> None:
        self._call("message", lambda callback: callback.message(text))

    def ended(self, context: Context) -> None:
        self._call("ended", lambda callback: callback.ended(context))

    def _call(self, moment: str, call: Callable[[Callback], None]) -> None:
        """One that failed is only called at the end, so that it can clean up."""
        for callback in self._callbacks:
            if callback is self._failed and moment != "ended":
                continue
            try:
                call(callback)
            except BaseException as error:
                if self.failure is None:
                    self.failure, self._failed = error, callback
                    self.message(f"{_name(callback)}.{moment} raised {_in_words(error)}; training stops")


def _as_callback(given: CallbackLike) -> Callback:
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        raise bad_value("callbacks", given, "allowed: objects of classes derived from Callback, and functions")
    return _Function(given)


def _name(callback: Callback) -> str:
    if isinstance(callback, _Function):
        return getattr(callback.function, "__name__", type(callback.function).__name__)
    return type(callback).__name__


def _in_words(error: BaseException) -> str:
    text = first_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
