"""The complete state of Gymnasium's MuJoCo tasks as arrays, so that a run resumes in the middle of an episode.

Positions and velocities are not enough. MuJoCo's integration state adds the solver's warm start, and some tasks compute
a step's reward from body positions that MuJoCo computed at the step before (Ant: xpos; Humanoid: xipos).
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from self_imitation.environments.gymnasium.checks import CheckedEnv

KNOWN_WRAPPERS = (CheckedEnv, OrderEnforcing, TimeLimit)
"""Wrappers without state, apart from the step counter of `TimeLimit`."""


def can_snapshot(env: gymnasium.Env[Any, Any]) -> bool:
    """Only Gymnasium's own MuJoCo tasks, under wrappers whose state is known."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in KNOWN_WRAPPERS:
            return False
        env = env.env
    return type(env).__module__.startswith("gymnasium.envs.mujoco.") and hasattr(env, "data")


def take(env: Any) -> dict[str, np.ndarray]:
    import mujoco

    task, kind = env.unwrapped, mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(task.model, kind))
    mujoco.mj_getState(task.model, task.data, physics, kind)
    return {
        "physics": physics,
        "xpos": np.array(task.data.xpos),
        "xipos": np.array(task.data.xipos),
        "random_state": _from_generator(task.np_random),
        "elapsed_steps": np.array(_time_limit(env)._elapsed_steps),
    }


def restore(env: Any, snapshot: Mapping[str, Any]) -> None:
    """Into an environment that has been reset at least once."""
    import mujoco

    task = env.unwrapped
    mujoco.mj_setState(task.model, task.data, snapshot["physics"], mujoco.mjtState.mjSTATE_INTEGRATION)
    task.data.xpos[:] = snapshot["xpos"]
    task.data.xipos[:] = snapshot["xipos"]
    task.np_random = _to_generator(snapshot["random_state"])
    _time_limit(env)._elapsed_steps = int(snapshot["elapsed_steps"])


def _time_limit(env: Any) -> Any:
    while not isinstance(env, TimeLimit):
        env = env.env
    return env


def _from_generator(generator: np.random.Generator) -> np.ndarray:
    """The state of NumPy's PCG64, with its two 128-bit integers split into halves."""
    state = generator.bit_generator.state
    words = [word for number in (state["state"]["state"], state["state"]["inc"]) for word in divmod(number, 2**64)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _to_generator(words: np.ndarray) -> np.random.Generator:
    generator = np.random.default_rng(0)
    high, low, increment_high, increment_low, has_uint32, uinteger = (int(word) for word in words)
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * 2**64 + low, "inc": increment_high * 2**64 + increment_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return generator
