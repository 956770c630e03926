"""A2C+SIL on an Atari game against its emulators alone, for each engine."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.measuring import TrainingRate, by_turns, prepare, spread, stepping_rate
from self_imitation.environments.registry import find
from self_imitation.training import backends, devices
from self_imitation.training.backends import Backend
from self_imitation.types import Discrete

GAME = "atari:MontezumaRevenge"
ROUNDS = 6


def measure() -> dict[str, Any] | None:
    """One seed, and on a GPU also eight seeds."""
    try:
        engines = backends.engines(find(GAME))
    except ValueError as error:
        print(f"atari: skipped; {error}")
        return None
    print("atari: A2C+SIL on Montezuma's Revenge, the paper's settings (16 x 5, M = 4, batch 512, buffer 100,000)")
    results = {"1 seed": _measure(1, engines)}
    if jax.default_backend() == "cpu":
        print("  8 seeds: skipped; needs a GPU")
    else:
        results["8 seeds"] = _measure(8, engines)
    return results


def _measure(seeds: int, engines: tuple[str, ...]) -> dict[str, Any]:
    rates: dict[str, Callable[[], float]] = {}
    for engine in engines:
        # All episodes are kept, so that the replay buffer is used.
        changes = {"agent": "a2c+sil", "seeds": seeds, "engine": engine, "sil.keep": "all"}
        config, backend = prepare(GAME, changes)
        if backend.in_program:
            rates[f"{engine} alone"] = _emulators_alone(backend, seeds * config.num_envs)
            rates[f"{engine} in training"] = TrainingRate(config, backend, warm_up=1)
    measured = by_turns(rates, ROUNDS)
    label = f"{seeds} seed{'s' * (seeds > 1)}"
    for name, values in measured.items():
        print(f"  {label}: {name:20} {spread(values)} steps/s", flush=True)
    best = list(map(max, *(values for name, values in measured.items() if name.endswith("alone")), [0.0] * ROUNDS))
    shares = {}
    for name in (name for name in measured if name.endswith("in training")):
        shares[name] = [ours / alone for ours, alone in zip(measured[name], best, strict=True)]
        print(f"  {label}: {name} / best emulator alone in the same round: {spread(shares[name], '.0%')}", flush=True)
    return {"steps_per_second": measured, "ratio_to_best": shares}


def _emulators_alone(backend: Backend, copies: int) -> Callable[[], float]:
    """Random actions, nothing learnt or stored."""
    engine: Any = backend.make(np.arange(copies)[None], devices.cores()).inner  # type: ignore[attr-defined]
    emulators = engine.pool if backend.engine == "envpool" else engine.env
    emulators.reset()
    assert isinstance(backend.spec.actions, Discrete)
    actions = np.random.default_rng(0).integers(backend.spec.actions.count, size=(1000, copies)).astype(np.int32)
    return partial(stepping_rate, lambda n: emulators.step(actions[n % len(actions)]), copies)
