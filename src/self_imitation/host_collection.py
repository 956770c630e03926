"""Acting in environments on the host: a loop, and the same `Rollout` as from environments on the device."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from self_imitation.columns import Columns, StackColumns, newest
from self_imitation.environments.delayed_reward import Payments
from self_imitation.environments.host import snapshots
from self_imitation.environments.host.vectors import Arrival, HostVector
from self_imitation.errors import FaultyEnvironmentError
from self_imitation.types import Spec

Act = Callable[[int, int, np.ndarray], np.ndarray]
"""From the number of a part, the number of a step of the rollout, and the part's observations, to its actions."""


class Part(NamedTuple):
    """Some of each seed's environments."""

    columns: slice
    vector: HostVector
    """Its copies, seed by seed."""


class HostCollector:
    """K seeds x N environments. They come in parts: with two, one half steps while the policy acts for the other."""

    def __init__(self, parts: Sequence[Part], spec: Spec, seeds: int, steps: int, delay: int, rewards: str = "raw"):
        self.parts, self.spec, self.seeds, self.steps, self.rewards = parts, spec, seeds, steps, rewards
        self.environments = parts[-1].columns.stop
        shape = seeds, self.environments
        self.episode_return = np.zeros(shape)
        self.episode_length = np.zeros(shape, np.int64)
        self.payments = Payments(shape, delay)
        self.seen: list[np.ndarray] = []
        """What the policy sees next in each part, [K, n, ...]."""
        self.fresh: list[np.ndarray] = []
        """Where that is the first observation of an episode; kept up where observations are stacks."""

    def begin(self, seeds: np.ndarray) -> None:
        """Fresh episodes everywhere; `seeds` [K, N] are for the environments' random numbers."""
        for part in self.parts:
            try:
                first = part.vector.reset([int(seed) for seed in seeds[:, part.columns].reshape(-1)])
            except FaultyEnvironmentError as fault:
                raise FaultyEnvironmentError(f"{fault}, at its first reset") from fault.__cause__
            self.seen.append(self.by_seed(first))
            self.fresh.append(np.ones(self.seen[-1].shape[:2], bool))

    @property
    def observation(self) -> np.ndarray:
        """What the policy sees next, [K, N, ...]."""
        return np.concatenate(self.seen, axis=1)

    def collect(self, act: Act, step: int) -> Columns | StackColumns:
        """T steps of every environment, as arrays [T, K, N, ...]. `step`: how many steps each seed made before."""
        collecting = Collecting(self, step)
        with collecting.faults():
            for _ in zip_longest(*[collecting.part(number, act) for number in range(len(self.parts))]):
                pass  # where one part has begun to step, the next one acts
            return collecting.columns()

    def by_seed(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(self.seeds, -1, *rows.shape[1:])

    def follow(self, reward: np.ndarray, ended: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the episodes so far, at each step."""
        returns, lengths = np.zeros(reward.shape), np.zeros(reward.shape, np.int64)
        for time in range(self.steps):
            self.episode_return += reward[time]
            self.episode_length += 1
            returns[time], lengths[time] = self.episode_return, self.episode_length
            if ended[time].any():
                self.episode_return[ended[time]], self.episode_length[ended[time]] = 0.0, 0
        return returns, lengths

    @property
    def can_be_saved(self) -> bool:
        return all(snapshots.possible(part.vector) for part in self.parts)

    def save(self) -> dict[str, np.ndarray]:
        """Where everything stands, with seeds first; only if it `can_be_saved`."""
        saved = {"observation": self.observation, **{name: array.copy() for name, array in self._own().items()}}
        for number, part in enumerate(self.parts):
            saved |= {f"{number}.{name}": self.by_seed(rows) for name, rows in snapshots.take(part.vector).items()}
        return saved

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from there; the environments have begun already."""
        for name, array in self._own().items():
            array[:] = saved[name]
        self.seen = [np.ascontiguousarray(saved["observation"][:, part.columns]) for part in self.parts]
        for number, part in enumerate(self.parts):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): rows for name, rows in saved.items() if name.startswith(prefix)}
            snapshots.put_back(part.vector, {name: rows.reshape(-1, *rows.shape[2:]) for name, rows in own.items()})

    def _own(self) -> dict[str, np.ndarray]:
        return {
            "episode_return": self.episode_return,
            "episode_length": self.episode_length,
            "owed": self.payments.owed,
            "waited": self.payments.waited,
        }

    def close(self) -> None:
        for part in self.parts:
            part.vector.close()


class Collecting:
    """A rollout in the making. It only keeps what comes; what can be worked out for all of it at once, waits."""

    def __init__(self, collector: HostCollector, step: int):
        """`step`: how many steps each seed made before."""
        self._collector, self._step = collector, step
        self._seen: list[list[np.ndarray]] = [[] for _ in collector.parts]
        self._actions: list[list[np.ndarray]] = [[] for _ in collector.parts]
        self._arrivals: list[list[Arrival]] = [[] for _ in collector.parts]

    def part(self, number: int, act: Act) -> Iterator[None]:
        """It pauses whenever the part's environments have begun to step."""
        collector, vector = self._collector, self._collector.parts[number].vector
        self._seen[number].append(collector.seen[number])
        for time in range(collector.steps):
            action = act(number, time, collector.seen[number])
            vector.send(action.reshape(-1, *collector.spec.action_shape))
            self._actions[number].append(action)
            yield
            arrival = vector.receive()
            self._arrivals[number].append(arrival)
            collector.seen[number] = collector.by_seed(arrival.observation)
            if collector.spec.stack > 1:
                collector.fresh[number] = collector.by_seed(arrival.terminated | arrival.truncated)
                self._seen[number].append(collector.seen[number])

    @contextlib.contextmanager
    def faults(self) -> Iterator[None]:
        """Told with the step at which they came."""
        try:
            yield
        except FaultyEnvironmentError as fault:
            before = min(len(part) for part in self._arrivals)
            time, what = min((_first_fault(part, before) for part in self._arrivals), key=lambda found: found[0])
            at = self._step + (time + 1) * self._collector.environments
            raise FaultyEnvironmentError(f"{what or fault}, at step {at}") from fault.__cause__

    def columns(self) -> Columns | StackColumns:
        return self._stacks() if self._collector.spec.stack > 1 else self._columns()

    def _columns(self) -> Columns:
        terminated, truncated, observation = (self._arrived(f) for f in ("terminated", "truncated", "observation"))
        ended = terminated | truncated
        successor = self._arrived("successor") if ended.any() else observation
        if not all(_finite(array).all() for array in (observation, successor)):
            raise FaultyEnvironmentError("it gave a number that is not finite")
        reward, episode_return, episode_length = self._rewards(ended)
        first = np.concatenate([seen[0] for seen in self._seen], axis=1)
        return Columns(
            observation=np.concatenate([first[None], observation[:-1]]),
            action=self._gathered(self._actions),
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            successor=successor,
            last_observation=observation[-1],
            episode_return=episode_return.astype(np.float32),
            episode_length=episode_length.astype(np.int32),
        )

    def _stacks(self) -> StackColumns:
        terminated, truncated = self._arrived("terminated"), self._arrived("truncated")
        ended = terminated | truncated
        reward, *so_far = self._rewards(ended)
        parts = zip(self._collector.parts, self._seen, strict=True)
        last = [newest(seen[-1], ended[-1][:, part.columns]) for part, seen in parts]
        frames = [[arrival._replace(successor=arrival.successor[:, -1]) for arrival in part] for part in self._arrivals]
        return StackColumns(
            stack=[seen[:-1] for seen in self._seen],
            action=self._actions,
            last=np.concatenate(last, axis=1),
            numbers=np.stack([reward, terminated, truncated, *so_far]).astype(np.float32),
            successor=self._arrived("successor", frames) if ended.any() else None,
        )

    def _rewards(self, ended: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As they are learnt from; and the episodes' returns, without any change, and lengths so far."""
        earned = self._arrived("reward")
        if not _finite(earned).all():
            raise FaultyEnvironmentError("it gave a number that is not finite")
        reward = self._collector.payments.pay_all(earned, ended)
        episode_return, episode_length = self._collector.follow(reward, ended)
        return np.sign(reward) if self._collector.rewards == "sign" else reward, episode_return, episode_length

    def _arrived(self, field: str, arrivals: list[list[Arrival]] | None = None) -> np.ndarray:
        by_seed = self._collector.by_seed
        return self._gathered(
            [[by_seed(getattr(arrival, field)) for arrival in part] for part in arrivals or self._arrivals]
        )

    def _gathered(self, rows: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """[T, K, N, ...] of all parts."""
        collector, first = self._collector, rows[0][0]
        shape = collector.steps, collector.seeds, collector.environments, *first.shape[2:]
        whole = np.empty(shape, first.dtype)
        for part, own in zip(collector.parts, rows, strict=True):
            for time, row in enumerate(own):
                whole[time, :, part.columns] = row
        return whole


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
