"""Atari games by ale-py's vector of emulators, with the paper's preprocessing: skip 4, the maximum of two frames,
84 x 84 grey, stacks of 4, up to 30 no-ops, FIRE on reset, no sticky actions; a lost life ends nothing.

Observations stay as the emulator gives them, [N, frames, height, width]: to put the frames last takes the host longer
than the emulator takes for a step, and a device no time at all.
"""

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from gymnasium import spaces as gymnasium_spaces
from gymnasium.vector import AutoresetMode

from self_imitation.environments.host.spaces import Spaces
from self_imitation.environments.host.vectors import Arrival, HostVector, told
from self_imitation.types import Discrete, Spec

SIDE, STACK, SKIP = 84, 4, 4
MOST_FRAMES = 108_000
"""Of an episode (paper: 30 minutes at 60 frames a second)."""
MOST_EMULATORS = 1024
"""In one process. To make one takes up to 0.1 seconds, in which no signal is heard."""
NATIVE = (210, 160)
"""Height and width of the screen."""
BEHIND = 10
"""By how much less urgent the emulators' threads are: they are many, and all of them wait for what acts."""


def make(game: str, copies: int, threads: int, **changes: Any) -> Any:
    """`game`: the name of its file."""
    from ale_py.vector_env import AtariVectorEnv

    with ThreadPoolExecutor(1, initializer=_step_back) as maker:  # the emulators' threads are as urgent as their maker
        return maker.submit(
            AtariVectorEnv,
            game,
            copies,
            num_threads=threads,
            autoreset_mode=AutoresetMode.SAME_STEP,
            max_num_frames_per_episode=MOST_FRAMES,
            reward_clipping=False,
            **{"img_height": SIDE, "img_width": SIDE, "stack_num": STACK, "frameskip": SKIP, **changes},
        ).result()


def _step_back() -> None:
    """This thread, behind the others of its process; elsewhere than on Linux threads have no priority of their own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + BEHIND)


def describe(game: str) -> Spaces:
    env = make(game, 1, 1)
    actions = env.single_action_space
    spec = Spec(
        (SIDE, SIDE, STACK), Discrete(int(actions.n)), MOST_FRAMES // SKIP, observation_kind="image", stack=STACK
    )
    return Spaces(spec, gymnasium_spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8), actions)


class AtariVector(HostVector):
    """Emulators in threads of their own, which reset themselves within the step that ends a game."""

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        with told():
            return self.env.reset(seed=np.array(seeds))[0]

    def send(self, action: np.ndarray) -> None:
        with told():
            self.env.send(action.astype(np.int32, copy=False))

    def receive(self) -> Arrival:
        with told():
            observation, reward, terminated, truncated, info = self.env.recv()
            ended = terminated | truncated
            successor = observation
            if ended.any():
                successor = observation.copy()
                successor[ended] = info["final_obs"][ended]
            return Arrival(successor, reward, terminated, truncated, observation)

    def close(self) -> None:
        self.env.close()
