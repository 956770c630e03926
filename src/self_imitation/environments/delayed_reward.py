"""Delayed rewards (section 5.6): what was earned is paid every so many steps, and at the end of the episode."""

from typing import Any, SupportsFloat

import gymnasium
import numpy as np


class Payments:
    """What environments have earned and not been paid yet."""

    def __init__(self, shape: tuple[int, ...], delay: int):
        self.delay = delay
        self.owed = np.zeros(shape)
        self.waited = np.zeros(shape, np.int64)

    def pay_all(self, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """`pay` for each of the steps [T, ...]."""
        if self.delay == 1:
            return reward
        return np.stack([self.pay(*step) for step in zip(reward, ended, strict=True)])

    def pay(self, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """What is paid at this step for the rewards that it earned."""
        self.owed += reward
        self.waited += 1
        due = ended | (self.waited >= self.delay)
        paid = np.where(due, self.owed, 0.0)
        self.owed[due], self.waited[due] = 0.0, 0
        return paid


class DelayedReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays the sum of the rewards at every `delay`-th step of an episode and when it ends, 0 at all other steps."""

    def __init__(self, env: gymnasium.Env[Any, Any], delay: int):
        super().__init__(env)
        if not isinstance(delay, int) or delay < 1:
            raise ValueError(f"delay: {delay} is not allowed; allowed: a whole number of 1 or more")
        self.payments = Payments((1,), delay)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self.payments = Payments((1,), self.payments.delay)
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        paid = self.payments.pay(np.array([float(reward)]), np.array([terminated or truncated]))
        return observation, float(paid[0]), terminated, truncated, info
