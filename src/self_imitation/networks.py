"""Actor-critics: from a batch of observations to a distribution and a value. Each is a pytree of its own weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from self_imitation.config import NetworkConfig
from self_imitation.distributions import Categorical
from self_imitation.types import Spec

# Orthogonal initialisation with these gains (authors' code).
HIDDEN_GAIN = 2.0**0.5
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


class Linear(eqx.Module):
    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, gain: float, key: PRNGKeyArray):
        self.weight = jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        return x @ self.weight + self.bias


class Body(eqx.Module):
    """tanh layers."""

    layers: tuple[Linear, ...]

    def __init__(self, inputs: int, hidden: tuple[int, ...], key: PRNGKeyArray):
        widths = (inputs, *hidden)
        keys = jax.random.split(key, len(hidden))
        self.layers = tuple(Linear(a, b, HIDDEN_GAIN, key) for a, b, key in zip(widths[:-1], hidden, keys, strict=True))

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch features"]:
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return x


class MLP(eqx.Module):
    """Policy and value on one body (`shared`) or on a body each."""

    policy_body: Body
    value_body: Body | None
    policy_head: Linear
    value_head: Linear

    def __init__(self, spec: Spec, config: NetworkConfig, key: PRNGKeyArray):
        (inputs,) = spec.observation_shape
        keys = jax.random.split(key, 4)
        self.policy_body = Body(inputs, config.hidden, keys[0])
        self.value_body = None if config.shared else Body(inputs, config.hidden, keys[1])
        self.policy_head = Linear(config.hidden[-1], spec.num_actions, POLICY_GAIN, keys[2])
        self.value_head = Linear(config.hidden[-1], 1, VALUE_GAIN, keys[3])

    def __call__(self, observation: Float[Array, "batch inputs"]) -> tuple[Categorical, Float[Array, " batch"]]:
        features = self.policy_body(observation)
        value_features = features if self.value_body is None else self.value_body(observation)
        return Categorical(self.policy_head(features)), self.value_head(value_features)[:, 0]
