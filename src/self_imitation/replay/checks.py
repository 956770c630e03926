"""Mistakes in what a replay buffer is given, named in one line. Only shapes and dtypes are read: free at run time."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from self_imitation import settings
from self_imitation.errors import UsageError, bad_value
from self_imitation.replay.episodes import EpisodeBuffer, continues, newest_frame
from self_imitation.settings import ReplayConfig
from self_imitation.types import Experience


def require_creatable(like: PyTree, config: ReplayConfig) -> None:
    """Raise a `UsageError` if no buffer can be made for such steps, or with such settings."""
    settings.check(config)
    if len(like.reward.shape) != 2:
        raise _wrong("reward", like.reward, "[T, N]: T steps in each of N environments")
    for name in ("observation", "action"):
        for leaf in jax.tree.leaves(getattr(like, name)):
            if leaf.shape[:2] != like.reward.shape:
                raise _wrong(name, leaf, f"{like.reward.shape} first, as reward has")


def require_fitting(pending: EpisodeBuffer, rollout: Experience, config: ReplayConfig, stack: int) -> None:
    """Raise a `UsageError` if the rollout is not of the shapes and dtypes that the buffer was created for."""
    if config.gamma is None:
        raise bad_value("gamma", None, "allowed: a number from 0 to 1, the discount of the stored returns")
    ring, num_envs = pending.reward.shape
    shape = jnp.shape(rollout.reward)
    if len(shape) != 2 or shape[1] != num_envs or ring % shape[0] or shape[0] > ring - pending.max_pending_steps:
        raise _wrong("reward", rollout.reward, f"(T, {num_envs}), with the T that the buffer was created for")
    names = ["ended", "valid"]
    if continues(config):
        names.append("terminated")
        if getattr(rollout, "terminated", None) is None:
            raise UsageError("terminated: the steps need this field with truncated_returns = continued")
    for name in names:
        flags = getattr(rollout, name)
        if flags is not None and (jnp.shape(flags) != shape or flags.dtype != bool):
            raise _wrong(name, flags, f"bool{list(shape)}")
    newest = jax.eval_shape(
        lambda observation, action: (newest_frame(observation, stack), action), rollout.observation, rollout.action
    )
    for name, given, stored in zip(
        ("observation", "action"), newest, (pending.observation, pending.action), strict=True
    ):
        structures: list[Any] = [jax.tree.structure(tree) for tree in (given, stored)]
        if structures[0] != structures[1]:
            raise UsageError(f"{name}: not the structure that the buffer was created for")
        for leaf, slots in zip(jax.tree.leaves(given), jax.tree.leaves(stored), strict=True):
            if leaf.shape != (*shape, *slots.shape[2:]) or leaf.dtype != slots.dtype:
                raise _wrong(name, leaf, f"{slots.dtype}{[*shape, *slots.shape[2:]]}, as the buffer was created for")


def _wrong(name: str, array: Any, expected: str) -> UsageError:
    return UsageError(f"{name}: {array.dtype}{list(array.shape)} is not allowed; expected {expected}")
