"""The steps of one rollout of a Stable-Baselines3 model, raw, as the replay buffer takes them."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces


class Steps(NamedTuple):
    """T steps in each of N environments."""

    observation: Any
    """[T, N, ...], an array or arrays by name."""
    action: Any
    """[T, N, ...], as the policy sampled them: not clipped to the bounds of the environment."""
    reward: Any
    """[T, N], the environment's own: neither normalised nor with a value added at time limits."""
    ended: Any
    """[T, N], terminated or truncated."""
    terminated: Any
    """[T, N], ended by itself and not by a time limit."""
    valid: None = None
    """SB3's environments have no steps that only reset."""


def empty(observation_space: spaces.Space, action_space: spaces.Space, num_steps: int, num_envs: int) -> Steps:
    """Room for one rollout. Integers and floats of 64 bits are stored in 32."""

    def rows(space: spaces.Space, flat: bool = False) -> Any:
        if isinstance(space, spaces.Dict):
            return {name: rows(child) for name, child in space.spaces.items()}
        assert space.shape is not None
        shape = (math.prod(space.shape),) if flat and space.shape else space.shape
        return np.empty((num_steps, num_envs, *shape), jax.dtypes.canonicalize_dtype(space.dtype))

    return Steps(
        observation=rows(observation_space),
        action=rows(action_space, flat=True),
        reward=np.empty((num_steps, num_envs), np.float32),
        ended=np.empty((num_steps, num_envs), bool),
        terminated=np.empty((num_steps, num_envs), bool),
    )


def write(
    steps: Steps,
    row: int,
    observation: Any,
    action: np.ndarray,
    reward: np.ndarray,
    ended: np.ndarray,
    infos: list[dict],
) -> None:
    """Copy one step of each environment."""
    if isinstance(steps.observation, dict):
        for name, rows in steps.observation.items():
            rows[row] = observation[name]
    else:
        steps.observation[row] = observation
    steps.action[row] = action.reshape(steps.action.shape[1:])
    steps.reward[row], steps.ended[row] = reward, ended
    steps.terminated[row] = ended & ~np.array([info.get("TimeLimit.truncated", False) for info in infos], bool)
