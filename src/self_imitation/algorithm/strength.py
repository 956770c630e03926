"""How far self-imitation moves the policy relative to the learner: its steps follow a ratio of KL divergences.

How much a coefficient or a number of updates moves the policy depends on the task, the optimiser and the state of its
running statistics. A ratio means the same everywhere: with 0.1, self-imitation moves the policy a tenth as far as the
learner does, measured by the KL divergences of each iteration.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from self_imitation.types import Params

DECAY = 0.9
"""Decay of the running means of the divergences, per iteration."""
FASTEST = 0.1
"""Largest change of the logarithm of the step size in one iteration."""
SMALLEST, LARGEST = 1e-3, 10.0
"""Step sizes. 1: the optimiser's own."""


class Strength(eqx.Module):
    step_size: Float[Array, ""]
    """Factor by which self-imitation's updates of one iteration are scaled."""
    learner_kl: Float[Array, ""]
    """Running mean of the divergence that the learner causes."""
    imitation_kl: Float[Array, ""]
    """The same of self-imitation; 0 before its first update."""


def init() -> Strength:
    return Strength(jnp.float32(1.0), jnp.float32(0.0), jnp.float32(0.0))


def scale(strength: Strength, before: Params, after: Params) -> Params:
    """The parameters before self-imitation's updates, moved by their sum times the step size."""
    return jax.tree.map(lambda old, new: old + strength.step_size * (new - old), before, after)


def adapt(strength: Strength, learner_kl: Float[Array, ""], imitation_kl: Float[Array, ""], ratio: float) -> Strength:
    """Step towards the size at which `imitation_kl` is `ratio` times `learner_kl`, of which the KL is quadratic.

    Nothing changes in an iteration without self-imitation.
    """
    active = imitation_kl > 0
    first = active & (strength.imitation_kl == 0)
    decay = jnp.where(first, 0.0, DECAY)
    learner_mean = decay * strength.learner_kl + (1 - decay) * learner_kl
    imitation_mean = decay * strength.imitation_kl + (1 - decay) * imitation_kl
    wanted = 0.5 * jnp.log((ratio * learner_mean + 1e-12) / (imitation_mean + 1e-12))
    step_size = jnp.clip(strength.step_size * jnp.exp(jnp.clip(wanted, -FASTEST, FASTEST)), SMALLEST, LARGEST)
    adapted = Strength(step_size, learner_mean, imitation_mean)
    return jax.tree.map(lambda new, old: jnp.where(active, new, old), adapted, strength)
