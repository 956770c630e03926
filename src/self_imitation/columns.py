"""What environments on the host gave in a rollout, by columns, as it travels to the device to be a `Rollout`."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from self_imitation.types import Rollout, Spec


class Columns(NamedTuple):
    """A `Rollout` on the host: NumPy's arrays of [T, K, N, ...], for K seeds at once."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    successor: np.ndarray
    last_observation: np.ndarray
    """[K, N, ...]"""
    episode_return: np.ndarray
    episode_length: np.ndarray

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated

    def on_device(self) -> Rollout:
        """Where a program is traced for one seed: [T, N, ...]."""
        return Rollout(**self._asdict())


class StackColumns(NamedTuple):
    """The same where observations are stacks of frames. They are left as they came, by parts of the environments and by
    steps, for they are on the device already: the policy saw them there.
    """

    stack: Sequence[Sequence[Any]]
    """What the policy saw, [part][step]: arrays of [K, n, stack, height, width]."""
    action: Sequence[Sequence[Any]]
    """[part][step]: arrays of [K, n, ...]."""
    last: np.ndarray
    """The `newest` of what it sees after the last step, [K, N, ...]."""
    numbers: np.ndarray
    """[5, T, K, N]: rewards, ends by the environment, ends by a limit, returns and lengths of the episodes so far. In
    one array: to bring one to a device takes nearly as long for a few numbers as for many.
    """
    successor: np.ndarray | None
    """[T, K, N, height, width]: where an episode ended, the newest frame of its last state. None: none did."""

    @property
    def ended(self) -> np.ndarray:
        return (self.numbers[1] > 0) | (self.numbers[2] > 0)

    @property
    def episode_return(self) -> np.ndarray:
        return self.numbers[3]

    @property
    def episode_length(self) -> np.ndarray:
        return self.numbers[4]

    def on_device(self) -> Rollout:
        """Where a program is traced for one seed."""

        def together(by_part: Sequence[Sequence[Array]]) -> Array:
            """[T, N, ...]"""
            return jnp.stack([jnp.concatenate(parts) for parts in zip(*by_part, strict=True)])

        stack = together(self.stack)
        last = stacked_up(stack[-1], jnp.asarray(self.last))
        seen = jnp.moveaxis(jnp.concatenate([stack, last[None]]), -3, -1)
        observation, successor = seen[:-1], seen[1:]
        if self.successor is not None:
            final = jnp.concatenate([observation[..., 1:], self.successor[..., None]], axis=-1)
            successor = jnp.where(self.ended[..., None, None, None], final, successor)
        reward, terminated, truncated, episode_return, episode_length = self.numbers
        return Rollout(
            observation=observation,
            action=together(self.action),
            reward=reward,
            terminated=terminated > 0,
            truncated=truncated > 0,
            successor=successor,
            last_observation=seen[-1],
            episode_return=episode_return,
            episode_length=episode_length.astype("int32"),
        )


def newest(observation: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """All that is new in stacks [K, n, stack, height, width], to bring to a device at once: of each the newest frame,
    and whether those before it are 0, for a new episode has begun, [K, n, height x width + 1].
    """
    seeds, environments, _, height, width = observation.shape
    news = np.empty((seeds, environments, height * width + 1), observation.dtype)
    news[..., :-1].reshape(seeds, environments, height, width)[:] = observation[:, :, -1]
    news[..., -1] = fresh
    return news


def stacked_up(stack: Array, news: Array) -> Array:
    """The stacks [n, stack, height, width] with what is new."""
    frame, fresh = news[:, :-1].reshape(stack[:, :1].shape), news[:, -1] > 0
    older = jnp.where(fresh[:, None, None, None], 0, stack[:, 1:])
    return jnp.concatenate([older, frame], axis=1)


def seen_by_network(spec: Spec, observation: Array) -> Array:
    """From an observation as the host has it: of a stack, from [..., stack, height, width] to [..., height, width,
    stack].
    """
    return observation if spec.stack == 1 else jnp.moveaxis(observation, -3, -1)


def seed_axis(spec: Spec) -> Columns | StackColumns:
    """Which of each column's axes are the seeds."""
    if spec.stack > 1:
        return StackColumns(0, 0, 0, 2, 1)  # type: ignore[arg-type]
    return Columns(1, 1, 1, 1, 1, 1, 0, 1, 1)  # type: ignore[arg-type]


def host_shape(spec: Spec) -> tuple[int, ...]:
    """Of an observation as the host keeps it: of a stack, the frames first."""
    height_and_width = spec.observation_shape[:-1]
    return spec.observation_shape if spec.stack == 1 else (spec.stack, *height_and_width)


def shapes(
    spec: Spec, shape: tuple[int, ...], parts: Sequence[slice] | None = None, ends: bool = True
) -> Columns | StackColumns:
    """Shapes and types of the columns, for [T, N] or [T, K, N] steps in such environments. `ends`: where some ended."""

    def array(dtype: type, *dimensions: int) -> Any:
        return jax.ShapeDtypeStruct(dimensions, dtype)

    steps, *seeds, environments = shape
    if spec.stack > 1:
        sizes = [part.stop - part.start for part in parts or [slice(0, environments)]]
        seen = [array(spec.observation_dtype, *seeds, n, *host_shape(spec)) for n in sizes]
        chosen = [array(spec.action_dtype, *seeds, n, *spec.action_shape) for n in sizes]
        frames = array(spec.observation_dtype, *shape, *host_shape(spec)[1:])
        return StackColumns(
            stack=[[one] * steps for one in seen],
            action=[[one] * steps for one in chosen],
            last=array(spec.observation_dtype, *seeds, environments, math.prod(host_shape(spec)[1:]) + 1),
            numbers=array(np.float32, 5, *shape),
            successor=frames if ends else None,
        )
    observation = array(spec.observation_dtype, *shape, *spec.observation_shape)
    return Columns(
        observation=observation,
        action=array(spec.action_dtype, *shape, *spec.action_shape),
        reward=array(np.float32, *shape),
        terminated=array(np.bool_, *shape),
        truncated=array(np.bool_, *shape),
        successor=observation,
        last_observation=array(spec.observation_dtype, *seeds, environments, *spec.observation_shape),
        episode_return=array(np.float32, *shape),
        episode_length=array(np.int32, *shape),
    )
