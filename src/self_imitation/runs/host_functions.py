"""What is compiled for a run whose environments are on the host: to act, to imitate, to learn.

Between calls a run's progress is plain lists of arrays: to take a tree of modules apart and to put one together takes
the host longer than it takes a device to act.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped, UInt32

from self_imitation.algorithm import Agent, imitate, learn, learn_on_policy, seeing
from self_imitation.columns import Columns, StackColumns, seed_axis, seen_by_network, stacked_up
from self_imitation.distributions import sample_each
from self_imitation.runs.arrays import is_key, key_words
from self_imitation.runs.meeting import Meeting
from self_imitation.runs.tally import Progress, Tally, add, count, empty_tally
from self_imitation.types import Metrics

GRAPHS = "xla_gpu_enable_command_buffer"
"""The option that names what XLA puts into CUDA graphs."""
IN_GRAPHS = ("FUSION", "CUBLAS", "CUBLASLT", "CUDNN", "CUSTOM_CALL", "DYNAMIC_SLICE_FUSION", "CONVOLUTION")
"""What XLA may put into a CUDA graph: all that it does by itself, and convolutions."""


class Leaves(NamedTuple):
    """Of all seeds' `Progress`, in the order of its tree, with random keys as plain words."""

    acting: list[Array]
    """What acting needs."""
    rest: list[Array]


class Functions:
    """All seeds at once, on one device.

    To imitate and to learn use up what they are given, and give the new in its place: a CUDA graph must be told of all
    that has moved since it last ran. Only to learn leaves what acting needs as it is, for environments are acted in
    with it meanwhile.
    """

    def __init__(self, agent: Agent, shape: Progress, device: jax.Device, one_by_one: bool):
        """`shape`: of one seed's progress. `one_by_one`: whether self-imitation's updates are made by `imitate`, before
        `learn`; else they follow within it.
        """
        self.agent, self.device, self._shape, self._one_by_one = agent, device, shape, one_by_one
        self.stacked = agent.spec.stack > 1
        rest = _rest(shape)
        self.places: Progress = jax.tree.unflatten(jax.tree.structure(rest), range(len(jax.tree.leaves(rest))))
        """Where each leaf is in the list of the rest."""
        self.act: Any = jax.jit(jax.vmap(self._act))
        self._imitate: Any = self.jit(partial(_imitate, agent), (), donated=(0, 1))
        self._learn: Any = self.jit(partial(_learn, agent, one_by_one), (seed_axis(agent.spec),), donated=(1,))
        self._compiled: dict[bool, Any] = {}
        """To learn from rollouts in which an episode may have ended, and from others."""

    def flatten(self, progress: Progress) -> Leaves:
        """On the device."""
        return jax.device_put(_apart(progress), self.device)

    def unflatten(self, leaves: Leaves) -> Progress:
        rest = _together(leaves.rest, _rest(self._shape))
        acting = _together(leaves.acting, _needed_to_act(self._shape))
        return eqx.tree_at(_needed_to_act, rest, acting, is_leaf=lambda leaf: leaf is None)

    def clear_tally(self, leaves: Leaves) -> Leaves:
        empty = jax.tree.leaves(empty_tally(tuple(self._shape.tally.sums)))
        cleared = list(leaves.rest)
        for place, leaf in zip(jax.tree.leaves(self.places.tally), empty, strict=True):
            cleared[place] = jax.device_put(np.broadcast_to(leaf, cleared[place].shape), self.device)
        return leaves._replace(rest=cleared)

    def imitate(self, progress: Leaves) -> Leaves:
        """One update."""
        return self._imitate(*progress)[0]

    def learn(self, progress: Leaves, columns: Columns | StackColumns) -> Leaves:
        learn = self._compiled.get(may_have_ended(columns), self._learn)
        return learn(*progress, columns)[0]

    def compile(self, progress: Leaves, forms: Sequence[Columns | StackColumns]) -> None:
        """Ahead of time, for all forms of columns."""
        if self._one_by_one:
            self._imitate = compiled_as_one_graph(self._imitate.lower(*progress), progress, self.device.platform)
        self.compile_learning(progress, forms)

    def compile_learning(self, progress: Leaves, forms: Sequence[Columns | StackColumns]) -> None:
        for columns in forms:
            self._compiled[may_have_ended(columns)] = self._learn.lower(*progress, columns).compile()

    def jit(self, function: Callable, in_axes: tuple, donated: tuple[int, ...]) -> Any:
        """`function` of a progress and of more, which gives a progress and something else; as one of its leaves, of all
        seeds. `in_axes`: where the seeds are in that which is more. `donated`: which fields of `Leaves` it uses up.
        """

        def of_one_seed(acting: list[Array], rest: list[Array], *more: PyTree) -> tuple[Leaves, PyTree]:
            progress, result = function(self.unflatten(Leaves(acting, rest)), *more)
            return _apart(progress), result

        return jax.jit(jax.vmap(of_one_seed, (0, 0, *in_axes)), donate_argnums=donated)

    def act_in(self, meeting: Meeting) -> Any:
        """As `act`, but the news are those of a meeting, where the actions are told, too. Without CUDA graphs: one that
        must be made anew while its program waits might wait for that program.
        """

        def act(acting: list[Array], keys: Array, before: Array | None) -> tuple:
            action, *others = jax.vmap(self._act)(acting, keys, before, meeting.receive())
            return action, *others, meeting.deliver(action)

        no_graphs = None if self.device.platform == "cpu" else {GRAPHS: ""}
        return jax.jit(act, compiler_options=no_graphs)

    def _act(
        self,
        acting: list[Array],
        keys: UInt32[Array, "n words"],
        before: Shaped[Array, "n ..."] | None,
        news: Shaped[Array, "n ..."],
    ) -> tuple[Shaped[Array, "n ..."], UInt32[Array, "n words"], Shaped[Array, "n ..."] | None]:
        """Actions, the keys for those that follow, and the stacks that were seen: those `before` with the `newest`
        frames. Where observations are no stacks, `news` is all of them.

        Each environment has its own key, so that its actions do not depend on which others act with it.
        """
        params, scales = _together(acting, _needed_to_act(self._shape))
        stack = None if before is None else stacked_up(before, news)
        observation = seen_by_network(self.agent.spec, news if stack is None else stack)
        distribution, _ = seeing(self.agent, scales)(params, observation)
        key_actions, following = jnp.moveaxis(jax.vmap(jax.random.split)(jax.random.wrap_key_data(keys)), 0, 1)
        action = sample_each(distribution, key_actions)
        return action, jax.random.key_data(following), stack


def compiled_as_one_graph(lowered: Any, progress: Leaves, platform: str) -> Any:
    """With convolutions among that which a CUDA graph may hold. XLA leaves them out, and so cuts a program into many
    graphs and single kernels, each of which the host must start. Only for programs whose arrays stay where they are.

    Not every version of XLA can do it, nor every GPU: it is tried, with copies.
    """
    as_usual = lowered.compile()
    if platform == "cpu":
        return as_usual
    try:
        as_one = lowered.compile(compiler_options={GRAPHS: ",".join(IN_GRAPHS)})
        # cuDNN loads a program when it is first used, which it can't while a graph is recorded
        loaded, _ = as_usual(*jax.tree.map(jnp.copy, progress))
        jax.block_until_ready(as_one(*loaded))
    except jax.errors.JaxRuntimeError:
        return as_usual
    return as_one


def may_have_ended(columns: Columns | StackColumns) -> bool:
    """Whether an episode may have ended in the rollout, as far as its form tells."""
    return not isinstance(columns, StackColumns) or columns.successor is not None


def _needed_to_act(progress: Progress) -> tuple[PyTree, PyTree]:
    return progress.state.learner.params, progress.state.scales


def _rest(progress: Progress) -> Progress:
    return eqx.tree_at(_needed_to_act, progress, (None, None), is_leaf=lambda leaf: leaf is None)


def _apart(progress: Progress) -> Leaves:
    acting, rest = _needed_to_act(progress), _rest(progress)
    return Leaves(key_words(jax.tree.leaves(acting)), key_words(jax.tree.leaves(rest)))


def _together(leaves: list[Array], like: PyTree) -> PyTree:
    expected, structure = jax.tree.flatten(like)
    typed = [jax.random.wrap_key_data(a) if is_key(b) else a for a, b in zip(leaves, expected, strict=True)]
    return jax.tree.unflatten(structure, typed)


def _imitate(agent: Agent, progress: Progress) -> tuple[Progress, None]:
    """One update."""
    state, metrics = imitate(agent, progress.state, updates=1)
    return Progress(state, count_update(agent, progress.tally, metrics)), None


def count_update(agent: Agent, tally: Tally, metrics: Metrics) -> Tally:
    """One of self-imitation: of its metrics an iteration has the mean."""
    assert agent.imitation is not None
    return add(tally, {name: value / agent.imitation.updates for name, value in metrics.items()})


def _learn(
    agent: Agent, one_by_one: bool, progress: Progress, columns: Columns | StackColumns
) -> tuple[Progress, None]:
    rollout, ends = columns.on_device(), may_have_ended(columns)
    state, metrics = (learn_on_policy if one_by_one else learn)(agent, progress.state, rollout, ends)
    return Progress(state, count(progress.tally, rollout, metrics)), None
