"""Exploration bonuses: what an update costs per environment step on frames like Atari's."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from benchmarks.measuring import best_seconds
from self_imitation import registry
from self_imitation.algorithm.components import Bonus
from self_imitation.training.devices import enable_compilation_cache
from self_imitation.types import Discrete, Rollout, Spec

NAMES = ("simhash", "rnd", "cts", "pixelcnn")
SEEDS = (1, 4)
STEPS, ENVS = 5, 16
ROUNDS = 10
SPEC = Spec((84, 84, 4), Discrete(18), max_episode_steps=None, observation_kind="image", stack=4)


def measure() -> list[dict[str, Any]]:
    enable_compilation_cache()
    device = jax.devices()[0].device_kind
    print(f"exploration: update on rollouts of {STEPS} x {ENVS} stacks of four frames, {device}", flush=True)
    results: list[dict[str, Any]] = []
    for name in NAMES:
        entry = registry.bonuses()[name].component
        for seeds in SEEDS:
            updates = Updates(entry(entry.Config(), SPEC), seeds)
            microseconds = 1e6 * best_seconds(updates) / (ROUNDS * STEPS * ENVS * seeds)
            results.append({"bonus": name, "seeds": seeds, "microseconds": microseconds, "bytes": updates.bytes})
            shown = f"{seeds} seeds" if seeds > 1 else "1 seed "
            state = f"state of a seed {updates.bytes / 1e6:,.1f} MB"
            print(f"  {name:10} {shown}  {microseconds:8.1f} microseconds per step, {state}", flush=True)
    return results


class Updates:
    """Several updates of the bonus's state, which continues from call to call and is never copied."""

    def __init__(self, bonus: Bonus, seeds: int):
        stack = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
        self.state = stack(*[bonus.init(jax.random.key(seed), ENVS) for seed in range(seeds)])
        self.bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state)) // seeds
        # Another rollout in each round: what depends on frames alone would be computed once.
        self.rollouts = stack(*[stack(*[film(seed, number) for seed in range(seeds)]) for number in range(ROUNDS)])
        self._run = jax.jit(partial(_rounds, bonus), donate_argnums=0)

    def __call__(self) -> Any:
        self.state, rewards = self._run(self.state, self.rollouts)
        return rewards


def _rounds(bonus: Bonus, state: Any, rollouts: Rollout) -> tuple[Any, Any]:
    def once(state: Any, given: tuple[Rollout, Array]) -> tuple[Any, Any]:
        rollout, key = given
        state, exploration, _ = jax.vmap(bonus.update, (0, 0, None))(state, rollout, key)
        return state, exploration

    return jax.lax.scan(once, state, (rollouts, jax.random.split(jax.random.key(0), ROUNDS)))


def film(seed: int, number: int) -> Rollout:
    """A picture, with a square at a random place in each frame."""
    generator = np.random.default_rng((seed, number))
    picture = (np.add.outer(np.arange(84), np.arange(84)) // 24 * 32 % 256).astype(np.uint8)
    frames = np.tile(picture[..., None], (STEPS + 1, ENVS, 1, 1, SPEC.stack))
    for step, env, frame in np.ndindex(STEPS + 1, ENVS, SPEC.stack):
        y, x = generator.integers(74, size=2)
        frames[step, env, y : y + 10, x : x + 10, frame] = 255
    each = jnp.zeros((STEPS, ENVS))
    return Rollout(
        observation=jnp.asarray(frames[:-1]),
        action=each.astype(jnp.int32),
        reward=each,
        terminated=each.astype(bool),
        truncated=each.astype(bool),
        valid=jnp.ones((STEPS, ENVS), bool),
        next_observation=None,
        last_observation=jnp.asarray(frames[-1]),
        episode_return=each,
        episode_length=each.astype(jnp.int32),
        extras={},
    )
