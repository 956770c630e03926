"""Running normalisation: rollouts and replay buffer stay raw, network inputs have mean 0 and variance 1.

Statistics take in each rollout before anything is learnt from it. Observations are shifted and scaled; rewards are only
scaled, since a shift would change the task. Rewards, which V learns from, and stored returns are divided by the same
number, so that R and V are always in the same units.
"""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from self_imitation.algorithm.returns import discounted_sums
from self_imitation.algorithm.rollouts import flatten_time
from self_imitation.replay.buffer import REWARD, Batch
from self_imitation.types import ActorCritic, Observation, Params, Rollout, Spec

EPSILON = 1e-8


class Moments(eqx.Module):
    """Running mean and variance, and the number of samples."""

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]
    count: Float[Array, ""]

    @staticmethod
    def create(shape: tuple[int, ...]) -> "Moments":
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.float32(0.0))

    def update(self, sample: Float[Array, "batch ..."], valid: Bool[Array, " batch"] | None = None) -> "Moments":
        """Add a batch by Chan's rule: exact, and nothing grows with the count, so float32 is enough."""
        if valid is None:
            added, mean, variance = jnp.float32(sample.shape[0]), jnp.mean(sample, axis=0), jnp.var(sample, axis=0)
        else:
            weight = valid.reshape(-1, *(1,) * (sample.ndim - 1))
            added = jnp.sum(valid).astype(jnp.float32)
            number = jnp.maximum(added, 1.0)
            mean = jnp.sum(jnp.where(weight, sample, 0.0), axis=0) / number
            variance = jnp.sum(jnp.where(weight, jnp.square(sample - mean), 0.0), axis=0) / number
        total = self.count + added
        share = added / jnp.maximum(total, 1.0)
        step = mean - self.mean
        spread = self.variance * (1 - share) + variance * share
        return Moments(self.mean + step * share, spread + jnp.square(step) * share * (1 - share), total)

    def normalise(self, x: Float[Array, "*batch"], clip: float) -> Float[Array, "*batch"]:
        return jnp.clip((x - self.mean) / jnp.sqrt(self.variance + EPSILON), -clip, clip)


class NormaliserState(eqx.Module):
    """One seed's statistics."""

    observation: Moments | None
    sums: Moments | None
    """Of the discounted sums of rewards."""
    running: Float[Array, " N"]
    """Discounted sum of each environment's unfinished episode."""
    largest: Float[Array, ""]
    """Largest reward so far, as an absolute value."""


@dataclass(frozen=True)
class Normaliser:
    """What is normalised, and how."""

    observations: bool
    rewards: bool
    clip: float
    """Observations are clipped to ± this value; rewards are scaled so that none exceeds it."""
    gamma: float
    spec: Spec
    num_envs: int

    def init(self) -> NormaliserState:
        shape = self._numbers(self.spec.observation).shape if self.observations else ()
        return NormaliserState(
            Moments.create(shape) if self.observations else None,
            Moments.create(()) if self.rewards else None,
            jnp.zeros(self.num_envs),
            jnp.float32(0.0),
        )

    def update(self, state: NormaliserState, rollout: Rollout) -> NormaliserState:
        observation, sums = state.observation, state.sums
        valid = flatten_time(rollout.valid)
        if observation is not None:
            observation = observation.update(flatten_time(self._numbers(rollout.observation)), valid)
        reward = rollout.reward if rollout.valid is None else jnp.where(rollout.valid, rollout.reward, 0.0)
        totals, running = discounted_sums(reward, rollout.ended, state.running, self.gamma)
        if sums is not None:
            sums = sums.update(totals.reshape(-1), valid)
        return NormaliserState(observation, sums, running, jnp.maximum(state.largest, jnp.max(jnp.abs(reward))))

    def observation(self, state: NormaliserState, observation: Observation) -> Observation:
        """Normalise the numbers of an observation; an image beside them has a scale of its own."""
        if state.observation is None:
            return observation
        normalised = state.observation.normalise(self._numbers(observation), self.clip)
        return {**observation, "numbers": normalised} if self.spec.numbers_beside_image else normalised

    def _numbers(self, observation: Observation) -> Observation:
        return observation["numbers"] if self.spec.numbers_beside_image else observation

    def scale_rewards(self, state: NormaliserState, sums: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Rewards, or sums of rewards, divided by the standard deviation of the discounted sums.

        Deviation: the authors clip single rewards to ± `clip` and let the running sum continue after an episode. Stored
        returns can't be clipped reward by reward, and where rewards are rare, R would exceed even a perfect V for ever.
        Here the divisor is large enough that no clipping is needed.
        """
        if state.sums is None:
            return sums
        return sums / jnp.maximum(jnp.sqrt(state.sums.variance + EPSILON), state.largest / self.clip)

    def rollout(self, state: NormaliserState, rollout: Rollout) -> Rollout:
        """The rollout that the learner sees."""
        following = rollout.next_observation
        return dataclasses.replace(
            rollout,
            observation=self.observation(state, rollout.observation),
            next_observation=None if following is None else self.observation(state, following),
            last_observation=self.observation(state, rollout.last_observation),
            reward=self.scale_rewards(state, rollout.reward),
        )

    def batch(self, state: NormaliserState, batch: Batch) -> Batch:
        """The batch that self-imitation sees: stored raw, normalised by the present statistics."""
        extras = batch.extras
        if REWARD in extras:
            extras = {**extras, REWARD: self.scale_rewards(state, extras[REWARD])}
        return dataclasses.replace(
            batch,
            observation=self.observation(state, batch.observation),
            returns=self.scale_rewards(state, batch.returns),
            extras=extras,
        )

    def with_normalised_observations(self, actor_critic: ActorCritic, state: NormaliserState) -> ActorCritic:
        """The actor-critic as a function of raw observations."""

        def apply(params: Params, observation: Observation) -> tuple:
            return actor_critic(params, self.observation(state, observation))

        return apply


def drop_running(state: NormaliserState) -> NormaliserState:
    """Forget the sums of unfinished episodes."""
    return eqx.tree_at(lambda s: s.running, state, state.running * 0)
