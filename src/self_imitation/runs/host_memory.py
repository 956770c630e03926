"""Self-imitation with its memory in the host's own memory, where the CPU looks after it: for devices that have little.

What is drawn goes to the device, and the new priorities come back.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from self_imitation import memory as episodic_memory
from self_imitation.algorithm import Agent, imitate_batch
from self_imitation.columns import Columns, StackColumns, seed_axis
from self_imitation.config import SelfImitationConfig
from self_imitation.memory import Batch, Memory
from self_imitation.runs.host_functions import Functions, Leaves, count_update, may_have_ended
from self_imitation.runs.tally import Progress


class MemoryOnHost:
    """As `Functions`, each call in pieces: of the leaves, those of the memory come last and are the host's."""

    def __init__(self, agent: Agent, shape: Progress, device: jax.Device):
        assert agent.imitation is not None
        self._on_device = Functions(agent, _without_memory(shape), device, one_by_one=True)
        self._host, self._device = jax.local_devices(backend="cpu")[0], device
        self._structure = jax.tree.structure(shape.state.memory)
        self._count = len(jax.tree.leaves(shape.state.memory))
        self._key = self._on_device.places.state.key
        self.stacked, self.act, self.act_in = self._on_device.stacked, self._on_device.act, self._on_device.act_in
        config, structure = agent.imitation, self._structure
        self._draw = jax.jit(jax.vmap(partial(_draw, config, structure)))
        self._update = self._on_device.jit(partial(_update, agent), (0,), donated=(0, 1))
        self._reprioritise = jax.jit(jax.vmap(partial(_reprioritise, config, structure)), donate_argnums=0)
        remember = jax.vmap(partial(_remember, config, structure), (0, seed_axis(agent.spec)))
        self._to_remember = jax.jit(remember, donate_argnums=0)
        self._remember: dict[bool, Any] = {}
        """Compiled; of rollouts in which an episode may have ended, and of others."""

    def flatten(self, progress: Progress) -> Leaves:
        memory = jax.device_put(jax.tree.leaves(progress.state.memory), self._host)
        return self._joined(self._on_device.flatten(_without_memory(progress)), memory)

    def unflatten(self, leaves: Leaves) -> Progress:
        rest, memory = self._split(leaves)
        progress, found = self._on_device.unflatten(rest), jax.tree.unflatten(self._structure, memory)
        return eqx.tree_at(lambda p: p.state.memory, progress, found, is_leaf=lambda leaf: leaf is None)

    def _split(self, leaves: Leaves) -> tuple[Leaves, list[Array]]:
        """What is on the device, and the memory."""
        return leaves._replace(rest=leaves.rest[: -self._count]), leaves.rest[-self._count :]

    def _joined(self, leaves: Leaves, memory: list[Array]) -> Leaves:
        return leaves._replace(rest=leaves.rest + memory)

    def clear_tally(self, leaves: Leaves) -> Leaves:
        rest, memory = self._split(leaves)
        return self._joined(self._on_device.clear_tally(rest), memory)

    def compile(self, progress: Leaves, forms: Sequence[Columns | StackColumns]) -> None:
        """The pieces of an update by making one, with copies."""
        self.imitate(jax.tree.map(jnp.copy, progress))
        rest, memory = self._split(progress)
        self._on_device.compile_learning(rest, forms)
        for columns in forms:
            self._remember[may_have_ended(columns)] = self._to_remember.lower(memory, columns).compile()

    def imitate(self, leaves: Leaves) -> Leaves:
        rest, memory = self._split(leaves)
        drawn = self._draw(memory, np.asarray(rest.rest[self._key]))
        rest, advantage = self._update(*rest, jax.device_put(drawn, self._device))
        memory = self._reprioritise(memory, drawn.batch, jax.device_put(advantage, self._host))
        return self._joined(rest, memory)

    def learn(self, leaves: Leaves, columns: Columns | StackColumns) -> Leaves:
        rest, memory = self._split(leaves)
        remember = self._remember.get(may_have_ended(columns), self._to_remember)
        learnt = self._on_device.learn(rest, columns)
        return self._joined(learnt, remember(memory, jax.device_put(columns, self._host)))


class _Drawn(eqx.Module):
    batch: Batch
    key: UInt32[Array, " words"]
    """The seed's next one."""
    size: Float[Array, ""]
    """Steps in the memory."""


def _without_memory(progress: Progress) -> Progress:
    return eqx.tree_at(lambda p: p.state.memory, progress, None)


def _draw(config: SelfImitationConfig, structure: jax.tree_util.PyTreeDef, leaves: list[Array], key: Array) -> _Drawn:
    memory: Memory = jax.tree.unflatten(structure, leaves)
    following, key_draw = jax.random.split(jax.random.wrap_key_data(key))
    batch = episodic_memory.draw(memory, jax.random.split(key_draw, 1)[0], config)
    return _Drawn(batch, jax.random.key_data(following), memory.size.astype(jnp.float32))


def _update(agent: Agent, progress: Progress, drawn: _Drawn) -> tuple[Progress, Float[Array, " batch"]]:
    state, advantage, metrics = imitate_batch(agent, progress.state, drawn.batch)
    state = eqx.tree_at(lambda s: s.key, state, jax.random.wrap_key_data(drawn.key))
    tally = count_update(agent, progress.tally, {**metrics, "memory_size": drawn.size})
    return Progress(state, tally), advantage


def _reprioritise(
    config: SelfImitationConfig,
    structure: jax.tree_util.PyTreeDef,
    leaves: list[Array],
    batch: Batch,
    advantage: Float[Array, " batch"],
) -> list[Array]:
    memory: Memory = jax.tree.unflatten(structure, leaves)
    return jax.tree.leaves(episodic_memory.reprioritise(memory, batch, advantage, config))


def _remember(
    config: SelfImitationConfig,
    structure: jax.tree_util.PyTreeDef,
    leaves: list[Array],
    columns: Columns | StackColumns,
) -> list[Array]:
    memory: Memory = jax.tree.unflatten(structure, leaves)
    ends = may_have_ended(columns)
    return jax.tree.leaves(episodic_memory.remember(memory, columns.on_device(), config, ends))
