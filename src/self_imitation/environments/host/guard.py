"""An environment's promises, checked at every step: a broken one is told where it breaks, not where it hurts."""

import numbers
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from self_imitation.errors import FaultyEnvironmentError

CATEGORIES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises where what the environment gives is not of the shape and type that it promised.

    What it tells beside that, its `info`, ends here: nobody reads it, and a vector of environments would fail to stack
    what is different from step to step.
    """

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        answer: Any = self.env.reset(**arguments)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise FaultyEnvironmentError(f"its reset gave {_shown(answer)}, not an observation and a dict")
        self._check_observation(answer[0])
        return answer[0], {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        answer: Any = self.env.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            wanted = "an observation, a reward, terminated, truncated and a dict"
            raise FaultyEnvironmentError(f"its step gave {_shown(answer)}, not {wanted}")
        observation, reward, terminated, truncated, _ = answer
        self._check_observation(observation)
        if not isinstance(reward, numbers.Real | np.bool_) and not _is_single_number(reward):
            raise FaultyEnvironmentError(f"its reward was {_shown(reward)}, not a number")
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise FaultyEnvironmentError(f"its {name} was {_shown(flag)}, not True or False")
        return observation, reward, terminated, truncated, {}

    def _check_observation(self, observation: Any) -> None:
        space: Any = self.observation_space
        try:
            found = np.asarray(observation)
        except ValueError:
            raise FaultyEnvironmentError(f"its observation was {_shown(observation)}, not an array") from None
        if found.dtype.kind not in "biufc":
            raise FaultyEnvironmentError(f"its observation was {_shown(observation)}, not an array of numbers")
        if found.shape != space.shape:
            raise FaultyEnvironmentError(f"its observation has shape {found.shape}, not {space.shape}")
        if found.dtype != space.dtype and not np.can_cast(found.dtype, space.dtype, casting="same_kind"):
            raise FaultyEnvironmentError(f"its observation has type {found.dtype}, not {space.dtype}")
        if isinstance(space, CATEGORIES) and not space.contains(found.astype(space.dtype)[()]):
            raise FaultyEnvironmentError(f"its observation was {_shown(observation)}, which is not in {space}")


def _is_single_number(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.shape == () and np.issubdtype(value.dtype, np.number)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
