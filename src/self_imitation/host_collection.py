"""Acting in environments on the host: a loop, and the same `Rollout` as from environments on the device."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from self_imitation.environments.delayed_reward import Payments
from self_imitation.environments.host import snapshots
from self_imitation.environments.host.vectors import Arrival, HostVector
from self_imitation.errors import FaultyEnvironmentError
from self_imitation.loops import over_steps
from self_imitation.types import Rollout, Spec

T = TypeVar("T")

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


class StackColumns(NamedTuple):
    """The same where observations are stacks of frames, [T, K, N, ...]: of each stack but the first, its newest frame
    alone, as [height, width]. The device stacks them up.
    """

    first: np.ndarray
    """[K, N, stack, height, width]: what the policy saw at the first step."""
    frame: np.ndarray
    """The newest frame that it saw after each step, after any reset."""
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    successor: np.ndarray
    """The newest frame of the state that each step led to, before any reset."""
    episode_return: np.ndarray
    episode_length: np.ndarray

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated

    def on_device(self) -> Rollout:
        """Where a program is traced for one seed."""

        def stack_up(stack: Array, step: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            frame, successor, ended = step
            older = stack[..., 1:]
            kept = jnp.where(ended[:, None, None, None], 0, older)
            after = jnp.concatenate([kept, frame[..., None]], axis=-1)
            return after, (stack, jnp.concatenate([older, successor[..., None]], axis=-1))

        first = jnp.moveaxis(self.first, -3, -1)
        steps: Any = (self.frame, self.successor, self.ended)
        last, (observation, successor) = over_steps(stack_up, first, steps)
        rest = {name: getattr(self, name) for name in Columns._fields if name in self._fields and name != "successor"}
        return Rollout(observation=observation, successor=successor, last_observation=last, **rest)


def seen_by_network(spec: Spec, observation: Array) -> Array:
    """From an observation as the host has it: of a stack, from [..., stack, height, width] to [..., height, width,
    stack].
    """
    return observation if spec.stack == 1 else jnp.moveaxis(observation, -3, -1)


def seed_axis(spec: Spec) -> Columns | StackColumns:
    """Which of each column's axes are the seeds."""
    if spec.stack > 1:
        return StackColumns(0, *[1] * 8)  # type: ignore[arg-type]
    return Columns(1, 1, 1, 1, 1, 1, 0, 1, 1)  # type: ignore[arg-type]


class HostCollector:
    """K seeds x N environments. They come in parts: with two, one half steps while the policy acts for the other."""

    def __init__(self, parts: Sequence[Part], spec: Spec, seeds: int, steps: int, delay: int, rewards: str = "raw"):
        self.parts, self.spec, self.seeds, self.steps, self.rewards = parts, spec, seeds, steps, rewards
        self.environments = parts[-1].columns.stop
        shape = seeds, self.environments
        self.episode_return = np.zeros(shape)
        self.episode_length = np.zeros(shape, np.int64)
        self.payments = Payments(shape, delay)
        self._seen: list[np.ndarray] = []
        """What the policy sees next in each part, [K, n, ...]."""
        self._under_way: list[list[np.ndarray]] = [[] for _ in parts]
        """The actions of steps that have begun already."""

    def begin(self, seeds: np.ndarray) -> None:
        """Fresh episodes everywhere; `seeds` [K, N] are for the environments' random numbers."""
        for part in self.parts:
            try:
                first = part.vector.reset([int(seed) for seed in seeds[:, part.columns].reshape(-1)])
            except FaultyEnvironmentError as fault:
                raise FaultyEnvironmentError(f"{fault}, at its first reset") from fault.__cause__
            self._seen.append(self._by_seed(first))

    @property
    def observation(self) -> np.ndarray:
        """What the policy sees next, [K, N, ...]."""
        return np.concatenate(self._seen, axis=1)

    def collect(self, act: Act, step: int) -> Columns | StackColumns:
        """T steps of every environment, as arrays [T, K, N, ...]. `step`: how many steps each seed made before."""
        collecting = self.steps_of(act, step)
        while True:
            if (rollout := next_of(collecting)) is not None:
                return rollout

    def steps_of(self, act: Act, step: int, ahead: bool = False) -> Generator[None, None, Columns | StackColumns]:
        """The same, in turns: it pauses whenever environments have begun to step. `ahead`: they begin the step after
        the last one too, before the rollout is put together, and the next rollout goes on with it; its time is T.

        The loop only keeps what comes; what can be worked out for the whole rollout at once waits for its end.
        """
        begun, actions = self.observation, self._under_way
        arrivals: list[list[Arrival]] = [[] for _ in self.parts]
        last = self.steps if ahead else self.steps - 1
        try:
            for number in range(len(self.parts)):
                if not actions[number]:
                    actions[number].append(self._send(act, number, 0))
                    yield
            for time in range(1, self.steps + 1):
                for number, part in enumerate(self.parts):
                    arrival = part.vector.receive()
                    self._seen[number] = self._by_seed(arrival.observation)
                    arrivals[number].append(arrival if self.spec.stack == 1 else _newest(arrival))
                    if time <= last:
                        actions[number].append(self._send(act, number, time))
                    if time < self.steps:
                        yield
            self._under_way = [own[self.steps :] for own in actions]
            rollout = self._columns(begun, [own[: self.steps] for own in actions], arrivals)
        except FaultyEnvironmentError as fault:
            time, what = min((_first_fault(part, len(arrivals[-1])) for part in arrivals), key=lambda found: found[0])
            at = step + (time + 1) * self.environments
            raise FaultyEnvironmentError(f"{what or fault}, at step {at}") from fault.__cause__
        return rollout

    def _send(self, act: Act, number: int, time: int) -> np.ndarray:
        action = act(number, time, self._seen[number])
        self.parts[number].vector.send(action.reshape(-1, *self.spec.action_shape))
        return action

    def _columns(
        self, begun: np.ndarray, actions: list[list[np.ndarray]], arrivals: list[list[Arrival]]
    ) -> Columns | StackColumns:
        def gather(columns: list[list[np.ndarray]]) -> np.ndarray:
            """[T, K, N, ...] of all parts."""
            first = columns[0][0]
            whole = np.empty((self.steps, *begun.shape[:2], *first.shape[2:]), first.dtype)
            for part, rows in zip(self.parts, columns, strict=True):
                for time, row in enumerate(rows):
                    whole[time, :, part.columns] = row
            return whole

        def arrived(field: str) -> np.ndarray:
            return gather([[self._by_seed(getattr(arrival, field)) for arrival in part] for part in arrivals])

        terminated, truncated, observation = arrived("terminated"), arrived("truncated"), arrived("observation")
        earned, ended = arrived("reward"), terminated | truncated
        successor = arrived("successor") if ended.any() else observation
        numbers = [array for array in (earned, observation, successor) if array.dtype.kind == "f"]
        if not all(_finite(array).all() for array in numbers):
            raise FaultyEnvironmentError("it gave a number that is not finite")
        reward = self.payments.pay_all(earned, ended)
        episode_return, episode_length = self._follow(reward, ended)
        rest = {
            "action": gather(actions),
            "reward": (np.sign(reward) if self.rewards == "sign" else reward).astype(np.float32),
            "terminated": terminated,
            "truncated": truncated,
            "successor": successor,
            "episode_return": episode_return.astype(np.float32),
            "episode_length": episode_length.astype(np.int32),
        }
        if self.spec.stack > 1:
            return StackColumns(first=begun, frame=observation, **rest)
        seen = np.concatenate([begun[None], observation[:-1]])
        return Columns(observation=seen, last_observation=observation[-1], **rest)

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
        saved = {"observation": self.observation, **{name: array.copy() for name, array in self._own().items()}}
        for number, part in enumerate(self.parts):
            saved |= {f"{number}.{name}": self._by_seed(rows) for name, rows in snapshots.take(part.vector).items()}
        return saved

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from there; the environments have begun already."""
        for name, array in self._own().items():
            array[:] = saved[name]
        self._seen = [np.ascontiguousarray(saved["observation"][:, part.columns]) for part in self.parts]
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


def next_of(going: Generator[None, None, T]) -> T | None:
    """What it gives in the end; None before."""
    try:
        return next(going)
    except StopIteration as end:
        return end.value


def host_shape(spec: Spec) -> tuple[int, ...]:
    """Of an observation as the host keeps it: of a stack, the frames first."""
    height_and_width = spec.observation_shape[:-1]
    return spec.observation_shape if spec.stack == 1 else (spec.stack, *height_and_width)


def _newest(arrival: Arrival) -> Arrival:
    """Of each stack the newest frame."""
    return arrival._replace(successor=arrival.successor[:, -1], observation=arrival.observation[:, -1])


def shapes(spec: Spec, shape: tuple[int, ...]) -> Columns | StackColumns:
    """Shapes and types of the columns, for [T, N] or [T, K, N] steps in such environments."""

    def array(dtype: type, *inner: int, outer: tuple[int, ...] = shape) -> Any:
        return jax.ShapeDtypeStruct((*outer, *inner), dtype)

    inner = spec.observation_shape if spec.stack == 1 else spec.observation_shape[:-1]
    rest = {
        "action": array(spec.action_dtype, *spec.action_shape),
        "reward": array(np.float32),
        "terminated": array(np.bool_),
        "truncated": array(np.bool_),
        "successor": array(spec.observation_dtype, *inner),
        "episode_return": array(np.float32),
        "episode_length": array(np.int32),
    }
    frames = array(spec.observation_dtype, *inner)
    if spec.stack > 1:
        return StackColumns(
            first=array(spec.observation_dtype, *host_shape(spec), outer=shape[1:]), frame=frames, **rest
        )
    last = array(spec.observation_dtype, *inner, outer=shape[1:])
    return Columns(observation=frames, last_observation=last, **rest)


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
