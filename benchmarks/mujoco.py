"""PPO+SIL on Hopper with the paper's settings, beside what its environments do alone and what another library does."""

import importlib.util
import time
from typing import Any

import numpy as np

from self_imitation.config import TrainConfig, resolve
from self_imitation.environments.gymnasium import make as engines
from self_imitation.runs import program
from self_imitation.validation import validate

TASK = "mujoco:Hopper"
SEEDS = 8
ITERATIONS = 3
WARM_UP = 10
"""Iterations before it is timed, so that the policy stands rather than falls at once, as in most of a run."""
TRIES = 3


def config() -> TrainConfig:
    return validate(
        resolve(TASK, "authors", {"agent": "ppo+sil", "seeds": SEEDS, "engine": engines.choose(TASK, "auto")})
    )


def measure() -> dict[str, Any]:
    """Environment steps per second, the best of three tries in turns: all meet the same conditions."""
    settings = config()
    trained = program.create(settings)
    progress = trained.begin()
    trained.compile(progress)
    progress = trained.advance(progress, WARM_UP)
    rates: dict[str, float] = {"training": 0.0}
    for _ in range(TRIES):
        begun = time.perf_counter()
        progress = trained.advance(progress, ITERATIONS)
        steps = ITERATIONS * settings.steps_per_iteration * SEEDS
        rates["training"] = max(rates["training"], steps / (time.perf_counter() - begun))
        for copies in (SEEDS, 2 * SEEDS):
            name = f"environments_{copies}"
            rates[name] = max(rates.get(name, 0.0), _environments_alone(settings, copies))
    trained.close()
    other = _stable_baselines(settings) if importlib.util.find_spec("stable_baselines3") else None
    return {"engine": settings.engine, "seeds": SEEDS, "steps_per_second": rates, "stable_baselines3": other}


def _environments_alone(settings: TrainConfig, copies: int, steps: int = 1000) -> float:
    """The engine by itself with all cores: the same actions again and again, nothing learnt, nothing kept."""
    spaces = engines.inspect(settings)
    vector = engines.make_vector(settings, spaces, list(range(copies)))
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, copies, *spaces.spec.action_shape)).astype(np.float32)
    vector.reset(list(range(copies)))
    raw = [spaces.action(action) for action in actions]
    begun = time.perf_counter()
    for action in raw:
        vector.env.step(action)
    seconds = time.perf_counter() - begun
    vector.close()
    return steps * copies / seconds


def _stable_baselines(settings: TrainConfig, steps: int = 4096) -> float:
    """Its PPO with the same settings, one run."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    host_id = TASK.removeprefix("mujoco:") + "-v5"
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make(host_id)]))
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=settings.optimiser.learning_rate,
        n_steps=settings.rollout,
        batch_size=settings.rollout // settings.ppo.num_minibatches,
        n_epochs=settings.ppo.update_epochs,
        device="cpu",
    )
    model.learn(settings.rollout)
    begun = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - begun)
