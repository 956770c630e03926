"""Key-Door-Treasure as Gymnasium environments, so that other libraries can train on it too."""

from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from self_imitation.environments.jax import maze
from self_imitation.errors import UsageError, bad_value


class Transitions(NamedTuple):
    """Result of every action in every state: arrays [*observation, action]."""

    max_episode_steps: int
    next_observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    first_observation: np.ndarray


@cache
def transitions(apples: bool) -> Transitions:
    """Tabulate the pure-JAX environment once, so that a step is a look-up."""
    import jax
    import jax.numpy as jnp

    from self_imitation.environments.jax.key_door_treasure import MAX_EPISODE_STEPS, MOVES, KeyDoorTreasure

    environment = KeyDoorTreasure(apples)
    levels = environment.spec.observation_levels
    assert levels is not None
    observations = np.indices(levels).reshape(len(levels), -1).T.astype(np.float32)

    def step(observation: jax.Array, action: jax.Array) -> Any:
        return environment.step(environment.state_of(observation, jnp.int32(0)), action)

    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        steps = jax.jit(jax.vmap(jax.vmap(step, (None, 0)), (0, None)))(observations, np.arange(len(MOVES)))
        first = environment.observe(environment.reset(jax.random.key(0)))
    tables = [np.asarray(table) for table in (steps.observation, steps.reward, steps.terminated)]
    observation, reward, terminated = (table.reshape(*levels, *table.shape[1:]) for table in tables)
    return Transitions(MAX_EPISODE_STEPS, observation, reward, terminated, np.asarray(first))


class KeyDoorTreasureEnv(gymnasium.Env[np.ndarray, np.int64]):
    """`terminated` at the treasure, `truncated` at step 50. Observations as of the pure-JAX environment."""

    metadata = {  # noqa: RUF012 (Gymnasium declares it so)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 8,
    }

    def __init__(self, apples: bool = False, render_mode: str | None = None):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise bad_value("render_mode", render_mode, "allowed: None, ansi, rgb_array")
        self.render_mode = render_mode
        self._transitions = transitions(apples)
        *levels, actions = self._transitions.reward.shape
        highest = np.array(levels, np.float32) - 1
        self.observation_space = gymnasium.spaces.Box(np.zeros_like(highest), highest, dtype=np.float32)
        self.action_space: gymnasium.spaces.Discrete = gymnasium.spaces.Discrete(actions)
        self._observation: np.ndarray | None = None
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        self._observation = self._transitions.first_observation
        return self._observation.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(np.asarray(action)):
            raise UsageError(f"action: {action} is not allowed; allowed: 0 to {self.action_space.n - 1}")
        if self._observation is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        table, index = self._transitions, (*self._observation.astype(int), int(action))
        self._time += 1
        self._observation = table.next_observation[index]
        terminated = bool(table.terminated[index])
        truncated = self._time >= table.max_episode_steps and not terminated
        return self._observation.copy(), float(table.reward[index]), terminated, truncated, {}

    def render(self) -> Any:
        if self._observation is None:
            raise gymnasium.error.ResetNeeded("call reset() before render()")
        if self.render_mode == "ansi":
            return maze.to_text(self._observation)
        if self.render_mode == "rgb_array":
            return maze.to_pixels(self._observation)
        return None


def register() -> None:
    """Register both mazes with Gymnasium; called when the package is imported."""
    for name, apples in (("KeyDoorTreasure", False), ("AppleKeyDoorTreasure", True)):
        gymnasium.register(
            f"self_imitation/{name}-v0",
            entry_point="self_imitation.environments.gymnasium.key_door_treasure:KeyDoorTreasureEnv",
            kwargs={"apples": apples},
        )
