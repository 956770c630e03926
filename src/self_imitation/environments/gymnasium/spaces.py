"""Gymnasium spaces as a `Spec`, and batches of observations and actions converted between environment and learner.

`xp` is the array namespace of a batch: NumPy, or `jax.numpy` inside a compiled program.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from self_imitation.errors import UsageError
from self_imitation.types import Actions, Continuous, Discrete, MultiDiscrete, Observation, Spec

MIN_IMAGE_SIDE = 36
"""Pixels that the convolutions need. Smaller uint8 arrays are treated as numbers; they are seldom pictures."""
MAX_LEVELS = 10_000_000
"""Integers with more possible values are not counted, only treated as numbers."""
MAX_ONE_HOT = 1024
"""Columns of one-hot encoded categories beside other observations; beyond, categories become plain numbers."""
MAX_CATEGORIES = 1_000_000
"""Of a whole observation or action, one-hot. Observations with more are treated as numbers, actions are refused."""
CATEGORIES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class Part:
    """One leaf of an observation space."""

    path: tuple[Any, ...]
    """Keys and indices that lead to it through Dict and Tuple spaces."""
    space: spaces.Space[Any]

    @cached_property
    def name(self) -> str:
        """As error messages call it."""
        return f"observation {'.'.join(map(str, self.path))!r}" if self.path else "observation"

    @cached_property
    def is_numeric(self) -> bool:
        return isinstance(self.space, CATEGORIES) or (isinstance(self.space, spaces.Box) and self._size > 0)

    @cached_property
    def kind(self) -> Literal["numbers", "image", "categories"]:
        if isinstance(self.space, CATEGORIES):
            return "categories" if sum(self._counts) <= MAX_CATEGORIES else "numbers"
        shape = self._box_shape
        if self.space.dtype != np.uint8 or len(shape) not in (2, 3):
            return "numbers"
        return "image" if min(_image_shape(shape)[:2]) >= MIN_IMAGE_SIDE else "numbers"

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the converted part."""
        return _image_shape(self._box_shape) if self.kind == "image" else (self._size,)

    @cached_property
    def levels(self) -> tuple[int, ...] | None:
        """Number of values of each entry; None where they are not integers from 0, or too many."""
        if isinstance(self.space, CATEGORIES):
            return self._counts if self.kind == "categories" else None
        match self.space:
            case spaces.Box(low=low, high=high, dtype=dtype) if self.kind == "numbers" and dtype.kind in "iu":
                if np.all(low == 0) and np.all(high.astype(float) <= MAX_LEVELS):
                    return tuple(int(highest) + 1 for highest in high.reshape(-1))
        return None

    @cached_property
    def width(self) -> int:
        """Number of columns from `to_numbers`."""
        return sum(self.levels or ()) if self._is_one_hot else self._size

    def select(self, raw: Any) -> Any:
        for key in self.path:
            raw = raw[key]
        return raw

    def convert(self, raw: Any, xp: Any = np) -> Any:
        """Float32 numbers [N, n], a uint8 image [N, height, width, channels] or int32 categories [N, n]. A copy."""
        batch = xp.asarray(self.select(raw)).reshape(-1, *self._box_shape)
        if self.kind == "image":
            return xp.array(_channels_last(batch, xp))
        flat = batch.reshape(-1, self._size)
        return (flat - _start(self.space)).astype(np.int32) if self.kind == "categories" else flat.astype(np.float32)

    def to_numbers(self, raw: Any, xp: Any = np) -> Any:
        """Float32 [N, width], with categories one-hot; as `gymnasium.wrappers.FlattenObservation` encodes them."""
        converted = self.convert(raw, xp)
        if self._is_one_hot and self.levels:
            entry = np.repeat(np.arange(self._size), self.levels)
            converted = converted[:, entry] == np.concatenate([np.arange(n) for n in self.levels])
        return converted.astype(np.float32)

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        return _category_counts(self.space)

    @cached_property
    def _is_one_hot(self) -> bool:
        one_hot = isinstance(self.space, spaces.Discrete | spaces.MultiDiscrete)
        return one_hot and sum(self._counts) <= MAX_ONE_HOT

    @cached_property
    def _box_shape(self) -> tuple[int, ...]:
        return self.space.shape or ()

    @cached_property
    def _size(self) -> int:
        return int(np.prod(self._box_shape))


@dataclass(frozen=True)
class Spaces:
    """The spaces of an environment, what the learner makes of them, and conversion of batches."""

    spec: Spec
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    notes: tuple[str, ...] = ()
    """Sentences for the user about parts of the observation that are ignored."""

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Those that are used."""
        return tuple(part for part in leaves(self.observation_space) if part.is_numeric)

    def observation(self, raw: Any, xp: Any = np) -> Observation:
        """A batch as Gymnasium's vector environments return it, converted for the learner. Always a copy."""
        if len(self.parts) == 1:
            return self.parts[0].convert(raw, xp)
        images = [part.convert(raw, xp) for part in self.parts if part.kind == "image"]
        numbers = [part.to_numbers(raw, xp) for part in self.parts if part.kind != "image"]
        if not images:
            return xp.concatenate(numbers, axis=1)
        image = xp.concatenate(images, axis=-1)
        return {"image": image, "numbers": xp.concatenate(numbers, axis=1)} if numbers else image

    def action(self, chosen: Any, xp: Any = np) -> Any:
        """The policy's actions [N, ...] within the environment's bounds, in its shape and dtype."""
        if isinstance(self.spec.actions, Continuous):
            # Deviation: the authors pass actions on as they are; MuJoCo clips them to the same bounds itself, but for
            # the control cost in the reward.
            low, high = self._bounds
            chosen = xp.minimum(xp.maximum(chosen, low), high)
        else:
            chosen = chosen + _start(self.action_space)
        return chosen.reshape(-1, *(self.action_space.shape or ())).astype(self.action_space.dtype)

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        assert isinstance(self.action_space, spaces.Box)
        return self.action_space.low.reshape(-1), self.action_space.high.reshape(-1)


def describe(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], max_episode_steps: int | None, name: str
) -> Spaces:
    """Read an environment's spaces. Raises `UsageError`, with the environment's name, if they are not supported."""
    parts = list(leaves(observation_space))
    used = [part for part in parts if part.is_numeric]
    if not used:
        raise UsageError(
            f"env: {name!r} has observation space {observation_space}, which contains no numbers; supported: Box, "
            "Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
        )
    spec = _spec(used, _actions(action_space, name), max_episode_steps, name)
    notes = tuple(f"{part.name} is {_kind_of_ignored(part.space)} and is ignored" for part in parts if part not in used)
    return Spaces(spec, observation_space, action_space, notes)


def leaves(space: spaces.Space[Any], path: tuple[Any, ...] = ()) -> Iterator[Part]:
    """The parts of a Dict or Tuple space in order, however nested; any other space is its own only part."""
    match space:
        case spaces.Dict():
            children: Any = space.spaces.items()
        case spaces.Tuple():
            children = enumerate(space.spaces)
        case _:
            yield Part(path, space)
            return
    for key, child in children:
        yield from leaves(child, (*path, key))


def _spec(parts: list[Part], actions: Actions, max_episode_steps: int | None, name: str) -> Spec:
    if len(parts) == 1:
        return Spec(parts[0].shape, actions, max_episode_steps, parts[0].levels, parts[0].kind)
    images = [part for part in parts if part.kind == "image"]
    numbers = sum(part.width for part in parts if part.kind != "image")
    if not images:
        return Spec((numbers,), actions, max_episode_steps)
    if len({part.shape[:2] for part in images}) > 1:
        sizes = ", ".join(f"{part.name} {part.shape[0]} x {part.shape[1]}" for part in images)
        raise UsageError(f"env: {name!r} has images of different sizes ({sizes}); resize them to one size")
    shape = (*images[0].shape[:2], sum(part.shape[2] for part in images))
    return Spec(shape, actions, max_episode_steps, observation_kind="image", numbers_beside_image=numbers)


def _actions(space: spaces.Space[Any], name: str) -> Actions:
    if isinstance(space, CATEGORIES) and sum(_category_counts(space)) > MAX_CATEGORIES:
        raise UsageError(f"env: {name!r} has action space {space}; supported: up to {MAX_CATEGORIES:,} actions")
    match space:
        case spaces.Discrete():
            return Discrete(int(space.n))
        case spaces.MultiDiscrete() | spaces.MultiBinary():
            return MultiDiscrete(_category_counts(space))
        case spaces.Box() if np.issubdtype(space.dtype, np.floating) and np.prod(space.shape) > 0:
            return Continuous(tuple(space.low.reshape(-1).tolist()), tuple(space.high.reshape(-1).tolist()))
        case _:
            raise UsageError(
                f"env: {name!r} has action space {space}; supported: Discrete, MultiDiscrete, MultiBinary, and Box of "
                "floating-point numbers"
            )


def _category_counts(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Number of values of each entry."""
    match space:
        case spaces.Discrete(n=n):
            return (int(n),)
        case spaces.MultiDiscrete(nvec=nvec):
            return tuple(int(n) for n in nvec.reshape(-1))
        case _:
            return (2,) * int(np.prod(space.shape or ()))


def _kind_of_ignored(space: spaces.Space[Any]) -> str:
    if space.dtype is not None and space.dtype.kind == "U":
        return "text"
    return "empty" if isinstance(space, spaces.Box) else f"a {type(space).__name__}"


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return _channels_last(np.empty((1, *shape)), np).shape[1:]


def _channels_last(images: Any, xp: Any) -> Any:
    """[N, height, width, channels] of images without channels, or with channels first, as stacked frames have them."""
    if images.ndim == 3:
        return images[..., None]
    _, first, second, third = images.shape
    return xp.moveaxis(images, 1, -1) if first < min(second, third) else images


def _start(space: spaces.Space[Any]) -> Any:
    """The smallest value of a space of categories, for each entry."""
    start = getattr(space, "start", 0)
    return np.asarray(start).reshape(-1) if isinstance(space, spaces.MultiDiscrete) else start
