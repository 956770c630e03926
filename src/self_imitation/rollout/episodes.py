"""Rewards as they are trained on, and the returns and lengths of episodes. Arrays [..., N] of one step."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class EpisodeTracker(eqx.Module):
    """Each environment's unfinished episode."""

    episode_return: Float[Array, "*batch"]
    episode_length: Int[Array, "*batch"]
    accumulated: Float[Array, "*batch"]
    """Rewards that are not paid yet, where rewards are delayed."""
    waited: Int[Array, "*batch"]
    """Steps since the last payment."""

    @staticmethod
    def create(shape: tuple[int, ...]) -> "EpisodeTracker":
        return EpisodeTracker(
            jnp.zeros(shape), jnp.zeros(shape, jnp.int32), jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
        )


class TrackedStep(eqx.Module):
    """One step's reward as trained on, and the episode up to and including it."""

    reward: Float[Array, "*batch"]
    episode_return: Float[Array, "*batch"]
    episode_length: Int[Array, "*batch"]


def track(
    tracker: EpisodeTracker,
    reward: Float[Array, "*batch"],
    ended: Bool[Array, "*batch"],
    valid: Bool[Array, "*batch"] | None,
    delay: int,
    sign: bool,
) -> tuple[EpisodeTracker, TrackedStep]:
    """Delay the reward (section 5.6), add it to the return of the episode, then take its sign (Atari) if asked."""
    steps = 1 if valid is None else valid.astype(jnp.int32)
    accumulated, waited = tracker.accumulated, tracker.waited
    if delay > 1:
        accumulated, waited = accumulated + reward, waited + steps
        due = ended | (waited >= delay)
        reward = jnp.where(due, accumulated, 0.0)
        accumulated, waited = jnp.where(due, 0.0, accumulated), jnp.where(due, 0, waited)
    episode_return, episode_length = tracker.episode_return + reward, tracker.episode_length + steps
    tracked = TrackedStep(jnp.sign(reward) if sign else reward, episode_return, episode_length)
    after = EpisodeTracker(
        jnp.where(ended, 0.0, episode_return), jnp.where(ended, 0, episode_length), accumulated, waited
    )
    return after, tracked
