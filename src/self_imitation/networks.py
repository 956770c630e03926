"""Actor-critics: from a batch of observations to a distribution and a value. Each is a pytree of its own weights."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from self_imitation.config import NetworkConfig
from self_imitation.distributions import Categorical
from self_imitation.types import Spec

# Orthogonal initialisation with these gains (authors' code).
HIDDEN_GAIN = 2.0**0.5
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


def orthogonal(inputs: int, outputs: int, gain: float, generator: np.random.Generator) -> Float[np.ndarray, "i o"]:
    """`gain` times a random matrix with orthonormal rows or columns.

    In NumPy, not JAX: there it takes seconds to compile, and under `jit` and `vmap` it may hang (JAX 0.10 on a CPU).
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


class Body(eqx.Module):
    """tanh layers."""

    layers: tuple[Linear, ...]

    def __init__(self, inputs: int, hidden: tuple[int, ...], generator: np.random.Generator):
        widths = (inputs, *hidden)
        pairs = zip(widths[:-1], hidden, strict=True)
        self.layers = tuple(Linear(before, after, HIDDEN_GAIN, generator) for before, after in pairs)

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

    def __init__(self, spec: Spec, config: NetworkConfig, generator: np.random.Generator):
        (inputs,) = spec.observation_shape
        self.policy_body = Body(inputs, config.hidden, generator)
        self.value_body = None if config.shared else Body(inputs, config.hidden, generator)
        self.policy_head = Linear(config.hidden[-1], spec.num_actions, POLICY_GAIN, generator)
        self.value_head = Linear(config.hidden[-1], 1, VALUE_GAIN, generator)

    def __call__(self, observation: Float[Array, "batch inputs"]) -> tuple[Categorical, Float[Array, " batch"]]:
        features = self.policy_body(observation)
        value_features = features if self.value_body is None else self.value_body(observation)
        return Categorical(self.policy_head(features)), self.value_head(value_features)[:, 0]
