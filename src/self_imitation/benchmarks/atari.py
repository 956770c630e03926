"""A2C+SIL on an Atari game beside its emulators alone, and where the time goes."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np

from self_imitation import devices
from self_imitation.config import TrainConfig, resolve
from self_imitation.environments import catalogue
from self_imitation.environments.host import atari, engines
from self_imitation.host_collection import shapes
from self_imitation.runs.host_program import HostProgram
from self_imitation.runs.program import Program, create
from self_imitation.runs.turns import Turns
from self_imitation.validation import validate

GAME = "atari:MontezumaRevenge"
SECONDS = 6.0
"""About how long each thing is timed."""
SLOW = 0.1
"""Seconds: iterations that take longer are timed one by one."""


def config(seeds: int) -> TrainConfig:
    """The paper's settings: 16 x 5, M = 4, batch 512, memory 100 000."""
    return engines.settle(validate(resolve(GAME, "authors", {"agent": "a2c+sil", "seeds": seeds})))


def emulators_alone(copies: int) -> float:
    """Steps per second with random actions, nothing learnt, nothing kept."""
    game = catalogue.find(GAME).host_id
    assert game is not None
    env = atari.make(game, copies, devices.cores())
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
    """Steps per second of all seeds together, and the milliseconds of an iteration by what the host did in them."""
    settings = config(seeds)
    program: Any = create(settings)
    progress = program.begin()
    program.compile(progress)
    progress, _ = _advance(program, progress, SECONDS / 3)
    progress, seconds = _advance(program, progress, SECONDS)
    spent = _watch(program.groups if isinstance(program, Turns) else [program])
    progress, watched = _advance(program, progress, SECONDS / 2)
    parts = {name: 1000 * total / watched[1] for name, total in spent.items()}
    parts["the rest: Python, copies, waiting for learning"] = 1000 * watched[0] / watched[1] - sum(parts.values())
    program.close()
    return {
        "steps_per_second": seconds[1] * settings.steps_per_iteration * seeds / seconds[0],
        "iteration_ms": 1000 * seconds[0] / seconds[1],
        "host_ms": parts,
    }


def alone() -> dict[str, float]:
    """Milliseconds of each thing that one run asks of the device, by itself."""
    settings = config(1)
    program = HostProgram(settings)
    progress = program.begin()
    program.compile(progress)
    functions, key = program.functions, jax.device_put(np.zeros((1, 2), np.uint32), program._device)
    part = program._opened.parts[0].columns
    observation = np.ascontiguousarray(program._opened.observation[:, part])
    acting = functions.acting([jax.numpy.copy(leaf) for leaf in progress])
    found = {
        "to bring one part's stacks to the device": _milliseconds(lambda: jax.device_put(observation)),
        "to act for one part": _milliseconds(lambda: np.asarray(functions.act(acting, key, observation)[0])),
    }
    state, copied = [progress], list[Any]()

    def imitate() -> Any:
        state[0], metrics = functions.imitate(state[0])
        copied[:] = [metrics] * settings.sil.updates
        return metrics

    found["one update of self-imitation"] = _milliseconds(imitate)
    spec = shapes(program.agent.spec, (settings.rollout, 1, settings.envs))
    columns = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), spec)

    def learn() -> Any:
        state[0] = functions.learn(state[0], columns, copied)
        return state[0]

    found["A2C and remembering"] = _milliseconds(learn)
    program.close()
    return found


def _advance(program: Program, progress: Any, seconds: float) -> tuple[Any, tuple[float, int]]:
    """For about so long; also how long, and how many iterations that were."""
    iterations, stretch, begun = 0, 1, time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        stretch = 1 if passed > iterations * SLOW else 10
        progress = program.advance(progress, stretch)
        iterations += stretch
    return progress, (time.perf_counter() - begun, iterations)


def _watch(groups: list[HostProgram]) -> dict[str, float]:
    """From now on, how many seconds the host spends in which call."""
    spent: dict[str, float] = defaultdict(float)

    def timed(name: str, function: Callable) -> Any:
        def call(*arguments: Any) -> Any:
            begun = time.perf_counter()
            result = function(*arguments)
            if name == "acting":
                jax.block_until_ready(result)
            spent[name] += time.perf_counter() - begun
            return result

        return call

    for group in groups:
        for part in group._opened.parts:
            vector: Any = part.vector
            vector.receive = timed("waiting for emulators", vector.receive)
            vector.send = timed("handing over actions", vector.send)
    for functions in {id(group.functions): cast(Any, group.functions) for group in groups}.values():
        functions.act = timed("acting", functions.act)
        functions.imitate = timed("starting self-imitation", functions.imitate)
        functions.learn = timed("starting A2C", functions.learn)
    return spent


def _milliseconds(function: Callable[[], Any], tries: int = 10) -> float:
    jax.block_until_ready(function())
    begun = time.perf_counter()
    for _ in range(tries):
        jax.block_until_ready(function())
    return 1000 * (time.perf_counter() - begun) / tries
