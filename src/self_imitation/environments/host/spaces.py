"""From Gymnasium's spaces to a `Spec`, and observations and actions to and fro."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from self_imitation.errors import UsageError
from self_imitation.types import Actions, Continuous, Discrete, MultiDiscrete, Spec

SMALLEST_IMAGE = 36
"""Pixels on a side that the convolutions need. Smaller uint8 arrays count as numbers: they seldom are pictures."""
MOST_LEVELS = 10_000_000
"""A whole number with more possible values than this is just a number."""


@dataclass(frozen=True)
class Spaces:
    """What an environment takes and gives, and what the learner makes of it. Batches of observations and actions."""

    spec: Spec
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    @cached_property
    def _low(self) -> np.ndarray:
        return self.action_space.low.reshape(-1)  # type: ignore[attr-defined]

    @cached_property
    def _high(self) -> np.ndarray:
        return self.action_space.high.reshape(-1)  # type: ignore[attr-defined]

    def observation(self, raw: Any) -> np.ndarray:
        """[N, ...] as the learner sees it: float32 numbers, uint8 images with channels last, categories from 0.

        Always a copy: vector environments give the same array again and again.
        """
        batch = np.asarray(raw)
        shape, kind = self.spec.observation_shape, self.spec.observation_kind
        if kind == "image":
            return np.array(_channels_last(batch.reshape(-1, *(self.observation_space.shape or ()))))
        if kind == "categories":
            batch = batch.reshape(-1, *shape) - _starts(self.observation_space)
        return batch.reshape(-1, *shape).astype(self.spec.observation_dtype)

    def action(self, chosen: np.ndarray) -> np.ndarray:
        """[N, ...] as the environment takes it: within its bounds, in its shape and type."""
        space = self.action_space
        match self.spec.actions:
            case Continuous():
                bounded = np.minimum(np.maximum(chosen, self._low), self._high)
                return bounded.reshape(-1, *(space.shape or ())).astype(space.dtype)
            case MultiDiscrete():
                return (chosen + _starts(space)).reshape(-1, *(space.shape or ())).astype(space.dtype)
            case Discrete():
                return (chosen + _starts(space)).astype(space.dtype)


def describe(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], max_episode_steps: int | None, name: str
) -> Spaces:
    """A `UsageError` that names the environment, if its spaces are none that we know."""
    actions = _actions(action_space, name)
    match observation_space:
        case spaces.Discrete():
            levels: tuple[int, ...] | None = (int(observation_space.n),)
            shape, kind = (1,), "categories"
        case spaces.MultiDiscrete():
            levels = tuple(int(n) for n in observation_space.nvec.reshape(-1))
            shape, kind = (len(levels),), "categories"
        case spaces.MultiBinary():
            shape, kind, levels = (int(np.prod(observation_space.shape)),), "categories", None
            levels = (2,) * shape[0]
        case spaces.Box() if _is_image(observation_space):
            shape, kind, levels = _channels_last(np.empty((1, *observation_space.shape))).shape[1:], "image", None
        case spaces.Box() if observation_space.shape == () or min(observation_space.shape) > 0:
            shape, kind = (int(np.prod(observation_space.shape)),), "numbers"
            levels = _levels(observation_space)
        case _:
            raise UsageError(
                f"env: {name!r} has observations {observation_space}; allowed: Box, Discrete, MultiDiscrete or "
                "MultiBinary (gymnasium.wrappers.FlattenObservation makes a Box of others)"
            )
    spec = Spec(shape, actions, max_episode_steps, levels, kind)  # type: ignore[arg-type]
    return Spaces(spec, observation_space, action_space)


def _actions(space: spaces.Space[Any], name: str) -> Actions:
    match space:
        case spaces.Discrete():
            return Discrete(int(space.n))
        case spaces.MultiDiscrete():
            return MultiDiscrete(tuple(int(n) for n in space.nvec.reshape(-1)))
        case spaces.MultiBinary():
            return MultiDiscrete((2,) * int(np.prod(space.shape)))
        case spaces.Box() if np.issubdtype(space.dtype, np.floating) and np.prod(space.shape) > 0:
            return Continuous(tuple(space.low.reshape(-1).tolist()), tuple(space.high.reshape(-1).tolist()))
        case _:
            raise UsageError(
                f"env: {name!r} has actions {space}; allowed: Discrete, MultiDiscrete, MultiBinary or a Box of "
                "floating-point numbers"
            )


def _is_image(space: spaces.Box) -> bool:
    if space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    height, width, _ = _channels_last(np.empty((1, *space.shape))).shape[1:]
    return min(height, width) >= SMALLEST_IMAGE


def _channels_last(images: np.ndarray) -> np.ndarray:
    """[N, height, width, channels] of images that may have no channels, or have them first, as stacked frames do."""
    if images.ndim == 3:
        return images[..., None]
    _, first, second, third = images.shape
    return np.moveaxis(images, 1, -1) if first < min(second, third) else images


def _levels(space: spaces.Box) -> tuple[int, ...] | None:
    """How many values each number can take, if they are whole and start at 0."""
    whole = np.issubdtype(space.dtype, np.integer)
    if not whole or not np.all(space.low == 0) or np.any(space.high.astype(float) > MOST_LEVELS):
        return None
    return tuple(int(high) + 1 for high in space.high.reshape(-1))


def _starts(space: spaces.Space[Any]) -> Any:
    start = getattr(space, "start", 0)
    return np.asarray(start).reshape(-1) if isinstance(space, spaces.MultiDiscrete) else start
