"""The training loop: rows of metrics, checkpoints, when to stop."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.errors import (
    DeviceMemoryError,
    FaultyEnvironmentError,
    NonFiniteError,
    UsageError,
    prefix_env_name,
)
from self_imitation.storage import checkpoint, files, metrics_file
from self_imitation.storage.config_file import fingerprint
from self_imitation.storage.metrics_file import MetricsWriter, Row
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import backends, memory, recorder
from self_imitation.training.backends import Backend
from self_imitation.training.trainer import Trainer

ETA_AFTER = 0.5
"""Seconds of training after which the remaining time is estimated."""
MIN_ETA = 10.0
"""Shorter remaining times, in seconds, are not reported."""

INERT = 0.01
"""Self-imitation with a smaller share of the steps in parameter space is reported."""


@runtime_checkable
class Listener(Protocol):
    """Receives the progress of a run."""

    def started(
        self, config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]
    ) -> None: ...
    def advanced(self, step: int, steps_per_second: float) -> None: ...
    def logged(self, rows: list[Row]) -> None: ...
    def message(self, text: str) -> None: ...


class Silent:
    """Ignores everything; a base class for listeners."""

    def started(
        self, config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]
    ) -> None: ...
    def advanced(self, step: int, steps_per_second: float) -> None: ...
    def logged(self, rows: list[Row]) -> None: ...
    def message(self, text: str) -> None: ...


@dataclass
class Counters:
    """Python integers, which do not overflow. Saved with each checkpoint."""

    iteration: int = 0
    row_iteration: int = 0
    """Iteration at which the present row began."""
    seconds: float = 0.0
    row_seconds: float = 0.0
    episodes: list[int] = field(default_factory=list)
    metrics_bytes: int = 0
    device: str = ""

    @classmethod
    def from_json(cls, saved: Mapping[str, Any], config: TrainConfig, step: int) -> "Counters":
        """Those of a checkpoint. Raises `DamagedError` if they can't be those of this run at this step."""
        usual = vars(cls())
        sound = (
            saved.keys() == usual.keys()
            and all(type(saved[name]) is type(value) for name, value in usual.items())
            and len(saved["episodes"]) == config.seeds
            and all(
                type(number) is int and 0 <= number < 2**62 for number in (saved["metrics_bytes"], *saved["episodes"])
            )
            and 0 <= saved["row_iteration"] <= saved["iteration"]
            and saved["iteration"] * config.steps_per_iteration == step
            and 0 <= saved["row_seconds"] <= saved["seconds"] < math.inf
        )
        if not sound:
            raise checkpoint.DamagedError(f"{checkpoint.META}: counters are missing, unknown or out of range")
        return cls(**saved)


class Training:
    """One run, from where it stands to its last step."""

    def __init__(self, run: RunDirectory, config: TrainConfig, backend: Backend, listener: Listener):
        self.run, self.config, self.backend, self.listener = run, config, backend, listener
        self.trainer = Trainer(config, backend)
        self._warned = False
        try:
            memory.check_host(self.trainer.groups[0], config)
            with self._explain_out_of_memory(), prefix_env_name(config.env):
                restored = self._restore()
                self._resumed = restored is not None
                if restored is None:
                    self.trainer.init()
            self.counters = restored or Counters(episodes=[0] * config.seeds)
            self.saved_at = self.counters.iteration if self._resumed else -1
            keep_bytes = self.counters.metrics_bytes if self._resumed else None
            self.metrics = MetricsWriter(run.path, list(self.trainer.metric_names), keep_bytes, listener.message)
            self._rewarded = {int(row["seed"]) for row in metrics_file.read(run.path) if _has_reward(row)}
            self.recorder = recorder.create(run.path, config, self.trainer, listener.message)
            self.recorder.resume_from(self._step if self._resumed else -1)
        except BaseException:
            self.trainer.close()
            raise

    def train(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the end, or until `stop` returns True; returns whether the end was reached. Saves a checkpoint."""
        counters, config = self.counters, self.config
        notes = [
            *self.backend.notes,
            backends.fallback(self.backend.entry, self.backend.engine),
            _discount_note(config),
        ]
        self.listener.started(config, self.run, counters.iteration, self.trainer.device, [n for n in notes if n])
        try:
            if counters.iteration < config.iterations:
                with self._explain_out_of_memory():
                    self.trainer.compile()
            if not self._resumed:
                self._save()  # from now on, a run without a checkpoint is one whose checkpoints were deleted
            self.recorder.start(self._step)
            with self._explain_out_of_memory():
                self._train(stop)
            self.recorder.end(self._step, counters.seconds, counters.iteration >= config.iterations)
            if counters.iteration != self.saved_at and not self._save():
                raise UsageError(f"out: the last checkpoint could not be written; {self._kept()}")
        except FaultyEnvironmentError as error:
            text = f"environment {config.env}: {error}; training stopped, {self._kept()}"
            raise FaultyEnvironmentError(text) from error.__cause__
        finally:
            self.recorder.close()
            self.metrics.close()
            if problem := self.trainer.close():
                self.listener.message(f"environment {config.env}: {problem}; ignored, training had ended")
        return counters.iteration >= config.iterations

    def _train(self, stop: Callable[[], bool]) -> None:
        counters, config = self.counters, self.config
        self.trainer.interrupt_when(stop)
        self._first_iteration, self._eta_reported = counters.iteration, False
        self._begun = self._last_save = time.monotonic()
        while counters.iteration < config.iterations and not stop():
            row_end = (counters.iteration // config.iterations_per_row + 1) * config.iterations_per_row
            target = min(row_end, config.iterations)
            self._run_until(target, stop)
            if counters.iteration == target:
                self._log()
            if self._checkpoint_is_due():
                self._save()
                self._last_save = time.monotonic()

    @property
    def _step(self) -> int:
        """Steps that every seed has made."""
        return self.counters.iteration * self.config.steps_per_iteration

    def _checkpoint_is_due(self) -> bool:
        return time.monotonic() - self._last_save >= self.config.checkpoint_seconds

    def _run_until(self, iteration: int, stop: Callable[[], bool]) -> None:
        counters, config, begun = self.counters, self.config, time.monotonic()
        start = counters.iteration

        def advanced(done: int) -> None:
            rate = done * config.steps_per_iteration * config.seeds / max(time.monotonic() - begun, 1e-9)
            if done:
                self.listener.advanced((start + done) * config.steps_per_iteration, rate)
                self._report_eta(start + done)

        done = self.trainer.run(iteration - start, lambda: stop() or self._checkpoint_is_due(), advanced)
        counters.iteration += done
        counters.seconds += time.monotonic() - begun
        self._refuse_non_finite()
        advanced(done)

    def _report_eta(self, iteration: int) -> None:
        """Once, by the rate of the first iterations."""
        seconds, done = time.monotonic() - self._begun, iteration - self._first_iteration
        if self._eta_reported or seconds < ETA_AFTER:
            return
        self._eta_reported = True
        config, remaining = self.config, (self.config.iterations - iteration) * seconds / done
        if remaining >= MIN_ETA:
            rate = done * config.steps_per_iteration * config.seeds / seconds
            self.listener.message(f"{rate:,.0f} steps/s; about {_in_words(remaining)} remaining")

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
        """Write a row for each seed, then clear the accumulated metrics."""
        counters, measured = self.counters, self.trainer.metrics()
        iterations = int(measured.iterations[0])
        if not iterations:
            return
        config, step = self.config, self._step
        rate = iterations * config.steps_per_iteration * config.seeds / (counters.seconds - counters.row_seconds)
        rows: list[Row] = []
        for i, seed in enumerate(config.seed_numbers):
            episodes, latest = int(measured.episodes[i]), int(measured.latest.count[i])
            counters.episodes[i] += episodes
            rows.append(
                {
                    "seed": seed,
                    "step": step,
                    "episodes": counters.episodes[i],
                    "return_mean": float(measured.return_sum[i]) / episodes if episodes else math.nan,
                    "return_best": float(measured.return_best[i]) if episodes else math.nan,
                    "length_mean": float(measured.length_sum[i]) / episodes if episodes else math.nan,
                    "return_latest": float(np.mean(measured.latest.returns[i][:latest])) if latest else math.nan,
                    **{name: float(total[i]) / iterations for name, total in measured.sums.items()},
                    "steps_per_second": rate,
                    "seconds": counters.seconds,
                }
            )
        counters.row_iteration, counters.row_seconds = counters.iteration, counters.seconds
        self.trainer.clear_metrics()
        self.run.require_usable()
        try:
            self.metrics.write(rows)
        except OSError as error:
            self.listener.message(f"metrics at step {step} not written yet: {files.explain(error, self.run.shown)}")
        self.listener.logged(rows)
        self.recorder.logged(step, counters.seconds, rows)
        self._warn_if_nothing_to_learn_from(rows)

    def _warn_if_nothing_to_learn_from(self, rows: list[Row]) -> None:
        """Once, after a tenth of the steps: seeds without any reward so far, with an empty replay buffer, or with
        self-imitation that changes nothing.
        """
        self._rewarded |= {int(row["seed"]) for row in rows if _has_reward(row)}
        if self._warned or self.counters.iteration * 10 < self.config.iterations:
            return
        unrewarded = [seed for seed in self.config.seed_numbers if seed not in self._rewarded]
        empty = [int(row["seed"]) for row in rows if row.get("memory_size") == 0]
        self._warned = bool(unrewarded or empty)
        if not any(self.counters.episodes):
            effect = ", and there is nothing to imitate" if self.config.parts.self_imitation else ""
            self.listener.message(f"no episode has ended yet: returns are unknown{effect}")
        elif unrewarded:
            self.listener.message(
                f"no episode of seeds {unrewarded} had a return other than 0: nothing to learn from yet"
            )
        elif empty:
            why = "no episode had a reward above 0"
            self.listener.message(f"the replay buffer of seeds {empty} is still empty ({why}): nothing to imitate yet")
        elif still := [int(row["seed"]) for row in rows if _is_inert(row)]:
            self._warned = True
            share = f"its share of the steps is below {INERT:.0%} (sil_step_share)"
            self.listener.message(f"self-imitation hardly moves the networks of seeds {still}: {share}")

    def _save(self) -> bool:
        """If the disk is full, report it, keep the last checkpoint and train on."""
        step = self._step
        self.run.require_usable()
        try:
            self.counters.metrics_bytes = self.metrics.flush_to_disk()
            self.counters.device = self.trainer.device
            checkpoint.save(
                self.run.checkpoints,
                step,
                self.trainer.saved(),
                vars(self.counters).copy(),
                self.config.checkpoints_kept,
                fingerprint(self.config),
            )
        except OSError as error:
            self.listener.message(f"checkpoint at step {step} not saved: {files.explain(error, self.run.shown)}")
            return False
        self.saved_at = self.counters.iteration
        return True

    def _restore(self) -> Counters | None:
        """Continue from the latest intact checkpoint; None if there is none."""
        files.clear_partial(self.run.path)
        files.clear_partial(self.run.checkpoints)

        def load(path: Path, meta: dict[str, Any]) -> Counters:
            saved, collection = checkpoint.load_state(path, meta, self.trainer.saved_shape)
            counters = Counters.from_json(meta["counters"], self.config, meta["step"])
            continues = self.trainer.restore(saved, collection, meta["step"])
            if not continues and counters.iteration < self.config.iterations:
                self.listener.message(
                    "the state of the environments can't be saved: unfinished episodes are dropped, new ones begin"
                )
            return counters

        found = checkpoint.load_latest(self.run.checkpoints, fingerprint(self.config), load, self.listener.message)
        if found is None and metrics_file.read(self.run.path):
            raise UsageError(f"{str(self.run.shown)!r} has metrics but no checkpoint to resume from")
        if found is not None and found.device != self.trainer.device:
            before, now = found.device, self.trainer.device
            self.listener.message(f"trained so far on {before}, now on {now}: results may differ in the last bits")
        return found


def _discount_note(config: TrainConfig) -> str:
    """Returns that look less far ahead than the values seldom exceed them."""
    learner = config.parts.learner
    gamma = config.components[learner].gamma
    if not config.parts.self_imitation or config.sil.gamma is None or config.sil.gamma >= gamma:
        return ""
    return f"sil.gamma {config.sil.gamma:g} is below {learner}.gamma {gamma:g}: little will be imitated"


def _is_inert(row: Row) -> bool:
    """Whether returns are well above the values, and self-imitation moves nothing all the same."""
    much_to_imitate = row.get("sil_imitated", 0.0) > 0.5 and row["sil_advantage"] > 0.1
    return much_to_imitate and row["sil_step_share"] < INERT


def _has_reward(row: Row) -> bool:
    """Whether some episode of this row had a return other than 0."""
    return any(row[name] != 0 and math.isfinite(row[name]) for name in ("return_mean", "return_best"))


def _in_words(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
