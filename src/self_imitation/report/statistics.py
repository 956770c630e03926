"""Confidence intervals."""

import math
from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean."""
    return contrast_interval([np.asarray(values, float)], [1])


def contrast_interval(samples: Sequence[np.ndarray], weights: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of a weighted sum of means, such as a difference (weights 1 and -1).

    Each sample is resampled independently. Resampling is seeded: equal values give equal intervals.
    """
    generator = np.random.default_rng(0)
    means = [sample[generator.integers(0, len(sample), (RESAMPLES, len(sample)))].mean(axis=1) for sample in samples]
    low, high = np.quantile(np.tensordot(weights, means, axes=1), [0.025, 0.975])
    return float(low), float(high)


def fraction_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of a fraction; sensible even at 0 and 1."""
    share = successes / trials
    centre = share + z**2 / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    scale = 1 + z**2 / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
