"""The replay buffer: sample a batch with importance weights and update its priorities."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from benchmarks.measuring import best_seconds, prepare
from self_imitation.replay import buffer as replay
from self_imitation.replay import priority_tree
from self_imitation.replay.buffer import ReplayBuffer
from self_imitation.settings import SelfImitationConfig

CAPACITIES = (100_000, 1_000_000)
ROUNDS = 1000


def measure() -> list[dict[str, float]]:
    prepare("key-door-treasure", {"seeds": 1})
    print("replay: sample 512 steps with importance weights and update their priorities", flush=True)
    results = []
    for capacity in CAPACITIES:
        config = SelfImitationConfig(buffer_size=capacity, batch_size=512)
        buffer, rounds = full_buffer(config), jax.jit(partial(_rounds, config=config))
        seconds = best_seconds(partial(rounds, buffer, jax.random.key(1)))
        results.append({"buffer_size": capacity, "milliseconds": 1e3 * seconds / ROUNDS})
        print(f"  {capacity:9,} steps  {results[-1]['milliseconds']:6.3f} ms", flush=True)
    return results


def full_buffer(config: SelfImitationConfig) -> ReplayBuffer:
    """A buffer with every slot filled and random priorities."""
    like = SimpleNamespace(
        observation=jax.ShapeDtypeStruct((5, 16, 5), jnp.float32),
        action=jax.ShapeDtypeStruct((5, 16), jnp.int32),
        reward=jax.ShapeDtypeStruct((5, 16), jnp.float32),
    )
    buffer, count = replay.create(like, config, max_pending_steps=50), config.buffer_size
    priority = jax.random.uniform(jax.random.key(0), (count,), minval=replay.MIN_PRIORITY)
    everywhere = jnp.arange(count), priority**config.priority_exponent, jnp.ones(count, bool)
    tree = priority_tree.update(buffer.tree, *everywhere)
    return eqx.tree_at(lambda b: (b.tree, b.size), buffer, (tree, jnp.int32(count)))


def _rounds(buffer: ReplayBuffer, key: Array, config: SelfImitationConfig) -> Any:
    def once(number: Int[Array, ""], carry: tuple) -> tuple:
        buffer, total = carry
        batch = replay.sample(buffer, jax.random.fold_in(key, number), config)
        advantage = jnp.abs(jnp.sin(batch.slot.astype(jnp.float32) + number))  # in place of a network's
        buffer = replay.update_priorities(buffer, batch, advantage, config)
        return buffer, total + jnp.sum(batch.weight) + jnp.sum(batch.observation)

    return jax.lax.fori_loop(0, ROUNDS, once, (buffer, 0.0))
