"""A2C+SIL on an Atari game beside its emulators alone, and where the time goes."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from self_imitation.training import devices
from benchmarks import replay
from self_imitation.columns import shapes
from self_imitation.config import TrainConfig, resolve
from self_imitation.environments import registry as catalogue
from self_imitation.environments.gymnasium import atari
from self_imitation.environments.gymnasium import make as engines
from self_imitation.replay.buffer import ReplayBuffer
from self_imitation.runs.host_functions import Leaves
from self_imitation.runs.host_program import HostProgram
from self_imitation.runs.rollouts import news_of
from self_imitation.validation import validate

GAME = "atari:MontezumaRevenge"
ROUNDS = 6
"""The emulators alone and the training are timed by turns: machines are faster at one time than at another."""
SECONDS = 1.5
"""About how long each is timed in a round."""
SLOW = 0.1
"""Seconds: iterations that take longer are timed one by one."""


def config(seeds: int) -> TrainConfig:
    """The paper's settings: 16 x 5, M = 4, batch 512, memory 100 000."""
    return engines.settle(validate(resolve(GAME, "authors", {"agent": "a2c+sil", "seeds": seeds})))


@contextlib.contextmanager
def emulators(copies: int) -> Iterator[Callable[[], float]]:
    """What gives their steps per second with random actions, nothing learnt, nothing kept."""
    game = catalogue.find(GAME).host_id
    assert game is not None
    env = atari.make(game, copies, devices.cores())
    env.reset(seed=np.arange(copies))
    actions = np.random.default_rng(0).integers(env.single_action_space.n, size=(1000, copies)).astype(np.int32)

    def rate() -> float:
        steps, begun = 0, time.perf_counter()
        while (passed := time.perf_counter() - begun) < SECONDS:
            env.step(actions[steps % len(actions)])
            steps += 1
        return steps * copies / passed

    try:
        yield rate
    finally:
        env.close()


def measure(seeds: int) -> dict[str, Any]:
    """Steps per second of so many runs together and of their emulators alone, in each round; and the milliseconds of an
    iteration by what the host did in them, and why acts were not started before emulators had stepped.
    """
    settings = config(seeds)
    copies, alone, training = seeds * settings.envs, list[float](), list[float]()
    with contextlib.closing(HostProgram(settings)) as program, emulators(copies) as rate:
        progress = begin_with_full_memory(program)
        program.compile(progress)
        progress, _ = _advance(program, progress)
        for _ in range(ROUNDS):
            alone.append(rate())
            progress, (seconds, iterations) = _advance(program, progress)
            training.append(iterations * settings.steps_per_iteration * seeds / seconds)
        with _watched(program) as spent:
            progress, watched = _advance(program, progress)
        late = program.late
    return {
        "copies": copies,
        "emulators": alone,
        "training": training,
        "host_ms": _shares(spent, *watched),
        "acts_start_late": late,
    }


def begin_with_full_memory(program: HostProgram) -> Leaves:
    """As it is after a while: updates draw from all of it, and all that they draw is worth more than expected."""

    def full(memory: ReplayBuffer) -> ReplayBuffer:
        filled = replay.fill(memory, jnp.ones(memory.capacity))
        return eqx.tree_at(lambda m: m.returns, filled, jnp.ones_like(memory.returns))

    progress = program.functions.unflatten(program.begin())
    assert progress.state.memory is not None
    memory = jax.vmap(full)(progress.state.memory)
    return program.functions.flatten(eqx.tree_at(lambda p: p.state.memory, progress, memory))


def alone() -> dict[str, float]:
    """Milliseconds of each thing that one run asks of the device, by itself."""
    with contextlib.closing(HostProgram(config(1))) as program:
        return _alone(program)


def _alone(program: HostProgram) -> dict[str, float]:
    settings, progress = program.config, begin_with_full_memory(program)
    program.compile(progress)
    functions, keys, news = program.functions, program._keys()[0], news_of(program._opened, 0)
    sight = program._sights[0]

    def act() -> np.ndarray:
        sight.prepare(progress.acting, keys)
        return sight.act(news).told

    found = {
        "to bring the newest frames to the device": _milliseconds(lambda: jax.device_put(news)),
        "to start to act, bring them and act": _milliseconds(act),
    }
    state = [progress]

    def imitate() -> Any:
        state[0] = functions.imitate(state[0])
        return state[0]

    found["one update of self-imitation"] = _milliseconds(imitate)
    parts = [part.columns for part in program._opened.parts]
    form = shapes(program.agent.spec, (settings.rollout, 1, settings.envs), parts, ends=False)
    columns = jax.device_put(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), form))

    def learn() -> Any:
        state[0] = functions.learn(state[0], columns)
        return state[0]

    found["A2C and remembering"] = _milliseconds(learn)
    return found


def _advance(program: HostProgram, progress: Any) -> tuple[Any, tuple[float, int]]:
    """For about as long as anything is timed; also how long, and how many iterations that were."""
    iterations, stretch, begun = 0, 1, time.perf_counter()
    while (passed := time.perf_counter() - begun) < SECONDS:
        stretch = 1 if passed > iterations * SLOW else 10
        progress = program.advance(progress, stretch)
        iterations += stretch
    return progress, (time.perf_counter() - begun, iterations)


@contextlib.contextmanager
def _watched(program: HostProgram) -> Iterator[dict[str, float]]:
    """Meanwhile, how many seconds the host spends in which call."""
    spent: dict[str, float] = defaultdict(float)

    def timed(name: str, function: Callable) -> Any:
        def call(*arguments: Any) -> Any:
            begun = time.perf_counter()
            result = function(*arguments)
            spent[name] += time.perf_counter() - begun
            return result

        return call

    with contextlib.ExitStack() as stack:
        watched = [
            *[(part.vector, "receive", "waiting for emulators") for part in program._opened.parts],
            *[(sight, "act", "bringing frames and acting") for sight in program._sights],
            *[(part.vector, "send", "handing over actions") for part in program._opened.parts],
            *[(sight, "prepare", "starting to act") for sight in program._sights],
            (program.functions, "imitate", "starting self-imitation"),
            (program.functions, "learn", "starting A2C"),
        ]
        for owner, method, name in watched:
            setattr(owner, method, timed(name, getattr(owner, method)))
            stack.callback(delattr, owner, method)  # its class's own one is left
        yield spent


def _shares(spent: dict[str, float], seconds: float, iterations: int) -> dict[str, float]:
    """In milliseconds of an iteration, with the rest."""
    parts = {name: 1000 * total / iterations for name, total in spent.items()}
    return {**parts, "the rest": 1000 * seconds / iterations - sum(parts.values())}


def _milliseconds(function: Callable[[], Any], tries: int = 10) -> float:
    jax.block_until_ready(function())
    begun = time.perf_counter()
    for _ in range(tries):
        jax.block_until_ready(function())
    return 1000 * (time.perf_counter() - begun) / tries
