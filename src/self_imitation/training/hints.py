"""What a run tells its user by itself: the time that it takes, and why it may not learn."""

import math
import time
from collections.abc import Callable, Sequence

from self_imitation.config import TrainConfig
from self_imitation.storage.metrics_file import Row

ETA_AFTER = 0.5
"""Seconds of training after which the remaining time is estimated."""
MIN_ETA = 10.0
"""Shorter remaining times, in seconds, are not reported."""

INERT = 0.01
"""Self-imitation with a smaller share of the steps in parameter space is reported."""


class Hints:
    """Each is given once."""

    def __init__(self, config: TrainConfig, rows: Sequence[Row], message: Callable[[str], None]):
        """`rows`: those before this part of the run."""
        self._config, self._message = config, message
        self._rewarded = {int(row["seed"]) for row in rows if _has_reward(row)}
        self._warned = self._eta_reported = False

    def start(self, iteration: int) -> None:
        self._first_iteration, self._begun = iteration, time.monotonic()

    def report_eta(self, iteration: int) -> None:
        """By the rate of the first iterations."""
        seconds, done = time.monotonic() - self._begun, iteration - self._first_iteration
        if self._eta_reported or seconds < ETA_AFTER:
            return
        self._eta_reported = True
        config, remaining = self._config, (self._config.iterations - iteration) * seconds / done
        if remaining >= MIN_ETA:
            rate = done * config.steps_per_iteration * config.seeds / seconds
            self._message(f"{rate:,.0f} steps/s; about {_in_words(remaining)} remaining")

    def warn_if_nothing_to_learn_from(self, iteration: int, rows: Sequence[Row]) -> None:
        """After a tenth of the steps: seeds without any reward so far, with too little in the replay buffer,
        or with self-imitation that changes nothing.
        """
        self._rewarded |= {int(row["seed"]) for row in rows if _has_reward(row)}
        if self._warned or iteration * 10 < self._config.iterations:
            return
        ended = {int(row["seed"]) for row in rows if row["episodes"]}
        unrewarded = [seed for seed in self._config.seed_numbers if seed in ended - self._rewarded]
        empty = [int(row["seed"]) for row in rows if row.get("memory_size") == 0]
        self._warned = bool(unrewarded or empty or not ended)
        if not ended:
            effect = ", and there is nothing to imitate" if self._config.parts.self_imitation else ""
            self._message(f"no episode has ended yet: returns are unknown{effect}")
        elif unrewarded:
            self._message(f"no episode of seeds {unrewarded} had a return other than 0: nothing to learn from yet")
        elif empty:
            why = "no episode had a reward above 0"
            self._message(f"the replay buffer of seeds {empty} is still empty ({why}): nothing to imitate yet")
        elif waiting := [int(row["seed"]) for row in rows if self._waits(row)]:
            self._warned = True
            least = f"more than sil.learning_starts = {self._config.sil.learning_starts} steps"
            self._message(f"self-imitation of seeds {waiting} has not begun: their replay buffers never held {least}")
        elif still := [int(row["seed"]) for row in rows if _is_inert(row)]:
            self._warned = True
            share = f"its share of the steps is below {INERT:.0%} (sil_step_share)"
            self._message(f"self-imitation hardly moves the networks of seeds {still}: {share}")

    def _waits(self, row: Row) -> bool:
        """Whether the replay buffer holds too little for an update."""
        few = row.get("memory_size", math.inf) <= self._config.sil.learning_starts
        return few and row["sil_step_share"] == 0


def discount_note(config: TrainConfig) -> str:
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
