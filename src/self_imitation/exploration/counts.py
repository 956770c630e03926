"""Count-based exploration: r_exp = beta / sqrt(N(s')) (section 5.2). It reaches the on-policy reward alone."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from self_imitation.config import CountConfig
from self_imitation.errors import UsageError
from self_imitation.types import Rollout, Spec

MOST_STATES = 10_000_000
"""A table of more counts than this is not kept."""
MAX_COUNT = 2**30
"""Counts stop here rather than wrap around; the bonus is then 3e-5 of its first value."""


class CountBonus:
    """Counts of states, for environments whose observations are a few small whole numbers."""

    def __init__(self, spec: Spec, config: CountConfig):
        if spec.observation_levels is None or math.prod(spec.observation_levels) > MOST_STATES:
            raise UsageError("agent: 'exp' counts states; this environment's observations can't be counted")
        self.levels = spec.observation_levels
        self.scale = config.scale

    def create(self) -> Int[Array, " states"]:
        return jnp.zeros(int(np.prod(self.levels)), jnp.int32)

    def bonus(
        self, counts: Int[Array, " states"], rollout: Rollout
    ) -> tuple[Int[Array, " states"], Float[Array, "T N"]]:
        """At each step all environments' next states are counted first, then each gets beta / sqrt(its count).

        The next state is the one acted in next: where an episode ended, the first one of the next episode.
        """
        arrived = jnp.concatenate([rollout.observation[1:], rollout.last_observation[None]])

        def count(
            counts: Int[Array, " states"], state: Int[Array, " N"]
        ) -> tuple[Int[Array, " states"], Float[Array, " N"]]:
            counts = counts.at[state].add(1)
            counts = counts.at[state].min(MAX_COUNT)
            return counts, self.scale / jnp.sqrt(counts[state].astype(jnp.float32))

        return jax.lax.scan(count, counts, self.state_number(arrived))

    def state_number(self, observation: Shaped[Array, "... numbers"]) -> Int[Array, "..."]:
        parts = jnp.moveaxis(observation.astype(jnp.int32), -1, 0)
        return jnp.ravel_multi_index(tuple(parts), self.levels, mode="clip")
