"""Environments inside the compiled program: all copies of all seeds of a group as one batch [K, N].

A step has two halves, `send` and `recv`, so that a program can compute while an engine's own threads step. Pure-JAX
environments reset within the step that ends an episode; the engines reset in the step after it, and mark that step as
not valid.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, Shaped, UInt8

from self_imitation.arrays import select
from self_imitation.types import Continuous, Environment, Observation, Spec


class StepResult(eqx.Module):
    """Result of one step of every environment."""

    observation: Observation
    """What the policy sees next."""
    next_observation: Observation | None
    """Observation before any reset. None: `observation` is that, since environments reset in the next step."""
    reward: Float[Array, "K N"]
    terminated: Bool[Array, "K N"]
    truncated: Bool[Array, "K N"]
    valid: Bool[Array, "K N"] | None
    """False for steps that only reset. None: there are none."""


@runtime_checkable
class BatchedEnvironment(Protocol):
    """K x N copies of an environment. `send` and `recv` are traced; `reset` and `close` are called from Python."""

    spec: Spec
    can_be_saved: bool
    """Whether the state that `reset` returns is all of the environments' state."""
    can_be_shared: bool
    """Whether a program compiled with one such object serves others, also in a later process."""

    def reset(self, key: Key[Array, " K"]) -> tuple[Any, Observation]:
        """Start all environments; returns their state and first observations."""

    def send(self, state: Any, action: Shaped[Array, "K N ..."]) -> Any:
        """Start a step; returns what `recv` needs."""

    def recv(self, request: Any, key: Key[Array, " K"]) -> tuple[Any, StepResult]:
        """Finish the step."""

    def close(self) -> None: ...


class PureJax:
    """Copies of a pure-JAX environment."""

    can_be_saved = True
    can_be_shared = True

    def __init__(self, environment: Environment, num_envs: int):
        self.environment, self.num_envs = environment, num_envs
        self.spec = environment.spec
        self._reset: Any = jax.jit(jax.vmap(self._reset_one_seed))

    def reset(self, key: Key[Array, " K"]) -> tuple[Any, Observation]:
        return self._reset(key)

    def send(self, state: Any, action: Shaped[Array, "K N ..."]) -> tuple[Any, Shaped[Array, "K N ..."]]:
        if isinstance(self.spec.actions, Continuous):
            action = jnp.clip(action, jnp.array(self.spec.actions.low), jnp.array(self.spec.actions.high))
        return state, action

    def recv(self, request: tuple[Any, Shaped[Array, "K N ..."]], key: Key[Array, " K"]) -> tuple[Any, StepResult]:
        step = jax.vmap(jax.vmap(self.environment.step))(*request)
        ended = step.terminated | step.truncated
        fresh = jax.vmap(self._reset_one_seed)(key)
        state, observation = select(ended, fresh, (step.state, step.observation))
        result = StepResult(observation, step.observation, step.reward, step.terminated, step.truncated, valid=None)
        return state, result

    def close(self) -> None:
        pass

    def _reset_one_seed(self, key: Array) -> tuple[Any, Observation]:
        state = jax.vmap(self.environment.reset)(jax.random.split(key, self.num_envs))
        return state, jax.vmap(self.environment.observe)(state)


class FrameStackState(eqx.Module):
    inner: Any
    frames: UInt8[Array, "K N height width stack"]


class FrameStack:
    """Stacks the latest frames of an engine's environments along the channels; 0 before an episode's first frame.

    Stacking here, not in the engine, means that each frame is copied to the device once.
    """

    can_be_saved = False

    def __init__(self, inner: BatchedEnvironment, spec: Spec):
        self.inner, self.spec = inner, spec
        self.can_be_shared = inner.can_be_shared

    def reset(self, key: Key[Array, " K"]) -> tuple[FrameStackState, Observation]:
        inner, frame = self.inner.reset(key)
        empty = jnp.zeros((*frame.shape[:-1], self.spec.stack), frame.dtype)
        frames = _push_frame(empty, frame)
        return FrameStackState(inner, frames), jnp.copy(frames)  # a program donates both

    def send(self, state: FrameStackState, action: Shaped[Array, "K N ..."]) -> FrameStackState:
        return FrameStackState(self.inner.send(state.inner, action), state.frames)

    def recv(self, request: FrameStackState, key: Key[Array, " K"]) -> tuple[FrameStackState, StepResult]:
        inner, result = self.inner.recv(request.inner, key)
        assert result.valid is not None
        before = select(result.valid, request.frames, jnp.zeros_like(request.frames))
        frames = _push_frame(before, result.observation)
        return FrameStackState(inner, frames), eqx.tree_at(lambda r: r.observation, result, frames)

    def close(self) -> None:
        self.inner.close()


def _push_frame(frames: Array, frame: Array) -> Array:
    return jnp.concatenate([frames[..., 1:], frame], axis=-1)
