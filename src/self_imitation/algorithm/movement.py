"""How far the learner and self-imitation each move the policy in one iteration."""

import jax
import jax.numpy as jnp
import optax

from self_imitation.algorithm.rollouts import flatten_time
from self_imitation.arrays import masked_mean
from self_imitation.types import ActorCritic, Metrics, Params, Rollout

OBSERVATIONS = 256
"""Observations of a rollout, evenly spread, at which policies are compared."""


def measure(
    actor_critic: ActorCritic,
    rollout: Rollout,
    learner: tuple[Params, Params],
    self_imitation: tuple[Params, Params],
) -> Metrics:
    """KL divergence of the policies before and after the learner's and self-imitation's updates, and the share of the
    step in parameter space that is self-imitation's.

    `actor_critic`: of raw observations. `learner`, `self_imitation`: parameters before and after.
    """
    every = max(1, rollout.reward.size // OBSERVATIONS)
    observation = jax.tree.map(lambda leaf: leaf[::every], flatten_time(rollout.observation))
    valid = None if rollout.valid is None else flatten_time(rollout.valid)[::every]

    def divergence(before: Params, after: Params) -> jax.Array:
        policies = [actor_critic(params, observation)[0] for params in (before, after)]
        return jnp.maximum(masked_mean(policies[0].kl(policies[1]), valid), 0.0)  # rounding can leave it below

    learner_step, own_step = (
        optax.tree.norm(jax.tree.map(jnp.subtract, after, before)) for before, after in (learner, self_imitation)
    )
    return {
        "policy_kl": divergence(*learner),
        "sil_kl": divergence(*self_imitation),
        "sil_step_share": own_step / jnp.maximum(learner_step + own_step, 1e-12),
    }
