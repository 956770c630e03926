"""Rollouts in Gymnasium environments: a plain Python loop that acts, steps and appends."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from self_imitation.environments.gymnasium.vector import VectorEnv
from self_imitation.errors import FaultyEnvironmentError
from self_imitation.types import Observation

Act: TypeAlias = Callable[[Observation, int], tuple[np.ndarray, dict[str, np.ndarray]]]
"""From observations [B, ...] and the number of the step to actions [B, ...] and extras to record."""


class HostRollout(NamedTuple):
    """T steps of B environments, as NumPy arrays [T, B, ...]; rewards are raw. A pytree: programs take it as it is."""

    observation: Observation
    action: Any
    extras: dict[str, Any]
    reward: Any
    terminated: Any
    truncated: Any
    next_observation: Observation
    last_observation: Observation


def collect(vector: VectorEnv, act: Act, observation: Observation, steps: int, first_step: int = 0) -> HostRollout:
    """`observation`: what the policy sees first. `first_step`: steps made before, for error messages."""
    rows = []
    for time in range(steps):
        action, extras = act(observation, time)
        try:
            result = vector.step(action)
        except FaultyEnvironmentError as error:
            raise FaultyEnvironmentError(f"{error}, at step {first_step + time + 1}") from error.__cause__
        rows.append(
            {
                "observation": observation,
                "action": action,
                "extras": extras,
                "reward": result.reward.astype(np.float32),
                "terminated": result.terminated,
                "truncated": result.truncated,
                "next_observation": result.next_observation,
            }
        )
        observation = result.observation
    columns = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    return HostRollout(**columns, last_observation=observation)
