"""An environment's promises, checked at every step: a broken one is told where it breaks, not where it hurts."""

import numbers
from typing import Any

import gymnasium
import numpy as np

from self_imitation.errors import FaultyEnvironmentError


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises where what the environment gives is not of the shape and type that it promised."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        answer: Any = self.env.reset(**arguments)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise FaultyEnvironmentError(f"its reset gave {_shown(answer)}, not an observation and a dict")
        self._check_observation(answer[0])
        return answer

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        answer: Any = self.env.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            wanted = "an observation, a reward, terminated, truncated and a dict"
            raise FaultyEnvironmentError(f"its step gave {_shown(answer)}, not {wanted}")
        observation, reward, terminated, truncated, info = answer
        self._check_observation(observation)
        if not isinstance(reward, numbers.Real | np.bool_) and not _is_single_number(reward):
            raise FaultyEnvironmentError(f"its reward was {_shown(reward)}, not a number")
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise FaultyEnvironmentError(f"its {name} was {_shown(flag)}, not True or False")
        return observation, reward, terminated, truncated, info

    def _check_observation(self, observation: Any) -> None:
        space: Any = self.observation_space
        try:
            found = np.asarray(observation)
        except ValueError:
            raise FaultyEnvironmentError(f"its observation was {_shown(observation)}, not an array") from None
        if found.shape != space.shape:
            raise FaultyEnvironmentError(f"its observation has shape {found.shape}, not {space.shape}")
        if found.dtype != space.dtype and not np.can_cast(found.dtype, space.dtype, casting="same_kind"):
            raise FaultyEnvironmentError(f"its observation has type {found.dtype}, not {space.dtype}")


def _is_single_number(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.shape == () and np.issubdtype(value.dtype, np.number)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
