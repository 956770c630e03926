"""The replay buffer of the callback. It stays in the memory of the host, also where JAX has a GPU."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from self_imitation.errors import UsageError
from self_imitation.replay import buffer as replay
from self_imitation.replay import priority_tree
from self_imitation.replay.buffer import REWARD, STEPS_LEFT, Batch, ReplayBuffer
from self_imitation.sb3.steps import Steps
from self_imitation.settings import ReplayConfig, SelfImitationConfig
from self_imitation.storage.trees import from_arrays, to_arrays

EXTRAS = (REWARD, STEPS_LEFT)
"""From which returns are computed anew where the scale of rewards changes."""


class Memory:
    """Finished episodes with their returns, sampled by how much they beat V."""

    def __init__(self, like: Steps, config: SelfImitationConfig, seed: int):
        """Empty. `like`: a rollout of the shapes and dtypes of those to come."""
        self.config, self.seed, self._shapes = config, seed, _shapes(like)
        self.samples = 0
        """Batches sampled so far: each has random numbers of its own."""
        self._cpu = jax.local_devices(backend="cpu")[0]
        max_pending_steps = max(1, config.buffer_size // like.reward.shape[1])
        with jax.default_device(self._cpu):
            self._key = jax.device_put(jax.random.key(seed), self._cpu)
            self.buffer = self._placed(replay.create(like, config, max_pending_steps, extras=EXTRAS))

    def _placed(self, buffer: ReplayBuffer) -> ReplayBuffer:
        return jax.device_put(buffer, self._cpu)

    def fitted(self, like: Steps) -> "Memory":
        """The same memory for such rollouts. If their size changes, unfinished episodes are dropped."""
        if _shapes(like) == self._shapes:
            return self
        memory = Memory(like, self.config, self.seed)
        memory.restore(self.to_arrays(), self.counters(), "the replay buffer")
        return memory

    @property
    def size(self) -> int:
        return int(self.buffer.size)

    def insert(self, steps: Steps) -> None:
        """Episodes that end in this rollout are stored with their returns."""
        self.buffer = _insert(self.buffer, steps, self.config)

    def drop_pending(self) -> None:
        """Forget all unfinished episodes."""
        self.buffer = self._placed(replay.drop_pending(self.buffer))

    def sample(self) -> Batch:
        self.samples += 1
        return jax.block_until_ready(_sample(self.buffer, self._key, np.int32(self.samples), self.config))

    def update_priorities(self, batch: Batch, advantage: np.ndarray) -> None:
        self.buffer = _update_priorities(self.buffer, batch, advantage, self.config)

    def rescaled_returns(self, reward: np.ndarray, scale: float) -> np.ndarray:
        """Returns of all slots if these were the rewards; `scale`: by how much rewards that are not stored differ."""
        assert self.config.gamma is not None
        return np.asarray(_rescaled_returns(self.buffer, reward, np.float32(scale), self.config.gamma))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What is stored, by name; unfinished episodes are left out."""
        return to_arrays(jax.tree.map(lambda slots: np.asarray(slots)[: self.size], _slots(self.buffer)))

    def counters(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "samples": self.samples,
            "head": int(self.buffer.head),
            "largest_priority": float(self.buffer.largest_priority),
            "negative_seen": bool(self.buffer.pending.negative_seen),
        }

    def restore(self, arrays: dict[str, np.ndarray], counters: dict[str, Any], source: str) -> None:
        """Fill an empty buffer with what `to_arrays` and `counters` returned; `source` names the origin in errors."""
        empty, size = self.buffer, len(arrays["returns"])
        if size > empty.capacity or not 0 <= counters["head"] < empty.capacity:
            raise UsageError(f"{source!r} has {size} steps, more than a buffer of {empty.capacity}")
        slots = _slots(empty)
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), slots)
        with jax.default_device(self._cpu):
            stored = jax.tree.map(jnp.asarray, from_arrays(arrays, like, source))
            filled = jax.tree.map(lambda leaf, values: leaf.at[:size].set(values), slots, stored)
            tree = priority_tree.update(empty.tree, jnp.arange(size), stored["weight"], jnp.ones(size, bool))
            buffer = eqx.tree_at(
                lambda b: (b.observation, b.action, b.returns, b.extras, b.tree, b.head, b.size, b.largest_priority),
                empty,
                (
                    *(filled[name] for name in ("observation", "action", "returns", "extras")),
                    tree,
                    jnp.int32(counters["head"]),
                    jnp.int32(size),
                    jnp.float32(counters["largest_priority"]),
                ),
            )
            negative_seen = jnp.array(counters["negative_seen"])
            self.buffer = self._placed(eqx.tree_at(lambda b: b.pending.negative_seen, buffer, negative_seen))
        self.samples = counters["samples"]


def _shapes(like: Steps) -> PyTree:
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype.name), like)


def _slots(buffer: ReplayBuffer) -> dict[str, PyTree]:
    """[slots, ...]: all that a buffer has for each step; `weight` is what it is sampled by."""
    return {
        "observation": buffer.observation,
        "action": buffer.action,
        "returns": buffer.returns,
        "extras": buffer.extras,
        "weight": buffer.tree.sums[buffer.tree.first_leaf :][: buffer.returns.shape[0]],
    }


# The buffer is updated in place.
_insert = jax.jit(replay.insert, static_argnames="config", donate_argnames="buffer")
_update_priorities = jax.jit(replay.update_priorities, static_argnames="config", donate_argnames="buffer")


@partial(jax.jit, static_argnames="config")
def _sample(buffer: ReplayBuffer, key: PRNGKeyArray, number: Int[Array, ""], config: ReplayConfig) -> Batch:
    return replay.sample(buffer, jax.random.fold_in(key, number), config)


@partial(jax.jit, static_argnames="gamma")
def _rescaled_returns(
    buffer: ReplayBuffer, reward: Float[Array, " slots"], scale: Float[Array, ""], gamma: float
) -> Float[Array, " slots"]:
    """R_t = r_t + gamma R_t+1. Where the next step of an episode is not stored, its return is the raw one, scaled."""
    last = buffer.extras[STEPS_LEFT] == 0
    following = jnp.where(last, (buffer.returns - buffer.extras[REWARD]) * scale, 0.0)

    def from_the_oldest(slots: Array) -> Array:
        return jnp.roll(slots, -buffer.head)

    def combine(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] * later[0], earlier[1] + earlier[0] * later[1]

    steps = from_the_oldest(jnp.where(last, 0.0, gamma)), from_the_oldest(reward + following)
    _, returns = jax.lax.associative_scan(combine, steps, reverse=True)
    return jnp.roll(returns, buffer.head)
