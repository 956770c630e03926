"""What engines with an XLA interface have in common: a flat batch of environments that reset in the step after an end.

An FFI call can't be `vmap`ped, so the environments of all seeds of a group are one batch of K * N.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt8

from self_imitation.environments.batched import StepResult
from self_imitation.types import Observation


class EngineState(eqx.Module):
    handle: UInt8[Array, "8"]
    """The engine's own token: it orders the calls in the program."""
    ended: Bool[Array, "K N"]
    """Whether the next step resets."""


class FlatStep(NamedTuple):
    """What an engine returns, [K * N, ...]."""

    observation: Observation
    reward: Array
    terminated: Array
    truncated: Array


def to_result(handle: Array, ended_before: Bool[Array, "K N"], step: FlatStep) -> tuple[EngineState, StepResult]:
    """By seed, with the steps marked that only reset."""
    shape = ended_before.shape
    valid = ~ended_before
    terminated, truncated = (flag.reshape(shape) & valid for flag in (step.terminated, step.truncated))
    result = StepResult(
        observation=by_seed(step.observation, shape),
        next_observation=None,
        reward=jnp.where(valid, step.reward.reshape(shape).astype(jnp.float32), 0.0),
        terminated=terminated,
        truncated=truncated,
        valid=valid,
    )
    return EngineState(handle, terminated | truncated), result


def by_seed(observation: Observation, shape: tuple[int, ...]) -> Any:
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), observation)
