"""N copies of an environment on the host that step together, whatever engine runs them and however it resets them."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from self_imitation.environments.host.spaces import Spaces
from self_imitation.errors import FaultyEnvironmentError, first_line

PATIENCE = 5.0
"""Seconds that environments in processes of their own have to finish a step and close."""


class Arrival(NamedTuple):
    """What one action of each environment led to."""

    successor: np.ndarray
    """The state that the step led to, before any reset."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    observation: np.ndarray
    """What the policy sees next: the first state of a new episode, where one ended."""


class HostVector:
    """A Gymnasium vector environment. Whichever way it resets itself, every step is one that an action made:

    - SAME_STEP: it has reset what ended, and hands over the last state beside the first one of the new episode;
    - NEXT_STEP: it would spend the next step on the reset, a step that is none; what ended is reset at once instead;
    - DISABLED: it leaves the reset to us.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], spaces: Spaces):
        self.env: Any = env
        self.spaces = spaces
        self.mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))

    @property
    def count(self) -> int:
        return self.env.num_envs

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Every environment at the start of an episode, each with random numbers of its own."""
        with told():
            observation, _ = self.env.reset(seed=list(seeds))
            return self._finite(self.spaces.observation(observation))

    def send(self, action: np.ndarray) -> None:
        """Let them step; engines with threads or processes of their own do so while we do something else."""
        taken = self.spaces.action(action)
        if isinstance(self.env, AsyncVectorEnv):
            with told():
                self.env.step_async(taken)
        else:
            self._waiting = taken

    def receive(self) -> Arrival:
        with told():
            raw, reward, terminated, truncated, info = self._step()
            observation = self.spaces.observation(raw)
            ended = terminated | truncated
            successor = observation
            if ended.any():
                if self.mode == AutoresetMode.SAME_STEP:
                    successor = observation.copy()
                    successor[ended] = self.spaces.observation(np.stack(list(info["final_obs"][ended])))
                else:
                    observation = observation.copy()
                    observation[ended] = self._restart(ended)
            return Arrival(successor, reward, terminated, truncated, observation)

    def close(self) -> None:
        """Whatever it was about to say: nobody listens any more."""
        apart = isinstance(self.env, AsyncVectorEnv)
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.env.close(**({"timeout": PATIENCE} if apart else {}))
        if apart:  # its own `close` stops half-way where a worker has failed
            for process in self.env.processes:
                process.terminate()
            for process in self.env.processes:
                process.join()
            self.env.closed = True

    def _step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Mapping[str, Any]]:
        """Gymnasium writes its next answers into the same arrays."""
        apart = isinstance(self.env, AsyncVectorEnv)
        raw, reward, terminated, truncated, info = self.env.step_wait() if apart else self.env.step(self._waiting)
        return raw, np.array(reward), np.array(terminated), np.array(truncated), info

    def _restart(self, ended: np.ndarray) -> np.ndarray:
        """The first observations of those that ended."""
        observation, _ = self.env.reset(options={"reset_mask": ended})
        return self.spaces.observation(observation)[ended]

    def _finite(self, observation: np.ndarray) -> np.ndarray:
        if not np.isfinite(observation).all():
            raise FaultyEnvironmentError("its observation had a number that is not finite")
        return observation


class EnvPoolVector(HostVector):
    """EnvPool: threads of its own, and an answer for just those environments that were asked.

    Actions and answers pass through its compiled part at once: to take dictionaries of them apart and put others
    together takes EnvPool as long as half a step of an environment does.
    """

    def __init__(self, env: Any, spaces: Spaces):
        super().__init__(env, spaces)
        names = [name.partition(":")[0] for name in env._state_keys]
        self._places = [names.index(name) for name in ("obs", "reward", "done", "trunc")]
        self._numbers = np.arange(env.num_envs, dtype=np.int32)
        self._dtype = env.spec.action_array_spec["action"].dtype
        assert env._action_keys == ["env_id", "players.env_id", "action"], env._action_keys

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """`seeds` are those that it was made with: it takes them nowhere else."""
        with told():
            return self._finite(self.spaces.observation(self.env.reset()[0]))

    def send(self, action: np.ndarray) -> None:
        with told():
            taken = self.spaces.action(action).astype(self._dtype, order="C", copy=False)
            self.env._send([self._numbers, self._numbers, taken])

    def _step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Mapping[str, Any]]:
        answer = self.env._recv()
        raw, reward, done, truncated = [answer[place] for place in self._places]
        return raw, reward, done & ~truncated, truncated, {}

    def _restart(self, ended: np.ndarray) -> np.ndarray:
        return self.spaces.observation(self.env.reset(np.flatnonzero(ended).astype(np.int32))[0])


class told:  # noqa: N801 (reads as a statement)
    """Whatever an environment raises, as a `FaultyEnvironmentError`."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception | SystemExit) and not isinstance(error, FaultyEnvironmentError):
            raise FaultyEnvironmentError(
                f"it raised {type(error).__name__}: {first_line(error)}".rstrip(": ")
            ) from error


class named:  # noqa: N801 (reads as a statement)
    """A fault with the environment's name before it."""

    def __init__(self, env: str):
        self.env = env

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, FaultyEnvironmentError):
            raise FaultyEnvironmentError(f"environment {self.env}: {error}") from error.__cause__
