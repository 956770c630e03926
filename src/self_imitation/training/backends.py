"""From a run's settings to its environments: which engine steps them, and how they are made."""

import dataclasses
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from gymnasium.envs.registration import registry as gymnasium_registry

from self_imitation.config import Engine, TrainConfig
from self_imitation.environments import atari
from self_imitation.environments.batched import BatchedEnvironment, PureJax
from self_imitation.environments.gymnasium import vector
from self_imitation.environments.gymnasium.make import EnvSource, is_registered
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.environments.gymnasium.vector import VectorEnv
from self_imitation.environments.registry import Entry, find
from self_imitation.environments.xla import ale, envpool
from self_imitation.errors import UsageError, bad_value
from self_imitation.types import Spec

PYTHON_ENGINES: tuple[Engine, ...] = ("gymnasium", "processes")


@dataclass(frozen=True)
class Backend:
    """An environment and the engine that steps it."""

    entry: Entry
    engine: Engine
    num_envs: int
    """Copies for the Python loop, of all seeds together."""
    source: EnvSource | None = None
    """For the Python loop."""

    @property
    def in_program(self) -> bool:
        """Whether environments are stepped inside the compiled program."""
        return self.engine in ("jax", "envpool") or (self.engine == "ale" and ale.has_xla())

    @cached_property
    def vector(self) -> VectorEnv:
        """The copies for the Python loop, made once."""
        if self.engine == "ale":
            assert self.entry.atari_rom is not None
            return vector.make_atari_vector(self.entry.atari_rom, self.num_envs, os.cpu_count() or 1)
        assert self.source is not None
        return vector.make_vector(self.source, self.num_envs, in_processes=self.engine == "processes")

    @cached_property
    def spaces(self) -> Spaces | None:
        """The environment's own spaces; None for pure-JAX environments, which have none."""
        if self.engine == "jax":
            return None
        if self.engine == "envpool":
            assert self.entry.envpool_id is not None
            found = envpool.describe(self.entry.envpool_id, self.entry.name)
        elif self.in_program:
            assert self.entry.atari_rom is not None
            found = ale.describe(self.entry.atari_rom)
        else:
            return self.vector.spaces
        stack = 1 if self.entry.atari_rom is None else atari.STACK
        return dataclasses.replace(found, spec=dataclasses.replace(found.spec, stack=stack))

    @cached_property
    def spec(self) -> Spec:
        if self.spaces is not None:
            return self.spaces.spec
        assert self.entry.pure_jax is not None
        return self.entry.pure_jax().spec

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on how observations reach the network."""
        return () if self.spaces is None else self.spaces.notes

    def make(self, seeds: np.ndarray, num_threads: int) -> BatchedEnvironment:
        """Copies inside the compiled program, one for each of the seeds [K, N]."""
        entry = self.entry
        if self.engine == "jax":
            assert entry.pure_jax is not None
            return PureJax(entry.pure_jax(), seeds.shape[1])
        if self.engine == "ale":
            assert entry.atari_rom is not None
            return ale.make_atari(entry.atari_rom, seeds, num_threads)
        assert entry.envpool_id is not None
        if entry.atari_rom:
            return envpool.make_atari(entry.envpool_id, seeds, num_threads, entry.name)
        return envpool.make(entry.envpool_id, seeds, num_threads, entry.name, entry.envpool_options)


def create(config: TrainConfig, num_envs: int | None = None) -> Backend:
    """`num_envs`: copies for the Python loop, if not those of training."""
    entry = entry_of(config)
    engine = resolve_engine(entry, config.engine)
    copies = config.seeds * config.num_envs if num_envs is None else num_envs
    if entry.atari_rom and copies > atari.MAX_EMULATORS:
        emulators = f"{config.seeds} seeds x {config.num_envs} = {copies} emulators"
        raise bad_value("num_envs", config.num_envs, f"{emulators}; allowed: at most {atari.MAX_EMULATORS}")
    return Backend(entry, engine, copies, env_source(config))


def entry_of(config: TrainConfig) -> Entry:
    """The entry of the run's environment. EnvPool takes neither Gymnasium's keyword arguments nor wrappers."""
    entry = find(config.env)
    return dataclasses.replace(entry, envpool_id=None) if config.env_kwargs or config.wrappers else entry


def env_source(config: TrainConfig) -> EnvSource | None:
    """Makes copies of the environment with Gymnasium; None if Gymnasium does not have it.

    Raises `UsageError` if the environment is made by Python code that has not been passed.
    """
    entry = find(config.env)
    if entry.in_python and config.make_env is None:
        call = "train(env=...), load(path, env=...) or resume(path, env=...)"
        raise UsageError(f"env: {entry.name!r} is made by Python code, which has to be passed from Python: {call}")
    if entry.gym_id is None and config.make_env is None:
        return None
    return EnvSource(entry.gym_id or entry.name, config.env_kwargs, config.wrappers, config.make_env)


def resolve_engine(entry: Entry, engine: Engine) -> Engine:
    """The engine that `auto` stands for; one that can't step this environment is refused."""
    available = engines(entry)
    if engine == "auto":
        return available[0]
    if engine in available:
        return engine
    if engine == "envpool" and not envpool.available():
        raise bad_value(
            "engine", engine, "EnvPool is not installed, or this is not Linux: pip install 'self-imitation[fast]'"
        )
    raise bad_value("engine", engine, f"allowed for {entry.name}: auto, {', '.join(available)}")


def engines(entry: Entry) -> tuple[Engine, ...]:
    """The engines that can step an environment here, the preferred one first."""
    if entry.pure_jax is not None:
        return ("jax",)
    has_envpool = entry.envpool_id is not None and envpool.has(entry.envpool_id)
    if entry.atari_rom is not None:
        found: list[Engine] = ["envpool"] if has_envpool else []
        found += ["ale"] if ale.available() else []
        if not found:
            raise UsageError("env: Atari games need a package: pip install 'self-imitation[atari]'")
        return tuple(found)
    if not has_envpool:
        return PYTHON_ENGINES
    if entry.gym_id is None or not is_registered(entry.gym_id):
        return ("envpool",)
    return ("envpool", *PYTHON_ENGINES) if _is_reimplemented(entry.gym_id) else (*PYTHON_ENGINES, "envpool")


def fallback(entry: Entry, engine: Engine) -> str:
    """Why a task that EnvPool has is stepped by a Python loop, if it is."""
    wants_envpool = entry.atari_rom is not None or (entry.envpool_id is not None and entry.name.startswith("mujoco:"))
    if not wants_envpool or engine == "envpool" or envpool.available():
        return ""
    return "EnvPool is not available here (pip install 'self-imitation[fast]', Linux only): slower"


def _is_reimplemented(gym_id: str) -> bool:
    """Whether EnvPool reimplements it exactly: Gymnasium's own environments, and MiniGrid's."""
    entry = gymnasium_registry.get(gym_id)
    if entry is None:
        return False
    package = "minigrid.envs" if gym_id.startswith("MiniGrid-") else "gymnasium.envs"
    return str(entry.entry_point).startswith(package)
