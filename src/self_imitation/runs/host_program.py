"""The program of a run whose environments are on the host: a loop acts in them, the device learns."""

import itertools
from collections import deque
from collections.abc import Mapping
from functools import partial

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Shaped, UInt32

from self_imitation import agents, devices
from self_imitation.algorithm import Agent, learn, seeing
from self_imitation.config import TrainConfig
from self_imitation.environments.host import engines
from self_imitation.environments.host.vectors import named
from self_imitation.host_collection import SEED_AXIS, Act, Columns, HostCollector, Part, shapes
from self_imitation.runs.program import Shapes, name_of
from self_imitation.runs.tally import Progress, Tally, count

LATEST = 100
"""Episodes over which `return_latest` averages."""


class HostProgram:
    """All of its seeds act and learn together, on one device, in this process."""

    columns: tuple[str, ...] = ("return_latest",)

    def __init__(self, config: TrainConfig):
        self.config = config
        self.agent = agents.build(config)
        self.spaces = engines.inspect(config)
        self.shapes = Shapes(config, self.agent)
        self.latest = [deque[float](maxlen=LATEST) for _ in config.seed_numbers]
        self._device = devices.available(config)[0]
        self.device = f"{name_of([self._device])}, environments by {config.engine}"
        self.collector: HostCollector | None = None
        self._steps_done = 0
        self._next_keys = jax.jit(partial(_next_keys, config.rollout), donate_argnums=0)
        self._act = jax.jit(jax.vmap(partial(_act, self.agent, self.shapes.one_seed)))
        self._learn = jax.jit(jax.vmap(partial(_learn, self.agent), (0, SEED_AXIS)), donate_argnums=0)

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
        act = self._actor(progress, np.zeros((1, collector.seeds, 2), np.uint32))
        for number, part in enumerate(collector.parts):
            act(number, 0, collector.observation[:, part.columns])
        columns = shapes(self.agent.spec, (self.config.rollout, collector.seeds, self.config.envs))
        self._learner = self._learn.lower(progress, columns).compile()

    def advance(self, progress: Progress, iterations: int) -> Progress:
        for _ in range(iterations):
            progress, keys = self._next_keys(progress)
            with named(self.config.env):
                columns = self._opened.collect(self._actor(progress, np.asarray(keys)), self._steps_done)
            for seed, latest in enumerate(self.latest):
                latest.extend(columns.episode_return[:, seed][columns.ended[:, seed]].tolist())
            progress = jax.block_until_ready(self._learner(progress, columns))
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
        self.collector = HostCollector(parts, self.agent.spec, config.seeds, config.rollout, config.delay)
        with named(config.env):
            self.collector.begin(seeds)
        return self.collector

    def _columns(self) -> list[slice]:
        """Each seed's environments, in two halves where that lets one step while the policy acts for the other: with
        an engine that steps by itself, and another core to do so.
        """
        halves = self.config.engine != "gymnasium" and devices.cores() > 1
        return share_out(self.config.envs, 2 if halves else 1)

    def _actor(self, progress: Progress, keys: np.ndarray) -> Act:
        """How the seeds act in a rollout, with these keys [T, seeds, words]."""
        leaves = _acting(progress)

        def act(part: int, time: int, observation: np.ndarray) -> np.ndarray:
            # The halves of a seed's environments have its key in common: for the second one it is changed.
            return np.asarray(self._act(leaves, keys[time] ^ np.uint32(part), observation))

        return act


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
    distribution, _ = seeing(agent, scales)(params, observation)
    return distribution.sample(jax.random.wrap_key_data(key))


def _learn(agent: Agent, progress: Progress, columns: Columns) -> Progress:
    rollout = columns.on_device()
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
