"""Episodes that wait for their end (the paper's E), and which of their steps move to the replay buffer.

Each environment's latest steps are in a ring of whole rollouts. When an episode ends, it moves if it is kept. Of an
episode that is longer than the ring, the older half moves whenever the ring is full, so that no part of it is lost; its
returns are those of the steps seen by then.

Self-imitation needs returns that can be reached again. Where an episode with a mean reward below 0 is cut off, by a
time limit or because it is stored in parts, the sum of the rewards seen is better than what its actions led to, as if
what would have followed cost nothing. With `truncated_returns = "continued"`, such an episode goes on at its mean
reward.
"""

import dataclasses
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from self_imitation.arrays import scan_unrolled
from self_imitation.settings import ReplayConfig, SelfImitationConfig
from self_imitation.types import Experience, Observation

MAX_HORIZON = 1e6
"""Steps that count after an episode that is cut off, at most: 1 / (1 - gamma) is infinite for gamma = 1."""


class Unfinished(eqx.Module):
    """Each environment's unfinished episode."""

    length: Int[Array, "*T N"]
    """Steps stored of it."""
    since_positive: Int[Array, "*T N"]
    """Steps after its latest reward above 0; if it had none, all of its steps."""
    since_reward: Int[Array, "*T N"]
    """The same for rewards other than 0."""
    truncated_start: Bool[Array, "*T N"]
    """Whether its first steps have moved on."""
    steps: Int[Array, "*T N"] | None
    """All that it had so far, also those that have moved on. None: not needed."""
    reward_sum: Float[Array, "*T N"] | None
    """Of all these steps."""


class EpisodeBuffer(eqx.Module):
    """The latest steps of each environment, in whole rollouts, and the state of its unfinished episode."""

    observation: Observation
    """[ring, N, ...]; of a stack, the newest frame."""
    action: Shaped[Array, "ring N ..."]
    reward: Float[Array, "ring N"]
    extras: dict[str, Array]
    """[ring, N, ...]: what else was recorded at each step and is needed when the episode ends."""
    position: Int[Array, ""]
    """Row where the next rollout is written."""
    unfinished: Unfinished
    negative_seen: Bool[Array, ""]
    """Whether any reward so far was below 0."""
    max_pending_steps: int = eqx.field(static=True)
    """Steps stored of an unfinished episode."""


def newest_frame(observation: Observation, stack: int) -> Observation:
    return observation if stack == 1 else observation[..., -(observation.shape[-1] // stack) :]


def create(
    like: PyTree, config: ReplayConfig, max_pending_steps: int, stack: int, extras: Iterable[str] = ()
) -> EpisodeBuffer:
    """Empty, for rollouts of the shapes and dtypes of `like`. `extras`: which of the rollouts' extras are stored."""
    steps, num_envs = like.reward.shape
    ring = steps * (-(-max_pending_steps // steps) + 1)  # one more rollout, which arrives while others still wait
    frame = jax.eval_shape(lambda observation: newest_frame(observation, stack), like.observation)

    def zeros(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.zeros((ring, num_envs, *leaf.shape[2:]), leaf.dtype), tree)

    return EpisodeBuffer(
        observation=zeros(frame),
        action=zeros(like.action),
        reward=zeros(like.reward),
        extras={name: zeros(like.extras[name]) for name in extras},
        position=jnp.int32(0),
        unfinished=_no_steps(num_envs, config),
        negative_seen=jnp.array(False),
        max_pending_steps=max_pending_steps,
    )


def continues(config: ReplayConfig) -> bool:
    """Whether returns go on where an episode that costs is cut off."""
    return isinstance(config, SelfImitationConfig) and config.truncated_returns == "continued"


def _no_steps(num_envs: int, config: ReplayConfig) -> Unfinished:
    continued = continues(config)
    return Unfinished(
        length=jnp.zeros(num_envs, jnp.int32),
        since_positive=jnp.zeros(num_envs, jnp.int32),
        since_reward=jnp.zeros(num_envs, jnp.int32),
        truncated_start=jnp.zeros(num_envs, bool),
        steps=jnp.zeros(num_envs, jnp.int32) if continued else None,
        reward_sum=jnp.zeros(num_envs) if continued else None,
    )


def drop(pending: EpisodeBuffer) -> EpisodeBuffer:
    """Forget all unfinished episodes. Also accepts NumPy arrays with leading axes."""
    empty = jax.tree.map(np.zeros_like, pending)
    return eqx.tree_at(lambda p: p.negative_seen, empty, pending.negative_seen)


class Finished(eqx.Module):
    """What moves to the replay buffer after a rollout: one entry for every step at which an episode could end."""

    length: Int[Array, " entries"]
    """Steps from the first that moves to `last_row`; 0 where no episode ended, or where it is not kept."""
    waiting: Int[Array, " entries"]
    """The latest of these steps, which only count towards the returns of the others and stay."""
    truncated_start: Bool[Array, " entries"]
    last_row: Int[Array, " entries"]
    """Row of the episode buffer."""
    environment: Int[Array, " entries"]
    following: Float[Array, " entries"]
    """Return that is assumed to follow `last_row`."""


def append(
    pending: EpisodeBuffer, rollout: Experience, config: ReplayConfig, stack: int
) -> tuple[EpisodeBuffer, Finished]:
    """Append a rollout; also returns which steps move to the replay buffer."""
    steps, num_envs = rollout.reward.shape
    rewards = rollout.reward if rollout.valid is None else jnp.where(rollout.valid, rollout.reward, 0.0)
    negative_seen = pending.negative_seen | jnp.any(rewards < 0)
    ring, half = pending.reward.shape[0], pending.max_pending_steps // 2

    def follow(before: Unfinished, step: tuple) -> tuple[Unfinished, Unfinished]:
        reward, ended, valid = step
        # A reset step comes between two episodes, so an episode's rows stay contiguous without it.
        added = 1 if valid is None else valid.astype(jnp.int32)
        now = Unfinished(
            before.length + added,
            jnp.where(reward > 0, 0, before.since_positive + added),
            jnp.where(reward != 0, 0, before.since_reward + added),
            before.truncated_start,
            None if before.steps is None else before.steps + added,
            None if before.reward_sum is None else before.reward_sum + reward,
        )
        full = now.length == pending.max_pending_steps
        half_moved = dataclasses.replace(
            now, length=jnp.where(full, half, now.length), truncated_start=now.truncated_start | full
        )
        return jax.tree.map(lambda leaf: jnp.where(ended, 0, leaf).astype(leaf.dtype), half_moved), now

    after, at_step = scan_unrolled(follow, pending.unfinished, (rewards, rollout.ended, rollout.valid))
    moves = rollout.ended | (at_step.length == pending.max_pending_steps)
    tail = jnp.minimum(_worthless_tail(negative_seen, at_step, config), at_step.length)
    if pending.extras:  # then steps matter for more than the rewards that follow them
        tail = jnp.zeros_like(tail)
    waiting = jnp.where(rollout.ended, 0, jnp.maximum(half - tail, 0))
    finished = Finished(
        length=jnp.where(moves & _is_kept(negative_seen, at_step, config), at_step.length - tail, 0).reshape(-1),
        waiting=waiting.reshape(-1),
        truncated_start=at_step.truncated_start.reshape(-1),
        last_row=(pending.position + jnp.arange(steps)[:, None] - tail).reshape(-1),
        environment=jnp.tile(jnp.arange(num_envs), steps),
        following=following_return(at_step, rollout, config).reshape(-1),
    )

    def write(ring: Array, block: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, block, pending.position, axis=0)

    appended = EpisodeBuffer(
        observation=jax.tree.map(write, pending.observation, newest_frame(rollout.observation, stack)),
        action=write(pending.action, rollout.action),
        reward=write(pending.reward, rollout.reward),
        extras={name: write(stored, _extra(rollout, name)) for name, stored in pending.extras.items()},
        position=(pending.position + steps) % ring,
        unfinished=after,
        negative_seen=negative_seen,
        max_pending_steps=pending.max_pending_steps,
    )
    return appended, finished


def _extra(rollout: Experience, name: str) -> Array:
    return rollout.extras[name]  # type: ignore[attr-defined]  # only buffers with extras need the field


def following_return(at_step: Unfinished, rollout: Experience, config: ReplayConfig) -> Float[Array, "T N"]:
    """The return after each step, if the stored part of its episode ends there: 0, or min(0, mean reward) / (1 - gamma)
    where the episode did not end by itself.
    """
    if at_step.steps is None or at_step.reward_sum is None:
        return jnp.zeros_like(rollout.reward)
    assert config.gamma is not None, "the learner's discount"
    mean = jnp.minimum(at_step.reward_sum, 0.0) / jnp.maximum(at_step.steps, 1)
    terminated = rollout.terminated  # type: ignore[attr-defined]  # only this setting needs the field
    return jnp.where(terminated, 0.0, mean / max(1 - config.gamma, 1 / MAX_HORIZON))


def _is_kept(negative_seen: Bool[Array, ""], episode: Unfinished, config: ReplayConfig) -> Bool[Array, "T N"]:
    """Judges the steps that are stored; earlier ones may have moved on."""
    if config.keep == "positive":
        return episode.since_positive < episode.length
    if config.keep == "informative":
        return (episode.since_reward < episode.length) | negative_seen
    return jnp.ones_like(episode.truncated_start)


def _worthless_tail(negative_seen: Bool[Array, ""], episode: Unfinished, config: ReplayConfig) -> Int[Array, "T N"]:
    """Steps after the last reward: their return of 0 only beats a value that is wrong, unless rewards can be negative.

    Deviation: the authors store them.
    """
    if config.keep == "all":
        return jnp.zeros_like(episode.length)
    return jnp.where(negative_seen, 0, episode.since_reward)
