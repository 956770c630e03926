"""When a run records what `sil watch` shows, and how much time that may take.

Recording only reads the state of the training, so it does not change the results. It measures its own time and waits
until it is within its share of the training time. A failure is reported once, and training goes on.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError, first_line
from self_imitation.recording import grid_world
from self_imitation.recording.series import PLAYED, SNAPSHOTS, Series
from self_imitation.storage.metrics_file import Row
from self_imitation.training.played_episodes import PlayedEpisodes
from self_imitation.training.snapshots import Snapshots
from self_imitation.training.trainer import Trainer

SHARE = 0.01
"""Of the training time: for snapshots, and the same again for played episodes."""
MAX_SNAPSHOTS, MAX_PLAYED = 100, 12
FIRST_EPISODE_SECONDS = 1.0
"""What the first played episode is expected to take."""


class NoRecorder:
    """Of a run that records nothing."""

    def resume_from(self, step: int) -> None: ...
    def start(self, step: int) -> None: ...
    def logged(self, step: int, seconds: float, rows: list[Row]) -> None: ...
    def end(self, step: int, seconds: float, finished: bool) -> None: ...
    def close(self) -> None: ...


class Recorder(NoRecorder):
    """Of a run with `record`."""

    def __init__(self, run: Path, config: TrainConfig, trainer: Trainer, message: Callable[[str], None]):
        self._config, self._trainer, self._rows = config, trainer, list[Row]()
        total = config.total_steps
        self._snapshots = _Part(Series(run, SNAPSHOTS, MAX_SNAPSHOTS), total, 0.0, message)
        self._played = _Part(Series(run, PLAYED, MAX_PLAYED), total, FIRST_EPISODE_SECONDS, message)
        self._best = (-math.inf, -1)
        """Return and step of the best episode played so far."""
        self._reading: Snapshots | None = None
        self._playing = PlayedEpisodes(config, trainer.agent)
        self._draws_maze = grid_world.is_one(config.env)

    def resume_from(self, step: int) -> None:
        """Delete what was recorded after the checkpoint from which the run continues; -1: all of it."""
        self._snapshots.resume_from(step)
        for at, episode in self._played.resume_from(step).items():
            self._best = max(self._best, (episode["return"], at))

    def start(self, step: int) -> None:
        """Take the first snapshot, which also compiles: part of the start-up, like the compilation of the training."""
        spent = self._snapshots.spent
        self._take_snapshot(step, 0.0)
        self._snapshots.spent, self._snapshots.expected = spent, 0.0

    def logged(self, step: int, seconds: float, rows: list[Row]) -> None:
        """Record what is due after these rows. `seconds`: of training so far."""
        self._rows = rows
        if self._snapshots.is_due(step, seconds):
            self._take_snapshot(step, seconds)
        if self._played.is_due(step, seconds):
            self._play(step)

    def end(self, step: int, seconds: float, finished: bool) -> None:
        """Record where the run stopped. A run that is finished has at least one played episode."""
        if finished and self._played.latest != step and (self._played.latest < 0 or self._played.affordable(seconds)):
            self._play(step)
        if self._snapshots.latest != step or self._played.failure:
            self._take_snapshot(step, seconds)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._playing.close()

    def _take_snapshot(self, step: int, seconds: float) -> None:
        def take() -> dict[str, Any]:
            self._reading = self._reading or Snapshots(self._config, self._trainer)
            return {"seconds": seconds, "note": self._played.failure, "seeds": self._reading.take(step)}

        self._snapshots.record(step, take)

    def _play(self, step: int) -> None:
        def play() -> dict[str, Any]:
            seed, length = self._best_seed()
            group = next(i for i, group in enumerate(self._trainer.groups) if seed in group.seeds)
            index = self._trainer.groups[group].seeds.index(seed)
            policies = self._trainer.states[group].agents.policy
            episode = self._playing.play(policies, index, step % 2**31, length)
            self._best = max(self._best, (episode["return"], step))
            return {"seed": seed, **episode}

        if not self._draws_maze:
            self._played.record(step, play, lambda: self._best[1])

    def _best_seed(self) -> tuple[int, float]:
        """By the mean return of the latest row; also the mean length of its episodes there."""
        known = [row for row in self._rows if math.isfinite(row["return_mean"])]
        if not known:
            return self._config.seed, 0.0
        best = max(known, key=lambda row: row["return_mean"])
        return int(best["seed"]), best["length_mean"]


class _Part:
    """One series of the record, and the time that it takes."""

    def __init__(self, series: Series, total_steps: int, expected: float, message: Callable[[str], None]):
        """`expected`: seconds that the first file takes."""
        self.series, self._message, self._every = series, message, total_steps / series.most
        self.spent, self.expected = 0.0, expected
        self.latest = -1
        """Step of the latest file."""
        self.failure = ""
        """Why nothing more is recorded."""

    def resume_from(self, step: int) -> Mapping[int, dict[str, Any]]:
        """Delete files of later steps; returns the others."""
        kept: dict[int, dict[str, Any]] = {}
        with self._reporting():
            kept = self.series.keep_until(step)
        if kept:
            self.latest = max(kept)
            self.spent = float(kept[self.latest]["recording_seconds"])
        return kept

    def is_due(self, step: int, seconds: float) -> bool:
        return step >= self.latest + self._every and self.affordable(seconds)

    def affordable(self, seconds: float) -> bool:
        return self.spent + self.expected <= SHARE * seconds

    def record(self, step: int, make: Callable[[], dict[str, Any]], protected: Callable[[], int] = lambda: -1) -> None:
        """Write what `make` returns, unless an earlier attempt failed. `protected`: step of a file to keep."""
        if self.failure:
            return
        begun = time.monotonic()
        with self._reporting():
            data = make()
            spent = self.spent + time.monotonic() - begun
            self.series.write(step, {"step": step, "recording_seconds": spent, **data}, protected())
        self.latest, self.expected = step, time.monotonic() - begun
        self.spent += self.expected

    @contextlib.contextmanager
    def _reporting(self) -> Any:
        try:
            yield
        except Exception as error:
            kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
            self.failure = f"{kind}{first_line(error)}"
            self._message(f"recording of {self.series.folder.name} stopped, training goes on: {self.failure}")


def create(run: Path, config: TrainConfig, trainer: Trainer, message: Callable[[str], None]) -> NoRecorder:
    return Recorder(run, config, trainer, message) if config.record else NoRecorder()
