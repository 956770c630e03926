"""Action distributions for each kind of action space."""

import itertools
import math
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from self_imitation.arrays import require_same_shape
from self_imitation.types import Actions, Continuous, Discrete, Distribution, MultiDiscrete


class Categorical(eqx.Module):
    """One of A actions, by the softmax of its logits. Actions are integers [batch]."""

    logits: Float[Array, "batch A"]
    """-inf forbids an action."""

    def sample(self, key: PRNGKeyArray) -> Int[Array, " batch"]:
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> Int[Array, " batch"]:
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Int[Array, " batch"]) -> Float[Array, " batch"]:
        require_same_shape(action=action, chances=self.logits[..., 0])
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=bool)
        return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(self.logits), 0.0), axis=-1)

    def entropy(self) -> Float[Array, " batch"]:
        allowed = self.logits > -jnp.inf
        log_probs = jnp.where(allowed, jax.nn.log_softmax(self.logits), 0.0)
        return -jnp.sum(jnp.where(allowed, jnp.exp(log_probs), 0.0) * log_probs, axis=-1)

    def kl(self, other: "Categorical") -> Float[Array, " batch"]:
        log_prob, log_prob_other = (jax.nn.log_softmax(logits) for logits in (self.logits, other.logits))
        gap = jnp.where(self.logits > -jnp.inf, log_prob - log_prob_other, 0.0)
        return jnp.sum(jnp.exp(log_prob) * gap, axis=-1)


class CategoricalWithValues(Categorical):
    """One of A actions, with an estimate of each action's value."""

    action_values: Float[Array, "batch A"]

    def value(self) -> Float[Array, " batch"]:
        """V = sum_a pi(a) Q(a). Its gradient reaches Q alone: the policy is not trained to choose what is overrated."""
        probabilities = jax.lax.stop_gradient(jax.nn.softmax(self.logits))
        return jnp.sum(probabilities * self.action_values, axis=-1)


class MultiCategorical(eqx.Module):
    """Several independent choices at once. Actions are integers [batch, choices]."""

    choices: tuple[Categorical, ...]
    """The distribution of each choice."""

    def sample(self, key: PRNGKeyArray) -> Int[Array, "batch choices"]:
        keys = jax.random.split(key, len(self.choices))
        return jnp.stack([choice.sample(k) for choice, k in zip(self.choices, keys, strict=True)], axis=-1)

    def mode(self) -> Int[Array, "batch choices"]:
        return jnp.stack([choice.mode() for choice in self.choices], axis=-1)

    def log_prob(self, action: Int[Array, "batch choices"]) -> Float[Array, " batch"]:
        return sum_over(choice.log_prob(action[:, i]) for i, choice in enumerate(self.choices))

    def entropy(self) -> Float[Array, " batch"]:
        return sum_over(choice.entropy() for choice in self.choices)

    def kl(self, other: "MultiCategorical") -> Float[Array, " batch"]:
        return sum_over(own.kl(its) for own, its in zip(self.choices, other.choices, strict=True))


class DiagonalGaussian(eqx.Module):
    """Independent normal numbers. Actions are numbers [batch, A]."""

    mean: Float[Array, "batch A"]
    log_std: Float[Array, " A"]
    """The logarithm of the standard deviation, which does not depend on the observation."""

    def sample(self, key: PRNGKeyArray) -> Float[Array, "batch A"]:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Float[Array, "batch A"]:
        return self.mean

    def log_prob(self, action: Float[Array, "batch A"]) -> Float[Array, " batch"]:
        require_same_shape(action=action, mean=self.mean)
        deviations = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * jnp.square(deviations) - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Float[Array, " batch"]:
        one = jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e))
        return jnp.broadcast_to(one, self.mean.shape[:1])

    def kl(self, other: "DiagonalGaussian") -> Float[Array, " batch"]:
        wider = other.log_std - self.log_std
        spread = jnp.exp(-2 * wider) + jnp.square((self.mean - other.mean) * jnp.exp(-other.log_std))
        return jnp.sum(wider + 0.5 * (spread - 1.0), axis=-1)


def sum_over(parts: Iterable[Float[Array, " batch"]]) -> Float[Array, " batch"]:
    return jnp.sum(jnp.stack(list(parts)), axis=0)


def outputs(actions: Actions) -> int:
    """How many numbers the policy's last layer gives for such actions."""
    match actions:
        case Discrete(count):
            return count
        case MultiDiscrete(counts):
            return sum(counts)
        case Continuous(low):
            return len(low)


def from_outputs(
    actions: Actions, numbers: Float[Array, "batch outputs"], log_std: Float[Array, " A"] | None
) -> Distribution:
    """The distribution that those numbers describe."""
    match actions:
        case Discrete():
            return Categorical(numbers)
        case MultiDiscrete(counts):
            ends = list(itertools.accumulate(counts))[:-1]
            return MultiCategorical(tuple(Categorical(part) for part in jnp.split(numbers, ends, axis=-1)))
        case Continuous():
            assert log_std is not None
            return DiagonalGaussian(numbers, log_std)
