"""What is compiled for a run whose environments are on the host: to act, to imitate, to learn.

Between calls a run's progress is a plain list of arrays: to take a tree of modules apart and to put one together takes
the host longer than it takes a device to act.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped, UInt32

from self_imitation.algorithm import Agent, imitate, learn, learn_on_policy, seeing
from self_imitation.host_collection import Columns, StackColumns, seed_axis, seen_by_network
from self_imitation.runs.arrays import is_key, key_words
from self_imitation.runs.tally import Progress, count, empty_tally
from self_imitation.types import Metrics

Told: TypeAlias = dict[str, Array]
"""Metrics of all seeds."""
Leaves: TypeAlias = list[Array]
"""Of all seeds' `Progress`, in the order of its tree, with random keys as plain words."""


class Functions:
    """All seeds at once, on one device."""

    def __init__(self, agent: Agent, shape: Progress, device: jax.Device):
        """`shape`: of one seed's progress."""
        self.agent, self.device, self._shape = agent, device, shape
        self._structure = jax.tree.structure(shape)
        self.places: Progress = jax.tree.unflatten(self._structure, range(len(jax.tree.leaves(shape))))
        """Where each leaf is in the list."""
        self._acting = jax.tree.leaves((self.places.state.learner.params, self.places.state.scales))
        self.act = jax.jit(jax.vmap(self._act))
        self.imitate: Any = self.jit(partial(_imitate, agent), (0,))
        axes = (0, seed_axis(agent.spec), 0)
        self._learn: Any = {ends: self.jit(partial(_learn, agent, ends), axes) for ends in (True, False)}
        self._compiled = False

    def flatten(self, progress: Progress) -> Leaves:
        """On the device."""
        return jax.device_put(key_words(jax.tree.leaves(progress)), self.device)

    def unflatten(self, leaves: Leaves) -> Progress:
        return jax.tree.unflatten(self._structure, _typed(leaves, jax.tree.leaves(self._shape)))

    def acting(self, leaves: Leaves) -> Leaves:
        """What acting needs."""
        return [leaves[place] for place in self._acting]

    def clear_tally(self, leaves: Leaves) -> Leaves:
        empty = jax.tree.leaves(empty_tally(tuple(self._shape.tally.sums)))
        cleared = list(leaves)
        for place, leaf in zip(jax.tree.leaves(self.places.tally), empty, strict=True):
            cleared[place] = jax.device_put(np.broadcast_to(leaf, leaves[place].shape), self.device)
        return cleared

    def learn(self, progress: Leaves, columns: Columns | StackColumns, copied: list[Told]) -> Leaves:
        return self._learn[bool(columns.ended.any()) or not copied](progress, columns, copied)[0]

    def compile(self, progress: Leaves, columns: Columns | StackColumns, updates: int) -> None:
        """Ahead of time. `updates`: how many are made by `imitate` for each call of `learn`."""
        if self._compiled:
            return
        copied = []
        if updates:
            copied = [jax.eval_shape(self.imitate, progress)[1]] * updates
            self.imitate = self.imitate.lower(progress).compile()
        self.compile_learning(progress, columns, copied)
        self._compiled = True

    def compile_learning(self, progress: Leaves, columns: Columns | StackColumns, copied: list[Any]) -> None:
        for ends in (True, False) if copied else (True,):
            self._learn[ends] = self._learn[ends].lower(progress, columns, copied).compile()

    def jit(self, function: Callable, in_axes: tuple) -> Any:
        """`function` takes and gives a progress, as one of leaves, of all seeds; those given are used up."""

        def of_one_seed(leaves: Leaves, *rest: PyTree) -> tuple[Leaves, PyTree]:
            progress, result = function(self.unflatten(leaves), *rest)
            return key_words(jax.tree.leaves(progress)), result

        return jax.jit(jax.vmap(of_one_seed, in_axes), donate_argnums=0)

    def _act(
        self, acting: Leaves, key: UInt32[Array, " words"], observation: Shaped[Array, "n ..."]
    ) -> tuple[Shaped[Array, "n ..."], UInt32[Array, " words"]]:
        """Actions, and the key for those that follow."""
        state = self._shape.state
        structure = jax.tree.structure((state.learner.params, state.scales))
        params, scales = jax.tree.unflatten(structure, acting)
        distribution, _ = seeing(self.agent, scales)(params, seen_by_network(self.agent.spec, observation))
        key_action, following = jax.random.split(jax.random.wrap_key_data(key))
        return distribution.sample(key_action), jax.random.key_data(following)


def _typed(leaves: list, like: list) -> list:
    return [jax.random.wrap_key_data(a) if is_key(b) else a for a, b in zip(leaves, like, strict=True)]


def _imitate(agent: Agent, progress: Progress) -> tuple[Progress, Metrics]:
    """One update."""
    state, metrics = imitate(agent, progress.state, updates=1)
    return Progress(state, progress.tally), metrics


def _learn(
    agent: Agent, ends: bool, progress: Progress, columns: Columns | StackColumns, copied: list[Metrics]
) -> tuple[Progress, None]:
    """`copied`: what self-imitation did before; with nothing, it follows now."""
    rollout = columns.on_device()
    if copied:
        state, metrics = learn_on_policy(agent, progress.state, rollout, ends)
        metrics |= jax.tree.map(lambda *each: jnp.mean(jnp.stack(each)), *copied)
    else:
        state, metrics = learn(agent, progress.state, rollout)
    return Progress(state, count(progress.tally, rollout, metrics)), None
