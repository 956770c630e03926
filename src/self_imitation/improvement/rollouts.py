"""What the ways to improve do alike with a rollout."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from self_imitation.types import ActorCritic, Params, Rollout


def flat(x: Array) -> Array:
    """[T, N, ...] to [T * N, ...]"""
    return x.reshape(-1, *x.shape[2:])


def value_at_end(
    actor_critic: ActorCritic, params: Params, rollout: Rollout, bootstrap_time_limits: bool
) -> Float[Array, "T N"]:
    """What is still to come where an episode ended: nothing at a terminal state; at a time limit, if it is taken for a
    cut, the value of the state that was cut off.
    """
    if not bootstrap_time_limits:
        return jnp.zeros_like(rollout.reward)
    _, value = actor_critic(params, flat(rollout.successor))
    cut_off = rollout.truncated & ~rollout.terminated  # an environment may set both: then it is an end
    return jnp.where(cut_off, value.reshape(rollout.reward.shape), 0.0)
