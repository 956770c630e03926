"""Count-based exploration: r_exp = beta / sqrt(N(s')) (section 5.2). It is added to the on-policy reward only."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

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
    """beta, the bonus for the first visit to a state (authors' code: 1)."""


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

        counts, visits = count_visits(state, arrived[..., None], rollout.valid)
        bonus = count_bonus(self.config.scale, visits, rollout.valid)
        return counts, Exploration(reward=bonus), {"bonus": masked_mean(bonus, rollout.valid)}

    def state_index(self, observation: Shaped[Array, "... numbers"]) -> Int[Array, "..."]:
        parts = jnp.moveaxis(observation.astype(jnp.int32), -1, 0)
        return jnp.ravel_multi_index(tuple(parts), self.levels, mode="clip")


def count_visits(
    counts: Int[Array, " entries"], index: Int[Array, "T N tables"], valid: Bool[Array, "T N"] | None
) -> tuple[Int[Array, " entries"], Int[Array, "T N"]]:
    """Counts after a rollout, and the number of visits to each state at the time it was reached.

    At each step, the states of all environments are counted before any is looked up. Several tables can share `counts`:
    a state has one entry in each, and its number of visits is the smallest of them. Steps that are not valid don't
    count.
    """

    def step(counts: Int[Array, " entries"], now: tuple) -> tuple[Int[Array, " entries"], Int[Array, " N"]]:
        index, valid = now
        counts = counts.at[index].add(1 if valid is None else valid.astype(jnp.int32)[:, None])
        counts = counts.at[index].min(MAX_COUNT)
        return counts, jnp.min(counts[index], axis=-1)

    return jax.lax.scan(step, counts, (index, valid))


def count_bonus(scale: float, visits: Int[Array, "T N"], valid: Bool[Array, "T N"] | None) -> Float[Array, "T N"]:
    """Scale / sqrt(visits), and 0 for steps that are not valid."""
    bonus = scale / jnp.sqrt(jnp.maximum(visits, 1).astype(jnp.float32))
    return bonus if valid is None else jnp.where(valid, bonus, 0.0)
