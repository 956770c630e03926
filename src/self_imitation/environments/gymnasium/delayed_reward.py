"""Delayed rewards (paper, section 5.6)."""

from typing import Any, SupportsFloat

import gymnasium


class DelayedReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the accumulated reward at every `delay`-th step of an episode and at its end, and 0 at all other steps."""

    def __init__(self, env: gymnasium.Env[Any, Any], delay: int):
        super().__init__(env)
        if not isinstance(delay, int) or delay < 1:
            raise ValueError(f"delay: {delay} is not allowed; allowed: a whole number of 1 or more")
        self.delay = delay
        self.accumulated, self.waited = 0.0, 0

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self.accumulated, self.waited = 0.0, 0
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.accumulated += float(reward)
        self.waited += 1
        given = 0.0
        if terminated or truncated or self.waited == self.delay:
            given, self.accumulated, self.waited = self.accumulated, 0.0, 0
        return observation, given, terminated, truncated, info
