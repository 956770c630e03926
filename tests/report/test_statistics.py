"""Intervals against known numbers."""

import numpy as np
import pytest
from scipy import stats

from self_imitation.report import statistics


def test_mean_interval_covers_the_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        low, high = statistics.mean_interval(generator.normal(1.0, 2.0, 40))
        hits += low <= 1.0 <= high
    assert 0.90 <= hits / 300 <= 0.985


def test_mean_interval_of_equal_values_is_a_point_and_repeats():
    assert statistics.mean_interval([7.0, 7.0, 7.0]) == (7.0, 7.0)
    assert statistics.mean_interval([1.0, 5.0]) == statistics.mean_interval([1.0, 5.0])


@pytest.mark.parametrize(("successes", "trials"), [(0, 16), (5, 16), (13, 16), (16, 16), (1, 3)])
def test_fraction_interval_is_wilsons(successes, trials):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert statistics.fraction_interval(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-5)


def test_contrast_interval_covers_the_difference_with_the_right_width():
    generator = np.random.default_rng(3)
    one, other = generator.normal(5, 1, 200), generator.normal(2, 1, 200)
    low, high = statistics.contrast_interval([one, other], [1, -1])
    assert low < one.mean() - other.mean() < high
    expected = 1.96 * np.sqrt(one.var() / 200 + other.var() / 200)
    assert (high - low) / 2 == pytest.approx(expected, rel=0.1)
    assert statistics.contrast_interval([np.ones(5), np.zeros(5)], [1, -1]) == (1.0, 1.0)
