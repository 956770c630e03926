"""EnvPool (MuJoCo, Atari, classic control ...) through its XLA interface."""

import importlib.util
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, Shaped

from self_imitation.environments import atari
from self_imitation.environments.batched import BatchedEnvironment, FrameStack, StepResult
from self_imitation.environments.gymnasium import spaces as gymnasium_spaces
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.environments.xla.engine import EngineState, FlatStep, by_seed, to_result
from self_imitation.types import Observation, Spec

ATARI_OPTIONS = {
    "stack_num": 1,  # frames are stacked by `FrameStack`
    "frame_skip": atari.FRAME_SKIP,
    "img_height": atari.SIDE,
    "img_width": atari.SIDE,
    "max_episode_steps": atari.MAX_FRAMES // atari.FRAME_SKIP,
    "noop_max": 30,
    "use_fire_reset": True,
    "episodic_life": False,
    "reward_clip": False,
    "repeat_action_probability": 0.0,
}
MISSION = "mission"
"""Of MiniGrid: what is to be done, in words."""


def available() -> bool:
    """Its XLA interface exists on Linux only."""
    return sys.platform == "linux" and importlib.util.find_spec("envpool") is not None


def has(envpool_id: str) -> bool:
    return available() and envpool_id in _known_ids()


@cache
def _known_ids() -> frozenset[str]:
    return frozenset(_envpool().list_all_envs())


def _envpool() -> Any:
    import envpool

    # EnvPool describes its spaces in float64, Gymnasium in float32.
    warnings.filterwarnings("ignore", message=".*precision lowered by casting.*")
    return envpool


def describe(envpool_id: str, name: str) -> Spaces:
    """Spaces of an environment, without making it."""
    spec = _envpool().make_spec(envpool_id)
    return _describe(spec.gymnasium_observation_space, spec.gymnasium_action_space, spec, name)


def _describe(observations: gymnasium.Space[Any], actions: gymnasium.Space[Any], spec: Any, name: str) -> Spaces:
    if isinstance(observations, gymnasium.spaces.Dict) and MISSION in observations.spaces:
        # EnvPool returns its character codes. It is text, and ignored as such.
        text = gymnasium.spaces.Text(int(np.prod(observations[MISSION].shape or ())))
        observations = gymnasium.spaces.Dict({**observations.spaces, MISSION: text})
    return gymnasium_spaces.describe(observations, actions, spec.config.max_episode_steps, name)


def make(
    envpool_id: str, seeds: np.ndarray, num_threads: int, name: str, options: Mapping[str, Any] | None = None
) -> BatchedEnvironment:
    """One environment for each of the seeds [K, N]."""
    return EnvPool(_make_pool(envpool_id, seeds, num_threads, **(options or {})), seeds.shape, name)


def make_atari(envpool_id: str, seeds: np.ndarray, num_threads: int, name: str) -> BatchedEnvironment:
    """The same for an Atari game, with the paper's preprocessing."""
    pool = EnvPool(_make_pool(envpool_id, seeds, num_threads, **ATARI_OPTIONS), seeds.shape, name)
    return FrameStack(pool, atari.spec(int(pool.spaces.action_space.n)))  # type: ignore[attr-defined]


def _make_pool(envpool_id: str, seeds: np.ndarray, num_threads: int, **options: Any) -> Any:
    threads = min(num_threads, seeds.size)
    numbers = seeds.reshape(-1).tolist()
    return _envpool().make(
        envpool_id, env_type="gymnasium", num_envs=len(numbers), seed=numbers, num_threads=threads, **options
    )


class EnvPool:
    """A pool of K x N environments."""

    can_be_saved = False
    can_be_shared = False  # EnvPool compiles the address of the pool into the program

    def __init__(self, pool: Any, shape: tuple[int, ...], name: str):
        self.pool, self.shape = pool, shape
        self.spaces: Spaces = _describe(pool.observation_space, pool.action_space, pool.spec, name)
        self.spec: Spec = self.spaces.spec
        self._action_dtype = pool.spec.action_array_spec["action"].dtype
        with jax.enable_x64(True):  # MuJoCo tasks speak float64
            self._handle, self._recv, self._send, _ = pool.xla()

    def reset(self, key: Key[Array, " K"]) -> tuple[EngineState, Observation]:
        observation = self.spaces.observation(self.pool.reset()[0])
        state = EngineState(jnp.asarray(self._handle), jnp.zeros(self.shape, bool))
        return state, by_seed(jax.tree.map(jnp.asarray, observation), self.shape)

    def send(self, state: EngineState, action: Shaped[Array, "K N ..."]) -> EngineState:
        with jax.enable_x64(True):
            flat = self.spaces.action(action.reshape(-1, *self.spec.action_shape), xp=jnp)
            return EngineState(self._send(state.handle, flat.astype(self._action_dtype)), state.ended)

    def recv(self, request: EngineState, key: Key[Array, " K"]) -> tuple[EngineState, StepResult]:
        with jax.enable_x64(True):
            handle, (raw, reward, terminated, truncated, _) = self._recv(request.handle)
            observation = self.spaces.observation(raw, xp=jnp)
            step = FlatStep(observation, reward.astype(jnp.float32), terminated, truncated)
        return to_result(handle, request.ended, step)

    def close(self) -> None:
        self.pool.close()
