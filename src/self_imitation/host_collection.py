"""Acting in environments on the host: a loop, and the same `Rollout` as from environments on the device."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from self_imitation.environments.delayed_reward import Payments
from self_imitation.environments.host import snapshots
from self_imitation.environments.host.vectors import Arrival, HostVector
from self_imitation.errors import FaultyEnvironmentError
from self_imitation.types import Rollout, Spec

Act = Callable[[int, int, np.ndarray], np.ndarray]
"""From the number of a part, the number of a step of the rollout, and the part's observations, to its actions."""


class Part(NamedTuple):
    """Some of each seed's environments."""

    columns: slice
    vector: HostVector
    """Its copies, seed by seed."""


class Columns(NamedTuple):
    """A `Rollout` on the host: NumPy's arrays of [T, K, N, ...], for K seeds at once."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    successor: np.ndarray
    last_observation: np.ndarray
    """[K, N, ...]"""
    episode_return: np.ndarray
    episode_length: np.ndarray

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated

    def on_device(self) -> Rollout:
        """Where a program is traced for one seed: [T, N, ...]."""
        return Rollout(**self._asdict())


SEED_AXIS = Columns(1, 1, 1, 1, 1, 1, 0, 1, 1)  # type: ignore[arg-type]
"""Which of each column's axes are the seeds."""


class HostCollector:
    """K seeds x N environments. They come in parts: with two, one half steps while the policy acts for the other."""

    def __init__(self, parts: Sequence[Part], spec: Spec, seeds: int, steps: int, delay: int):
        self.parts, self.spec, self.seeds, self.steps = parts, spec, seeds, steps
        self.environments = parts[-1].columns.stop
        shape = seeds, self.environments
        self.observation: np.ndarray = np.zeros((*shape, *spec.observation_shape), spec.observation_dtype)
        self.episode_return = np.zeros(shape)
        self.episode_length = np.zeros(shape, np.int64)
        self.payments = Payments(shape, delay)

    def begin(self, seeds: np.ndarray) -> None:
        """Fresh episodes everywhere; `seeds` [K, N] are for the environments' random numbers."""
        for part in self.parts:
            try:
                first = part.vector.reset([int(seed) for seed in seeds[:, part.columns].reshape(-1)])
            except FaultyEnvironmentError as fault:
                raise FaultyEnvironmentError(f"{fault}, at its first reset") from fault.__cause__
            self.observation[:, part.columns] = self._by_seed(first)

    def collect(self, act: Act, step: int) -> Columns:
        """T steps of every environment, as arrays [T, K, N, ...]. `step`: how many steps each seed made before.

        The loop only keeps what comes; what can be worked out for the whole rollout at once waits for its end.
        """
        begun, numbers = self.observation.copy(), range(len(self.parts))
        actions: list[list[np.ndarray]] = [[] for _ in numbers]
        arrivals: list[list[Arrival]] = [[] for _ in numbers]
        try:
            for number in numbers:
                actions[number].append(self._send(act, number, 0))
            for time in range(1, self.steps + 1):
                for number, part in enumerate(self.parts):
                    arrival = part.vector.receive()
                    arrivals[number].append(arrival)
                    self.observation[:, part.columns] = self._by_seed(arrival.observation)
                    if time < self.steps:
                        actions[number].append(self._send(act, number, time))
            rollout = self._columns(begun, actions, arrivals)
        except FaultyEnvironmentError as fault:
            time, what = min((_first_fault(part, len(arrivals[-1])) for part in arrivals), key=lambda found: found[0])
            at = step + (time + 1) * self.environments
            raise FaultyEnvironmentError(f"{what or fault}, at step {at}") from fault.__cause__
        return rollout

    def _send(self, act: Act, number: int, time: int) -> np.ndarray:
        part = self.parts[number]
        action = act(number, time, self.observation[:, part.columns])
        part.vector.send(action.reshape(-1, *self.spec.action_shape))
        return action

    def _columns(self, begun: np.ndarray, actions: list[list[np.ndarray]], arrivals: list[list[Arrival]]) -> Columns:
        def gather(columns: list[list[np.ndarray]]) -> np.ndarray:
            """[T, K, N, ...] of all parts."""
            stacked = [np.stack(column) for column in columns]
            whole = np.empty((self.steps, *begun.shape[:2], *stacked[0].shape[3:]), stacked[0].dtype)
            for part, rows in zip(self.parts, stacked, strict=True):
                whole[:, :, part.columns] = rows
            return whole

        def arrived(field: str) -> np.ndarray:
            return gather([[self._by_seed(getattr(arrival, field)) for arrival in part] for part in arrivals])

        terminated, truncated, observation = arrived("terminated"), arrived("truncated"), arrived("observation")
        earned, successor, ended = arrived("reward"), arrived("successor"), terminated | truncated
        if not all(_finite(array).all() for array in (earned, observation, successor)):
            raise FaultyEnvironmentError("it gave a number that is not finite")
        reward = self.payments.pay_all(earned, ended)
        episode_return, episode_length = self._follow(reward, ended)
        return Columns(
            observation=np.concatenate([begun[None], observation[:-1]]),
            action=gather(actions),
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            successor=successor,
            last_observation=observation[-1],
            episode_return=episode_return.astype(np.float32),
            episode_length=episode_length.astype(np.int32),
        )

    def _follow(self, reward: np.ndarray, ended: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the episodes so far, at each step."""
        returns, lengths = np.zeros(reward.shape), np.zeros(reward.shape, np.int64)
        for time in range(self.steps):
            self.episode_return += reward[time]
            self.episode_length += 1
            returns[time], lengths[time] = self.episode_return, self.episode_length
            if ended[time].any():
                self.episode_return[ended[time]], self.episode_length[ended[time]] = 0.0, 0
        return returns, lengths

    def _by_seed(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(self.seeds, -1, *rows.shape[1:])

    @property
    def can_be_saved(self) -> bool:
        return all(snapshots.possible(part.vector) for part in self.parts)

    def save(self) -> dict[str, np.ndarray]:
        """Where everything stands, with seeds first; only if it `can_be_saved`."""
        saved = {name: array.copy() for name, array in self._own().items()}
        for number, part in enumerate(self.parts):
            saved |= {f"{number}.{name}": self._by_seed(rows) for name, rows in snapshots.take(part.vector).items()}
        return saved

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from there; the environments have begun already."""
        for name, array in self._own().items():
            array[:] = saved[name]
        for number, part in enumerate(self.parts):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): rows for name, rows in saved.items() if name.startswith(prefix)}
            snapshots.put_back(part.vector, {name: rows.reshape(-1, *rows.shape[2:]) for name, rows in own.items()})

    def _own(self) -> dict[str, np.ndarray]:
        return {
            "observation": self.observation,
            "episode_return": self.episode_return,
            "episode_length": self.episode_length,
            "owed": self.payments.owed,
            "waited": self.payments.waited,
        }

    def close(self) -> None:
        for part in self.parts:
            part.vector.close()


def shapes(spec: Spec, shape: tuple[int, ...]) -> Columns:
    """Shapes and types of the columns, for [T, N] or [T, K, N] steps in such environments."""

    def array(dtype: type, *inner: int, outer: tuple[int, ...] = shape) -> Any:
        return jax.ShapeDtypeStruct((*outer, *inner), dtype)

    return Columns(
        observation=array(spec.observation_dtype, *spec.observation_shape),
        action=array(spec.action_dtype, *spec.action_shape),
        reward=array(np.float32),
        terminated=array(np.bool_),
        truncated=array(np.bool_),
        successor=array(spec.observation_dtype, *spec.observation_shape),
        last_observation=array(spec.observation_dtype, *spec.observation_shape, outer=shape[1:]),
        episode_return=array(np.float32),
        episode_length=array(np.int32),
    )


def _finite(numbers: np.ndarray) -> np.ndarray:
    """Also in the single precision that all is computed in."""
    if numbers.dtype.kind != "f":
        return np.broadcast_to(True, numbers.shape)
    with np.errstate(over="ignore"):
        return np.isfinite(numbers.astype(np.float32))


def _first_fault(arrivals: list[Arrival], none: int) -> tuple[int, str]:
    """When a number that is not finite first came, and which; else the time `none`."""
    for time, arrival in enumerate(arrivals):
        if not _finite(arrival.reward).all():
            return time, f"its reward was {arrival.reward[~_finite(arrival.reward)][0]}"
        for seen in (arrival.successor, arrival.observation):
            if not np.isfinite(seen).all():
                place = np.argwhere(~np.isfinite(seen))[0]
                return time, f"its observation had {seen[tuple(place)]} at place {list(map(int, place[1:]))}"
    return none, ""
