"""ale-py's Atari emulators through their XLA interface, which has no separate `send` and `recv`."""

import importlib.util
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Key, Shaped

from self_imitation.environments import atari
from self_imitation.environments.batched import BatchedEnvironment, FrameStack, StepResult
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.environments.gymnasium.vector import describe_atari, make_emulators
from self_imitation.environments.xla.engine import EngineState, FlatStep, by_seed, to_result
from self_imitation.types import Observation


def available() -> bool:
    return importlib.util.find_spec("ale_py") is not None


def has_xla() -> bool:
    """Whether this version of ale-py has an XLA interface."""
    from ale_py.vector_env import AtariVectorEnv

    return sys.platform == "linux" and hasattr(AtariVectorEnv, "xla")


def describe(rom: str) -> Spaces:
    """Spaces of a game."""
    emulator = make_emulators(rom, 1, 1)
    spaces = describe_atari(emulator)
    emulator.close()
    return spaces


def make_atari(rom: str, seeds: np.ndarray, num_threads: int) -> BatchedEnvironment:
    """One emulator for each of the seeds [K, N], with the paper's preprocessing."""
    engine = Ale(rom, seeds, num_threads)
    return FrameStack(engine, engine.spec)


class Ale:
    """K x N emulators of one game."""

    can_be_saved = False
    can_be_shared = True

    def __init__(self, rom: str, seeds: np.ndarray, num_threads: int):
        threads = min(num_threads, seeds.size)
        options = {"autoreset_mode": AutoresetMode.NEXT_STEP, "stack_num": 1}  # frames are stacked by `FrameStack`
        self.env: Any = make_emulators(rom, seeds.size, threads, **options)
        self.seeds = seeds
        self.spec = atari.spec(int(self.env.single_action_space.n))
        self._handle, _, self._step = self.env.xla()

    def reset(self, key: Key[Array, " K"]) -> tuple[EngineState, Observation]:
        frames = _channels_last(jnp.asarray(self.env.reset(seed=self.seeds.reshape(-1))[0]))
        return EngineState(self._handle, jnp.zeros(self.seeds.shape, bool)), by_seed(frames, self.seeds.shape)

    def send(self, state: EngineState, action: Shaped[Array, "K N"]) -> tuple[EngineState, Array]:
        return state, action

    def recv(self, request: tuple[EngineState, Array], key: Key[Array, " K"]) -> tuple[EngineState, StepResult]:
        state, action = request
        handle, (frames, reward, terminated, truncated, _) = self._step(state.handle, action.reshape(-1))
        return to_result(handle, state.ended, FlatStep(_channels_last(frames), reward, terminated, truncated))

    def close(self) -> None:
        self.env.close()


def _channels_last(frames: Array) -> Array:
    return jnp.moveaxis(frames, 1, -1)
