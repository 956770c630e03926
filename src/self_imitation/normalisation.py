"""Running normalisation: the memory and the rollouts stay raw, what the networks see has mean 0 and variance 1.

Statistics take in each rollout before anything is learnt from it. Observations are shifted and scaled, rewards only
scaled, by the standard deviation of their discounted sum: to shift them would change the task.
"""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from self_imitation.memory import Batch
from self_imitation.returns import discounted_sums
from self_imitation.types import ActorCritic, Params, Rollout, Spec

EPSILON = 1e-8


class Moments(eqx.Module):
    """Mean and variance of all that was taken in, and how much that was."""

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]
    count: Float[Array, ""]

    @staticmethod
    def create(shape: tuple[int, ...]) -> "Moments":
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.float32(0.0))

    def take_in(self, sample: Float[Array, "batch ..."]) -> "Moments":
        """Chan's rule for two sets: exact, and nothing grows with the count, so float32 is enough."""
        added = jnp.float32(sample.shape[0])
        total = self.count + added
        share = added / total
        mean = jnp.mean(sample, axis=0)
        step = mean - self.mean
        spread = self.variance * (1 - share) + jnp.var(sample, axis=0) * share
        return Moments(self.mean + step * share, spread + jnp.square(step) * share * (1 - share), total)


class Scales(eqx.Module):
    """One seed's statistics."""

    observation: Moments | None
    sums: Moments | None
    """Of the rewards' discounted sums."""
    running: Float[Array, " N"]
    """The discounted sum of each environment's episode so far."""


@dataclass(frozen=True)
class Normaliser:
    """What is normalised, and how."""

    observations: bool
    rewards: bool
    clip: float
    """Both are cut off beyond this."""
    discount: float
    spec: Spec
    environments: int

    def create(self) -> Scales:
        return Scales(
            Moments.create(self.spec.observation_shape) if self.observations else None,
            Moments.create(()) if self.rewards else None,
            jnp.zeros(self.environments),
        )

    def update(self, scales: Scales, rollout: Rollout) -> Scales:
        observation, sums = scales.observation, scales.sums
        if observation is not None:
            observation = observation.take_in(rollout.observation.reshape(-1, *self.spec.observation_shape))
        totals, running = discounted_sums(rollout.reward, rollout.ended, scales.running, self.discount)
        if sums is not None:
            sums = sums.take_in(totals.reshape(-1))
        return Scales(observation, sums, running)

    def observation(self, scales: Scales, observation: Shaped[Array, "*batch"]) -> Shaped[Array, "*batch"]:
        if scales.observation is None:
            return observation
        moments = scales.observation
        deviations = (observation - moments.mean) / jnp.sqrt(moments.variance + EPSILON)
        return jnp.clip(deviations, -self.clip, self.clip)

    def reward(self, scales: Scales, reward: Float[Array, "T N"]) -> Float[Array, "T N"]:
        if scales.sums is None:
            return reward
        return jnp.clip(self.returns(scales, reward), -self.clip, self.clip)

    def returns(self, scales: Scales, returns: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Sums of raw rewards in the units of the normalised ones. A clip belongs to single rewards, not here."""
        return returns if scales.sums is None else returns / jnp.sqrt(scales.sums.variance + EPSILON)

    def rollout(self, scales: Scales, rollout: Rollout) -> Rollout:
        """As the improvement sees it."""
        return dataclasses.replace(
            rollout,
            observation=self.observation(scales, rollout.observation),
            successor=self.observation(scales, rollout.successor),
            last_observation=self.observation(scales, rollout.last_observation),
            reward=self.reward(scales, rollout.reward),
        )

    def batch(self, scales: Scales, batch: Batch) -> Batch:
        """As self-imitation sees it: what was stored raw, by the statistics of now."""
        return dataclasses.replace(
            batch,
            observation=self.observation(scales, batch.observation),
            returns=self.returns(scales, batch.returns),
        )

    def seeing(self, actor_critic: ActorCritic, scales: Scales) -> ActorCritic:
        """The actor-critic as a function of raw observations."""

        def see(params: Params, observation: Shaped[Array, "batch ..."]) -> tuple:
            return actor_critic(params, self.observation(scales, observation))

        return see
