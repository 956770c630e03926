"""best/STEP: the policies that did best in the evaluations of a run, each seed's at its own step.

The files are those of a checkpoint that acting needs; STEP is that of the latest improvement.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from self_imitation.storage import checkpoint
from self_imitation.storage.checkpoint import META, DamagedError

DIRECTORY = "best"
"""Of the best policies, in a run directory."""


@dataclass(frozen=True)
class Best:
    """The best policy of each seed."""

    steps: tuple[int, ...]
    """At which it was evaluated."""
    means: tuple[float, ...]
    """Mean return in that evaluation."""
    params: PyTree
    normaliser: PyTree


def save(directory: Path, best: Best, settings: str) -> None:
    """Replaces the earlier one. After a crash there may be both; `load` takes the one with the higher step."""
    step = max(best.steps)
    state = {"agents": {"train": {"params": best.params}, "normaliser": best.normaliser}}
    counters = {"steps": list(best.steps), "return_means": list(best.means)}
    checkpoint.save(directory, step, state, counters, 1, settings)
    for other in checkpoint.steps(directory):
        if other != step:
            checkpoint.delete(directory, other)


def load(directory: Path, settings: str, like: tuple[PyTree, PyTree], warn: Callable[[str], None]) -> Best | None:
    """None if there is none. `like`: shapes of parameters and normaliser, of all seeds."""

    def read(path: Path, meta: dict[str, Any]) -> Best:
        steps, means = (meta["counters"].get(name) for name in ("steps", "return_means"))
        sound = isinstance(steps, list) and isinstance(means, list) and len(steps) == len(means)
        sound = sound and all(type(step) is int and 0 <= step <= meta["step"] for step in steps)
        if not sound or not all(type(mean) is float and math.isfinite(mean) for mean in means):
            raise DamagedError(f"{META}: not the counters of best policies")
        params, normaliser = checkpoint.load_policy(path, meta, like)
        return Best(tuple(steps), tuple(means), params, normaliser)

    return checkpoint.load_latest(directory, settings, read, warn)
