"""PPO+SIL on Hopper with the paper's settings, against the best rate of EnvPool alone and against Stable-Baselines3."""

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import TrainingRate, by_turns, in_threads, prepare, spread, stepping_rate
from self_imitation.config import TrainConfig
from self_imitation.environments.xla import envpool
from self_imitation.training import devices
from self_imitation.training.backends import Backend

ROUNDS = 6
WARM_UP = 10
"""Iterations before measuring, after which the policy stands instead of falling at once, as in most of a run."""


def measure(seeds: int = 8) -> dict[str, Any] | None:
    if not envpool.available():
        print("mujoco: skipped; needs EnvPool: pip install 'self-imitation[fast]' (Linux only)")
        return None
    changes = {"agent": "ppo+sil", "seeds": seeds, "engine": "envpool", "steps": 10**9}  # no learning rate decay
    config, backend = prepare("mujoco:Hopper", changes)
    print(f"mujoco: PPO+SIL on Hopper, the paper's settings, {seeds} seeds with one environment each", flush=True)
    cores = devices.cores()
    fewest = cores * -(-8 // cores)  # copies that can be divided among the cores
    alone = {
        f"EnvPool alone, {copies} copies, {pools} x {threads} threads": partial(
            in_threads, [_pool_alone(backend, copies // pools, threads) for _ in range(pools)]
        )
        for copies in (fewest, 2 * fewest, 4 * fewest)
        for pools, threads in sorted({(1, cores), (cores, 1)})
    }
    rates = by_turns({"training": TrainingRate(config, backend, WARM_UP), **alone}, ROUNDS)
    for name, values in rates.items():
        print(f"  {name:45} {spread(values)} steps/s", flush=True)
    shares = [rates["training"][i] / max(rates[name][i] for name in alone) for i in range(ROUNDS)]
    print(f"  training / best of EnvPool alone in the same round: {spread(shares, '.0%')}", flush=True)
    other = None
    if importlib.util.find_spec("stable_baselines3"):
        other = _stable_baselines(config)
        print(f"  Stable-Baselines3's PPO: {other:,.0f} steps/s; ours is {np.median(rates['training']) / other:.1f} x")
    return {"seeds": seeds, "steps_per_second": rates, "ratio_to_best": shares, "stable_baselines3": other}


def _pool_alone(backend: Backend, copies: int, threads: int) -> Callable[[], float]:
    """With random actions."""
    pool: Any = backend.make(np.arange(copies)[None], threads).pool  # type: ignore[attr-defined]
    pool.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, copies, *backend.spec.action_shape))
    return partial(stepping_rate, lambda n: pool.step(actions[n % len(actions)]), copies)


def _stable_baselines(config: TrainConfig, steps: int = 4096) -> float:
    """Steps per second of its PPO with the same settings, one run."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    ppo = config.components["ppo"]
    model = PPO(
        "MlpPolicy",
        VecNormalize(DummyVecEnv([lambda: gymnasium.make("Hopper-v5")])),
        learning_rate=config.optimiser.learning_rate,
        n_steps=config.num_steps,
        batch_size=config.num_steps // ppo.num_minibatches,
        n_epochs=ppo.update_epochs,
        device="cpu",
    )
    model.learn(config.num_steps)
    start = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - start)
