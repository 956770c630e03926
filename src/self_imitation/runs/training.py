"""The host's side of training: how far to go, rows of metrics, checkpoints, when to stop."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from self_imitation import devices
from self_imitation.config import TrainConfig, agent_parts
from self_imitation.environments import catalogue
from self_imitation.errors import DeviceMemoryError, FaultyEnvironmentError, NonFiniteError, UsageError
from self_imitation.runs import checkpoint, files, metrics, program
from self_imitation.runs.config_file import fingerprint
from self_imitation.runs.directory import RunDirectory
from self_imitation.runs.metrics import MetricsWriter, Row
from self_imitation.runs.tally import ALL_FINITE

SECONDS_PER_CALL = 0.25
"""About how long one call of the compiled program takes: how soon the progress bar moves and Ctrl-C is heard."""


SOON = 0.5
"""Seconds of training from which it can be told how long all will take."""
LONG = 10.0
"""Seconds to the end that are worth telling."""


@runtime_checkable
class Listener(Protocol):
    """Who wants to know how a run is going."""

    def started(self, config: TrainConfig, run: RunDirectory, iteration: int, device: str) -> None: ...
    def advanced(self, step: int, steps_per_second: float) -> None: ...
    def logged(self, rows: list[Row]) -> None: ...
    def message(self, text: str) -> None: ...


class Silent:
    """Tells nobody; a base for listeners that want to hear only some things."""

    def started(self, config: TrainConfig, run: RunDirectory, iteration: int, device: str) -> None: ...
    def advanced(self, step: int, steps_per_second: float) -> None: ...
    def logged(self, rows: list[Row]) -> None: ...
    def message(self, text: str) -> None: ...


@dataclass
class Counters:
    """What the host counts, in Python's integers, which do not overflow. Saved with each checkpoint."""

    iteration: int = 0
    row_iteration: int = 0
    """Where the present row began."""
    seconds: float = 0.0
    row_seconds: float = 0.0
    episodes: list[int] = field(default_factory=list)
    metrics_bytes: int = 0
    device: str = ""


class Training:
    """One run, from wherever it stands to its last step."""

    def __init__(self, run: RunDirectory, config: TrainConfig, listener: Listener):
        self.run, self.config, self.listener = run, config, listener
        self.program = program.create(config)
        self._refuse_what_the_host_cannot_hold()
        with self._fitting():
            restored = self._restore()
            self._resumed = restored is not None
            self.progress, self.counters = restored or self._begin()
        self.saved_at = self.counters.iteration if self._resumed else -1
        self._warned = False
        keep_bytes = self.counters.metrics_bytes if self._resumed else None
        names = [*self.program.columns, *self.program.shapes.one_seed.tally.sums]
        self.metrics = MetricsWriter(run.path, names, keep_bytes)
        if self.metrics.lacks_rows:
            listener.message(f"{metrics.FILE} lacks rows of steps before this; it goes on with those that it has")

    def go(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the end, or until `stop` says so; True if the end was reached. A checkpoint is there either way."""
        counters, config = self.counters, self.config
        self.listener.started(config, self.run, counters.iteration, self.program.device)
        try:
            if counters.iteration < config.iterations:
                with self._fitting():
                    self.program.compile(self.progress)
            if not self._resumed:
                self._save()  # from now on, a run without any checkpoint is one whose checkpoints were removed
            with self._fitting():
                self._train(stop)
            if counters.iteration != self.saved_at and not self._save():
                raise UsageError(f"out: the last checkpoint could not be written; {self._kept()}")
        except FaultyEnvironmentError as fault:
            raise FaultyEnvironmentError(f"{fault}; training stopped, {self._kept()}") from fault.__cause__
        finally:
            self.metrics.close()
            self.program.close()
        return counters.iteration >= config.iterations

    def _train(self, stop: Callable[[], bool]) -> None:
        counters, config = self.counters, self.config
        last_save, stretch = time.monotonic(), 1
        tried, trained = 0, 0.0
        while counters.iteration < config.iterations and not stop():
            row_end = (counters.iteration // config.iterations_per_row + 1) * config.iterations_per_row
            count = min(stretch, row_end - counters.iteration, config.iterations - counters.iteration)
            seconds = self._advance(count)
            stretch = _next_stretch(count, seconds)
            if trained < SOON <= trained + seconds:
                self._expect((trained + seconds) / (tried + count))
            tried, trained = tried + count, trained + seconds
            if counters.iteration in (row_end, config.iterations):
                self._log()
            if time.monotonic() - last_save >= config.checkpoint_seconds:
                self._save()
                last_save = time.monotonic()

    def _expect(self, seconds: float) -> None:
        """Who waits long is told how long, by what the first iterations took each."""
        config, left = self.config, self.config.iterations - self.counters.iteration
        if left * seconds >= LONG:
            rate = config.steps_per_iteration * config.seeds / seconds
            self.listener.message(f"{rate:,.0f} steps/s here: about {_in_words(left * seconds)} to the end")

    def _refuse_what_the_host_cannot_hold(self) -> None:
        """Linux lends more memory than there is, and then stands still."""
        on_host = self.config.sil.memory == "host" or devices.available(self.config)[0].platform == "cpu"
        one = jax.tree.leaves(self.program.shapes.one_seed)
        need = self.config.seeds * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in one)
        have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if on_host and need > have:
            sizes = f"{need / 1e9:.0f} GB needed, {have / 1e9:.0f} GB there"
            raise DeviceMemoryError(f"out of memory on the host: {sizes}; {_smaller(self.config)}")

    @contextlib.contextmanager
    def _fitting(self) -> Iterator[None]:
        """What does not fit into the device's memory is told with the settings that make it smaller."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            # The latter comes of what was computed from what did not fit.
            if not any(words in str(error) for words in ("RESOURCE_EXHAUSTED", "Out of memory")):
                raise
            self.program.close()
            raise DeviceMemoryError(
                f"out of memory on {self.program.device}; {_smaller(self.config)}; training stopped, {self._kept()}"
            ) from error

    def _advance(self, count: int) -> float:
        begun = time.monotonic()
        self.progress = self.program.advance(self.progress, count)
        seconds = time.monotonic() - begun
        self.counters.iteration += count
        self.counters.seconds += seconds
        self._refuse_non_finite()
        steps = count * self.config.steps_per_iteration
        step = self.counters.iteration * self.config.steps_per_iteration
        self.listener.advanced(step, steps * self.config.seeds / seconds)
        return seconds

    def _refuse_non_finite(self) -> None:
        first_bad = self.program.tally(self.progress).first_bad
        if (first_bad == ALL_FINITE).all():
            return
        index = int(np.argmin(np.where(first_bad == ALL_FINITE, np.iinfo(np.int32).max, first_bad)))
        iteration = self.counters.row_iteration + int(first_bad[index]) + 1
        raise NonFiniteError(
            f"a loss of seed {self.config.seed_numbers[index]} was not finite at step "
            f"{iteration * self.config.steps_per_iteration}; training stopped, {self._kept()}"
        )

    def _kept(self) -> str:
        return f"{checkpoint.kept(self.run.checkpoints)} in {self.run.path}"

    def _log(self) -> None:
        """A row per seed, then a clean tally."""
        counters, tally = self.counters, self.program.tally(self.progress)
        if not tally.iterations[0]:
            return
        step = counters.iteration * self.config.steps_per_iteration
        row_steps = int(tally.iterations[0]) * self.config.steps_per_iteration * self.config.seeds
        row_seconds = counters.seconds - counters.row_seconds
        rows: list[Row] = []
        for i, seed in enumerate(self.config.seed_numbers):
            episodes = int(tally.episodes[i])
            counters.episodes[i] += episodes
            best = float(tally.return_best[i]) if episodes else math.nan
            rows.append(
                {
                    "seed": seed,
                    "step": step,
                    "episodes": counters.episodes[i],
                    "return_mean": float(tally.return_sum[i]) / episodes if episodes else math.nan,
                    "return_best": best,
                    "length_mean": float(tally.length_sum[i]) / episodes if episodes else math.nan,
                    **self.program.own_metrics(i),
                    **{name: float(total[i] / tally.iterations[i]) for name, total in tally.sums.items()},
                    "steps_per_second": row_steps / row_seconds,
                    "seconds": counters.seconds,
                }
            )
        counters.row_iteration, counters.row_seconds = counters.iteration, counters.seconds
        self.progress = self.program.clear_tally(self.progress)
        try:
            self.metrics.write(rows)
        except OSError as error:
            self.listener.message(f"metrics at step {step} not written yet: {files.explain(error, self.run.path)}")
        self.listener.logged(rows)
        self._warn_of_empty_memory(rows)

    def _warn_of_empty_memory(self, rows: list[Row]) -> None:
        """Self-imitation with nothing to imitate must not pass in silence."""
        empty = [int(row["seed"]) for row in rows if row.get("memory_size") == 0]
        late = self.counters.iteration * 10 >= self.config.iterations
        if empty and late and not self._warned:
            self._warned = True
            why = "no episode ended" if not any(self.counters.episodes) else "no finished episode had a reward above 0"
            self.listener.message(f"the memory is still empty for seeds {empty}: {why}, so there is nothing to imitate")

    def _save(self) -> bool:
        """A full disk is no reason to lose the run: say so, keep the last good checkpoint, train on."""
        step = self.counters.iteration * self.config.steps_per_iteration
        try:
            self.counters.metrics_bytes = self.metrics.flush_to_disk()
            self.counters.device = self.program.device
            checkpoint.save(
                self.run.checkpoints,
                step,
                self.program.whole(self.progress),
                self.program.environments(),
                vars(self.counters).copy(),
                self.config.checkpoints_kept,
                fingerprint(self.config),
            )
        except OSError as error:
            self.listener.message(f"checkpoint at step {step} not saved: {files.explain(error, self.run.path)}")
            return False
        self.saved_at = self.counters.iteration
        return True

    def _restore(self) -> tuple[Any, Counters] | None:
        """The latest sound checkpoint; None before the first one."""
        files.clear_partial(self.run.path)
        files.clear_partial(self.run.checkpoints)
        like = self.program.shapes.all_seeds

        def load(path: Path, meta: dict[str, Any]) -> tuple[Any, Counters]:
            saved, environments = checkpoint.load_state(path, meta, like)
            progress, lost = self.program.restore(saved, environments, meta["step"])
            counters = Counters(**meta["counters"])
            if lost and counters.iteration < self.config.iterations:
                self.listener.message(lost)
            return progress, counters

        found = checkpoint.load_latest(self.run.checkpoints, fingerprint(self.config), load, self.listener.message)
        if found is None and metrics.read(self.run.path):
            raise UsageError(f"run: {str(self.run.path)!r} has rows of metrics but no checkpoint to go on from")
        if found is not None and found[1].device != self.program.device:
            before, now = found[1].device, self.program.device
            self.listener.message(f"trained so far on {before}, now on {now}: the last bits of its numbers may differ")
        return found

    def _begin(self) -> tuple[Any, Counters]:
        seeds = self.config.seeds
        return self.program.begin(), Counters(episodes=[0] * seeds)


def _smaller(config: TrainConfig) -> str:
    """Which settings take less of the device's memory."""
    lower = f"lower seeds (now {config.seeds})"
    if "sil" not in agent_parts(config.agent):
        return f"{lower}, envs (now {config.envs}) or rollout (now {config.rollout})"
    memory = f"sil.capacity (now {config.sil.capacity:,}) or sil.batch (now {config.sil.batch})"
    on_cpu = devices.available(config)[0].platform == "cpu"
    if on_cpu or config.sil.memory == "host" or catalogue.find(config.env).host_id is None:
        return f"{lower}, {memory}"
    return f"{lower}, {memory}, or keep the memory in the host's: --sil.memory host"


def _in_words(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _next_stretch(count: int, seconds: float) -> int:
    return max(1, min(2 * count, round(count * SECONDS_PER_CALL / max(seconds, 1e-9))))
