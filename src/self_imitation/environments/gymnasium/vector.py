"""N copies of an environment that step together."""

import contextlib
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from self_imitation.environments import atari
from self_imitation.environments.gymnasium import snapshots
from self_imitation.environments.gymnasium.faults import TrapExits, in_words, wrap_env_errors
from self_imitation.environments.gymnasium.make import EnvSource, make_env
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.errors import FaultyEnvironmentError, Interrupted, UsageError, bad_value
from self_imitation.types import Observation

CLOSE_TIMEOUT = 5.0
"""Seconds that worker processes have to finish their step and close."""


class StepResult(NamedTuple):
    """Result of one step in each of N environments."""

    next_observation: Observation
    """Before any reset."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    observation: Observation
    """What the policy sees next: the first observation of a new episode where one ended."""


class VectorEnv:
    """A Gymnasium vector environment that resets within the step that ends an episode (`SAME_STEP`).

    Takes actions as the policy chose them, and returns observations as the learner takes them. Raises
    `FaultyEnvironmentError` if an environment raises, or returns numbers that are not finite in float32.
    """

    def __init__(self, env: Any, spaces: Spaces):
        self.env = env
        self.spaces = spaces
        self.num_envs: int = env.num_envs
        self._stop: Callable[[], bool] = lambda: False

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start an episode in every environment; `seeds` has one seed for each."""
        ints = [int(seed) for seed in seeds]
        with self._explain_faults():  # Gymnasium takes a list of seeds, ale-py an array
            raw, _ = self.env.reset(seed=ints if hasattr(self.env, "env_fns") else np.array(ints))
        return self._convert(raw)

    def interrupt_when(self, stop: Callable[[], bool]) -> None:
        """Raise `Interrupted` before the next step of a copy once `stop` returns True."""
        self._stop = stop
        if isinstance(self.env, SyncVectorEnv):
            for env in self.env.envs:
                env.stop = stop  # type: ignore[attr-defined]

    def step(self, action: np.ndarray) -> StepResult:
        if self._stop():
            raise Interrupted
        with self._explain_faults():
            raw, reward, terminated, truncated, info = self.env.step(self.spaces.action(action))
        reward, terminated, truncated = np.array(reward, np.float64), np.array(terminated), np.array(truncated)
        _require_finite("reward", reward)
        observation = next_observation = self._convert(raw)
        ended = terminated | truncated
        if ended.any():
            final = self._convert(jax.tree.map(lambda *rows: np.stack(rows), *info["final_obs"][ended]))
            next_observation = jax.tree.map(np.copy, observation)
            for leaf, rows in zip(jax.tree.leaves(next_observation), jax.tree.leaves(final), strict=True):
                leaf[ended] = rows
        return StepResult(next_observation, reward, terminated, truncated, observation)

    @property
    def can_snapshot(self) -> bool:
        return isinstance(self.env, SyncVectorEnv) and all(map(snapshots.can_snapshot, self.env.envs))

    def snapshot(self) -> dict[str, np.ndarray]:
        """The complete state, as arrays with a row for each environment; only if `can_snapshot`."""
        rows = [snapshots.take(env) for env in self.env.envs]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Continue from a snapshot; the environments have been reset at least once."""
        for row, env in enumerate(self.env.envs):
            snapshots.restore(env, {name: array[row] for name, array in snapshot.items()})

    def close(self) -> str:
        """Returns what went wrong, if anything did."""
        in_processes, problem = isinstance(self.env, AsyncVectorEnv), ""
        try:
            with TrapExits(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.env.close(**({"timeout": CLOSE_TIMEOUT} if in_processes else {}))
        except Exception as error:
            problem = f"close() {in_words(error)}"
        if in_processes:  # Gymnasium stops half-way through closing if a worker has failed
            for process in self.env.processes:
                process.terminate()
            for process in self.env.processes:
                process.join()
            problem = ""  # a worker that failed was reported when it did
        self.env.closed = True
        return problem

    @contextlib.contextmanager
    def _explain_faults(self) -> Iterator[None]:
        try:
            with wrap_env_errors():
                yield
        except FaultyEnvironmentError as error:
            if isinstance(self.env, AsyncVectorEnv) and isinstance(error.__cause__, EOFError | ConnectionError):
                raise FaultyEnvironmentError("its process ended") from error.__cause__
            raise

    def _convert(self, raw: Any) -> Observation:
        for part in self.spaces.parts:
            _require_finite(part.name, np.asarray(part.select(raw)))
        return self.spaces.observation(raw)


def make_vector(source: EnvSource | str, num_envs: int, in_processes: bool) -> VectorEnv:
    """Copies in this process, one after another, or each in a process of its own.

    Each copy is built once; with processes, Gymnasium builds one more in this process to read its spaces.
    """
    if in_processes:
        vector: Any = _make_in_processes(source, num_envs)
    else:
        makers = [partial(make_env, source)] * num_envs
        vector = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
        if len({id(env.unwrapped) for env in vector.envs}) < num_envs:
            raise UsageError("env: the function that makes it returned the same object twice; each copy must be new")
    return VectorEnv(vector, vector.get_attr("spaces")[0])


def make_atari_vector(game_rom: str, num_envs: int, num_threads: int) -> VectorEnv:
    """Copies of an Atari game in ale-py's threads; observations are stacks of 4 frames [N, 84, 84, 4], oldest first."""
    env = make_emulators(game_rom, num_envs, num_threads, autoreset_mode=AutoresetMode.SAME_STEP)
    return VectorEnv(env, describe_atari(env))


def make_emulators(game_rom: str, num_envs: int, num_threads: int, **changes: Any) -> Any:
    """ale-py's `AtariVectorEnv` with the paper's preprocessing; `changes` are other arguments of it."""
    from ale_py.vector_env import AtariVectorEnv

    options = {
        "img_height": atari.SIDE,
        "img_width": atari.SIDE,
        "stack_num": atari.STACK,
        "frameskip": atari.FRAME_SKIP,
        "max_num_frames_per_episode": atari.MAX_FRAMES,
        "reward_clipping": False,
    }
    return AtariVectorEnv(game_rom, num_envs, num_threads=num_threads, **{**options, **changes})


def describe_atari(env: Any) -> Spaces:
    actions = env.single_action_space
    return Spaces(atari.spec(int(actions.n)), env.single_observation_space, actions)


def _make_in_processes(source: EnvSource | str, num_envs: int) -> AsyncVectorEnv:
    # Gymnasium logs the traceback of an error that is raised here too.
    warnings.filterwarnings("ignore", message=".*ERROR: (Received the following error|Traceback|Raising the last).*")
    makers = [partial(_make_in_worker, source)] * num_envs
    try:
        return AsyncVectorEnv(makers, copy=False, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP)
    except (OSError, EOFError):
        guard = 'if __name__ == "__main__":'
        raise bad_value(
            "engine", "processes", f"its processes did not start; a script must train under {guard}"
        ) from None


def _make_in_worker(source: EnvSource | str) -> gymnasium.Env[Any, Any]:
    """Workers ignore Ctrl-C, which a terminal sends to them too; the training process closes them."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return make_env(source)


def _require_finite(name: str, values: np.ndarray) -> None:
    """Raise if one of the numbers [N, ...] is not finite in float32."""
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.astype(np.float32))
    if not finite.all():
        first = np.argwhere(~finite)[0]
        value, index = values[tuple(first)], first[1:].tolist()
        where = f" at index {index}" if index else ""
        reason = ", beyond the range of float32" if np.isfinite(value) else ""
        raise FaultyEnvironmentError(f"{name} is {value}{where}{reason}")
