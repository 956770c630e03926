"""The mazes as Gymnasium environments, so that any other library can train on them."""

import operator
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from self_imitation.environments import maze
from self_imitation.errors import bad_value


class _Outcomes(NamedTuple):
    """What each action leads to from each observation, by the observation's number."""

    levels: tuple[int, ...]
    following: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    start: np.ndarray
    time_limit: int


_tables: dict[bool, _Outcomes] = {}


def _outcomes(apples: bool) -> _Outcomes:
    """Every (observation, action) put once through the pure function; a step is then a look-up."""
    if apples not in _tables:
        import jax
        import jax.numpy as jnp

        from self_imitation.environments.key_door_treasure import MAX_EPISODE_STEPS, MOVES, KeyDoorTreasure

        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            environment = KeyDoorTreasure(apples)
            spec = environment.spec
            assert spec.observation_levels is not None
            observations = np.indices(spec.observation_levels).reshape(len(spec.observation_levels), -1).T

            def outcome(observation: jax.Array, action: jax.Array) -> Any:
                return environment.step(environment.state_of(observation, jnp.int32(0)), action)

            over_actions = jax.vmap(outcome, (None, 0))
            step = jax.jit(jax.vmap(over_actions, (0, None)))(observations.astype(np.float32), np.arange(len(MOVES)))
            start = environment.observe(environment.reset(jax.random.key(0)))
            _tables[apples] = _Outcomes(
                spec.observation_levels,
                np.asarray(step.observation),
                np.asarray(step.reward),
                np.asarray(step.terminated),
                np.asarray(start),
                MAX_EPISODE_STEPS,
            )
    return _tables[apples]


class KeyDoorTreasureEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Observations are float32, `terminated` is the treasure, `truncated` step 50."""

    metadata = {  # noqa: RUF012 (Gymnasium declares it so)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 8,
    }

    def __init__(self, apples: bool = False, render_mode: str | None = None):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise bad_value("render_mode", render_mode, "allowed: None, ansi, rgb_array")
        self.render_mode = render_mode
        self._outcomes = _outcomes(apples)
        highest = np.array(self._outcomes.levels, np.float32) - 1
        self.observation_space = gymnasium.spaces.Box(np.zeros_like(highest), highest, dtype=np.float32)
        self.action_space: gymnasium.spaces.Discrete = gymnasium.spaces.Discrete(self._outcomes.reward.shape[1])
        self._observation: np.ndarray | None = None
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        self._observation = self._outcomes.start
        return self._outcomes.start.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        try:
            action = operator.index(action)
        except TypeError:
            raise bad_value("action", action, f"allowed: a whole number, 0 to {self.action_space.n - 1}") from None
        if not 0 <= action < self.action_space.n:
            raise bad_value("action", action, f"allowed: 0 to {self.action_space.n - 1}")
        if self._observation is None:
            raise gymnasium.error.ResetNeeded("reset() comes before the first step()")
        here = np.ravel_multi_index(self._observation.astype(int), self._outcomes.levels)
        self._time += 1
        following = self._outcomes.following[here, action]
        self._observation = following
        terminated = bool(self._outcomes.terminated[here, action])
        truncated = self._time >= self._outcomes.time_limit and not terminated
        return following.copy(), float(self._outcomes.reward[here, action]), terminated, truncated, {}

    def render(self) -> Any:
        if self._observation is None:
            raise gymnasium.error.ResetNeeded("reset() comes before render()")
        if self.render_mode == "ansi":
            return maze.to_text(self._observation)
        if self.render_mode == "rgb_array":
            return maze.to_pixels(self._observation)
        return None


def register() -> None:
    """Once, when the package is imported."""
    for name, apples in (("KeyDoorTreasure", False), ("AppleKeyDoorTreasure", True)):
        gymnasium.register(
            f"self_imitation/{name}-v0",
            entry_point="self_imitation.environments.gymnasium_maze:KeyDoorTreasureEnv",
            kwargs={"apples": apples},
        )
