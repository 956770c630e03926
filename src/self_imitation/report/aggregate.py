"""Statistics over the tasks of an experiment: rliable's aggregates (Agarwal et al. 2021), and the paper's measures."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from self_imitation.errors import UsageError
from self_imitation.report import statistics

RESAMPLES = 2000
"""Of the stratified bootstrap; its random numbers are always the same, so that a page can be rebuilt."""
IMPROVED = 0.01
"""The paper counts a game as improved if its relative measure is above this."""


@dataclass(frozen=True)
class Estimate:
    """A statistic with its 95 % interval, which is NaN if there is one run only."""

    value: float
    low: float
    high: float
    runs: int
    """Seeds per task."""
    tasks: int


@dataclass(frozen=True)
class Profile:
    """The share of runs with a normalised score above each threshold, with its 95 % band."""

    thresholds: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: int
    tasks: int


def normalise(score: float | np.ndarray, low: float, high: float) -> Any:
    """0 at `low`, 1 at `high`; with the scores of a random and of a human player, the human-normalised score."""
    return (score - low) / (high - low)


def relative(score: float, baseline: float, random: float, human: float) -> float:
    """Relative measure of Wang et al. 2016 (the paper's figure 4): the gain over the baseline, in units of the better
    one of human and baseline, both above a random player.
    """
    return (score - baseline) / (max(human, baseline) - random)


def above_human(normalised: Sequence[float] | np.ndarray) -> int:
    """The number of tasks with a normalised score above 1."""
    return int((np.asarray(normalised) > 1).sum())


def aggregates(scores: np.ndarray) -> dict[str, Estimate]:
    """Mean, median and interquartile mean (IQM) of normalised scores [runs, tasks], with stratified intervals."""
    metrics = _rliable()[1]
    parts = {"mean": metrics.aggregate_mean, "median": metrics.aggregate_median, "IQM": metrics.aggregate_iqm}
    value, low, high = _intervals((scores,), lambda own: np.array([part(own) for part in parts.values()]))
    return {
        name: Estimate(float(value[i]), float(low[i]), float(high[i]), *scores.shape) for i, name in enumerate(parts)
    }


def probability_of_improvement(first: np.ndarray, second: np.ndarray) -> Estimate:
    """The probability that a run of the first agent scores higher than one of the second, averaged over tasks.

    `first`, `second`: scores [runs, tasks]. Equal scores count half. `runs` of the estimate: the smaller number.
    """
    value, low, high = _intervals(
        (first, second), lambda one, other: np.array([statistics.probability_of_improvement(one, other)])
    )
    runs = min(len(first), len(second))
    return Estimate(float(value[0]), float(low[0]), float(high[0]), runs, first.shape[1])


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> Profile:
    """`scores`: normalised [runs, tasks]."""
    library = _rliable()[0]
    share, low, high = _intervals((scores,), lambda own: library.score_distributions(own, thresholds))
    return Profile(thresholds, share, low, high, *scores.shape)


def _intervals(
    scores: tuple[np.ndarray, ...], statistic: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The statistic and its 95 % interval from a bootstrap over runs, within each task."""
    value = statistic(*scores)
    if min(map(len, scores)) < 2:
        unknown = np.full_like(value, np.nan)
        return value, unknown, unknown
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of arch, about how rliable hands it random numbers
        data: Mapping[str, Any] = {"": scores[0] if len(scores) == 1 else list(scores)}
        random = np.random.RandomState(0)
        _, found = _rliable()[0].get_interval_estimates(data, statistic, reps=RESAMPLES, random_state=random)
    return value, *found[""]


def _rliable() -> tuple[ModuleType, ModuleType]:
    try:
        from rliable import library, metrics
    except ImportError:
        raise UsageError("statistics over tasks need rliable: pip install 'self-imitation[report]'") from None
    return library, metrics
