"""All seeds of a run: groups of them, each in a thread of its own.

XLA releases Python's lock while a program runs, so groups of seeds train side by side, each with its own program and
its own engine.
"""

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from self_imitation.algorithm.iteration import Policy
from self_imitation.config import TrainConfig
from self_imitation.storage.trees import is_key
from self_imitation.training import agents, backends, devices, metrics, overlapped_group
from self_imitation.training.backends import Backend
from self_imitation.training.group import GroupState
from self_imitation.training.in_program_group import CompileOnce, InProgramGroup
from self_imitation.training.metrics import ALL_FINITE, MetricsAccumulator
from self_imitation.training.overlapped_group import OverlappedGroup
from self_imitation.training.python_group import PythonGroup

SECONDS_PER_CALL = 0.25
"""Approximate duration of one call of a compiled program: how often progress and Ctrl-C are noticed."""


class Trainer:
    """The groups of a run and their states."""

    def __init__(self, config: TrainConfig, backend: Backend):
        self.config, self.backend = config, backend
        self.agent = agents.build(config, backend.spec)
        places = devices.available(config, backend.spec)
        self.groups = self._make_groups(places)
        self.states: list[GroupState] = []
        self.device = _describe(places[: len(self.groups)], config.engine)
        self._threads = ThreadPoolExecutor(len(self.groups), thread_name_prefix="seeds")

    def _make_groups(self, places: list[jax.Device]) -> list[InProgramGroup | PythonGroup]:
        config, numbers = self.config, self.config.seed_numbers
        if not self.backend.in_program:
            return [PythonGroup(config, self.agent, numbers, places[0], self.backend)]
        count, shared = self._group_count(places), CompileOnce()
        cores = _share(devices.core_numbers(), count if places[0].platform == "cpu" else 1)
        kind = OverlappedGroup if overlapped_group.applies(config, self.agent) else InProgramGroup
        return [
            kind(
                config, self.agent, numbers[part], places[i % len(places)], self.backend, cores[i % len(cores)], shared
            )
            for i, part in enumerate(_split(config.seeds, count))
        ]

    def _group_count(self, places: list[jax.Device]) -> int:
        """One per device; on a CPU also one per core, unless the networks are large enough to use all cores by
        themselves.
        """
        count = len(places)
        if places[0].platform != "cpu":
            count *= self.config.workers or 1
        elif devices.is_small(self.config, self.backend.spec):
            count = max(count, devices.seed_groups(self.config))
        return min(count, self.config.seeds)

    def init(self) -> None:
        """Start every seed."""
        self.states = self._in_threads(lambda group: group.init(), self.groups)

    def restore(self, saved: GroupState, collection: Mapping[str, np.ndarray], step: int) -> bool:
        """Continue from the state of all seeds; False if the environments start new episodes instead.

        `collection`: where the environments stood, by name; empty if it was not saved.
        """
        states = [jax.tree.map(lambda leaf, p=part: leaf[p], saved) for part in self._parts]
        places = [{name: array[part] for name, array in collection.items()} for part in self._parts]
        restored = self._in_threads(lambda group, *own: group.restore(*own, step), self.groups, states, places)
        self.states = [state for state, _ in restored]
        return all(whole for _, whole in restored)

    def compile(self) -> None:
        self._in_threads(lambda group, state: group.compile(state), self.groups, self.states)

    def interrupt_when(self, stop: Callable[[], bool]) -> None:
        """Once `stop` returns True, slow environments stop in the middle of an iteration, which is then not counted."""
        for group in self.groups:
            group.interrupt_when(stop)

    def run(self, iterations: int, stop: Callable[[], bool], advanced: Callable[[int], None]) -> int:
        """Train for up to `iterations` iterations; returns how many were made, by every group the same number.

        Groups do not wait for each other. A few times per second, `stop` is called, and `advanced` with the number of
        iterations that all groups have made.
        """
        work = _SharedWork(iterations, len(self.groups))
        futures = [self._threads.submit(self._run_group, i, work) for i in range(len(self.groups))]
        try:
            while not work.wait_until_done(0.1, futures):
                advanced(work.finished)
                if stop():
                    work.stop()
        finally:
            work.stop()  # after an exception, the other groups end soon
        for future in futures:
            future.result()
        return work.finished

    def _run_group(self, index: int, work: "_SharedWork") -> None:
        group, size = self.groups[index], 1
        while count := work.take(index, size):
            begun = time.monotonic()
            self.states[index], made = group.run(self.states[index], count)
            seconds = time.monotonic() - begun
            work.done(index, count - made)
            if self.first_bad([index]) is not None:
                work.stop()
            size = max(1, min(2 * count, round(count * SECONDS_PER_CALL / max(seconds, 1e-9))))

    def first_bad(self, indices: list[int] | None = None) -> tuple[int, int] | None:
        """Seed and iteration since the last row at which a metric was first not finite."""
        found = []
        for index in range(len(self.groups)) if indices is None else indices:
            first = np.asarray(self.states[index].metrics.first_bad)
            found += [(int(i), s) for i, s in zip(first, self.groups[index].seeds, strict=True) if i != ALL_FINITE]
        return (min(found)[1], min(found)[0]) if found else None

    def metrics(self) -> MetricsAccumulator:
        """Of all seeds, on the host."""
        return _join([jax.device_get(state.metrics) for state in self.states])

    def clear_metrics(self) -> None:
        self.states = [dataclasses.replace(s, metrics=metrics.clear_seeds(s.metrics)) for s in self.states]

    def policies(self) -> Policy:
        """Copies of all seeds' policies, on the host."""
        return _join([jax.device_get(state.agents.policy) for state in self.states])

    def saved(self) -> GroupState:
        """What a checkpoint holds, of all seeds."""
        saved = [group.saved(state) for group, state in zip(self.groups, self.states, strict=True)]
        return saved[0] if len(saved) == 1 else _join(saved)

    @cached_property
    def saved_shape(self) -> GroupState:
        """Shapes of `saved`; without a collection, which only some checkpoints have."""
        seeds = self.config.seeds

        def stacked(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype)

        agent_state, accumulator = jax.tree.map(stacked, self.groups[0].one_seed)
        return GroupState(agent_state, None, accumulator)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("return_latest", *self.groups[0].one_seed[1].sums)

    def close(self) -> str:
        """Returns what went wrong in the environments, if anything did."""
        self._threads.shutdown(wait=True)
        return "; ".join(filter(None, [group.close() for group in self.groups]))

    @property
    def _parts(self) -> list[slice]:
        return _split(self.config.seeds, len(self.groups))

    def _in_threads(self, function: Callable[..., Any], *arguments: list[Any]) -> list[Any]:
        return list(self._threads.map(function, *arguments))


class _SharedWork:
    """How far each group is, and where all of them stop."""

    def __init__(self, iterations: int, groups: int):
        self._target, self._taken, self._done = iterations, [0] * groups, [0] * groups
        self._changed = threading.Condition()

    @property
    def finished(self) -> int:
        """Iterations that all groups have made."""
        return min(self._done)

    def take(self, group: int, most: int) -> int:
        """Iterations for a group to run next; 0 at the end."""
        with self._changed:
            count = max(0, min(most, self._target - self._taken[group]))
            self._taken[group] += count
            return count

    def done(self, group: int, dropped: int) -> None:
        """`dropped`: iterations that were taken and not made, because the group was interrupted."""
        with self._changed:
            self._taken[group] -= dropped
            self._done[group] = self._taken[group]
            if dropped:
                self._target = max(self._taken)
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop as soon as all groups have come as far as the furthest one will."""
        with self._changed:
            self._target = min(self._target, max(self._taken))

    def wait_until_done(self, seconds: float, futures: list[Any]) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: min(self._done) >= self._target, seconds)
            return min(self._done) >= self._target or any(f.done() and f.exception() for f in futures)


def _split(total: int, parts: int) -> list[slice]:
    """0 ... total-1 in parts of nearly the same size."""
    bounds = [round(total * i / parts) for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]


def _share(cores: list[int], groups: int) -> list[list[int]]:
    """The cores of each group; with more groups than cores, several groups have the same one."""
    return [cores[part] for part in _split(len(cores), min(groups, len(cores)))]


def _join(parts: list[Any]) -> Any:
    def concatenate(*leaves: Any) -> Any:
        if is_key(leaves[0]):
            return jnp.concatenate(jax.device_put(leaves, leaves[0].sharding))
        return np.concatenate([np.asarray(leaf) for leaf in leaves])

    return jax.tree.map(concatenate, *parts)


def _describe(places: list[jax.Device], engine: str) -> str:
    kind = places[0].device_kind
    where = kind if len(places) == 1 else f"{len(places)} x {kind}"
    return where if engine == "jax" else f"{where}, environments by {engine}"


def create(config: TrainConfig) -> Trainer:
    return Trainer(config, backends.create(config))
