"""The memory: draw a batch with its importance weights, write its priorities back; a naive sampler beside it."""

from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from self_imitation.replay import buffer as episodic_memory
from self_imitation.replay import priority_tree
from self_imitation.benchmarks.timing import best_seconds
from self_imitation.config import SelfImitationConfig
from self_imitation.replay.buffer import ReplayBuffer

OBSERVATION = 5
ROUNDS = 1000


def measure(capacity: int, batch: int = 512) -> dict[str, float]:
    """Milliseconds for one draw and write-back of `batch` items."""
    config = SelfImitationConfig(capacity=capacity, batch=batch)
    memory = full_memory(config)
    weights = memory.tree.sums[memory.tree.first_leaf :][:capacity]
    key = jax.random.key(1)
    naive_rounds = max(ROUNDS * 10_000 // capacity, 10)
    tree = jax.jit(partial(_tree_rounds, config=config, rounds=ROUNDS))
    naive = jax.jit(partial(_naive_rounds, config=config, rounds=naive_rounds))
    tree_seconds, naive_seconds = best_seconds(lambda: tree(memory, key), lambda: naive(weights, key))
    return {
        "capacity": capacity,
        "batch": batch,
        "tree_ms": 1e3 * tree_seconds / ROUNDS,
        "naive_ms": 1e3 * naive_seconds / naive_rounds,
    }


def full_memory(config: SelfImitationConfig) -> ReplayBuffer:
    """A memory whose every slot is filled, with random priorities."""
    key_priority, key_observation = jax.random.split(jax.random.key(0))
    rollout = SimpleNamespace(
        observation=jax.ShapeDtypeStruct((5, 16, OBSERVATION), jnp.float32),
        action=jax.ShapeDtypeStruct((5, 16), jnp.int32),
        reward=jax.ShapeDtypeStruct((5, 16), jnp.float32),
    )
    memory = episodic_memory.create(rollout, config, room=50)
    priority = jax.random.uniform(key_priority, (config.capacity,), minval=episodic_memory.MIN_PRIORITY)
    observation = jax.random.uniform(key_observation, memory.observation.shape)
    filled = fill(memory, priority**config.priority_exponent)
    return eqx.tree_at(lambda m: m.observation, filled, observation)


def fill(memory: ReplayBuffer, weight: Float[Array, " capacity"]) -> ReplayBuffer:
    """All of it can be drawn, each step with this weight; where it holds frames, with those before it."""
    count, slots = memory.capacity, memory.returns.shape[0]
    tree = priority_tree.update(memory.tree, jnp.arange(count), weight, jnp.ones(count, bool))
    age = None if memory.age is None else jnp.full(slots, memory.stack - 1, jnp.uint8)
    return eqx.tree_at(
        lambda m: (m.tree, m.age, m.head, m.size),
        memory,
        (tree, age, jnp.int32(count % slots), jnp.int32(count)),
        is_leaf=lambda leaf: leaf is None,
    )


def _new_priority(slot: Int[Array, " batch"], turn: Int[Array, ""]) -> Float[Array, " batch"]:
    """Stands for the advantages that a network would give: cheap, and different at every turn."""
    return jnp.abs(jnp.sin(slot.astype(jnp.float32) + turn))


def _tree_rounds(memory: ReplayBuffer, key: Array, config: SelfImitationConfig, rounds: int) -> tuple[ReplayBuffer, Array]:
    def turn(number: Int[Array, ""], so_far: tuple) -> tuple:
        memory, key, total = so_far
        key, key_draw = jax.random.split(key)
        batch = episodic_memory.draw(memory, key_draw, config)
        memory = episodic_memory.update_priorities(memory, batch, _new_priority(batch.slot, number), config)
        return memory, key, total + jnp.sum(batch.weight) + jnp.sum(batch.observation)

    memory, _, total = jax.lax.fori_loop(0, rounds, turn, (memory, key, 0.0))
    return memory, total


def _naive_rounds(weights: Array, key: Array, config: SelfImitationConfig, rounds: int) -> tuple[Array, Array]:
    """A cumulative sum over the whole memory for every batch."""

    def turn(number: Int[Array, ""], so_far: tuple) -> tuple:
        weights, key, total = so_far
        key, key_draw = jax.random.split(key)
        cumulative = jnp.cumsum(weights)
        mass = jax.random.uniform(key_draw, (config.batch,)) * cumulative[-1]
        slot = jnp.minimum(jnp.searchsorted(cumulative, mass, side="right"), weights.shape[0] - 1)
        correction = (weights[slot] / jnp.min(weights)) ** -config.importance_exponent
        priority = jnp.maximum(_new_priority(slot, number), episodic_memory.MIN_PRIORITY)
        return weights.at[slot].set(priority**config.priority_exponent), key, total + jnp.sum(correction)

    weights, _, total = jax.lax.fori_loop(0, rounds, turn, (weights, key, 0.0))
    return weights, total
