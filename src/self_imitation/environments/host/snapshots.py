"""The whole state of Gymnasium's MuJoCo tasks as arrays, so that a run resumes in the middle of its episodes.

Positions and velocities are not enough. MuJoCo's integration state adds what the solver starts from, and some tasks
reckon a step's reward from body positions that MuJoCo worked out at the step before (Ant: xpos; Humanoid: xipos).
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from self_imitation.environments.host.guard import Guard
from self_imitation.environments.host.vectors import HostVector

TRANSPARENT = (Guard, OrderEnforcing, TimeLimit)
"""Wrappers without a state of their own, apart from the clock of `TimeLimit`."""


def possible(vector: HostVector) -> bool:
    """Only where nothing is left out: Gymnasium's own tasks, in this process, under wrappers that we know."""
    return isinstance(vector.env, SyncVectorEnv) and all(_known(env) for env in vector.env.envs)


def take(vector: HostVector) -> dict[str, np.ndarray]:
    """Arrays with a row for each copy."""
    assert isinstance(vector.env, SyncVectorEnv)
    taken = [_take_one(env) for env in vector.env.envs]
    return {name: np.stack([one[name] for one in taken]) for name in taken[0]}


def put_back(vector: HostVector, arrays: dict[str, np.ndarray]) -> None:
    """Into copies that have been reset at least once."""
    assert isinstance(vector.env, SyncVectorEnv)
    for row, env in enumerate(vector.env.envs):
        _put_back_one(env, {name: array[row] for name, array in arrays.items()})


def _known(env: gymnasium.Env[Any, Any]) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in TRANSPARENT:
            return False
        env = env.env
    return type(env).__module__.startswith("gymnasium.envs.mujoco.") and hasattr(env, "data")


def _take_one(env: Any) -> dict[str, np.ndarray]:
    import mujoco

    inner, which = env.unwrapped, mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(inner.model, which))
    mujoco.mj_getState(inner.model, inner.data, physics, which)
    return {
        "physics": physics,
        "xpos": np.array(inner.data.xpos),
        "xipos": np.array(inner.data.xipos),
        "generator": _from_generator(inner.np_random),
        "clock": np.array(_clock(env)._elapsed_steps),
    }


def _put_back_one(env: Any, arrays: dict[str, Any]) -> None:
    import mujoco

    inner = env.unwrapped
    mujoco.mj_setState(inner.model, inner.data, arrays["physics"], mujoco.mjtState.mjSTATE_INTEGRATION)
    inner.data.xpos[:] = arrays["xpos"]
    inner.data.xipos[:] = arrays["xipos"]
    inner.np_random = _to_generator(arrays["generator"])
    _clock(env)._elapsed_steps = int(arrays["clock"])


def _clock(env: Any) -> Any:
    while not isinstance(env, TimeLimit):
        env = env.env
    return env


def _from_generator(generator: np.random.Generator) -> np.ndarray:
    """The state of NumPy's PCG64, whose two 128-bit numbers are split in halves."""
    state = generator.bit_generator.state
    words = [word for number in (state["state"]["state"], state["state"]["inc"]) for word in divmod(number, 2**64)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _to_generator(words: np.ndarray) -> np.random.Generator:
    generator = np.random.default_rng(0)
    high, low, increment_high, increment_low, has, left = (int(word) for word in words)
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * 2**64 + low, "inc": increment_high * 2**64 + increment_low},
        "has_uint32": has,
        "uinteger": left,
    }
    return generator
