"""What learners have in common when they read a rollout."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from self_imitation.types import ActorCritic, Observation, Params, Rollout


def flatten_time(tree: PyTree) -> PyTree:
    """[T, N, ...] to [T * N, ...]"""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def following_observation(rollout: Rollout) -> Observation:
    """What the policy sees after each step: after the end of an episode, the first observation of the next one, as soon
    as the environment shows it.
    """
    return jax.tree.map(
        lambda rows, last: jnp.concatenate([rows[1:], last[None]]), rollout.observation, rollout.last_observation
    )


def reached_observation(rollout: Rollout) -> Observation:
    """The observation that each step reached, before any reset."""
    return following_observation(rollout) if rollout.next_observation is None else rollout.next_observation


def bootstrap_values(
    actor_critic: ActorCritic,
    params: Params,
    rollout: Rollout,
    value: Float[Array, "T N"] | None,
    last_value: Float[Array, " N"],
    bootstrap_time_limits: bool,
) -> Float[Array, "T N"]:
    """Value to bootstrap from where an episode ended: 0 at a terminal state; at a time limit, with
    `bootstrap_time_limits`, the value of the state that was reached.

    `value`: of the rollout's observations, if they have been evaluated already. `last_value`: of its last observation.
    """
    if not bootstrap_time_limits:
        return jnp.zeros_like(rollout.reward)
    if rollout.next_observation is not None:
        reached = actor_critic(params, flatten_time(rollout.next_observation))[1].reshape(rollout.reward.shape)
    else:
        if value is None:
            value = actor_critic(params, flatten_time(rollout.observation))[1].reshape(rollout.reward.shape)
        reached = jnp.concatenate([value[1:], last_value[None]])
    time_limit = rollout.truncated & ~rollout.terminated  # an environment may set both: then the state is terminal
    return jnp.where(time_limit, reached, 0.0)
