"""The memory of Algorithm 1: finished episodes with their returns, drawn in proportion to how much they beat V.

Two parts. `Recent` is a ring of the latest rollouts, the room in which episodes wait until they end. `Memory` is the
ring of finished steps with a tree of priorities over it: what is in it can be drawn, and the oldest step leaves first.
An episode moves from one to the other when it ends, at a cost in proportion to its length; one that is not kept never
touches the memory.

Where an observation is a stack of the episode's latest frames, each frame is stored once, with its age, and stacks are
put together again when drawn. So that the oldest item still has the frames before it, the ring of frames is longer than
the memory by as many as a stack looks back; what lies there can't be drawn any more.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped, UInt8

from self_imitation import priority_tree
from self_imitation.config import SelfImitationConfig
from self_imitation.loops import over_steps
from self_imitation.priority_tree import PriorityTree
from self_imitation.returns import discounted_returns
from self_imitation.types import Experience

MIN_PRIORITY = 1e-6
"""Floor of a priority (authors' code): what was once not worth imitating may become so."""

CHUNK, CHUNK_OF_FRAMES = 64, 256
"""Steps of an episode that are moved into the memory at a time. With frames it pays to move more: what has them learns
on a GPU, for which a turn of the loop costs the same."""


class Recent(eqx.Module):
    """The latest steps of each environment, in whole rollouts, and how far its unfinished episode has come."""

    observation: Shaped[Array, "ring N ..."]
    """Of a stack, the newest frame."""
    action: Shaped[Array, "ring N ..."]
    reward: Float[Array, "ring N"]
    position: Int[Array, ""]
    """Where the next rollout is written."""
    length: Int[Array, " N"]
    """Steps that are kept of the unfinished episode."""
    rewarded: Bool[Array, " N"]
    """Whether the unfinished episode had a reward above 0."""
    cut: Bool[Array, " N"]
    """Whether the unfinished episode has lost its first steps."""
    room: int = eqx.field(static=True)
    """Steps that an unfinished episode keeps, its latest ones."""


class Memory(eqx.Module):
    """Finished steps in a ring of slots, `head` is the next to be written."""

    observation: Shaped[Array, "slots ..."]
    """Of a stack, the newest frame."""
    age: UInt8[Array, " slots"] | None
    """Steps of its episode before this one, as far as a stack looks back. None: observations are no stacks."""
    action: Shaped[Array, "slots ..."]
    returns: Float[Array, " slots"]
    tree: PriorityTree
    head: Int[Array, ""]
    size: Int[Array, ""]
    largest_priority: Float[Array, ""]
    recent: Recent
    stack: int = eqx.field(static=True)

    @property
    def capacity(self) -> int:
        return self.returns.shape[0] - (self.stack - 1)


class Batch(eqx.Module):
    """Items drawn from the memory."""

    slot: Int[Array, " batch"]
    observation: Shaped[Array, "batch ..."]
    action: Shaped[Array, "batch ..."]
    returns: Float[Array, " batch"]
    weight: Float[Array, " batch"]
    """Importance weight (p / p_min)^-bias_correction; 0 marks a place that nothing fills."""


def create(like: PyTree, config: SelfImitationConfig, room: int, stack: int = 1) -> Memory:
    """An empty memory for experience of the shapes and types of this one (arrays or `jax.ShapeDtypeStruct`s).

    `room` is how many of its latest steps an unfinished episode keeps; `config.room` goes before it. `stack`: how many
    frames an observation is made of, side by side on its last axis, the newest last.
    """
    steps, environments = like.reward.shape
    room = min(config.room or room, config.capacity)
    ring = steps * (-(-room // steps) + 1)  # whole rollouts, and one more that arrives while others still wait
    slots = config.capacity + stack - 1
    frame = jax.eval_shape(lambda observation: _newest(observation, stack), like.observation)

    def make(outer: tuple[int, ...], column: PyTree) -> Array:
        return jnp.zeros((*outer, *column.shape[2:]), column.dtype)

    return Memory(
        observation=make((slots,), frame),
        age=None if stack == 1 else jnp.zeros(slots, jnp.uint8),
        action=make((slots,), like.action),
        returns=jnp.zeros(slots),
        tree=priority_tree.create(slots),
        head=jnp.int32(0),
        size=jnp.int32(0),
        largest_priority=jnp.float32(1.0),
        recent=Recent(
            observation=make((ring, environments), frame),
            action=make((ring, environments), like.action),
            reward=make((ring, environments), like.reward),
            position=jnp.int32(0),
            length=jnp.zeros(environments, jnp.int32),
            rewarded=jnp.zeros(environments, bool),
            cut=jnp.zeros(environments, bool),
            room=room,
        ),
        stack=stack,
    )


def remember(memory: Memory, rollout: Experience, config: SelfImitationConfig, ends: bool = True) -> Memory:
    """Take in a rollout; the episodes that ended in it join the memory with their returns, in the order they ended.

    `ends`: whether any did, as far as is known beforehand. To find out, the host waits for what a GPU is doing.
    """
    recent, finished = _take_in(memory, rollout, config)
    memory = eqx.tree_at(lambda m: m.recent, memory, recent)
    return _store(memory, finished, config) if ends else memory


def draw(memory: Memory, key: PRNGKeyArray, config: SelfImitationConfig) -> Batch:
    """`config.batch` items, each by priority and independently of the others."""
    return draw_at(memory, jax.random.uniform(key, (memory.tree.levels, config.batch)), config)


def draw_at(memory: Memory, uniform: Float[Array, "levels batch"], config: SelfImitationConfig) -> Batch:
    """The items at which these random numbers point.

    With fewer items stored than asked for, only as many places count; with `start_after` or fewer, none.
    """
    slot, weight = priority_tree.draw(memory.tree, uniform)
    written = jnp.where(memory.size < memory.capacity, memory.size, memory.returns.shape[0])
    slot = jnp.clip(slot, 0, jnp.maximum(written - 1, 0))
    # Of episodes that lost their first frames, some steps can't be drawn: where there are no others, nothing is.
    ready = (memory.size > config.start_after) & (memory.tree.minimum < jnp.inf)
    filled = (jnp.arange(uniform.shape[1]) < memory.size) & ready
    correction = (weight / memory.tree.minimum) ** -config.bias_correction
    return Batch(
        slot=slot,
        observation=_seen_at(memory, slot),
        action=memory.action[slot],
        returns=memory.returns[slot],
        weight=jnp.where(filled, correction, 0.0),
    )


def _seen_at(memory: Memory, slot: Int[Array, " batch"]) -> Shaped[Array, "batch ..."]:
    """What the policy saw there: of a stack, this frame and those before it in its episode, before its first one 0."""
    if memory.age is None:
        return memory.observation[slot]
    back = jnp.arange(memory.stack)[::-1]
    frames = memory.observation[(slot[:, None] - back) % memory.returns.shape[0]]
    there = back <= memory.age[slot][:, None]
    frames = jnp.where(there.reshape(*there.shape, *(1,) * (frames.ndim - 2)), frames, 0)
    side_by_side = jnp.moveaxis(frames, 1, -2)
    return side_by_side.reshape(*side_by_side.shape[:-2], -1)


def _newest(observation: Shaped[Array, "T N ..."], stack: int) -> Shaped[Array, "T N ..."]:
    return observation if stack == 1 else observation[..., -(observation.shape[-1] // stack) :]


def reprioritise(
    memory: Memory, batch: Batch, advantage: Float[Array, " batch"], config: SelfImitationConfig
) -> Memory:
    """The drawn items' priorities become their present (R - V)+, not below the floor."""
    filled = batch.weight > 0
    priority = jnp.maximum(advantage, MIN_PRIORITY)
    tree = priority_tree.update(memory.tree, batch.slot, priority**config.priority_exponent, filled)
    largest = jnp.maximum(memory.largest_priority, jnp.max(jnp.where(filled, priority, 0.0)))
    return eqx.tree_at(lambda m: (m.tree, m.largest_priority), memory, (tree, largest))


class _Finished(eqx.Module):
    """The episodes that ended in a rollout and are kept: one place for every step at which one could end."""

    length: Int[Array, " places"]
    """Steps to move; 0 where no episode ended, or one that is not kept."""
    cut: Bool[Array, " places"]
    """Whether its first steps are lost."""
    last_row: Int[Array, " places"]
    """Row of the recent ring that holds the episode's last step."""
    environment: Int[Array, " places"]


def _take_in(memory: Memory, rollout: Experience, config: SelfImitationConfig) -> tuple[Recent, _Finished]:
    recent = memory.recent
    steps, environments = rollout.reward.shape
    ring = recent.reward.shape[0]

    def follow(so_far: tuple, step: tuple) -> tuple[tuple, tuple]:
        length, rewarded, cut = so_far
        reward, ended = step
        rewarded, cut = rewarded | (reward > 0), cut | (length == recent.room)
        length = jnp.minimum(length + 1, recent.room)
        return (jnp.where(ended, 0, length), rewarded & ~ended, cut & ~ended), (length, rewarded, cut)

    (length, rewarded, cut), (lengths, any_reward, any_cut) = over_steps(
        follow, (recent.length, recent.rewarded, recent.cut), (rollout.reward, rollout.ended)
    )
    kept = rollout.ended & any_reward if config.keep == "positive" else rollout.ended
    rows = recent.position + jnp.arange(steps)
    finished = _Finished(
        length=jnp.where(kept, lengths, 0).reshape(-1),
        cut=any_cut.reshape(-1),
        last_row=jnp.repeat(rows, environments),
        environment=jnp.tile(jnp.arange(environments), steps),
    )

    def write(ring: Array, block: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, block, recent.position, axis=0)

    return (
        Recent(
            observation=write(recent.observation, _newest(rollout.observation, memory.stack)),
            action=write(recent.action, rollout.action),
            reward=write(recent.reward, rollout.reward),
            position=(recent.position + steps) % ring,
            length=length,
            rewarded=rewarded,
            cut=cut,
            room=recent.room,
        ),
        finished,
    )


class _Move(eqx.Module):
    memory: Memory
    following: Float[Array, ""]
    """Return of the step after the present chunk, 0 at an episode's end."""


def _store(memory: Memory, finished: _Finished, config: SelfImitationConfig) -> Memory:
    """Move finished episodes into the memory, chunk by chunk, each episode from its last step to its first."""
    slots = memory.returns.shape[0]
    ring = memory.recent.reward.shape[0]
    chunk = CHUNK if memory.stack == 1 else CHUNK_OF_FRAMES
    chunks = -(-finished.length // chunk)
    chunks_done = jnp.cumsum(chunks)
    steps_done = jnp.cumsum(finished.length)

    def move(number: Int[Array, ""], so_far: _Move) -> _Move:
        memory, recent = so_far.memory, so_far.memory.recent
        place = jnp.searchsorted(chunks_done, number, side="right")
        within = number - (chunks_done[place] - chunks[place])
        length = finished.length[place]
        from_end = within * chunk + jnp.arange(chunk)
        # Seeds that share one loop make as many turns as the busiest of them: the others' idle turns change nothing.
        exists = (from_end < length) & (number < chunks_done[-1])

        row = (finished.last_row[place] - from_end) % ring
        environment = finished.environment[place]
        reward = jnp.where(exists, recent.reward[row, environment], 0.0)
        following = jnp.where(within == 0, 0.0, so_far.following)
        returns = discounted_returns(reward, following, config.discount)

        slot = (memory.head + steps_done[place] - 1 - from_end) % slots
        target = jnp.where(exists, slot, slots)  # out of range: dropped
        age = jnp.minimum(length - 1 - from_end, memory.stack - 1)
        whole = ~finished.cut[place] | (age == memory.stack - 1)  # else the frames before it are lost
        weight = jnp.where(whole, memory.largest_priority**config.priority_exponent, 0.0)
        memory = eqx.tree_at(
            lambda m: (m.observation, m.age, m.action, m.returns, m.tree),
            memory,
            (
                memory.observation.at[target].set(recent.observation[row, environment], mode="drop"),
                None if memory.age is None else memory.age.at[target].set(age.astype(jnp.uint8), mode="drop"),
                memory.action.at[target].set(recent.action[row, environment], mode="drop"),
                memory.returns.at[target].set(returns, mode="drop"),
                priority_tree.update(memory.tree, slot, weight, exists),
            ),
            is_leaf=lambda leaf: leaf is None,
        )
        return _Move(memory, returns[-1])

    turns = _most_over_seeds(chunks_done[-1])
    memory = jax.lax.fori_loop(0, turns, move, _Move(memory, jnp.float32(0.0))).memory
    head = (memory.head + steps_done[-1]) % slots
    size = jnp.minimum(memory.size + steps_done[-1], memory.capacity)
    memory = eqx.tree_at(lambda m: (m.head, m.size), memory, (head, size))
    return memory if memory.stack == 1 else _forget_oldest(memory)


def _forget_oldest(memory: Memory) -> Memory:
    """The frames that only serve the stacks after them can't be drawn."""
    spare = (memory.head + jnp.arange(memory.stack - 1)) % memory.returns.shape[0]
    tree = priority_tree.update(memory.tree, spare, jnp.zeros(len(spare)), jnp.ones(len(spare), bool))
    return eqx.tree_at(lambda m: m.tree, memory, tree)


@jax.custom_batching.custom_vmap
def _most_over_seeds(count: Int[Array, ""]) -> Int[Array, ""]:
    """The count itself; under `vmap` the largest of the batch.

    A loop whose number of turns differs over the batch would, at every turn, copy the whole memory to put back the
    members that are done. With one number of turns for all, nothing is copied.
    """
    return count


@_most_over_seeds.def_vmap
def _(axis_size: int, in_batched: list[bool], count: Int[Array, " seeds"]) -> tuple[Int[Array, ""], bool]:
    return _most_over_seeds(jnp.max(count)), False
