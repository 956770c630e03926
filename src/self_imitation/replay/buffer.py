"""The replay buffer of Algorithm 1: finished episodes with their returns, sampled by how much they beat V.

`EpisodeBuffer` (the paper's E, in `episodes`) has the episodes that wait for their end. `ReplayBuffer`
(the paper's D) is a ring of steps of finished episodes with a priority tree over it; the oldest steps are overwritten.
An episode moves from one to the other when it ends, at a cost proportional to its length; an episode that is not kept
never touches the replay buffer.

Where an observation is a stack of the episode's latest frames, each frame is stored once, with its age, and stacks are
rebuilt when sampled. So that the oldest step still has the frames before it, the ring of frames is longer than the
capacity by the frames that a stack looks back; the steps there can't be sampled.

A buffer can store extras with each step: what a rollout carries under that name, or one of `COMPUTED`. By default it
stores none.
"""

from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped, UInt8

from self_imitation.arrays import max_over_seeds, require_vectors
from self_imitation.replay import checks, episodes, priority_tree
from self_imitation.replay.episodes import EpisodeBuffer, Finished
from self_imitation.replay.priority_tree import PriorityTree
from self_imitation.replay.returns import discounted_returns
from self_imitation.settings import ReplayConfig
from self_imitation.types import Experience, Observation

MIN_PRIORITY = 1e-6
"""Floor of a priority (authors' code): what was not worth imitating may become so."""

LOG_PROB = "log_prob"
"""Extra of a rollout: log mu(a|s) of the policy that acted."""
REWARD, STEPS_LEFT, ENTROPY_RETURN = COMPUTED = ("reward", "steps_left", "entropy_return")
"""Extras that are computed when an episode is stored: the reward; how many steps follow in the same stored part of the
episode; and the discounted sum of -log mu(a|s) from this step on, which needs `LOG_PROB`."""

CHUNK, FRAME_CHUNK = 64, 256
"""Steps of an episode that are moved into the replay buffer at a time. Larger with frames: those runs train on a GPU,
where one iteration of the loop has a fixed cost."""


class ReplayBuffer(eqx.Module):
    """Steps of finished episodes in a ring of slots; `head` is the next to be written."""

    observation: Observation
    """[slots, ...]; of a stack, the newest frame."""
    age: UInt8[Array, " slots"] | None
    """Steps of its episode before this one, up to the depth of a stack. None: observations are not stacks."""
    action: Shaped[Array, "slots ..."]
    returns: Float[Array, " slots"]
    """Discounted, from each step on."""
    extras: dict[str, Array]
    """[slots, ...] by name."""
    tree: PriorityTree
    head: Int[Array, ""]
    size: Int[Array, ""]
    """Steps that are stored."""
    largest_priority: Float[Array, ""]
    pending: EpisodeBuffer
    stack: int = eqx.field(static=True)

    @property
    def capacity(self) -> int:
        """Steps that can be stored."""
        return self.returns.shape[0] - (self.stack - 1)


class Batch(eqx.Module):
    """Steps sampled from the replay buffer."""

    slot: Int[Array, " batch"]
    """Where in the buffer each step is."""
    observation: Observation
    """[batch, ...]"""
    action: Shaped[Array, "batch ..."]
    """As they were inserted."""
    returns: Float[Array, " batch"]
    """Discounted, of the environment's own rewards; see `SelfImitationConfig.truncated_returns`."""
    weight: Float[Array, " batch"]
    """Importance weight (p / p_min)^-importance_exponent; 0 marks an empty entry."""
    extras: dict[str, Array] = eqx.field(default_factory=dict)
    """[batch, ...]: those of the buffer."""


def create(
    like: PyTree, config: ReplayConfig, max_pending_steps: int, stack: int = 1, extras: Iterable[str] = ()
) -> ReplayBuffer:
    """An empty buffer.

    Args:
        like: experience of the shapes and dtypes to store, in arrays or `jax.ShapeDtypeStruct`s: an object with the
            fields `observation` [T, N, ...], `action` [T, N, ...], `reward`, `ended` and `valid` [T, N]; with
            `truncated_returns = "continued"` also `terminated` [T, N].
        config: capacity, discount and which episodes to keep.
        max_pending_steps: how many steps of an unfinished episode wait for its end, unless `config` says otherwise.
        stack: frames per observation, along its last axis, the newest last.
        extras: names of the extras to store with each step.

    Raises:
        UsageError: shapes or settings can't be right.
    """
    checks.require_creatable(like, config)
    extras = tuple(extras)
    recorded = [name for name in extras if name not in COMPUTED]
    if ENTROPY_RETURN in extras and LOG_PROB not in recorded:
        recorded.append(LOG_PROB)
    max_pending_steps = min(config.max_pending_steps or max_pending_steps, config.buffer_size)
    slots = config.buffer_size + stack - 1
    frame = jax.eval_shape(lambda observation: episodes.newest_frame(observation, stack), like.observation)

    def zeros(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape[2:]), leaf.dtype), tree)

    return ReplayBuffer(
        observation=zeros(frame),
        age=None if stack == 1 else jnp.zeros(slots, jnp.uint8),
        action=zeros(like.action),
        returns=jnp.zeros(slots),
        extras={name: _empty_extra(name, slots, zeros, like) for name in extras},
        tree=priority_tree.create(slots),
        head=jnp.int32(0),
        size=jnp.int32(0),
        largest_priority=jnp.float32(1.0),
        pending=episodes.create(like, config, max_pending_steps, stack, recorded),
        stack=stack,
    )


def _empty_extra(name: str, slots: int, zeros: Callable[[PyTree], PyTree], like: PyTree) -> Array:
    if name in COMPUTED:
        return jnp.zeros(slots, jnp.int32 if name == STEPS_LEFT else jnp.float32)
    return zeros(like.extras[name])


def insert(buffer: ReplayBuffer, rollout: Experience, config: ReplayConfig) -> ReplayBuffer:
    """Insert a rollout; episodes that ended in it move to the replay buffer with their returns, in order of ending.

    Args:
        buffer: made by `create`.
        rollout: steps [T, N] that follow those inserted before, with any T.
        config: the one that the buffer was created with.

    Returns:
        The new buffer.

    Raises:
        UsageError: the rollout has other shapes or dtypes than those that the buffer was created for.
    """
    checks.require_fitting(buffer.pending, rollout, config, buffer.stack)
    pending, finished = episodes.append(buffer.pending, rollout, config, buffer.stack)
    return _store(eqx.tree_at(lambda b: b.pending, buffer, pending), finished, config)


def sample(buffer: ReplayBuffer, key: PRNGKeyArray, config: ReplayConfig) -> Batch:
    """`config.batch_size` steps, each sampled by priority, with replacement.

    With fewer steps stored than asked for, the remaining entries are empty; with `learning_starts` or fewer, all are.
    Their weight is 0.
    """
    return sample_at(buffer, jax.random.uniform(key, (buffer.tree.levels, config.batch_size)), config)


def sample_at(buffer: ReplayBuffer, uniform: Float[Array, "levels batch"], config: ReplayConfig) -> Batch:
    """The steps that these random numbers select.

    With fewer steps stored than asked for, the remaining entries are empty; with `learning_starts` or fewer, all are.
    """
    slot, weight = priority_tree.sample(buffer.tree, uniform)
    written = jnp.where(buffer.size < buffer.capacity, buffer.size, buffer.returns.shape[0])
    slot = jnp.clip(slot, 0, jnp.maximum(written - 1, 0))
    # Steps of episodes that lost their first frames can't be sampled; if there are no others, the batch is empty.
    ready = (buffer.size > config.learning_starts) & (buffer.tree.minimum < jnp.inf)
    filled = (jnp.arange(uniform.shape[1]) < buffer.size) & ready
    importance_weight = (weight / buffer.tree.minimum) ** -config.importance_exponent
    return batch_at(buffer, slot, jnp.where(filled, importance_weight, 0.0))


def batch_at(buffer: ReplayBuffer, slot: Int[Array, " batch"], weight: Float[Array, " batch"]) -> Batch:
    """The steps in these slots."""
    return Batch(
        slot=slot,
        observation=_observation_at(buffer, slot),
        action=buffer.action[slot],
        returns=buffer.returns[slot],
        weight=weight,
        extras={name: stored[slot] for name, stored in buffer.extras.items()},
    )


def later(buffer: ReplayBuffer, batch: Batch, steps: int) -> tuple[Batch, Bool[Array, " batch"]]:
    """The steps that came `steps` later in the same episodes, and whether there was such a step. Needs `STEPS_LEFT`."""
    exists = batch.extras[STEPS_LEFT] >= steps
    slot = jnp.where(exists, (batch.slot + steps) % buffer.returns.shape[0], batch.slot)
    return batch_at(buffer, slot, batch.weight), exists


def update_priorities(
    buffer: ReplayBuffer, batch: Batch, advantage: Float[Array, " batch"], config: ReplayConfig
) -> ReplayBuffer:
    """Set the priorities of sampled steps to their present (R - V)+, not below the floor.

    Args:
        buffer: from which the batch was sampled.
        batch: what `sample` returned.
        advantage: (R - V)+ of each step, as `self_imitation_loss` returns it.
        config: has the exponent of the priorities.

    Returns:
        The new buffer.

    Raises:
        UsageError: `advantage` is not a vector [batch].
    """
    require_vectors(slot=batch.slot, advantage=advantage)
    filled = batch.weight > 0
    priority = jnp.maximum(advantage, MIN_PRIORITY)
    tree = priority_tree.update(buffer.tree, batch.slot, priority**config.priority_exponent, filled)
    largest = jnp.maximum(buffer.largest_priority, jnp.max(jnp.where(filled, priority, 0.0)))
    return eqx.tree_at(lambda b: (b.tree, b.largest_priority), buffer, (tree, largest))


def drop_pending(buffer: ReplayBuffer) -> ReplayBuffer:
    """Forget all unfinished episodes."""
    return eqx.tree_at(lambda b: b.pending, buffer, episodes.drop(buffer.pending))


def _observation_at(buffer: ReplayBuffer, slot: Int[Array, " batch"]) -> Observation:
    """What the policy saw there; a stack is rebuilt from this frame and the ones before it in its episode."""
    if buffer.age is None:
        return jax.tree.map(lambda leaf: leaf[slot], buffer.observation)
    back = jnp.arange(buffer.stack)[::-1]
    frames = buffer.observation[(slot[:, None] - back) % buffer.returns.shape[0]]
    exists = back <= buffer.age[slot][:, None]
    frames = jnp.where(exists.reshape(*exists.shape, *(1,) * (frames.ndim - 2)), frames, 0)
    side_by_side = jnp.moveaxis(frames, 1, -2)
    return side_by_side.reshape(*side_by_side.shape[:-2], -1)


class _Move(eqx.Module):
    buffer: ReplayBuffer
    following: Float[Array, ""]
    """Return of the step after the present chunk, 0 at the end of an episode."""
    following_entropy: Float[Array, ""]
    """The same of the entropies, where they are stored."""


class _Chunk(eqx.Module):
    """Some steps of a finished episode, from its last to its first."""

    row: Int[Array, " chunk"]
    """In the episode buffer."""
    environment: Int[Array, ""]
    slot: Int[Array, " chunk"]
    """In the replay buffer."""
    exists: Bool[Array, " chunk"]
    moves: Bool[Array, " chunk"]
    """Steps that exist and don't only count towards the returns of the others."""
    last: Bool[Array, ""]
    """Whether it has the last step of its episode."""
    following: Float[Array, ""]
    """Return that is assumed to follow this last step."""
    steps_left: Int[Array, " chunk"]
    age: Int[Array, " chunk"]
    complete: Bool[Array, " chunk"]
    """Whether all frames of the step's stack are stored."""


def _store(buffer: ReplayBuffer, finished: Finished, config: ReplayConfig) -> ReplayBuffer:
    """Move finished episodes into the replay buffer, chunk by chunk, each from its last step to its first."""
    assert config.gamma is not None, "the learner's discount"
    gamma, slots = config.gamma, buffer.returns.shape[0]
    size = CHUNK if buffer.stack == 1 else FRAME_CHUNK
    chunks_done = jnp.cumsum(-(-finished.length // size))
    steps_done = jnp.cumsum(jnp.maximum(finished.length - finished.waiting, 0))

    def move(number: Int[Array, ""], carry: _Move) -> _Move:
        pending = carry.buffer.pending
        chunk = _locate(carry.buffer, finished, chunks_done, steps_done, number, size)
        reward = jnp.where(chunk.exists, pending.reward[chunk.row, chunk.environment], 0.0)
        returns = discounted_returns(reward, jnp.where(chunk.last, chunk.following, carry.following), gamma)
        computed = {REWARD: reward, STEPS_LEFT: chunk.steps_left}
        following_entropy = carry.following_entropy
        if ENTROPY_RETURN in carry.buffer.extras:
            entropy = jnp.where(chunk.exists, -pending.extras[LOG_PROB][chunk.row, chunk.environment], 0.0)
            following_entropy = jnp.where(chunk.last, 0.0, following_entropy)
            computed[ENTROPY_RETURN] = discounted_returns(entropy, following_entropy, gamma)
            following_entropy = computed[ENTROPY_RETURN][-1]
        return _Move(_write(carry.buffer, chunk, returns, computed, config), returns[-1], following_entropy)

    start = _Move(buffer, jnp.float32(0.0), jnp.float32(0.0))
    buffer = jax.lax.fori_loop(0, max_over_seeds(chunks_done[-1]), move, start).buffer
    head = (buffer.head + steps_done[-1]) % slots
    stored = jnp.minimum(buffer.size + steps_done[-1], buffer.capacity)
    buffer = eqx.tree_at(lambda b: (b.head, b.size), buffer, (head, stored))
    return buffer if buffer.stack == 1 else _exclude_oldest(buffer)


def _locate(
    buffer: ReplayBuffer,
    finished: Finished,
    chunks_done: Int[Array, " entries"],
    steps_done: Int[Array, " entries"],
    number: Int[Array, ""],
    size: int,
) -> _Chunk:
    """The chunk of this number, counted over all finished episodes."""
    entry = jnp.searchsorted(chunks_done, number, side="right")
    length, waiting = finished.length[entry], finished.waiting[entry]
    within = number - (chunks_done[entry] - -(-length // size))
    from_end = within * size + jnp.arange(size)
    # Seeds in one loop take as many iterations as the busiest of them: those of the others change nothing.
    exists = (from_end < length) & (number < chunks_done[-1])
    age = jnp.minimum(length - 1 - from_end, buffer.stack - 1)
    return _Chunk(
        row=(finished.last_row[entry] - from_end) % buffer.pending.reward.shape[0],
        environment=finished.environment[entry],
        slot=(buffer.head + steps_done[entry] - 1 - (from_end - waiting)) % buffer.returns.shape[0],
        exists=exists,
        moves=exists & (from_end >= waiting),
        last=within == 0,
        following=finished.following[entry],
        steps_left=from_end - waiting,
        age=age,
        complete=~finished.truncated_start[entry] | (age == buffer.stack - 1),  # else frames before it are missing
    )


def _write(
    buffer: ReplayBuffer,
    chunk: _Chunk,
    returns: Float[Array, " chunk"],
    computed: dict[str, Array],
    config: ReplayConfig,
) -> ReplayBuffer:
    """Copy the steps that move from the episode buffer, with their returns and the extras that are computed."""
    pending = buffer.pending
    target = jnp.where(chunk.moves, chunk.slot, buffer.returns.shape[0])  # out of range: dropped
    weight = jnp.where(chunk.complete, buffer.largest_priority**config.priority_exponent, 0.0)

    def write(slots: Array, values: Array) -> Array:
        return slots.at[target].set(values, mode="drop")

    def copy(slots: Array, ring: Array) -> Array:
        return write(slots, ring[chunk.row, chunk.environment])

    extras = {
        name: write(stored, computed[name]) if name in COMPUTED else copy(stored, pending.extras[name])
        for name, stored in buffer.extras.items()
    }
    return eqx.tree_at(
        lambda b: (b.observation, b.age, b.action, b.returns, b.extras, b.tree),
        buffer,
        (
            jax.tree.map(copy, buffer.observation, pending.observation),
            None if buffer.age is None else write(buffer.age, chunk.age.astype(jnp.uint8)),
            copy(buffer.action, pending.action),
            write(buffer.returns, returns),
            extras,
            priority_tree.update(buffer.tree, chunk.slot, weight, chunk.moves),
        ),
        is_leaf=lambda leaf: leaf is None,
    )


def _exclude_oldest(buffer: ReplayBuffer) -> ReplayBuffer:
    """Frames that only serve the stacks after them can't be sampled."""
    spare = (buffer.head + jnp.arange(buffer.stack - 1)) % buffer.returns.shape[0]
    tree = priority_tree.update(buffer.tree, spare, jnp.zeros(len(spare)), jnp.ones(len(spare), bool))
    return eqx.tree_at(lambda b: b.tree, buffer, tree)
