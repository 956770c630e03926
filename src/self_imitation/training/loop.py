"""The training loop: rows of metrics, evaluations, checkpoints, when to stop."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from self_imitation.config import TrainConfig
from self_imitation.errors import (
    DeviceMemoryError,
    FaultyEnvironmentError,
    Interrupted,
    NonFiniteError,
    UsageError,
    prefix_env_name,
)
from self_imitation.storage import checkpoint, files, metrics_file
from self_imitation.storage.config_file import fingerprint
from self_imitation.storage.metrics_file import MetricsWriter, Row
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import backends, early_stopping, hints, memory, recorder
from self_imitation.training.backends import Backend
from self_imitation.training.callbacks import Callbacks
from self_imitation.training.context import Context
from self_imitation.training.counters import Counters
from self_imitation.training.evaluation import Evaluation
from self_imitation.training.hints import Hints
from self_imitation.training.periodic_evaluation import PeriodicEvaluation
from self_imitation.training.rows import make_rows
from self_imitation.training.trainer import Trainer


class Training:
    """One run, from where it stands to its last step."""

    def __init__(self, run: RunDirectory, config: TrainConfig, backend: Backend, callbacks: Callbacks):
        self.run, self.config, self.backend, self.callbacks = run, config, backend, callbacks
        self.trainer = Trainer(config, backend)
        self.context = Context(run.path, run.shown, config, self.trainer)
        self._stop: Callable[[], bool] = lambda: False
        message = callbacks.message
        try:
            memory.check_host(self.trainer.groups[0], config)
            with self._explain_out_of_memory(), prefix_env_name(config.env):
                restored = self._restore()
                self._resumed = restored is not None
                if restored is None:
                    self.trainer.init()
            self.counters = restored or Counters(episodes=[0] * config.seeds)
            self.saved_at = self.counters.iteration if self._resumed else -1
            self.evaluation = PeriodicEvaluation(run, config, self.trainer, message)
            self.evaluation.restore()
            keep_bytes = self.counters.metrics_bytes if self._resumed else None
            columns = [*self.trainer.metric_names, *self.evaluation.columns]
            self.metrics = MetricsWriter(run.path, columns, keep_bytes, message)
            self.context.add(metrics_file.read(run.path))
            self.context.step = self._step
            self.stopped_early = early_stopping.reason(config, self.context.metrics())
            """Why the run stops before its last step; empty if it goes on."""
            self.hints = Hints(config, self.context.metrics(), message)
            self.recorder = recorder.create(run.path, config, self.trainer, message)
            self.recorder.resume_from(self._step if self._resumed else -1)
        except BaseException:
            self.trainer.close()
            raise

    @property
    def is_complete(self) -> bool:
        """Whether the last step is made, with its row."""
        counters = self.counters
        return counters.iteration >= self.config.iterations and counters.row_iteration == counters.iteration

    def train(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the end, or until `stop` returns True or a callback stops the run. Saves a checkpoint.

        Returns whether the run is complete or stopped early by its settings.
        """
        counters, config, context = self.counters, self.config, self.context
        self._stop = lambda: stop() or context.stopping or self.callbacks.failure is not None
        notes = [
            *self.backend.notes,
            backends.fallback(self.backend.entry, self.backend.engine),
            hints.discount_note(config),
            *(f"changed {change}" for change in config.changes if change.step == self._step),
        ]
        context.notes = [note for note in notes if note]
        context.finished = self.is_complete or bool(self.stopped_early)
        self.callbacks.started(context)
        try:
            if counters.iteration < config.iterations and not self.stopped_early:
                with self._explain_out_of_memory():
                    self.trainer.compile()
            if not self._resumed:
                self._save()  # from now on, a run without a checkpoint is one whose checkpoints were deleted
            self.recorder.start(self._step)
            with self._explain_out_of_memory():
                self._train()
            context.finished = self.is_complete or bool(self.stopped_early)
            self.recorder.end(self._step, counters.seconds, context.finished)
            if counters.iteration != self.saved_at and not self._save():
                raise UsageError(f"out: the last checkpoint could not be written; {self._kept()}")
        except FaultyEnvironmentError as error:
            text = f"environment {config.env}: {error}; training stopped, {self._kept()}"
            raise FaultyEnvironmentError(text) from error.__cause__
        finally:
            self.recorder.close()
            self.evaluation.close()
            self.metrics.close()
            if problem := self.trainer.close():
                self.callbacks.message(f"environment {config.env}: {problem}; ignored, training had ended")
        return context.finished

    def _train(self) -> None:
        counters, config = self.counters, self.config
        self.trainer.interrupt_when(self._stop)
        self.hints.start(counters.iteration)
        self._last_save = time.monotonic()
        if counters.row_iteration < counters.iteration and self._is_end_of_row(counters.iteration):
            self._log()  # the run was stopped while it evaluated
        while counters.iteration < config.iterations and not self.stopped_early and not self._stop():
            row_end = (counters.iteration // config.iterations_per_row + 1) * config.iterations_per_row
            self._run_until(min(row_end, config.iterations))
            if self._is_end_of_row(counters.iteration):
                self._log()
            if self._checkpoint_is_due():
                self._save()
                self._last_save = time.monotonic()

    @property
    def _step(self) -> int:
        """Steps that every seed has made."""
        return self.counters.iteration * self.config.steps_per_iteration

    def _is_end_of_row(self, iteration: int) -> bool:
        return iteration % self.config.iterations_per_row == 0 or iteration >= self.config.iterations

    def _checkpoint_is_due(self) -> bool:
        return time.monotonic() - self._last_save >= self.config.checkpoint_seconds

    def _run_until(self, iteration: int) -> None:
        counters, config, context, begun = self.counters, self.config, self.context, time.monotonic()
        start = counters.iteration

        def advanced(done: int) -> None:
            if done:
                seconds = max(time.monotonic() - begun, 1e-9)
                context.step = (start + done) * config.steps_per_iteration
                context.steps_per_second = done * config.steps_per_iteration * config.seeds / seconds
                self.callbacks.advanced(context)
                self.hints.report_eta(start + done)

        context.updating = True
        done = self.trainer.run(iteration - start, lambda: self._stop() or self._checkpoint_is_due(), advanced)
        context.updating = False
        counters.iteration += done
        counters.seconds += time.monotonic() - begun
        self._refuse_non_finite()
        advanced(done)

    @contextlib.contextmanager
    def _explain_out_of_memory(self) -> Iterator[None]:
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            # The latter is raised by computations whose inputs did not fit.
            if not any(words in str(error) for words in ("RESOURCE_EXHAUSTED", "Out of memory")):
                raise
            advice = memory.what_to_lower(self.config)
            text = f"out of memory on {self.trainer.device}; {advice}; training stopped, {self._kept()}"
            raise DeviceMemoryError(text) from error

    def _refuse_non_finite(self) -> None:
        found = self.trainer.first_bad()
        if found is None:
            return
        seed, iteration = found
        step = (self.counters.row_iteration + iteration + 1) * self.config.steps_per_iteration
        raise NonFiniteError(f"a loss of seed {seed} was not finite at step {step}; training stopped, {self._kept()}")

    def _kept(self) -> str:
        return f"{checkpoint.kept(self.run.checkpoints)} in {self.run.shown}"

    def _log(self) -> None:
        """Evaluate if it is time to, write a row for each seed, then clear the accumulated metrics.

        If the evaluation is interrupted, all of this is left to the next part of the run.
        """
        counters, measured = self.counters, self.trainer.metrics()
        if not int(measured.iterations[0]):
            return
        evaluation: Evaluation | None = None
        evaluated: list[Row] = [{} for _ in self.config.seed_numbers]
        if self.evaluation.is_due(counters.iteration):
            try:
                evaluation, evaluated = self.evaluation.evaluate(self._step, self._stop)
            except Interrupted:
                return
        unknown = dict.fromkeys(self.evaluation.columns, math.nan)
        rows = make_rows(self.config, counters, measured, [{**unknown, **own} for own in evaluated])
        self.trainer.clear_metrics()
        self.saved_at = -1  # a checkpoint of this iteration has no such row
        self._write(rows)
        self.recorder.logged(self._step, counters.seconds, rows)
        self.hints.warn_if_nothing_to_learn_from(counters.iteration, rows)
        if evaluation is not None:
            self.stopped_early = early_stopping.reason(self.config, self.context.metrics())
            self.context.evaluation = evaluation
            self.callbacks.evaluated(self.context, evaluation)

    def _write(self, rows: list[Row]) -> None:
        self.run.require_usable()
        try:
            self.metrics.write(rows)
        except OSError as error:
            explained = files.explain(error, self.run.shown)
            self.callbacks.message(f"metrics at step {self._step} not written yet: {explained}")
        self.context.add(rows)
        self.callbacks.logged(self.context, rows)

    def _save(self) -> bool:
        """If the disk is full, report it, keep the last checkpoint and train on."""
        step = self._step
        self.run.require_usable()
        try:
            self.counters.metrics_bytes = self.metrics.flush_to_disk()
            self.counters.device = self.trainer.device
            path = checkpoint.save(
                self.run.checkpoints,
                step,
                self.trainer.saved(),
                vars(self.counters).copy(),
                self.config.checkpoints_kept,
                fingerprint(self.config),
            )
        except OSError as error:
            self.callbacks.message(f"checkpoint at step {step} not saved: {files.explain(error, self.run.shown)}")
            return False
        self.saved_at = self.counters.iteration
        self.callbacks.saved(self.context, path)
        return True

    def _restore(self) -> Counters | None:
        """Continue from the latest intact checkpoint; None if there is none."""
        files.clear_partial(self.run.path)
        files.clear_partial(self.run.checkpoints)
        message = self.callbacks.message

        def load(path: Path, meta: dict[str, Any]) -> Counters:
            saved, collection = checkpoint.load_state(path, meta, self.trainer.saved_shape)
            counters = Counters.from_json(meta["counters"], self.config, meta["step"])
            continues = self.trainer.restore(saved, collection, meta["step"])
            if not continues and counters.iteration < self.config.iterations:
                message("the state of the environments can't be saved: unfinished episodes are dropped, new ones begin")
            return counters

        found = checkpoint.load_latest(self.run.checkpoints, fingerprint(self.config), load, message)
        if found is None and metrics_file.read(self.run.path):
            raise UsageError(f"{str(self.run.shown)!r} has metrics but no checkpoint to resume from")
        if found is not None and found.device != self.trainer.device:
            before, now = found.device, self.trainer.device
            message(f"trained so far on {before}, now on {now}: results may differ in the last bits")
        return found
