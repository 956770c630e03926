"""XLand-MiniGrid (Nikulin et al. 2023): MiniGrid's tasks and XLand's rules, written in JAX."""

import importlib.util
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from self_imitation.errors import UsageError, unknown_name
from self_imitation.types import Discrete, Spec, Step

LARGEST = 6.0
"""About the middle of the numbers of tiles (0 to 12) and colours (0 to 11), which observations are centred at."""


def available() -> bool:
    return importlib.util.find_spec("xminigrid") is not None


def names() -> tuple[str, ...]:
    """Of the suite's environments; empty without its package."""
    if not available():
        return ()
    import xminigrid

    return tuple(xminigrid.registered_environments())


class XLand:
    """An environment of the suite. The policy sees the tiles and colours of the view, as numbers around 0."""

    def __init__(self, name: str):
        if not available():
            raise UsageError("env: XLand-MiniGrid is not installed: pip install 'self-imitation[xland]'")
        import xminigrid

        if name not in names():
            raise unknown_name("env", f"xland:{name}", [f"xland:{known}" for known in names()])
        made: Any = xminigrid.make(name)
        self._environment, self._params = made
        height, width, layers = self._environment.observation_shape(self._params)
        actions = Discrete(self._environment.num_actions(self._params))
        self.spec = Spec((height * width * layers,), actions, self._params.max_steps)

    def reset(self, key: PRNGKeyArray) -> Any:
        return self._environment.reset(self._params, key)

    def observe(self, state: Any) -> Float[Array, " numbers"]:
        return state.observation.reshape(-1).astype(jnp.float32) / LARGEST - 1.0

    def step(self, state: Any, action: Int[Array, ""]) -> Step:
        following = self._environment.step(self._params, state, action)
        terminated = following.last() & (following.discount == 0.0)
        truncated = following.last() & ~terminated
        reward = following.reward.astype(jnp.float32)
        return Step(following, self.observe(following), reward, terminated, truncated)
