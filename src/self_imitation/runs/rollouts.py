"""Rollouts in environments on the host: how the seeds act in them, in order or by threads while others learn."""

import contextlib
import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from jaxtyping import Array

from self_imitation.columns import Columns, StackColumns, newest
from self_imitation.environments.host.vectors import named
from self_imitation.host_collection import Collecting, HostCollector
from self_imitation.runs.host_functions import Functions
from self_imitation.runs.host_memory import MemoryOnHost
from self_imitation.runs.mailbox import Mailbox


@dataclass
class Sight:
    """What one part of the environments sees, as the device has it."""

    mailbox: Mailbox
    """In which the news arrive."""
    stack: Array | None
    """That was seen last; None, where observations are no stacks of frames."""


class Actor:
    """How the seeds act in a rollout, each part of their environments from its keys on.

    Stacks of frames are put together on the device, and stay there to be learnt from: each frame travels once.
    """

    def __init__(
        self,
        functions: Functions | MemoryOnHost,
        collector: HostCollector,
        policy: list[Array],
        keys: list[Array],
        sights: list[Sight],
    ):
        """`sights`: of each part; this keeps them up to date."""
        self._functions, self._collector, self._policy, self._sights = functions, collector, policy, sights
        self._keys = keys
        """From act to act they stay on the device: to bring some there takes nearly as long as to act."""
        self.seen: list[list[Array]] = [[] for _ in keys]
        self.action: list[list[Array]] = [[] for _ in keys]

    def __call__(self, part: int, time: int, observation: np.ndarray) -> np.ndarray:
        sight = self._sights[part]
        news = observation if sight.stack is None else newest(observation, self._collector.fresh[part])
        action, told, self._keys[part], seen = self._functions.act(
            self._policy, self._keys[part], sight.stack, sight.mailbox.put(news)
        )
        if seen is not None:
            sight.stack = seen
            self.seen[part].append(seen)
            self.action[part].append(action)
        return np.asarray(told)


class Rollout:
    """One of all environments, in the making."""

    def __init__(self, collector: HostCollector, actor: Actor, step: int, env: str):
        """`step`: how many steps each seed made before. `env`: the name of the environment."""
        self._collector, self._actor, self._collecting = collector, actor, Collecting(collector, step)
        self._env = env
        self._parts = [self._collecting.part(number, actor) for number in range(len(collector.parts))]
        """Each pauses where its environments step."""

    def finish(self) -> None:
        """Make it: where one part has begun to step, the next one acts."""
        with self._faults():
            deque(zip_longest(*self._parts), 0)

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


class RolloutByThreads(Rollout):
    """It goes on by itself, after the rollouts before it, each part in a thread of its own."""

    def __init__(
        self, collector: HostCollector, actor: Actor, step: int, env: str, threads: Sequence[ThreadPoolExecutor]
    ):
        super().__init__(collector, actor, step, env)
        self._begun, self._awaited = [0.0 for _ in threads], 0
        """Steps that each part has begun, or infinity at its end; and that are waited for."""
        self._news = threading.Condition()
        self._jobs = [thread.submit(self._run, number) for number, thread in enumerate(threads)]

    def _run(self, number: int) -> None:
        try:
            if not self._collector.faulty:  # in a rollout before
                for _ in self._parts[number]:
                    self._tell(number, self._begun[number] + 1)
        finally:
            self._tell(number, math.inf)

    def _tell(self, number: int, begun: float) -> None:
        with self._news:
            self._begun[number] = begun
            self._news.notify()

    def wait_for_a_step(self) -> None:
        """Wait until the first part has begun its next step: a good time to give the device work, for it acts for one
        part less then.
        """
        self._awaited += 1
        with self._news:
            self._news.wait_for(lambda: max(self._begun) >= self._awaited)

    def finish(self) -> None:
        wait(self._jobs)
        with self._faults():
            for job in self._jobs:
                job.result()

    def stop(self) -> None:
        """Nothing goes on when this returns."""
        for job in self._jobs:
            job.cancel()
        wait(self._jobs)
