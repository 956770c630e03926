"""Checks that an environment keeps to its own spaces and to Gymnasium's interface, at every step."""

import numbers
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from self_imitation.environments.gymnasium.spaces import CATEGORIES, Part, describe
from self_imitation.errors import FaultyEnvironmentError, Interrupted, shorten


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises `FaultyEnvironmentError` where an environment returns something else than its spaces promise.

    Parts of Dict and Tuple observations that are not used, such as text, are dropped; a Tuple becomes a Dict, so that
    the other parts keep their index. `info` is dropped too: Gymnasium can't batch one that changes its structure.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], name: str):
        """Raises `UsageError`, with the environment's name, if its spaces are not supported."""
        super().__init__(env)
        self.spaces = describe(env.observation_space, env.action_space, _max_episode_steps(env), name)
        if isinstance(env.observation_space, spaces.Dict | spaces.Tuple):
            self.observation_space = _to_space(_nest({part.path: part.space for part in self.spaces.parts}))
            self.spaces = replace(self.spaces, observation_space=self.observation_space)

    stop: Callable[[], bool] = staticmethod(lambda: False)
    """Asked before each step: True raises `Interrupted`."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        result: Any = self.env.reset(**arguments)
        if not isinstance(result, tuple) or len(result) != 2:
            raise FaultyEnvironmentError(f"reset() returned {shorten(result, 60)}, not (observation, info)")
        return self._checked_observation(result[0]), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self.stop():
            raise Interrupted
        result: Any = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            expected = "(observation, reward, terminated, truncated, info)"
            raise FaultyEnvironmentError(f"step() returned {shorten(result, 60)}, not {expected}")
        observation, reward, terminated, truncated, _ = result
        observation = self._checked_observation(observation)
        if not isinstance(reward, numbers.Real | np.bool_) and not _is_single_number(reward):
            raise FaultyEnvironmentError(f"reward is {shorten(reward, 60)}, not a number")
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise FaultyEnvironmentError(f"{name} is {shorten(flag, 60)}, not True or False")
        return observation, reward, terminated, truncated, {}

    def _checked_observation(self, observation: Any) -> Any:
        """A copy, since an environment may write its next observation into the same array."""
        return _nest({part.path: _checked(part, observation) for part in self.spaces.parts})


def _max_episode_steps(env: gymnasium.Env[Any, Any]) -> int | None:
    """The lowest time limit; an environment that Gymnasium did not make may have one without a spec."""
    limits = [env.spec.max_episode_steps] if env.spec else []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min((limit for limit in limits if limit is not None), default=None)


def _checked(part: Part, observation: Any) -> np.ndarray:
    name, space = part.name, part.space
    assert space.dtype is not None
    try:
        value = part.select(observation)
    except (KeyError, IndexError, TypeError):
        raise FaultyEnvironmentError(f"{name} is missing from {shorten(observation, 60)}") from None
    try:
        found = np.array(value)
    except ValueError:
        raise FaultyEnvironmentError(f"{name} is {shorten(value, 60)}, not an array") from None
    if found.dtype.kind not in "biufc":
        raise FaultyEnvironmentError(f"{name} is {shorten(value, 60)}, not an array of numbers")
    if found.shape != space.shape:
        raise FaultyEnvironmentError(f"{name} has shape {found.shape}, not {space.shape}")
    if found.dtype != space.dtype and not np.can_cast(found.dtype, space.dtype, casting="same_kind"):
        raise FaultyEnvironmentError(f"{name} has dtype {found.dtype}, not {space.dtype}")
    if isinstance(space, CATEGORIES) and not space.contains(found.astype(space.dtype)[()]):
        raise FaultyEnvironmentError(f"{name} is {shorten(value, 60)}, which is not in {space}")
    return found


def _nest(values: dict[tuple[Any, ...], Any]) -> Any:
    """Nested dicts with the values at their paths; the value itself if its path is empty."""
    if () in values:
        return values[()]
    root: dict[Any, Any] = {}
    for path, value in values.items():
        node = root
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return root


def _to_space(tree: Any) -> spaces.Space[Any]:
    if not isinstance(tree, dict):
        return tree
    return spaces.Dict(OrderedDict((key, _to_space(child)) for key, child in tree.items()))


def _is_single_number(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "biuf"
