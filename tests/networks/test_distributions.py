"""Action distributions against SciPy, and which one belongs to which kind of action."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jaxtyping import TypeCheckError

from self_imitation.networks.distributions import (
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    from_outputs,
    outputs,
)
from self_imitation.types import Continuous, Discrete, MultiDiscrete

# One of several actions.

LOGITS = np.random.default_rng(3).normal(0, 3, size=(6, 5)).astype(np.float32)


def test_log_probabilities_equal_scipy():
    expected = scipy.special.log_softmax(LOGITS.astype(np.float64), axis=1)
    for action in range(5):
        log_prob = Categorical(jnp.asarray(LOGITS)).log_prob(jnp.full(6, action))
        np.testing.assert_allclose(log_prob, expected[:, action], rtol=1e-5, atol=1e-6)


def test_log_probability_by_hand():
    # softmax of (0, log 3) is (1/4, 3/4)
    policy = Categorical(jnp.log(jnp.array([[1.0, 3.0], [1.0, 3.0]])))
    np.testing.assert_allclose(jnp.exp(policy.log_prob(jnp.array([0, 1]))), [0.25, 0.75], rtol=1e-6)
    expected = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    np.testing.assert_allclose(policy.entropy(), [expected, expected], rtol=1e-6)


def test_entropy_equals_scipy():
    expected = scipy.stats.entropy(scipy.special.softmax(LOGITS.astype(np.float64), axis=1), axis=1)
    np.testing.assert_allclose(Categorical(jnp.asarray(LOGITS)).entropy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(Categorical(jnp.zeros((1, 4))).entropy(), [np.log(4)], rtol=1e-6)


def test_extreme_logits_stay_finite():
    policy = Categorical(jnp.array([[0.0, 1000.0], [-1e30, 1e30]]))
    np.testing.assert_allclose(policy.log_prob(jnp.array([0, 1])), [-1000.0, 0.0])
    np.testing.assert_array_equal(policy.entropy(), [0.0, 0.0])


def test_mode_is_the_likeliest_action():
    assert Categorical(jnp.asarray(LOGITS)).mode().tolist() == LOGITS.argmax(axis=1).tolist()
    assert Categorical(jnp.asarray(LOGITS)).mode().dtype == jnp.int32


def test_sample_frequencies_match_the_probabilities():
    """Chi-square over 20 000 samples; a right sampler fails it once in a thousand seeds, and this seed is fixed."""
    draws = 20_000
    for row in LOGITS[:3]:
        sample = Categorical(jnp.tile(jnp.asarray(row), (draws, 1))).sample(jax.random.key(0))
        assert sample.dtype == jnp.int32
        observed = np.bincount(np.asarray(sample), minlength=5)
        expected = draws * scipy.special.softmax(row.astype(np.float64))
        often = expected >= 5  # the rest together
        observed = [*observed[often], observed[~often].sum()]
        expected = [*expected[often], expected[~often].sum()]
        kept = [(o, e) for o, e in zip(observed, expected, strict=True) if e > 0]
        assert scipy.stats.chisquare(*zip(*kept, strict=True)).pvalue > 1e-3


def test_samples_of_a_batch_are_independent():
    sample = np.asarray(Categorical(jnp.zeros((10_000, 2))).sample(jax.random.key(1)))
    table = np.histogram2d(sample[::2], sample[1::2], bins=2)[0]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


def test_actions_in_a_column_are_refused():
    with pytest.raises(TypeCheckError):
        Categorical(jnp.zeros((3, 2))).log_prob(jnp.zeros((3, 1), jnp.int32))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_actions_of_another_batch_size_are_refused(count):
    """Also the one that would broadcast."""
    with pytest.raises((TypeCheckError, ValueError)):
        Categorical(jnp.zeros((3, 2))).log_prob(jnp.zeros(count, jnp.int32))


def test_a_masked_action_gives_no_nan():
    """A user may mask actions with logits of -inf: what is left is a distribution like any other, gradients too."""
    logits = jnp.array([[0.0, 0.0, -jnp.inf]])

    def score(logits):
        distribution = Categorical(logits)
        return distribution.log_prob(jnp.array([0])).sum() + distribution.entropy().sum()

    assert score(logits) == pytest.approx(-np.log(2) + np.log(2), abs=1e-6)
    assert Categorical(logits).log_prob(jnp.array([2]))[0] == -jnp.inf
    np.testing.assert_allclose(jax.grad(score)(logits), [[0.5, -0.5, 0.0]], atol=1e-6)


# Several choices at once.

PARTS = [
    np.random.default_rng(seed).normal(0, 1.5, size=(6, count)).astype(np.float32)
    for seed, count in enumerate((2, 3, 4))
]
COMBINATIONS = np.array(list(itertools.product(range(2), range(3), range(4))), np.int32)


def several(rows=slice(None)):
    return MultiCategorical(tuple(Categorical(jnp.asarray(part[rows])) for part in PARTS))


def test_probability_of_several_choices_is_the_product_of_theirs():
    log_probs = [scipy.special.log_softmax(part.astype(np.float64), axis=1) for part in PARTS]
    total = np.zeros(6)
    for combination in COMBINATIONS:
        log_prob = several().log_prob(jnp.tile(jnp.asarray(combination), (6, 1)))
        expected = sum(part[:, chosen] for part, chosen in zip(log_probs, combination, strict=True))
        np.testing.assert_allclose(log_prob, expected, rtol=1e-5, atol=1e-6)
        total += np.exp(np.asarray(log_prob))
    np.testing.assert_allclose(total, np.ones(6), rtol=1e-5)


def test_entropy_of_several_choices_is_the_sum_of_theirs():
    expected = sum(
        scipy.stats.entropy(scipy.special.softmax(part.astype(np.float64), axis=1), axis=1) for part in PARTS
    )
    np.testing.assert_allclose(several().entropy(), expected, rtol=1e-5)


def test_mode_of_several_choices_is_the_likeliest_of_each():
    mode = several().mode()
    assert mode.dtype == jnp.int32
    np.testing.assert_array_equal(mode, np.stack([part.argmax(axis=1) for part in PARTS], axis=1))


def test_several_choices_are_sampled_independently_by_their_probabilities():
    """Chi-square over all 24 combinations: choices that share their random numbers would not come out as products."""
    draws = 20_000
    row = MultiCategorical(tuple(Categorical(jnp.tile(jnp.asarray(part[:1]), (draws, 1))) for part in PARTS))
    sample = row.sample(jax.random.key(0))
    assert (sample.shape, sample.dtype) == ((draws, 3), jnp.int32)
    observed = np.bincount(np.ravel_multi_index(np.asarray(sample).T, (2, 3, 4)), minlength=24)
    expected = draws * np.exp(np.asarray(several([0] * 24).log_prob(jnp.asarray(COMBINATIONS)), np.float64))
    assert expected.min() > 5
    assert scipy.stats.chisquare(observed, expected * draws / expected.sum()).pvalue > 1e-3


def test_equal_choices_are_sampled_with_different_keys():
    """With one key for all of them, equal choices would always have equal samples."""
    same = MultiCategorical((Categorical(jnp.zeros((5000, 2))),) * 2)
    sample = np.asarray(same.sample(jax.random.key(0)))
    assert np.mean(sample[:, 0] == sample[:, 1]) == pytest.approx(0.5, abs=0.03)  # four standard deviations


def test_several_choices_without_their_axis_are_refused():
    with pytest.raises(TypeCheckError):
        several().log_prob(jnp.zeros(6, jnp.int32))


# A vector of real numbers.

MEAN = np.array([[0.5, -1.0, 3.0], [2.0, 0.0, -4.0]], np.float32)
LOG_STD = np.array([-1.0, 0.0, 1.5], np.float32)


def gaussian(mean=MEAN, log_std=LOG_STD):
    return DiagonalGaussian(jnp.asarray(mean), jnp.asarray(log_std))


def test_log_density_by_hand():
    # mean 1, standard deviation 2, action 3: one deviation away, so - 1/2 - log 2 - 1/2 log 2 pi
    density = gaussian(np.ones((1, 1), np.float32), np.log(np.array([2.0], np.float32))).log_prob(jnp.array([[3.0]]))
    assert float(density[0]) == pytest.approx(-0.5 - np.log(2) - 0.5 * np.log(2 * np.pi), rel=1e-6)


def test_log_densities_equal_scipy():
    action = np.random.default_rng(0).normal(0, 3, size=(2, 3)).astype(np.float32)
    expected = [
        scipy.stats.multivariate_normal(mean, np.diag(np.exp(2 * LOG_STD.astype(np.float64)))).logpdf(numbers)
        for mean, numbers in zip(MEAN.astype(np.float64), action, strict=True)
    ]
    np.testing.assert_allclose(gaussian().log_prob(jnp.asarray(action)), expected, rtol=1e-5)


def test_differential_entropy_equals_scipy():
    expected = scipy.stats.multivariate_normal(np.zeros(3), np.diag(np.exp(2 * LOG_STD.astype(np.float64)))).entropy()
    np.testing.assert_allclose(gaussian().entropy(), [expected, expected], rtol=1e-6)
    assert expected < gaussian(log_std=LOG_STD + 0.1).entropy()[0]


def test_gradients_of_a_log_density_by_hand():
    """Towards the action by deviation / std, and wider where the action lies more than one deviation away."""
    mean, log_std = jnp.array([[1.0, 1.0]]), jnp.log(jnp.array([2.0, 0.5]))
    action = jnp.array([[5.0, 1.25]])  # deviations: 2 and 1/2

    def log_density(mean, log_std):
        return DiagonalGaussian(mean, log_std).log_prob(action).sum()

    of_mean, of_log_std = jax.grad(log_density, argnums=(0, 1))(mean, log_std)
    np.testing.assert_allclose(of_mean, [[2 / 2, 0.5 / 0.5]], rtol=1e-5)
    np.testing.assert_allclose(of_log_std, [2**2 - 1, 0.5**2 - 1], rtol=1e-5)


def test_mode_of_a_gaussian_is_its_mean():
    np.testing.assert_array_equal(gaussian().mode(), MEAN)


def test_samples_of_a_gaussian_have_its_distribution():
    """Kolmogorov-Smirnov for each number, over 20 000 samples; and no number goes with another."""
    sample = np.asarray(gaussian(np.tile(MEAN[:1], (20_000, 1))).sample(jax.random.key(0)))
    assert sample.dtype == np.float32
    deviations = (sample - MEAN[0]) / np.exp(LOG_STD)
    for column in deviations.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-3
    correlation = np.corrcoef(deviations.T) - np.eye(3)
    assert np.abs(correlation).max() < 0.03  # four standard deviations of an estimate
    neighbours = np.corrcoef(deviations[:-1, 0], deviations[1:, 0])[0, 1]
    assert abs(neighbours) < 0.03
    assert (sample != np.asarray(gaussian(np.tile(MEAN[:1], (20_000, 1))).sample(jax.random.key(1)))).any()


def test_very_narrow_and_very_wide_gaussians_stay_finite():
    policy = gaussian(np.zeros((1, 2), np.float32), np.array([-20.0, 20.0], np.float32))
    assert np.isfinite(policy.log_prob(policy.mean + 1e-9)).all()
    assert float(policy.entropy()[0]) == pytest.approx(np.log(2 * np.pi * np.e), rel=1e-6)


@pytest.mark.parametrize("shape", [(2,), (2, 3, 1), (2, 2), (3, 3), (2, 1), (1, 3)])
def test_continuous_actions_of_another_shape_are_refused(shape):
    """Also those that would broadcast."""
    with pytest.raises((TypeError, ValueError)):
        gaussian().log_prob(jnp.zeros(shape))


# From the outputs of a network.


@pytest.mark.parametrize(
    ("actions", "count"),
    [
        (Discrete(3), 3),
        (MultiDiscrete((2, 3, 4)), 9),
        (MultiDiscrete((5,)), 5),
        (Continuous((-1.0,) * 2, (1.0, 2.0)), 2),
    ],
    ids=["discrete", "several", "one of several", "continuous"],
)
def test_number_of_outputs(actions, count):
    assert outputs(actions) == count


def test_outputs_of_one_choice_are_its_logits():
    numbers = jnp.asarray(PARTS[1])
    policy = from_outputs(Discrete(3), numbers, None)
    assert isinstance(policy, Categorical)
    np.testing.assert_array_equal(policy.logits, numbers)


def test_outputs_of_several_choices_are_their_concatenated_logits():
    policy = from_outputs(MultiDiscrete((2, 3, 4)), jnp.asarray(np.concatenate(PARTS, axis=1)), None)
    assert isinstance(policy, MultiCategorical)
    for choice, part in zip(policy.choices, PARTS, strict=True):
        np.testing.assert_array_equal(choice.logits, part)


def test_outputs_of_continuous_actions_are_their_means():
    policy = from_outputs(Continuous((-1.0,) * 3, (1.0,) * 3), jnp.asarray(MEAN), jnp.asarray(LOG_STD))
    assert isinstance(policy, DiagonalGaussian)
    np.testing.assert_array_equal(policy.mean, MEAN)  # not bounded: the environment clips
    np.testing.assert_array_equal(policy.log_std, LOG_STD)


# Divergences.


def test_divergence_between_choices_equals_scipy():
    other = np.random.default_rng(4).normal(0, 3, size=LOGITS.shape).astype(np.float32)
    expected = scipy.special.rel_entr(*(scipy.special.softmax(x.astype(np.float64), axis=1) for x in (LOGITS, other)))
    one, two = Categorical(jnp.asarray(LOGITS)), Categorical(jnp.asarray(other))
    np.testing.assert_allclose(one.kl(two), expected.sum(axis=1), rtol=1e-4, atol=1e-5)
    several = MultiCategorical((one, two)).kl(MultiCategorical((two, two)))
    np.testing.assert_allclose(several, one.kl(two), rtol=1e-5, atol=1e-6)


def test_divergence_ignores_forbidden_actions():
    one, two = (Categorical(jnp.array([[0.0, x, -jnp.inf]])) for x in (0.0, 1.0))
    expected = Categorical(jnp.array([[0.0, 0.0]])).kl(Categorical(jnp.array([[0.0, 1.0]])))
    np.testing.assert_allclose(one.kl(two), expected, rtol=1e-6)


def test_divergence_between_gaussians_is_the_mean_difference_of_log_densities():
    one = DiagonalGaussian(jnp.array([[0.5, -1.0]]), jnp.array([0.2, -0.3]))
    two = DiagonalGaussian(jnp.array([[0.0, 0.5]]), jnp.array([-0.1, 0.4]))
    mean, std = np.asarray(one.mean[0]), np.exp(np.asarray(one.log_std))
    actions = mean + std * np.random.default_rng(0).normal(size=(400_000, 2))
    densities = [
        scipy.stats.norm(np.asarray(d.mean[0]), np.exp(np.asarray(d.log_std))).logpdf(actions).sum(axis=1)
        for d in (one, two)
    ]
    gap = densities[0] - densities[1]
    assert float(one.kl(two)[0]) == pytest.approx(gap.mean(), abs=4 * gap.std() / len(gap) ** 0.5)
    assert float(one.kl(one)[0]) == pytest.approx(0.0, abs=1e-6)
