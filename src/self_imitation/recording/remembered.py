"""What a replay buffer remembers: its episodes, how often each is sampled, and which steps are worth imitating.

All of it on the host, in NumPy. The buffer has to store `REWARD` and `STEPS_LEFT`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from self_imitation.replay.buffer import REWARD, STEPS_LEFT, ReplayBuffer

MAX_POINTS = 300
"""Episodes that are recorded one by one; the histogram counts all."""
BARS = 24
STEP_POINTS = 240
"""Steps whose return and value are recorded."""


@dataclass(frozen=True)
class Memory:
    """The steps in a replay buffer, oldest first."""

    slot: np.ndarray
    reward: np.ndarray
    returns: np.ndarray
    """Discounted, from each step on."""
    steps_left: np.ndarray
    weight: np.ndarray
    """Probability of being sampled, up to a factor."""
    capacity: int

    @property
    def full(self) -> bool:
        return len(self.slot) == self.capacity


def read(buffer: ReplayBuffer, index: int) -> Memory:
    """One seed's memory from the replay buffers of several."""
    returns = np.asarray(buffer.returns)[index]
    slots, size, head = len(returns), int(np.asarray(buffer.size)[index]), int(np.asarray(buffer.head)[index])
    slot = (head - size + np.arange(size)) % slots
    leaves = np.asarray(buffer.tree.sums)[index, buffer.tree.first_leaf :][:slots]
    reward, steps_left = (np.asarray(buffer.extras[name])[index] for name in (REWARD, STEPS_LEFT))
    capacity = slots - (buffer.stack - 1)
    return Memory(slot, reward[slot], returns[slot], steps_left[slot], leaves[slot].astype(float), capacity)


@dataclass(frozen=True)
class Episodes:
    """Of a memory, oldest first. An episode that was stored in parts counts as several."""

    first: np.ndarray
    """Place of each episode's first step in the memory."""
    last: np.ndarray
    total: np.ndarray
    """Sum of its rewards, as trained on."""
    age: np.ndarray
    """Steps that were stored after it."""
    share: np.ndarray
    """Of the samples that self-imitation draws."""
    complete: np.ndarray
    """False for an oldest episode whose first steps may have been overwritten."""

    @property
    def length(self) -> np.ndarray:
        return self.last - self.first + 1

    def best(self) -> int | None:
        """The complete episode with the highest sum of rewards; of several, the shortest, then the newest."""
        if not self.complete.any():
            return None
        order = np.lexsort((self.last, -self.length, self.total, self.complete))
        return int(order[-1])


def episodes(memory: Memory) -> Episodes:
    last = np.flatnonzero(memory.steps_left == 0)
    first = np.concatenate([[0], last[:-1] + 1])[: len(last)].astype(int)
    complete = np.ones(len(last), bool)
    complete[:1] = not memory.full
    weights = _sums(memory.weight, first)
    return Episodes(
        first=first,
        last=last,
        total=_sums(memory.reward.astype(float), first),
        age=len(memory.slot) - 1 - last,
        share=weights / max(weights.sum(), np.finfo(float).tiny),
        complete=complete,
    )


def _sums(steps: np.ndarray, first: np.ndarray) -> np.ndarray:
    return np.add.reduceat(steps, first) if len(first) else np.zeros(0)


def to_json(memory: Memory, found: Episodes) -> dict[str, Any]:
    """The episodes for the page: some of them one by one, all of them in a histogram."""
    shown = _chosen(found)
    best = found.best()
    return {
        "steps": len(memory.slot),
        "capacity": memory.capacity,
        "episodes": len(found.last),
        "best": None if best is None else rounded(found.total[best]),
        "points": {
            "return": rounded(found.total[shown]),
            "age": found.age[shown].tolist(),
            "length": found.length[shown].tolist(),
            "share": rounded(found.share[shown]),
        },
        "histogram": _histogram(found),
    }


def _chosen(found: Episodes) -> np.ndarray:
    """The best episode, those that are sampled most, and of the others some of every age."""
    count = len(found.last)
    if count <= MAX_POINTS:
        return np.arange(count)
    best, most = [found.best()], np.argsort(found.share)[-MAX_POINTS // 3 :]
    spread = np.linspace(0, count - 1, MAX_POINTS - len(most) - 1).astype(int)
    return np.unique(np.concatenate([best, most, spread]))


def _histogram(found: Episodes) -> dict[str, Any]:
    """Share of the episodes and of the sampling, by return. Few different returns have a bar each."""
    if not len(found.total):
        return {"return": [], "width": 1.0, "episodes": [], "sampling": []}
    returns = np.round(found.total, 6)
    centres, bar = np.unique(returns, return_inverse=True)
    width = float(np.diff(centres).min()) if len(centres) > 1 else 1.0
    if len(centres) > BARS:
        low, high = centres[0], centres[-1]
        width = (high - low) / BARS
        bar = np.minimum(((returns - low) / width).astype(int), BARS - 1)
        centres = low + width * (np.arange(BARS) + 0.5)
    episodes_, sampling = (
        np.bincount(bar, weights, minlength=len(centres)) for weights in (np.full(len(bar), 1 / len(bar)), found.share)
    )
    return {
        "return": rounded(centres),
        "width": rounded(width),
        "episodes": rounded(episodes_),
        "sampling": rounded(sampling),
    }


def imitated(memory: Memory, place: np.ndarray, value: np.ndarray) -> dict[str, Any]:
    """Which steps have R > V. `place`: where in the memory these steps are; `value`: V of each, in units of rewards."""
    returns, weight = memory.returns[place], memory.weight[place]
    better = returns > value
    shown = np.linspace(0, len(place) - 1, min(len(place), STEP_POINTS)).astype(int)
    return {
        "steps": len(place),
        "of_memory": rounded(better.mean()) if len(place) else None,
        "of_sampling": rounded((weight * better).sum() / weight.sum()) if weight.sum() > 0 else None,
        "return": rounded(returns[shown]),
        "value": rounded(value[shown]),
    }


def rounded(numbers: Any) -> Any:
    """Four significant digits, as Python's floats."""
    if np.ndim(numbers) == 0:
        return float(f"{float(numbers):.4g}")
    return [float(f"{number:.4g}") for number in np.asarray(numbers, float).tolist()]
