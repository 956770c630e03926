"""The program of a run whose environments are on the host: a loop acts in them, the device learns."""

import itertools
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped, UInt32

from self_imitation import agents, devices
from self_imitation.algorithm import Agent, imitate, learn, learn_on_policy, seeing
from self_imitation.config import TrainConfig
from self_imitation.environments.host import engines
from self_imitation.environments.host.vectors import named
from self_imitation.host_collection import (
    Columns,
    HostCollector,
    Part,
    StackColumns,
    seed_axis,
    seen_by_network,
    shapes,
)
from self_imitation.runs.program import Shapes, name_of
from self_imitation.runs.tally import Progress, Tally, count
from self_imitation.types import Metrics, Spec

T = TypeVar("T")

LATEST = 100
"""Episodes over which `return_latest` averages."""


class HostProgram:
    """All of its seeds act and learn together, on one device, in this process."""

    columns: tuple[str, ...] = ("return_latest",)

    def __init__(self, config: TrainConfig, twin: "HostProgram | None" = None):
        """`twin`: one for other seeds of the same run, whose compiled functions serve this one too."""
        self.config = config
        self.agent = agents.build(config)
        self.spaces = engines.inspect(config)
        self.shapes = Shapes(config, self.agent)
        self.latest = [deque[float](maxlen=LATEST) for _ in config.seed_numbers]
        self._device = devices.available(config)[0]
        self.device = f"{name_of([self._device])}, environments by {config.engine}"
        self.collector: HostCollector | None = None
        self._steps_done = 0
        imitation = self.agent.imitation
        self.updates = imitation.updates if imitation is not None and overlaps(config, self.agent.spec) else 0
        """Of self-imitation, while the environments step."""
        self.functions: Functions = twin.functions if twin else Functions(config, self.agent, self.shapes.one_seed)

    def begin(self) -> Progress:
        self._open(step=0)
        return jax.device_put(self.shapes.begin(self.config.seed_numbers), self._device)

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[Progress, str]:
        collector = self._open(step)
        for place, returns in enumerate(environments["latest"]):
            self.latest[place].extend(returns[np.isfinite(returns)].tolist())
        if "observation" in environments and collector.can_be_saved:
            collector.restore(environments)
            return jax.device_put(saved, self._device), ""
        why = f"the environments' state is not saved with engine {self.config.engine!r}"
        if self.config.engine == "gymnasium":
            why = "the state of this environment can't be saved"
        fresh = jax.device_put(_without_unfinished(saved), self._device)
        return fresh, f"{why}: unfinished episodes are dropped, fresh ones begin"

    def compile(self, progress: Progress) -> None:
        collector = self._opened
        act = _Actor(self.functions, progress, np.zeros((1, collector.seeds, 2), np.uint32))
        for number, part in enumerate(collector.parts):
            act(number, 0, collector.observation[:, part.columns])
        columns = shapes(self.agent.spec, (self.config.rollout, collector.seeds, self.config.envs))
        self.functions.compile(progress, columns, self.updates)

    def advance(self, progress: Progress, iterations: int) -> Progress:
        return jax.block_until_ready(take_turns([self.advance_by_turns(progress, iterations)])[0])

    def advance_by_turns(self, progress: Progress, iterations: int) -> Generator[None, None, Progress]:
        """The same, one step of the environments at a time: it stops where they step, for other seeds to act."""
        for _ in range(iterations):
            progress, keys = self.functions.next_keys(progress)
            actor = _Actor(self.functions, progress, np.asarray(keys))
            copied: list[Metrics] = []
            collecting = self._opened.steps_of(actor, self._steps_done)
            columns = None
            while columns is None:
                with named(self.config.env):
                    columns = _next(collecting)
                if len(copied) < self.updates:
                    copied.append(actor.imitate())
                if columns is None:
                    yield
            copied += [actor.imitate() for _ in range(self.updates - len(copied))]
            for seed, latest in enumerate(self.latest):
                latest.extend(columns.episode_return[:, seed][columns.ended[:, seed]].tolist())
            progress = self.functions.learn(actor.progress, columns, copied)
            self._steps_done += self.config.steps_per_iteration
        return progress

    def clear_tally(self, progress: Progress) -> Progress:
        empty = jax.device_put(self.shapes.empty_tallies(self.config.seeds), self._device)
        return eqx.tree_at(lambda p: p.tally, progress, empty)

    def tally(self, progress: Progress) -> Tally:
        return jax.device_get(progress.tally)

    def whole(self, progress: Progress) -> Progress:
        return progress

    def environments(self) -> dict[str, np.ndarray]:
        latest = np.full((self.config.seeds, LATEST), np.nan)
        for place, returns in enumerate(self.latest):
            latest[place, : len(returns)] = returns
        return {"latest": latest, **(self._opened.save() if self._opened.can_be_saved else {})}

    def own_metrics(self, seed: int) -> dict[str, float]:
        """The mean return of the latest episodes, however many rows of metrics they take."""
        return {"return_latest": float(np.mean(self.latest[seed])) if self.latest[seed] else float("nan")}

    def close(self) -> None:
        if self.collector is not None:
            self.collector.close()

    @property
    def _opened(self) -> HostCollector:
        assert self.collector is not None, "begin or restore first"
        return self.collector

    def _open(self, step: int) -> HostCollector:
        """New environments. Their random numbers depend on the step, so that no resumed run sees its start again."""
        config, self._steps_done = self.config, step
        draws = [np.random.SeedSequence((seed, step)).generate_state(config.envs) for seed in config.seed_numbers]
        seeds = np.stack(draws) >> 1  # EnvPool's are signed
        parts = [
            Part(columns, engines.make_vector(config, self.spaces, seeds[:, columns].reshape(-1).tolist()))
            for columns in self._columns()
        ]
        self.collector = HostCollector(
            parts, self.agent.spec, config.seeds, config.rollout, config.delay, config.rewards
        )
        with named(config.env):
            self.collector.begin(seeds)
        return self.collector

    def _columns(self) -> list[slice]:
        """Each seed's environments, in two halves where that lets one step while the policy acts for the other: with
        an engine that steps by itself, and another core to do so.
        """
        halves = self.config.engine != "gymnasium" and devices.cores() > 1
        return share_out(self.config.envs, 2 if halves else 1)


class Functions:
    """What is compiled, once for all seeds that take turns."""

    def __init__(self, config: TrainConfig, agent: Agent, shape: Progress):
        self.next_keys = jax.jit(partial(_next_keys, config.rollout), donate_argnums=0)
        over_seeds = _one_seed if agent.spec.observation_kind == "image" else jax.vmap
        self.act = jax.jit(over_seeds(partial(_act, agent, shape), (0, 0, 0)))
        self.imitate = jax.jit(over_seeds(partial(_imitate, agent), (0,)), donate_argnums=0)
        self._learn = jax.jit(over_seeds(partial(_learn, agent), (0, seed_axis(agent.spec), 0)), donate_argnums=0)
        self.learn: Any = None

    def compile(self, progress: Progress, columns: Columns | StackColumns, updates: int) -> None:
        if self.learn is None:
            copied = [jax.eval_shape(self.imitate, progress)[1]] * updates
            self.learn = self._learn.lower(progress, columns, copied).compile()


class _Actor:
    """How the seeds act in a rollout, with these keys [T, seeds, words]; and imitate, where that overlaps."""

    def __init__(self, functions: Functions, progress: Progress, keys: np.ndarray):
        self.functions, self.progress, self.keys = functions, progress, keys
        self._leaves = _acting(progress)

    def __call__(self, part: int, time: int, observation: np.ndarray) -> np.ndarray:
        # The halves of a seed's environments have its key in common: for the second one it is changed.
        return np.asarray(self.functions.act(self._leaves, self.keys[time] ^ np.uint32(part), observation))

    def imitate(self) -> Metrics:
        self.progress, metrics = self.functions.imitate(self.progress)
        self._leaves = _acting(self.progress)
        return metrics


def take_turns(going: Sequence[Generator[None, None, Progress]]) -> list[Progress]:
    """Each in its turn up to where its environments step, again and again, until all have come to their end."""
    ends: dict[int, Progress] = {}
    while len(ends) < len(going):
        for number, one in enumerate(going):
            if number not in ends and (end := _next(one)) is not None:
                ends[number] = end
    return [ends[number] for number in range(len(going))]


def _next(going: Generator[None, None, T]) -> T | None:
    """What it gives in the end; None before."""
    try:
        return next(going)
    except StopIteration as end:
        return end.value


def _one_seed(function: Callable, axes: tuple) -> Callable:
    """What `vmap` gives for one seed. With convolutions it would be slow: it makes groups of them."""

    def call(*arguments: PyTree) -> PyTree:
        single = [
            jax.tree.map(lambda leaf, axis=axis: jnp.squeeze(leaf, axis), argument)
            if isinstance(axis, int)
            else jax.tree.map(jnp.squeeze, argument, axis)
            for argument, axis in zip(arguments, axes, strict=True)
        ]
        return jax.tree.map(lambda leaf: leaf[None], function(*single))

    return call


def overlaps(config: TrainConfig, spec: Spec) -> bool:
    return config.overlap == "on" and spec.observation_kind == "image"


def share_out(total: int, parts: int) -> list[slice]:
    """0 ... total-1 in so many parts of nearly the same size, or fewer where there is no more."""
    bounds = [round(total * i / min(parts, total)) for i in range(min(parts, total) + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]


def _acting(progress: Progress) -> list[Array]:
    """What acting needs, as a plain list: to take a tree of modules apart at every step takes longer than to act."""
    return jax.tree.leaves((progress.state.learner.params, progress.state.scales))


def _next_keys(calls: int, progress: Progress) -> tuple[Progress, UInt32[Array, "calls seeds words"]]:
    """Keys for each seed to act with in the next rollout, as plain words, which can be taken one by one at no cost."""
    keys = jax.vmap(lambda key: jax.random.split(key, calls + 1), out_axes=1)(progress.state.key)
    return eqx.tree_at(lambda p: p.state.key, progress, keys[0]), jax.random.key_data(keys[1:])


def _act(
    agent: Agent,
    shape: Progress,
    leaves: list[Array],
    key: UInt32[Array, " words"],
    observation: Shaped[Array, "n ..."],
) -> Shaped[Array, "n ..."]:
    """`shape`: of the progress from which `_acting` took the leaves."""
    structure = jax.tree.structure((shape.state.learner.params, shape.state.scales))
    params, scales = jax.tree.unflatten(structure, leaves)
    distribution, _ = seeing(agent, scales)(params, seen_by_network(agent.spec, observation))
    return distribution.sample(jax.random.wrap_key_data(key))


def _imitate(agent: Agent, progress: Progress) -> tuple[Progress, Metrics]:
    """One update."""
    state, metrics = imitate(agent, progress.state, updates=1)
    return Progress(state, progress.tally), metrics


def _learn(agent: Agent, progress: Progress, columns: Columns | StackColumns, copied: list[Metrics]) -> Progress:
    """`copied`: what self-imitation has done while this rollout was collected; with nothing, it does so now."""
    rollout = columns.on_device()
    if copied:
        state, metrics = learn_on_policy(agent, progress.state, rollout)
        metrics |= jax.tree.map(lambda *each: jnp.mean(jnp.stack(each)), *copied)
    else:
        state, metrics = learn(agent, progress.state, rollout)
    return Progress(state, count(progress.tally, rollout, metrics))


def _without_unfinished(saved: Progress) -> Progress:
    """Nothing of the episodes that will not go on: neither in the memory's waiting room nor in the running sums."""
    state = saved.state
    if state.memory is not None:
        recent = state.memory.recent
        nothing = jax.tree.map(np.zeros_like, (recent.length, recent.rewarded))
        state = eqx.tree_at(lambda s: (s.memory.recent.length, s.memory.recent.rewarded), state, nothing)
    if state.scales is not None:
        state = eqx.tree_at(lambda s: s.scales.running, state, np.zeros_like(state.scales.running))
    return eqx.tree_at(lambda p: p.state, saved, state)
