"""Count-based exploration: r_exp = beta / sqrt(N(s')) (section 5.2). It is added to the on-policy reward only."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from self_imitation.algorithm.components import Bonus, Exploration
from self_imitation.algorithm.rollouts import following_observation
from self_imitation.arrays import masked_mean
from self_imitation.errors import UsageError
from self_imitation.settings import real, setting
from self_imitation.types import Metrics, Rollout, Spec

MAX_STATES = 10_000_000
"""Largest table of counts."""
MAX_COUNT = 2**30
"""Counts saturate instead of overflowing; the bonus is then 3e-5 of its first value."""


@dataclass(frozen=True)
class CountConfig:
    """Count-based exploration: beta / sqrt(N(s')) added to the on-policy reward."""

    scale: float = setting(1.0, real(0))
    """beta, the bonus for the first visit to a state (authors' code)."""


class CountBonus(Bonus):
    """Counts of states, for environments whose observations are a few small integers."""

    Config = CountConfig

    def __init__(self, config: CountConfig, spec: Spec):
        if spec.observation_levels is None or math.prod(spec.observation_levels) > MAX_STATES:
            raise UsageError("agent: 'exp' counts states; the observations of this environment can't be counted")
        super().__init__(config, spec)
        self.levels = spec.observation_levels

    def init(self, key: PRNGKeyArray, num_envs: int) -> Int[Array, " states"]:
        return jnp.zeros(math.prod(self.levels), jnp.int32)

    def update(
        self, state: Int[Array, " states"], rollout: Rollout, key: PRNGKeyArray
    ) -> tuple[Int[Array, " states"], Exploration, Metrics]:
        """At each step all environments' next states are counted first, then each gets beta / sqrt(its count).

        The next state is the one acted in next: after the end of an episode, the first state of the next one.
        """
        arrived = self.state_index(following_observation(rollout))
        if rollout.valid is not None:  # a reset step still shows the last state of the old episode
            resets_next = jnp.concatenate([~rollout.valid[1:], jnp.zeros_like(rollout.valid[:1])])
            arrived = jnp.where(resets_next, jnp.roll(arrived, -1, axis=0), arrived)

        def count(counts: Int[Array, " states"], step: tuple) -> tuple[Int[Array, " states"], Float[Array, " N"]]:
            index, valid = step
            counts = counts.at[index].add(1 if valid is None else valid.astype(jnp.int32))
            counts = counts.at[index].min(MAX_COUNT)
            bonus = self.config.scale / jnp.sqrt(jnp.maximum(counts[index], 1).astype(jnp.float32))
            return counts, bonus if valid is None else jnp.where(valid, bonus, 0.0)

        counts, bonus = jax.lax.scan(count, state, (arrived, rollout.valid))
        return counts, Exploration(reward=bonus), {"bonus": masked_mean(bonus, rollout.valid)}

    def state_index(self, observation: Shaped[Array, "... numbers"]) -> Int[Array, "..."]:
        parts = jnp.moveaxis(observation.astype(jnp.int32), -1, 0)
        return jnp.ravel_multi_index(tuple(parts), self.levels, mode="clip")
