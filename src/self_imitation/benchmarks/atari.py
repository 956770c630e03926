"""A2C+SIL on an Atari game beside its emulators alone, and where the time goes."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from self_imitation.config import TrainConfig, resolve
from self_imitation.environments import catalogue
from self_imitation.environments.host import atari, engines
from self_imitation.runs import program
from self_imitation.runs.host_program import HostProgram
from self_imitation.validation import validate

GAME = "atari:MontezumaRevenge"
SECONDS = 6.0
"""About how long each thing is timed."""


def config(seeds: int) -> TrainConfig:
    """The paper's settings: 16 x 5, M = 4, batch 512, memory 100 000."""
    return engines.settle(validate(resolve(GAME, "authors", {"agent": "a2c+sil", "seeds": seeds})))


def emulators_alone(copies: int, threads: int) -> float:
    """Steps per second with random actions, nothing learnt, nothing kept."""
    game = catalogue.find(GAME).host_id
    assert game is not None
    env = atari.make(game, copies, threads)
    env.reset(seed=np.arange(copies))
    actions = np.random.default_rng(0).integers(env.single_action_space.n, size=(1000, copies)).astype(np.int32)
    for action in actions[:20]:
        env.step(action)
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        env.step(actions[steps % len(actions)])
        steps += 1
    seconds = time.perf_counter() - begun
    env.close()
    return steps * copies / seconds


def training(seeds: int) -> dict[str, Any]:
    """Steps per second of all seeds together, and the milliseconds of an iteration by what they were spent on."""
    settings = config(seeds)
    trained = program.create(settings)
    progress = trained.begin()
    trained.compile(progress)
    progress = trained.advance(progress, 2)
    clock = _Clock()
    one = trained if isinstance(trained, HostProgram) else trained.seeds[0]  # type: ignore[attr-defined]
    alone = _parts_alone(one, progress if seeds == 1 else progress[0]) if seeds == 1 else {}
    progress = trained.begin() if seeds == 1 else progress  # what was timed alone has used the other one up
    progress = trained.advance(progress, 2)
    for seed in [trained] if isinstance(trained, HostProgram) else trained.seeds:  # type: ignore[attr-defined]
        clock.watch(seed)
    iterations, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        progress = trained.advance(progress, 5)
        iterations += 5
    seconds = time.perf_counter() - begun
    trained.close()
    spent = {name: 1000 * total / iterations / seeds for name, total in clock.spent.items()}
    spent["other"] = 1000 * seconds / iterations / seeds - sum(spent.values())
    rate = iterations * settings.steps_per_iteration * seeds / seconds
    return {"steps_per_second": rate, "iteration_ms": spent, "alone_ms": alone}


class _Clock:
    """How long the host waits for what."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def watch(self, seed: HostProgram) -> None:
        assert seed.collector is not None
        for part in seed.collector.parts:
            part.vector.receive = self._timed("waiting for emulators", part.vector.receive)  # type: ignore[method-assign]
            part.vector.send = self._timed("sending actions", part.vector.send)  # type: ignore[method-assign]
        if not getattr(seed.functions, "watched", False):
            seed.functions.watched = True  # type: ignore[attr-defined]
            seed.functions.act = self._timed("acting, with what it waits for", seed.functions.act, wait=True)
            seed.functions.imitate = self._timed("issuing self-imitation", seed.functions.imitate)
            seed.functions.learn = self._timed("issuing A2C", seed.functions.learn)

    def _timed(self, name: str, function: Callable, wait: bool = False) -> Callable:
        def timed(*arguments: Any) -> Any:
            begun = time.perf_counter()
            result = function(*arguments)
            if wait:
                jax.block_until_ready(result)
            self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - begun
            return result

        return timed


def _parts_alone(seed: HostProgram, progress: Any) -> dict[str, float]:
    """Milliseconds of each function by itself, the device idle before and after."""
    from self_imitation.host_collection import shapes
    from self_imitation.runs.host_program import _acting

    collector = seed.collector
    assert collector is not None
    observation = collector.observation[:, collector.parts[0].columns]
    leaves, key = _acting(progress), np.zeros((1, 2), np.uint32)
    found = {
        "transfer of one half's stacks": _milliseconds(lambda: jax.device_put(observation)),
        "act for one half": _milliseconds(lambda: np.asarray(seed.functions.act(leaves, key, observation))),
    }
    state = {"progress": progress}

    def imitate() -> Any:
        state["progress"], metrics = seed.functions.imitate(state["progress"])
        return jax.block_until_ready(metrics)

    found["one update of self-imitation"] = _milliseconds(imitate)
    copied = [imitate()] * seed.updates
    columns = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype),
        shapes(seed.agent.spec, (seed.config.rollout, 1, seed.config.envs)),
    )

    def learn() -> Any:
        state["progress"] = seed.functions.learn(state["progress"], columns, copied)
        return jax.block_until_ready(state["progress"].tally)

    found["A2C and remembering, with the transfer of a rollout"] = _milliseconds(learn)
    return found


def _milliseconds(function: Callable[[], Any], tries: int = 20) -> float:
    jax.block_until_ready(function())
    begun = time.perf_counter()
    for _ in range(tries):
        jax.block_until_ready(function())
    return 1000 * (time.perf_counter() - begun) / tries
