"""Rollouts in environments on the host: how the seeds act in them."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from self_imitation.columns import Columns, StackColumns, newest
from self_imitation.environments.host.vectors import named
from self_imitation.errors import first_line
from self_imitation.host_collection import Collecting, HostCollector
from self_imitation.runs import foreign
from self_imitation.runs import meeting as meetings
from self_imitation.runs.host_functions import Functions
from self_imitation.runs.host_memory import MemoryOnHost
from self_imitation.runs.meeting import Meeting, Orders


class Acted(NamedTuple):
    told: np.ndarray
    """The actions, for the environments."""
    action: Array
    """The same, on the device."""
    keys: Array
    """To act with the next time."""
    seen: Array | None
    """The stacks of frames that the policy saw, where observations are such."""


class Sight:
    """What one part of the environments sees, as the device has it, and how the policy acts on it.

    Stacks of frames are put together on the device, and stay there to be learnt from: each frame travels once.
    """

    def __init__(self, functions: Functions | MemoryOnHost, stack: Array | None, late: str):
        """`stack`: that was seen last, where observations are such. `late`: why acts do not start before the news come;
        else nothing.
        """
        self._functions, self._stack, self.late = functions, stack, late
        self._given: tuple[list[Array], Array] | None = None

    def try_out(self, policy: list[Array], keys: Array, news: np.ndarray) -> None:
        """So that nothing is left to be compiled. It leaves no trace."""
        self._functions.act(policy, keys, self._stack, news)

    def prepare(self, policy: list[Array], keys: Array) -> None:
        """To act on what comes next."""
        self._given = policy, keys

    def act(self, news: np.ndarray) -> Acted:
        assert self._given is not None, "prepare first"
        action, keys, self._stack = self._functions.act(*self._given, self._stack, news)
        self._given = None
        return Acted(np.asarray(action), action, keys, self._stack)

    def let_go(self) -> None:
        """Nothing comes that was prepared for."""
        self._given = None


class EarlySight(Sight):
    """The same, but when the news come, the program that acts on them has been started already. Not so any more once
    one had to be let go: news are rare here, or to wait for them holds up the host.
    """

    TRIALS = 3
    """To be sure that a program does nothing any more that it does only at first, such as to load itself: where it
    waits at the same time, that could take for ever.
    """
    PAUSE = 0.2
    """Seconds that it must wait in the last trial."""

    def __init__(
        self,
        functions: Functions | MemoryOnHost,
        stack: Array | None,
        news: np.ndarray,
        actions: jax.ShapeDtypeStruct,
        device: jax.Device,
        orders: Orders,
    ):
        """`news`, `actions`: arrays of this form."""
        super().__init__(functions, stack, late="")
        self.meeting = Meeting(jax.ShapeDtypeStruct(news.shape, news.dtype), actions, device, orders)
        self._act = functions.act_in(self.meeting)
        self._started: tuple[Any, ...] | None = None

    def try_out(self, policy: list[Array], keys: Array, news: np.ndarray) -> None:
        try:
            self._try_to_wait(policy, keys, news)
        except RuntimeError as fault:
            self.late = first_line(fault)
            super().try_out(policy, keys, news)

    def _try_to_wait(self, policy: list[Array], keys: Array, news: np.ndarray) -> None:
        """Raises RuntimeError where this device can't do it."""
        for _ in range(self.TRIALS):
            self.meeting.begin()
            self.meeting.put(news)  # before it is started: it need not wait
            self.meeting.take(self._start(policy, keys))
        self.meeting.begin()
        later = threading.Timer(self.PAUSE, self.meeting.put, [news])
        later.start()
        started, waits = self._start(policy, keys), later.is_alive()
        later.join()
        self.meeting.take(started)
        if not waits:
            raise RuntimeError("to start a program takes until it has ended")

    def prepare(self, policy: list[Array], keys: Array) -> None:
        super().prepare(policy, keys)
        if not self.late:
            self.meeting.begin()
            self._started = self._start(policy, keys)

    def _start(self, policy: list[Array], keys: Array) -> tuple[Any, ...]:
        with foreign.undisturbed():
            return self._act(policy, keys, self._stack)

    def act(self, news: np.ndarray) -> Acted:
        if self._started is not None and not self.meeting.put(news):
            self.late = f"one had to wait for more than {meetings.PATIENCE:g} seconds"
            self._started = None
        if self._started is None:
            return super().act(news)
        told = self.meeting.take(self._started)
        action, keys, self._stack, _ = self._started
        self._started = self._given = None
        return Acted(told, action, keys, self._stack)

    def let_go(self) -> None:
        super().let_go()
        self.meeting.let_go()
        with contextlib.suppress(RuntimeError):
            jax.block_until_ready(self._started)  # nothing of it is to come into a later meeting
        self._started = None


class Actor:
    """How the seeds act in a rollout, each part of their environments from its keys on."""

    def __init__(self, collector: HostCollector, policy: list[Array], keys: list[Array], sights: Sequence[Sight]):
        self._collector, self._policy, self._sights = collector, policy, sights
        self._keys = keys
        """From act to act they stay on the device: to bring some there takes nearly as long as to act."""
        self.seen: list[list[Array]] = [[] for _ in keys]
        self.action: list[list[Array]] = [[] for _ in keys]

    def prepare(self, part: int) -> None:
        """To act in it once more: it may be stepping yet."""
        self._sights[part].prepare(self._policy, self._keys[part])

    def __call__(self, part: int, time: int, observation: np.ndarray) -> np.ndarray:
        acted = self._sights[part].act(news_of(self._collector, part))
        self._keys[part] = acted.keys
        if acted.seen is not None:
            self.seen[part].append(acted.seen)
            self.action[part].append(acted.action)
        return acted.told


def news_of(collector: HostCollector, part: int) -> np.ndarray:
    """What the policy sees next there, as far as the device does not have it yet."""
    seen = collector.seen[part]
    return newest(seen, collector.fresh[part]) if collector.spec.stack > 1 else seen


class Rollout:
    """One of all environments, in the making."""

    def __init__(self, collector: HostCollector, actor: Actor, step: int, env: str):
        """`step`: how many steps each seed made before. `env`: the name of the environment."""
        self._actor, self._collecting, self._env = actor, Collecting(collector, step), env
        self._parts = [self._collecting.part(number, actor) for number in range(len(collector.parts))]
        """Each pauses where its environments step."""

    def prepare(self, part: int) -> None:
        """To go on with it, while it still steps."""
        self._actor.prepare(part)

    def go_on(self, part: int) -> None:
        """Until it steps again, or has come to its end."""
        with self._faults():
            next(self._parts[part], None)

    def columns(self) -> Columns | StackColumns:
        with self._faults():
            columns = self._collecting.columns()
        if isinstance(columns, StackColumns):
            columns = columns._replace(stack=self._actor.seen, action=self._actor.action)
        return columns

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        with named(self._env), self._collecting.faults():
            yield
