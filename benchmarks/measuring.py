"""Timing by turns: a machine changes its speed from minute to minute, so what is compared is measured together."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from self_imitation.config import TrainConfig, resolve, validate
from self_imitation.training import backends, devices
from self_imitation.training.trainer import Trainer

SECONDS = 1.5
"""Approximate duration of one measurement."""
TRIES = 5


def best_seconds(program: Callable[[], object]) -> float:
    """The shortest duration of several calls, after one to warm up."""
    durations = []
    for _ in range(1 + TRIES):
        start = time.perf_counter()
        jax.block_until_ready(program())
        durations.append(time.perf_counter() - start)
    return min(durations[1:])


def by_turns(rates: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure every rate once per round."""
    measured: dict[str, list[float]] = {name: [] for name in rates}
    for _ in range(rounds):
        for name, rate in rates.items():
            measured[name].append(rate())
    return measured


def stepping_rate(step: Callable[[int], object], copies: int) -> float:
    """Environment steps per second of calls of `step(n)`, which steps all copies."""
    steps, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < SECONDS:
        step(steps)
        steps += 1
    return steps * copies / passed


def in_threads(rates: Sequence[Callable[[], float]]) -> float:
    """Sum of rates that are measured at the same time."""
    with ThreadPoolExecutor(len(rates)) as threads:
        return sum(threads.map(lambda rate: rate(), rates))


def prepare(env: str, changes: Mapping[str, object]) -> tuple[TrainConfig, backends.Backend]:
    """Settings with a resolved engine, and the environments. Sets JAX up."""
    config = validate(resolve(env, "authors", changes))
    backend = backends.create(config)
    config = dataclasses.replace(config, engine=backend.engine)
    devices.prepare(config, backend.spec)
    return config, backend


class TrainingRate:
    """Environment steps per second of all seeds of a training run, which continues from call to call."""

    def __init__(self, config: TrainConfig, backend: backends.Backend, warm_up: int):
        self.trainer, self.steps = Trainer(config, backend), config.steps_per_iteration * config.seeds
        self.trainer.init()
        self.trainer.compile()
        self._run(warm_up)
        self._seconds_per_iteration = self._run(1)

    def __call__(self) -> float:
        iterations = max(1, round(SECONDS / self._seconds_per_iteration))
        self._seconds_per_iteration = self._run(iterations) / iterations
        return self.steps / self._seconds_per_iteration

    def _run(self, iterations: int) -> float:
        start = time.perf_counter()
        self.trainer.run(iterations, lambda: False, lambda finished: None)
        return time.perf_counter() - start


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Median and range."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
