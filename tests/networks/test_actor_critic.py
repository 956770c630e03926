"""Networks: their weights, each kind of observation and action, and networks that a user registers."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from self_imitation.errors import UsageError
from self_imitation.networks import actor_critic
from self_imitation.networks.actor_critic import (
    Convolution,
    Network,
    create,
    encode,
    encoded_width,
    orthogonal,
    register_network,
)
from self_imitation.networks.distributions import Categorical, DiagonalGaussian, MultiCategorical
from self_imitation.settings import NetworkConfig
from self_imitation.types import Continuous, Discrete, MultiDiscrete, Spec

SPEC = Spec(observation_shape=(7,), actions=Discrete(4), max_episode_steps=50)


@pytest.fixture(scope="module")
def separate():
    return Network(SPEC, NetworkConfig(hidden=(64, 32), shared=False), np.random.default_rng(0))


@pytest.fixture(scope="module")
def shared():
    return Network(SPEC, NetworkConfig(hidden=(16,), shared=True), np.random.default_rng(1))


def assert_orthogonal(weight, gain):
    """The shorter side's vectors are at right angles and each has the length `gain`."""
    weight = np.asarray(weight, np.float64)
    gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5 * max(gain**2, 1e-2))


def test_weights_are_orthogonal_with_the_authors_gains(separate, shared):
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


def test_every_layer_is_initialised_independently(separate):
    """Policy and value bodies have equal shapes, not equal weights; another seed gives another network."""
    for mine, other in zip(separate.policy_body.layers, separate.value_body.layers, strict=True):
        assert np.abs(mine.weight - other.weight).max() > 0.1
    again = Network(SPEC, NetworkConfig(hidden=(64, 32), shared=False), np.random.default_rng(2))
    for one, other in zip(jax.tree.leaves(separate), jax.tree.leaves(again), strict=True):
        assert one.ndim == 1 or np.abs(one - other).max() > 1e-3


def forward(layers, x):
    for layer in layers:
        x = np.tanh(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64))
    return x


def randomised(network, scale=0.3):
    """The same network with biases that are not 0, so that leaving them out would show."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x) + scale * rng.normal(size=x.shape), x.dtype), network)


def test_outputs_match_numpy(separate, shared):
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
def test_gradients_reach_separate_bodies_apart_and_a_shared_one_together(separate, shared, output):
    x = jnp.ones((3, 7))

    def one_output(network):
        distribution, value = network(x)
        return value.sum() if output == "value" else distribution.log_prob(jnp.zeros(3, jnp.int32)).sum()

    def moved(body):
        return any(np.asarray(leaf).any() for leaf in jax.tree.leaves(body))

    gradient = jax.jit(jax.grad(one_output))(randomised(separate))
    assert moved(gradient.policy_body) == moved(gradient.policy_head) == (output == "policy")
    assert moved(gradient.value_body) == moved(gradient.value_head) == (output == "value")
    gradient = jax.jit(jax.grad(one_output))(randomised(shared))
    assert moved(gradient.policy_body)
    assert moved(gradient.policy_head) != moved(gradient.value_head)


def test_initial_policy_is_nearly_uniform(separate):
    distribution, _ = separate(jnp.asarray(np.random.default_rng(0).integers(13, size=(50, 7)), jnp.float32))
    assert np.abs(jax.nn.softmax(distribution.logits) - 0.25).max() < 0.02


@pytest.mark.parametrize("shape", [(7,), (3, 6), (3, 8), (3, 7, 2)])
def test_observations_of_another_shape_are_refused(separate, shape):
    with pytest.raises(TypeError):
        separate(jnp.zeros(shape))


# Kinds of observations.

IMAGES = Spec((84, 84, 4), Discrete(4), None, observation_kind="image")
CATEGORIES = Spec((2,), Discrete(4), None, observation_levels=(3, 2), observation_kind="categories")
NUMBERS = Spec((2, 3), Discrete(4), None)


def test_pixels_are_scaled_to_one():
    pixels = jnp.asarray(np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1))
    seen = encode(IMAGES, pixels)
    assert seen.dtype == jnp.float32
    np.testing.assert_allclose(seen, np.arange(256).reshape(1, 16, 16, 1) / 255, rtol=1e-6)
    assert (float(seen.min()), float(seen.max())) == (0.0, 1.0)


def test_categories_are_concatenated_one_hot_vectors():
    seen = encode(CATEGORIES, jnp.array([[2, 0], [0, 1]], jnp.int32))
    assert seen.dtype == jnp.float32
    assert seen.tolist() == [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1]]


def test_numbers_are_not_changed():
    whole = jnp.array([[[1, 2, 3], [-4, 5, 6]]], jnp.int32)
    assert encode(NUMBERS, whole).dtype == jnp.float32
    np.testing.assert_array_equal(encode(NUMBERS, whole), whole)


def test_width_of_the_first_layer():
    assert (encoded_width(CATEGORIES), encoded_width(NUMBERS), encoded_width(SPEC)) == (5, 6, 7)


def test_a_matrix_of_numbers_is_flattened_by_rows():
    config = NetworkConfig(hidden=(8,), shared=True)
    network = randomised(Network(NUMBERS, config, np.random.default_rng(0)))
    flat = randomised(Network(Spec((6,), Discrete(4), None), config, np.random.default_rng(0)))
    x = np.random.default_rng(1).normal(size=(5, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(network(jnp.asarray(x))[1], flat(jnp.asarray(x.reshape(5, 6)))[1])


def test_categories_select_rows_of_the_first_layer():
    network = randomised(Network(CATEGORIES, NetworkConfig(hidden=(8,), shared=True), np.random.default_rng(0)))
    (layer,) = network.policy_body.layers
    assert layer.weight.shape == (5, 8)
    _, value = network(jnp.array([[2, 0], [1, 1]], jnp.int32))
    weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
    features = np.tanh(np.stack([weight[2] + weight[3 + 0], weight[1] + weight[3 + 1]]) + bias)
    head = network.value_head
    expected = features @ np.asarray(head.weight, np.float64)[:, 0] + float(head.bias[0])
    np.testing.assert_allclose(value, expected, rtol=1e-5)


# The convolutions of the Nature network.


@pytest.fixture(scope="module")
def seeing():
    return Network(IMAGES, NetworkConfig(hidden=(16,)), np.random.default_rng(0))


def test_shapes_of_the_convolutions(seeing):
    """84 pixels, kernel 8, stride 4: 20; kernel 4, stride 2: 9; kernel 3, stride 1: 7; and 7 * 7 * 64 = 3136."""
    convolutions = seeing.policy_body.convolutions
    weights = [convolution.weight.shape for convolution in convolutions]
    assert weights == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    assert [convolution.stride for convolution in convolutions] == [4, 2, 1]
    x, shapes = jax.ShapeDtypeStruct((2, 84, 84, 4), jnp.float32), []
    for convolution in convolutions:
        x = jax.eval_shape(convolution, x)
        shapes.append(x.shape)
    assert shapes == [(2, 20, 20, 32), (2, 9, 9, 64), (2, 7, 7, 64)]
    assert [layer.weight.shape for layer in seeing.policy_body.layers] == [(3136, 16)]
    assert seeing.value_body is None
    assert (seeing.policy_head.weight.shape, seeing.value_head.weight.shape) == ((16, 4), (16, 1))


def test_convolutions_are_orthogonal_and_their_biases_zero(seeing):
    """Of each kernel, all that it sees of the layer before in one column."""
    for convolution in seeing.policy_body.convolutions:
        assert_orthogonal(convolution.weight.reshape(-1, convolution.weight.shape[-1]), np.sqrt(2))
        assert not np.asarray(convolution.bias).any()
    assert_orthogonal(seeing.policy_body.layers[0].weight, np.sqrt(2))


def test_separate_bodies_have_separate_convolutions():
    network = Network(
        Spec((36, 36, 1), Discrete(2), None, observation_kind="image"),
        NetworkConfig(hidden=(8,), shared=False),
        np.random.default_rng(0),
    )
    for one, other in zip(network.policy_body.convolutions, network.value_body.convolutions, strict=True):
        assert np.abs(one.weight - other.weight).max() > 0.1


def convolve(x, weight, bias, stride):
    """One place after the other, in float64."""
    kernel = weight.shape[0]
    height, width = ((side - kernel) // stride + 1 for side in x.shape[1:3])
    result = np.zeros((len(x), height, width, weight.shape[-1]))
    for row in range(height):
        for column in range(width):
            top, left = row * stride, column * stride
            patch = x[:, top : top + kernel, left : left + kernel]
            result[:, row, column] = np.tensordot(patch, weight, 3) + bias
    return result


def test_a_convolution_by_hand():
    """A kernel of 2 x 2 that adds up what is on its diagonal, in steps of 1 and of 2."""
    for stride, expected in ((1, [[0 + 5, 1 + 6, 2 + 7], [4 + 9, 5 + 10, 6 + 11]]), (2, [[0 + 5, 2 + 7]])):
        convolution = Convolution(1, 1, 2, stride, np.random.default_rng(0))
        weight, bias = jnp.eye(2)[:, :, None, None], jnp.array([0.5])
        convolution = eqx.tree_at(lambda c: (c.weight, c.bias), convolution, (weight, bias))
        seen = convolution(jnp.arange(12.0).reshape(1, 3, 4, 1))
        np.testing.assert_array_equal(seen[0, :, :, 0], np.array(expected) + 0.5)


def test_outputs_for_images_match_numpy():
    """ReLU throughout, and pixels from 0 to 1; height and width differ, so that exchanging them would show."""
    spec = Spec((44, 52, 2), Discrete(3), None, observation_kind="image")  # 2 x 3 after the convolutions
    network = randomised(Network(spec, NetworkConfig(hidden=(8,), shared=True), np.random.default_rng(0)), scale=0.02)
    pixels = np.random.default_rng(1).integers(256, size=(2, 44, 52, 2), dtype=np.uint8)
    distribution, value = eqx.filter_jit(network)(pixels)

    x = pixels / 255
    for convolution, stride in zip(network.policy_body.convolutions, (4, 2, 1), strict=True):
        weight, bias = (np.asarray(part, np.float64) for part in (convolution.weight, convolution.bias))
        x = np.maximum(convolve(x, weight, bias, stride), 0)
    x = x.reshape(2, -1)
    for layer in network.policy_body.layers:
        x = np.maximum(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64), 0)
    assert 0 < np.mean(x > 0) < 1
    for head, got in ((network.policy_head, distribution.logits), (network.value_head, value[:, None])):
        expected = x @ np.asarray(head.weight, np.float64) + np.asarray(head.bias, np.float64)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


# Kinds of actions.

ACTIONS = {
    "discrete": (Discrete(4), Categorical, 4),
    "several": (MultiDiscrete((2, 3)), MultiCategorical, 5),
    "continuous": (Continuous((-1.0, -2.0, -3.0), (1.0, 2.0, 3.0)), DiagonalGaussian, 3),
}
OBSERVATIONS = {
    "numbers": Spec((7,), Discrete(4), None),
    "categories": CATEGORIES,
    "image": Spec((36, 36, 1), Discrete(4), None, observation_kind="image"),
}


@pytest.mark.parametrize(
    ("observation", "action"),
    [("numbers", "discrete"), ("numbers", "several"), ("categories", "continuous"), ("image", "continuous")],
)
def test_kinds_of_observations_and_actions(observation, action):
    actions, kind, outputs = ACTIONS[action]
    spec = dataclasses.replace(OBSERVATIONS[observation], actions=actions)
    network = Network(spec, NetworkConfig(hidden=(8,), shared=True), np.random.default_rng(0))
    assert network.policy_head.weight.shape == (8, outputs)

    def act(observation):
        distribution, value = network(observation)
        assert isinstance(distribution, kind)
        actions = distribution.sample(jax.random.key(0)), distribution.mode()
        return actions, (value, distribution.entropy(), *map(distribution.log_prob, actions))

    actions, numbers = jax.eval_shape(act, jax.ShapeDtypeStruct((5, *spec.observation_shape), spec.observation_dtype))
    assert {(action.shape, action.dtype) for action in actions} == {
        ((5, *spec.action_shape), np.dtype(spec.action_dtype))
    }
    assert {number.shape for number in numbers} == {(5,)}


def test_shapes_and_dtypes_of_observations_and_actions():
    types = {name: spec.observation_dtype for name, spec in OBSERVATIONS.items()}
    assert types == {"numbers": np.float32, "categories": np.int32, "image": np.uint8}
    shapes = {
        name: (spec.action_shape, spec.action_dtype)
        for name, (actions, _, _) in ACTIONS.items()
        for spec in (dataclasses.replace(SPEC, actions=actions),)
    }
    assert shapes == {"discrete": ((), np.int32), "several": ((2,), np.int32), "continuous": ((3,), np.float32)}


def test_only_continuous_actions_have_a_standard_deviation_and_it_is_learnt():
    """Initially it is 1, and the mean is near 0; its gradient does not depend on the observation."""
    config = NetworkConfig(hidden=(8,), shared=True)
    assert Network(SPEC, config, np.random.default_rng(0)).log_std is None
    spec = dataclasses.replace(SPEC, actions=ACTIONS["continuous"][0])
    network = Network(spec, config, np.random.default_rng(0))
    assert network.log_std.tolist() == [0.0, 0.0, 0.0]
    x = jnp.asarray(np.random.default_rng(1).normal(size=(5, 7)), jnp.float32)
    distribution, _ = network(x)
    assert 0 < np.abs(distribution.mean).max() < 0.05

    gradient = jax.grad(lambda network: network(x)[0].entropy().sum())(network)
    np.testing.assert_allclose(gradient.log_std, [5.0, 5.0, 5.0])
    assert not np.asarray(gradient.policy_head.weight).any()


# An image with numbers beside it.

BESIDE = Spec((36, 36, 1), Discrete(3), None, observation_kind="image", numbers_beside_image=2)


def both_parts(batch=4):
    rng = np.random.default_rng(0)
    return {
        "image": jnp.asarray(rng.integers(256, size=(batch, 36, 36, 1), dtype=np.uint8)),
        "numbers": jnp.asarray(rng.normal(size=(batch, 2)).astype(np.float32)),
    }


def test_spec_of_an_image_with_numbers():
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in BESIDE.observation.items()} == {
        "image": ((36, 36, 1), np.uint8),
        "numbers": ((2,), np.float32),
    }
    assert BESIDE.observation_bytes == 36 * 36 + 2 * 4


def test_numbers_beside_an_image_join_after_the_convolutions():
    """36 pixels leave 1 x 1 x 64 features; the first layer takes these and the two numbers."""
    network = randomised(Network(BESIDE, NetworkConfig(hidden=(8,)), np.random.default_rng(0)), scale=0.02)
    (layer,) = network.policy_body.layers
    assert layer.weight.shape == (64 + 2, 8)
    observation = both_parts()
    apply = eqx.filter_jit(network)
    distribution, value = apply(observation)
    assert (distribution.logits.shape, value.shape) == ((4, 3), (4,))
    # as a network of the image alone, plus what the last two rows of the first layer make of the numbers
    weight, bias = layer.weight[:64], layer.bias + observation["numbers"] @ layer.weight[64:]
    body = eqx.tree_at(lambda b: (b.layers[0].weight, b.layers[0].bias), network.policy_body, (weight, bias))
    features = eqx.filter_jit(body)(observation["image"] / 255.0)
    np.testing.assert_allclose(value, network.value_head(features)[:, 0], rtol=1e-4, atol=1e-5)
    _, changed = apply({**observation, "numbers": observation["numbers"] + 1.0})
    assert (value != changed).all()


# The registry of networks.


@pytest.fixture
def networks(monkeypatch):
    """A registry whose changes are undone."""
    monkeypatch.setattr(actor_critic, "_factories", dict(actor_critic._factories))


@pytest.mark.usefixtures("networks")
def test_a_registered_network_is_created_by_its_name():
    calls = []

    def factory(spec, config, generator):
        calls.append((spec, config))
        return "my network"

    register_network("mine", factory)
    config = NetworkConfig(kind="mine")
    assert create(SPEC, config, np.random.default_rng(0)) == "my network"
    assert calls == [(SPEC, config)]


@pytest.mark.usefixtures("networks")
def test_a_name_cannot_be_registered_for_two_networks():
    with pytest.raises(UsageError, match="'default' is already registered"):
        register_network("default", lambda spec, config, generator: None)
    register_network("default", Network)  # the same again is fine
    assert isinstance(create(SPEC, NetworkConfig(hidden=(8,)), np.random.default_rng(0)), Network)


@pytest.mark.usefixtures("networks")
def test_a_network_that_is_defined_again_replaces_the_earlier_one():
    """As when a cell of a notebook is run again."""
    first, second = (type("Mine", (), {"__module__": "__main__", "__qualname__": "Mine"}) for _ in range(2))
    register_network("mine", first)
    register_network("mine", second)
    assert actor_critic._factories["mine"] is second
    with pytest.raises(UsageError, match="'mine' is already registered"):
        register_network("mine", Network)


@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize("factory", [lambda spec, config, generator: None, functools.partial(Network)])
def test_a_network_without_a_name_is_not_registered_by_it(factory):
    with pytest.raises(UsageError, match=r"^network: .* is not allowed; allowed: a class or a named function"):
        actor_critic.register_by_own_name(factory)


def test_an_unknown_network_is_refused_by_name():
    message = (
        r"^network\.kind: 'defualt' is unknown; did you mean 'default'\? Known: default; register a network of your "
        r"own first: self_imitation\.register_network\('defualt', \.\.\.\)$"
    )
    with pytest.raises(UsageError, match=message):
        create(SPEC, NetworkConfig(kind="defualt"), np.random.default_rng(0))


def test_default_sizes_depend_on_the_kind_of_observation():
    assert (NetworkConfig().resolved(images=True).hidden, NetworkConfig().resolved(images=True).shared) == (
        (512,),
        True,
    )
    assert (NetworkConfig().resolved(images=False).hidden, NetworkConfig().resolved(images=False).shared) == (
        (64, 64),
        False,
    )
    given = NetworkConfig(hidden=(7,), shared=False).resolved(images=True)
    assert (given.hidden, given.shared) == ((7,), False)
