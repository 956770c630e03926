"""Networks, distributions and the optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
import scipy.stats
from jaxtyping import TypeCheckError

from self_imitation import optimisation
from self_imitation.config import NetworkConfig, OptimiserConfig
from self_imitation.distributions import Categorical
from self_imitation.networks import MLP, orthogonal
from self_imitation.types import Learner, Spec

SPEC = Spec(observation_shape=(7,), num_actions=4, max_episode_steps=50)


@pytest.fixture(scope="module")
def separate():
    return MLP(SPEC, NetworkConfig(hidden=(64, 32), shared=False), np.random.default_rng(0))


@pytest.fixture(scope="module")
def shared():
    return MLP(SPEC, NetworkConfig(hidden=(16,), shared=True), np.random.default_rng(1))


def assert_orthogonal(weight, gain):
    """The shorter side's vectors are at right angles and each has the length `gain`."""
    weight = np.asarray(weight, np.float64)
    gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5 * max(gain**2, 1e-2))


def test_weights_are_orthogonal_with_the_gains_of_the_authors(separate, shared):
    for network in (separate, shared):
        for body in (network.policy_body, network.value_body):
            for layer in body.layers if body else ():
                assert_orthogonal(layer.weight, np.sqrt(2))
        assert_orthogonal(network.policy_head.weight, 0.01)
        assert_orthogonal(network.value_head.weight, 1.0)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 2), (2, 5)])
def test_orthogonal_weights_favour_no_direction(shape):
    """Each entry is as often above 0 as below; a decomposition by itself would make the first always negative."""
    generator = np.random.default_rng(0)
    above = np.mean([orthogonal(*shape, 1.0, generator) > 0 for _ in range(400)], axis=0)
    assert (np.abs(above - 0.5) < 0.1).all()  # four standard deviations
    assert_orthogonal(orthogonal(*shape, 3.0, generator), 3.0)


def test_biases_start_at_zero(separate, shared):
    for network in (separate, shared):
        bodies = [body for body in (network.policy_body, network.value_body) if body is not None]
        layers = [layer for body in bodies for layer in body.layers]
        for layer in (*layers, network.policy_head, network.value_head):
            assert not np.asarray(layer.bias).any()


def test_shapes_of_the_layers(separate, shared):
    def shapes(body):
        return [layer.weight.shape for layer in body.layers]

    assert shapes(separate.policy_body) == shapes(separate.value_body) == [(7, 64), (64, 32)]
    assert (separate.policy_head.weight.shape, separate.value_head.weight.shape) == ((32, 4), (32, 1))
    assert shapes(shared.policy_body) == [(7, 16)]
    assert shared.value_body is None


def test_every_layer_is_drawn_anew(separate):
    """Policy and value bodies have equal shapes, not equal weights; another seed gives another network."""
    for mine, other in zip(separate.policy_body.layers, separate.value_body.layers, strict=True):
        assert np.abs(mine.weight - other.weight).max() > 0.1
    again = MLP(SPEC, NetworkConfig(hidden=(64, 32), shared=False), np.random.default_rng(2))
    for one, other in zip(jax.tree.leaves(separate), jax.tree.leaves(again), strict=True):
        assert one.ndim == 1 or np.abs(one - other).max() > 1e-3


def forward(layers, x):
    for layer in layers:
        x = np.tanh(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64))
    return x


def randomised(network, seed=0):
    """The same network with biases that are not 0, so that leaving them out would show."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), network)


def test_outputs_equal_numpy(separate, shared):
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    for network in (randomised(separate), randomised(shared)):
        distribution, value = network(jnp.asarray(x))
        assert value.shape == (5,)
        features = forward(network.policy_body.layers, x)
        value_features = features if network.value_body is None else forward(network.value_body.layers, x)
        heads = [np.asarray(h, np.float64) for h in (network.policy_head.weight, network.value_head.weight)]
        logits = features @ heads[0] + np.asarray(network.policy_head.bias, np.float64)
        expected = (value_features @ heads[1] + np.asarray(network.value_head.bias, np.float64))[:, 0]
        np.testing.assert_allclose(distribution.logits, logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("output", ["policy", "value"])
def test_separate_bodies_learn_apart_and_a_shared_one_together(separate, shared, output):
    x = jnp.ones((3, 7))

    def one_output(network):
        distribution, value = network(x)
        return value.sum() if output == "value" else distribution.log_prob(jnp.zeros(3, jnp.int32)).sum()

    def moved(body):
        return any(np.asarray(leaf).any() for leaf in jax.tree.leaves(body))

    gradient = jax.grad(one_output)(randomised(separate))
    assert moved(gradient.policy_body) == moved(gradient.policy_head) == (output == "policy")
    assert moved(gradient.value_body) == moved(gradient.value_head) == (output == "value")
    gradient = jax.grad(one_output)(randomised(shared))
    assert moved(gradient.policy_body)
    assert moved(gradient.policy_head) != moved(gradient.value_head)


def test_the_first_policy_is_nearly_even(separate):
    distribution, _ = separate(jnp.asarray(np.random.default_rng(0).integers(13, size=(50, 7)), jnp.float32))
    assert np.abs(jax.nn.softmax(distribution.logits) - 0.25).max() < 0.02


def test_an_observation_without_its_batch_is_refused(separate):
    with pytest.raises(TypeCheckError):
        separate(jnp.zeros(7))


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


def test_samples_come_as_often_as_their_probability():
    """Chi-square over 20 000 draws; a right sampler fails it once in a thousand seeds, and this seed is fixed."""
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


def test_rmsprop_by_hand():
    """One weight, gradient 0.3: mean square 0.99 * 1 + 0.01 * 0.09 = 0.9909; step 0.1 * 0.3 / sqrt(0.99091)."""
    optimiser = optimisation.create(OptimiserConfig(learning_rate=0.1))
    params = {"weight": jnp.array([2.0])}
    learner = Learner(params, optimiser.init(params))
    learner = optimisation.descend(optimiser, learner, {"weight": jnp.array([0.3])})
    assert float(learner.params["weight"][0]) == pytest.approx(2.0 - 0.1 * 0.3 / np.sqrt(0.99091), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 30.0], ids=["small", "near the clip", "clipped"])
@pytest.mark.parametrize("config", [OptimiserConfig(), OptimiserConfig(0.05, 0.5, 0.3, 2.0)], ids=["authors", "other"])
def test_rmsprop_equals_numpy_over_several_steps(config, scale):
    """The gradient is scaled down to the global norm first; epsilon is inside the root; the mean starts at 1."""
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 2), "b": (4,)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    square = {name: np.ones(shape) for name, shape in shapes.items()}
    optimiser = optimisation.create(config)
    start = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    learner = Learner(start, optimiser.init(start))
    for _ in range(6):
        gradient = {name: scale * rng.normal(size=shape) for name, shape in shapes.items()}
        learner = optimisation.descend(
            optimiser, learner, {name: jnp.asarray(g, jnp.float32) for name, g in gradient.items()}
        )
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
        for name, g in gradient.items():
            g = g * min(1.0, config.max_gradient_norm / norm)
            square[name] = config.decay * square[name] + (1 - config.decay) * g**2
            params[name] = params[name] - config.learning_rate * g / np.sqrt(square[name] + config.epsilon)
    for name, start_value in start.items():
        moved = np.asarray(learner.params[name] - start_value)
        np.testing.assert_allclose(moved, params[name] - np.asarray(start_value), rtol=1e-3, atol=5e-7)


def test_epsilon_is_inside_the_root():
    """After many zero gradients the mean square is next to nothing, and only epsilon is left: 0.01 / sqrt(1e-5)."""
    optimiser = optimisation.create(OptimiserConfig(learning_rate=1.0, decay=0.0))
    params = {"weight": jnp.array([0.0])}
    learner = Learner(params, optimiser.init(params))
    learner = optimisation.descend(optimiser, learner, {"weight": jnp.array([0.0])})
    learner = optimisation.descend(optimiser, learner, {"weight": jnp.array([1e-4])})
    assert float(learner.params["weight"][0]) == pytest.approx(-1e-4 / np.sqrt(1e-8 + 1e-5), rel=1e-4)


def test_descend_serves_any_optimiser():
    learner = Learner({"weight": jnp.array([1.0])}, optax.sgd(0.5).init({"weight": jnp.array([1.0])}))
    assert optimisation.descend(optax.sgd(0.5), learner, {"weight": jnp.array([2.0])}).params["weight"].tolist() == [
        0.0
    ]


def test_a_forbidden_action_costs_no_nan():
    """A user may mask actions with logits of -inf: what is left is a distribution like any other, gradients too."""
    logits = jnp.array([[0.0, 0.0, -jnp.inf]])

    def score(logits):
        distribution = Categorical(logits)
        return distribution.log_prob(jnp.array([0])).sum() + distribution.entropy().sum()

    assert score(logits) == pytest.approx(-np.log(2) + np.log(2), abs=1e-6)
    assert Categorical(logits).log_prob(jnp.array([2]))[0] == -jnp.inf
    np.testing.assert_allclose(jax.grad(score)(logits), [[0.5, -0.5, 0.0]], atol=1e-6)
