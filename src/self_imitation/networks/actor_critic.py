"""Actor-critics: from a batch of observations to a distribution and a value. Each is a pytree of its own weights."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from self_imitation.errors import UsageError, bad_value, unknown_name
from self_imitation.networks import distributions
from self_imitation.networks.convolution import convolve
from self_imitation.settings import NetworkConfig
from self_imitation.types import Continuous, Distribution, Observation, Spec

# Orthogonal initialisation with these gains (authors' code).
HIDDEN_GAIN = 2.0**0.5
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0

FLOAT32 = np.dtype(np.float32)
NATURE_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each layer (paper, table of A2C+SIL hyperparameters)."""


def orthogonal(inputs: int, outputs: int, gain: float, generator: np.random.Generator) -> Float[np.ndarray, "i o"]:
    """`gain` times a random matrix with orthonormal rows or columns.

    In NumPy: with JAX it takes seconds to compile, and under `jit` and `vmap` it may hang (JAX 0.10 on a CPU).
    """
    gaussian = generator.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(gaussian)
    q = q * np.sign(np.diag(r))  # else the distribution is not uniform
    return (gain * (q if inputs >= outputs else q.T)).astype(np.float32)


class Linear(eqx.Module):
    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, gain: float, generator: np.random.Generator):
        self.weight = jnp.asarray(orthogonal(inputs, outputs, gain, generator))
        self.bias = jnp.asarray(np.zeros(outputs, np.float32))

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        return x @ self.weight + self.bias


class Convolution(eqx.Module):
    weight: Float[Array, "kernel kernel inputs outputs"]
    bias: Float[Array, " outputs"]
    stride: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, generator: np.random.Generator):
        flat = orthogonal(kernel * kernel * inputs, outputs, HIDDEN_GAIN, generator)
        self.weight = jnp.asarray(flat.reshape(kernel, kernel, inputs, outputs))
        self.bias = jnp.asarray(np.zeros(outputs, np.float32))
        self.stride = stride

    def __call__(self, x: Float[Array, "batch height width inputs"]) -> Float[Array, "batch h w outputs"]:
        return convolve(x, self.weight, self.stride) + self.bias


class Body(eqx.Module):
    """Fully connected layers, after the convolutions of the Nature network if the observation is an image."""

    convolutions: tuple[Convolution, ...]
    layers: tuple[Linear, ...]

    def __init__(self, spec: Spec, hidden: tuple[int, ...], generator: np.random.Generator):
        inputs, convolutions = encoded_width(spec), []
        if spec.observation_kind == "image":
            height, width, channels = spec.observation_shape
            for outputs, kernel, stride in NATURE_CONVOLUTIONS:
                convolutions.append(Convolution(channels, outputs, kernel, stride, generator))
                height, width = ((side - kernel) // stride + 1 for side in (height, width))
                channels = outputs
            inputs = height * width * channels + spec.numbers_beside_image
        widths = (inputs, *hidden)
        pairs = zip(widths[:-1], hidden, strict=True)
        self.convolutions = tuple(convolutions)
        self.layers = tuple(Linear(before, after, HIDDEN_GAIN, generator) for before, after in pairs)

    def __call__(self, encoded: Observation) -> Float[Array, "batch features"]:
        """Tanh on vectors, ReLU on images (authors' code). Numbers beside an image join after the convolutions."""
        activation = jax.nn.relu if self.convolutions else jnp.tanh
        x = encoded["image"] if isinstance(encoded, dict) else encoded
        for convolution in self.convolutions:
            x = activation(convolution(x))
        x = x.reshape(x.shape[0], -1)
        if isinstance(encoded, dict):
            x = jnp.concatenate([x, encoded["numbers"]], axis=-1)
        for layer in self.layers:
            x = activation(layer(x))
        return x


class Network(eqx.Module):
    """Policy and value on one body (`shared`) or on a body each."""

    policy_body: Body
    value_body: Body | None
    policy_head: Linear
    value_head: Linear
    log_std: Float[Array, " A"] | None
    """Log standard deviation of continuous actions, initially 0."""
    spec: Spec = eqx.field(static=True)

    action_values: bool = eqx.field(static=True)
    """Whether the value head gives a value for each action."""

    def __init__(self, spec: Spec, config: NetworkConfig, generator: np.random.Generator, action_values: bool = False):
        config = config.resolved(spec.observation_kind == "image")
        assert config.hidden is not None
        self.policy_body = Body(spec, config.hidden, generator)
        self.value_body = None if config.shared else Body(spec, config.hidden, generator)
        outputs = distributions.outputs(spec.actions)
        self.policy_head = Linear(config.hidden[-1], outputs, POLICY_GAIN, generator)
        self.value_head = Linear(config.hidden[-1], outputs if action_values else 1, VALUE_GAIN, generator)
        continuous = isinstance(spec.actions, Continuous)
        self.log_std = jnp.asarray(np.zeros(spec.action_shape, np.float32)) if continuous else None
        self.spec, self.action_values = spec, action_values

    def __call__(
        self, observation: Observation, precision: np.dtype = FLOAT32
    ) -> tuple[Distribution, Float[Array, " batch"]]:
        """The bodies compute in `precision`, the heads in float32."""
        inputs = cast(encode(self.spec, observation), precision)
        policy_body, value_body = cast((self.policy_body, self.value_body), precision)
        features = policy_body(inputs).astype(FLOAT32)
        value_features = features if value_body is None else value_body(inputs).astype(FLOAT32)
        logits, values = self.policy_head(features), self.value_head(value_features)
        if self.action_values:
            distribution = distributions.CategoricalWithValues(logits, values)
            return distribution, distribution.value()
        return distributions.from_outputs(self.spec.actions, logits, self.log_std), values[:, 0]


def cast(tree: PyTree, precision: np.dtype) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.astype(precision), tree)


def encode(spec: Spec, observation: Observation) -> Observation:
    """The first layer's inputs: pixels from 0 to 1, one-hot categories, numbers as they are."""
    if spec.numbers_beside_image:
        return {"image": observation["image"].astype(jnp.float32) / 255.0, "numbers": observation["numbers"]}
    match spec.observation_kind:
        case "image":
            return observation.astype(jnp.float32) / 255.0
        case "categories":
            assert spec.observation_levels is not None
            parts = [jax.nn.one_hot(observation[:, i], count) for i, count in enumerate(spec.observation_levels)]
            return jnp.concatenate(parts, axis=-1)
        case "numbers":
            return observation.astype(jnp.float32)


def encoded_width(spec: Spec) -> int:
    if spec.observation_kind == "categories":
        assert spec.observation_levels is not None
        return sum(spec.observation_levels)
    return math.prod(spec.observation_shape)


NetworkFactory: TypeAlias = Callable[[Spec, NetworkConfig, np.random.Generator], Any]
"""From the spec of an environment, the settings and random numbers to a pytree of weights that can be called with a
batch of observations, as `Network` can."""

_factories: dict[str, NetworkFactory] = {"default": Network}


def register_network(name: str, factory: NetworkFactory) -> None:
    """Make a network available as `--network.kind NAME`.

    A factory that was defined again, as in a notebook, replaces the earlier one.

    Args:
        name: runs are stored with it.
        factory: takes the environment's `Spec`, the `NetworkConfig` and a NumPy random generator, and returns the
            network: a pytree of arrays that is called with observations [batch, ...] and returns a distribution and
            values [batch].

    Raises:
        UsageError: another network has the name.
    """
    if not isinstance(name, str) or not name:
        raise bad_value("name", name, "allowed: the name of the network, which runs are stored with")
    if not callable(factory):
        raise bad_value("factory", factory, "allowed: a function of (spec, config, generator), or a class")
    known = _factories.get(name, factory)
    if known is not factory and not _is_defined_again(known, factory):
        raise UsageError(f"name: {name!r} is already registered for another network")
    _factories[name] = factory


def _is_defined_again(known: Any, factory: Any) -> bool:
    places = [(getattr(one, "__module__", None), getattr(one, "__qualname__", "<")) for one in (known, factory)]
    return places[0] == places[1] and "<" not in places[0][1]  # neither a lambda nor a function within another


def register_by_own_name(factory: NetworkFactory) -> str:
    """Register a class or function under its own name, and return the name."""
    name = getattr(factory, "__name__", "")
    if not callable(factory) or not str(name).isidentifier():
        raise bad_value("network", factory, "allowed: a class or a named function of (spec, config, generator)")
    register_network(name, factory)
    return name


def create(spec: Spec, config: NetworkConfig, generator: np.random.Generator, action_values: bool = False) -> Any:
    """Initialise the network that `config.kind` names. `action_values`: with a value for each action."""
    if config.kind not in _factories:
        hint = f"register a network of your own first: self_imitation.register_network({config.kind!r}, ...)"
        raise UsageError(f"{unknown_name('network.kind', config.kind, _factories)}; {hint}")
    if not action_values:
        return _factories[config.kind](spec, config, generator)
    if config.kind != "default":
        raise bad_value("network.kind", config.kind, "this agent needs action values; allowed: default")
    return Network(spec, config, generator, action_values=True)
