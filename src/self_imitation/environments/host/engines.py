"""From an environment's name to its copies on the host, through the engine that is there and fits."""

import dataclasses
import importlib.util
import multiprocessing
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, registry
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from self_imitation import devices
from self_imitation.config import Engine, TrainConfig, override
from self_imitation.environments import catalogue
from self_imitation.environments.host import atari, spaces
from self_imitation.environments.host.atari import AtariVector
from self_imitation.environments.host.guard import Guard
from self_imitation.environments.host.spaces import Spaces
from self_imitation.environments.host.vectors import EnvPoolVector, HostVector
from self_imitation.errors import UsageError, bad_value, first_line


def choose(env: str, engine: Engine) -> Engine:
    """The engine that `auto` stands for here; one that can't run this environment is refused."""
    host_id = catalogue.find(env).host_id
    if host_id is None:
        return engine
    if env.startswith("atari:"):
        if engine not in ("auto", "ale"):
            raise bad_value("engine", engine, f"allowed for {env}: auto, ale")
        if not _installed("ale_py"):
            raise UsageError("env: Atari games need a package: pip install 'self-imitation[atari]'")
        return "ale"
    if engine == "ale":
        raise bad_value("engine", engine, "it runs atari: games alone; allowed: auto, envpool, gymnasium, processes")
    if engine == "auto":
        fast = env.startswith("mujoco:") and _installed("envpool")
        return "envpool" if fast else "gymnasium"
    if engine == "envpool":
        if not _installed("envpool"):
            raise bad_value("engine", engine, "EnvPool is not installed: pip install 'self-imitation[fast]'")
        if host_id not in _envpool().list_all_envs():
            raise bad_value("engine", engine, f"EnvPool has no {host_id}; allowed: gymnasium, processes")
    return engine


def settle(config: TrainConfig) -> TrainConfig:
    """The config with what depends on the environment itself: the engine that `auto` stands for here, and the network
    for its observations, where none was asked for.
    """
    if catalogue.find(config.env).host_id is None:
        return config
    config = override(config, {"engine": choose(config.env, config.engine)})
    if config.engine == "ale" and config.seeds * config.envs > atari.MOST_EMULATORS:
        emulators = f"with seeds = {config.seeds} that is {config.seeds * config.envs} emulators"
        raise bad_value("envs", config.envs, f"{emulators}; allowed: at most {atari.MOST_EMULATORS}")
    if None in (config.network.hidden, config.network.shared):  # else nothing depends on it: to make one may take long
        network = config.network.filled(inspect(config).spec.observation_kind == "image")
        config = dataclasses.replace(config, network=network)
    return config


def inspect(config: TrainConfig) -> Spaces:
    """What the environment takes and gives, without keeping it."""
    host_id = _host_id(config.env)
    if config.engine == "ale":
        return atari.describe(host_id)
    if config.engine == "envpool":
        spec = _envpool().make_spec(host_id)
        limit = spec.config.max_episode_steps
        return spaces.describe(spec.gymnasium_observation_space, spec.gymnasium_action_space, limit, config.env)
    env = make_one(config.env)
    try:
        limit = env.spec.max_episode_steps if env.spec else None
        return spaces.describe(env.observation_space, env.action_space, limit, config.env)
    finally:
        env.close()


def make_vector(config: TrainConfig, spaces: Spaces, seeds: Sequence[int]) -> HostVector:
    """As many copies as there are seeds, one for each copy's random numbers."""
    if config.engine == "ale":
        return AtariVector(atari.make(_host_id(config.env), len(seeds), min(devices.cores(), len(seeds))), spaces)
    if config.engine == "envpool":
        pool = _envpool().make(
            _host_id(config.env),
            env_type="gymnasium",
            num_envs=len(seeds),
            seed=list(seeds),
            num_threads=devices.cores(),
        )
        return EnvPoolVector(pool, spaces)
    if config.engine == "processes":
        # It tells with a traceback what we tell in a sentence.
        warnings.filterwarnings(
            "ignore", message=".*ERROR: (Received the following error|Traceback|Raising the last).*"
        )
        apart = [partial(_make_apart, config.env)] * len(seeds)
        try:
            vector: Any = AsyncVectorEnv(apart, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP)
        except (OSError, EOFError):
            guard = 'if __name__ == "__main__":'
            raise bad_value(
                "engine", "processes", f"its processes did not start; a script must train under {guard}"
            ) from None
    else:
        makers = [partial(make_one, config.env)] * len(seeds)
        vector = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    return HostVector(vector, spaces)


def registration(env: str) -> EnvSpec | None:
    """What another process must be told to know this environment; None: it will find it by itself."""
    host_id = _host_id(env)
    return None if ":" in host_id else registry.get(host_id)


def known_everywhere(env: str) -> bool:
    """Whether another process can make it too: not where it is part of the script that runs."""
    try:
        return b"__main__" not in pickle.dumps(registration(env))
    except Exception:
        return False


def _make_apart(env: str) -> gymnasium.Env[Any, Any]:
    """In a process of its own, which leaves Ctrl-C to the one that trains: a terminal sends it to both."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return make_one(env)


def make_one(env: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """One copy, its promises checked. An id may name a module of the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    host_id = _host_id(env)
    try:
        # Not every environment knows of render modes.
        asked: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        if asked and env.startswith("mujoco:"):
            asked["camera_name"] = "track"  # the usual one stays behind while the body runs away
        made = gymnasium.make(host_id, disable_env_checker=True, **asked)
    except gymnasium.error.DependencyNotInstalled as error:
        extra = "pip install 'self-imitation[mujoco]'" if env.startswith("mujoco:") else str(error)
        raise UsageError(f"env: {env!r} needs a package that is not installed: {extra}") from None
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        here = "; Atari games go by atari:GAME here, as in atari:Pong" if host_id.startswith("ALE/") else ""
        raise UsageError(f"env: {env!r} can't be made; {first_line(error) or type(error).__name__}{here}") from None
    except Exception as error:
        raise UsageError(
            f"env: {env!r} can't be made; it raised {type(error).__name__}: {first_line(error)}".rstrip(": ")
        ) from error
    return Guard(made)


def _host_id(env: str) -> str:
    host_id = catalogue.find(env).host_id
    assert host_id is not None, f"{env} runs on the device"
    return host_id


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _envpool() -> Any:
    import envpool

    # EnvPool describes its spaces in more digits than Gymnasium's have; nothing is lost that matters.
    warnings.filterwarnings("ignore", message=".*precision lowered by casting.*")
    return envpool
