"""Intervals against known numbers."""

import numpy as np
import pytest
from scipy import stats

from self_imitation.report import statistics


def percentile_bootstrap(sample, generator):
    means = sample[generator.integers(0, len(sample), (500, len(sample)))].mean(axis=1)
    return np.quantile(means, [0.025, 0.975])


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_over_few_seeds_cover_the_mean_as_often_as_they_say(seeds):
    """In 2,000 samples, to within 4 standard errors; the percentile bootstrap does not."""
    generator = np.random.default_rng(3)
    samples = generator.normal(1.0, 2.0, (2000, seeds))
    covered = [low <= 1.0 <= high for low, high in map(statistics.mean_interval, samples)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    narrow = [low <= 1.0 <= high for low, high in (percentile_bootstrap(own, generator) for own in samples[:500])]
    assert np.mean(narrow) < 0.93


def test_a_single_mean_of_all_or_nothing_scores_is_covered_less_often_and_its_share_is_not():
    generator = np.random.default_rng(4)
    scores = (generator.random((2000, 8)) < 0.25).astype(float)
    covered = [low <= 0.25 <= high for low, high in map(statistics.mean_interval, scores)]
    assert np.mean(covered) == pytest.approx(0.89, abs=0.02)
    shares = [statistics.fraction_interval(round(own.sum()), 8) for own in scores]
    assert np.mean([low <= 0.25 <= high for low, high in shares]) > 0.95


@pytest.mark.parametrize("seeds", [3, 8, 16])
@pytest.mark.parametrize("solving", [0.1, 0.25, 0.5])
def test_differences_of_all_or_nothing_scores_that_are_not_there_are_seldom_reported(seeds, solving):
    generator = np.random.default_rng(6)
    pairs = (generator.random((1000, 2, seeds)) < solving).astype(float)
    for comparisons, most in ((1, 0.1), (12, 0.04)):
        intervals = [statistics.contrast_interval(list(pair), [1, -1], comparisons) for pair in pairs]
        assert np.mean([low > 0 or high < 0 for low, high in intervals]) < most


def test_mean_interval_equals_scipy():
    values = [1.0, 5.0, 2.0, 9.0]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert statistics.mean_interval(values) == pytest.approx((expected.low, expected.high))


def test_mean_interval_of_equal_values_is_a_point_and_of_one_value_unknown():
    assert statistics.mean_interval([7.0, 7.0, 7.0]) == (7.0, 7.0)
    assert np.isnan(statistics.mean_interval([7.0])).all()


@pytest.mark.parametrize(("successes", "trials"), [(0, 16), (5, 16), (13, 16), (16, 16), (1, 3)])
def test_fraction_interval_is_wilsons(successes, trials):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert statistics.fraction_interval(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-5)


def test_contrast_interval_is_welchs():
    one, other = np.array([1.0, 5.0, 2.0, 9.0]), np.array([3.0, 3.5, 2.5])
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert statistics.contrast_interval([one, other], [1, -1]) == pytest.approx((expected.low, expected.high))
    unused = np.array([1e6])
    assert statistics.contrast_interval([one, unused, other], [1, 0, -1]) == pytest.approx(
        (expected.low, expected.high)
    )
    assert statistics.contrast_interval([np.ones(5), np.zeros(5)], [1, -1]) == (1.0, 1.0)


def test_several_contrasts_hold_at_once():
    """Nine differences of five seeds each, none of which is real: at most one family in 20 reports one."""
    generator = np.random.default_rng(5)
    families = generator.normal(size=(400, 9, 2, 5))
    wrong = [
        any(low > 0 or high < 0 for low, high in (statistics.contrast_interval(list(p), [1, -1], 9) for p in pairs))
        for pairs in families
    ]
    assert np.mean(wrong) <= 0.08
    uncorrected = [
        any(low > 0 or high < 0 for low, high in (statistics.contrast_interval(list(p), [1, -1]) for p in pairs))
        for pairs in families
    ]
    assert np.mean(uncorrected) > 0.2
