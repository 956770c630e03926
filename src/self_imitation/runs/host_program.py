"""The program of a run whose environments are on the host: a loop acts in them, the device learns."""

import itertools
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
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

Lanes: TypeAlias = list[Progress]

LATEST = 100
"""Episodes over which `return_latest` averages."""


class HostProgram:
    """Seeds are shared out to lanes, one on each device. A lane is a thread of its own with its own environments: while
    those of one lane step, another's policy acts or learns. Lanes share nothing, so their order changes no number.
    """

    columns: tuple[str, ...] = ("return_latest",)

    def __init__(self, config: TrainConfig):
        self.config = config
        self.agent = agents.build(config)
        self.spaces = engines.inspect(config)
        self.shapes = Shapes(config, self.agent)
        self.latest = [deque[float](maxlen=LATEST) for _ in config.seed_numbers]
        self.devices = devices.for_lanes(config)
        self.lanes = _slices(config.seeds, len(self.devices))
        self.device = f"{name_of(self.devices)}, environments by {config.engine}"
        self._collectors: list[HostCollector] = []
        self._steps_done = 0
        self._next_keys = jax.jit(partial(_next_keys, config.rollout), donate_argnums=0)
        self._act = jax.jit(jax.vmap(partial(_act, self.agent, self.shapes.one_seed)))
        self._learn = jax.jit(jax.vmap(partial(_learn, self.agent), (0, SEED_AXIS)), donate_argnums=0)
        self._clear = jax.jit(lambda progress, tally: eqx.tree_at(lambda p: p.tally, progress, tally), donate_argnums=0)

    def begin(self) -> Lanes:
        self._open(step=0)
        return self._split(self.shapes.begin(self.config.seed_numbers))

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[Lanes, str]:
        self._open(step)
        for place, returns in enumerate(environments["latest"]):
            self.latest[place].extend(returns[np.isfinite(returns)].tolist())
        if "observation" in environments and all(collector.can_be_saved for collector in self._collectors):
            for collector, lane in zip(self._collectors, self.lanes, strict=True):
                collector.restore({name: rows[lane] for name, rows in environments.items()})
            return self._split(saved), ""
        why = f"the environments' state is not saved with engine {self.config.engine!r}"
        if self.config.engine == "gymnasium":
            why = "the state of this environment can't be saved"
        return self._split(_without_unfinished(saved)), f"{why}: unfinished episodes are dropped, fresh ones begin"

    def compile(self, progress: Lanes) -> None:
        with ThreadPoolExecutor(len(progress)) as threads:
            self._learners = list(threads.map(self._compile_lane, progress, self._collectors))

    def advance(self, progress: Lanes, iterations: int) -> Lanes:
        with ThreadPoolExecutor(len(progress)) as threads:
            lanes = [threads.submit(self._advance_lane, i, lane, iterations) for i, lane in enumerate(progress)]
        self._steps_done += iterations * self.config.steps_per_iteration
        return [lane.result() for lane in lanes]

    def clear_tally(self, progress: Lanes) -> Lanes:
        sizes = [lane.stop - lane.start for lane in self.lanes]
        empty = [jax.device_put(self.shapes.empty_tallies(n), d) for n, d in zip(sizes, self.devices, strict=True)]
        return [self._clear(lane, tally) for lane, tally in zip(progress, empty, strict=True)]

    def tally(self, progress: Lanes) -> Tally:
        return jax.tree.map(lambda *parts: np.concatenate(parts), *jax.device_get([lane.tally for lane in progress]))

    def whole(self, progress: Lanes) -> Progress:
        here = jax.device_put(progress, jax.local_devices(backend="cpu")[0])
        return here[0] if len(here) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *here)

    def environments(self) -> dict[str, np.ndarray]:
        latest = np.full((self.config.seeds, LATEST), np.nan)
        for place, returns in enumerate(self.latest):
            latest[place, : len(returns)] = returns
        if not all(collector.can_be_saved for collector in self._collectors):
            return {"latest": latest}
        saved = [collector.save() for collector in self._collectors]
        return {"latest": latest, **{name: np.concatenate([part[name] for part in saved]) for name in saved[0]}}

    def own_metrics(self, seed: int) -> dict[str, float]:
        """The mean return of the latest episodes, however many rows of metrics they take."""
        return {"return_latest": float(np.mean(self.latest[seed])) if self.latest[seed] else float("nan")}

    def close(self) -> None:
        for collector in self._collectors:
            collector.close()

    def _open(self, step: int) -> None:
        """New environments. Their random numbers depend on the step, so that no resumed run sees its start again."""
        config, self._steps_done = self.config, step
        threads = max(1, devices.cores() // len(self.lanes))
        for lane in self.lanes:
            numbers = config.seed_numbers[lane]
            draws = [np.random.SeedSequence((seed, step)).generate_state(config.envs) for seed in numbers]
            seeds = np.stack(draws) >> 1  # EnvPool's are signed
            parts = [
                Part(columns, engines.make_vector(config, self.spaces, seeds[:, columns].reshape(-1).tolist(), threads))
                for columns in self._columns()
            ]
            collector = HostCollector(parts, self.agent.spec, len(numbers), config.rollout, config.delay)
            with named(config.env):
                collector.begin(seeds)
            self._collectors.append(collector)

    def _columns(self) -> list[slice]:
        """Each seed's environments, in two halves where that lets one step while the policy acts for the other: with
        an engine that steps by itself, and no other lane to fill the wait.
        """
        halves = self.config.engine != "gymnasium" and len(self.lanes) == 1
        return _slices(self.config.envs, 2 if halves else 1)

    def _split(self, progress: Progress) -> Lanes:
        def lane(place: slice, device: jax.Device) -> Progress:
            return jax.device_put(jax.tree.map(lambda leaf: leaf[place], progress), device)

        return [lane(place, device) for place, device in zip(self.lanes, self.devices, strict=True)]

    def _compile_lane(self, lane: Progress, collector: HostCollector) -> jax.stages.Compiled:
        act = self._actor(lane, np.zeros((1, collector.seeds, 2), np.uint32))
        for number, part in enumerate(collector.parts):
            act(number, 0, collector.observation[:, part.columns])
        columns = shapes(self.agent.spec, (self.config.rollout, collector.seeds, self.config.envs))
        return self._learn.lower(lane, columns).compile()

    def _advance_lane(self, number: int, lane: Progress, iterations: int) -> Progress:
        collector, place = self._collectors[number], self.lanes[number]
        for done in range(iterations):
            lane, keys = self._next_keys(lane)
            with named(self.config.env):
                step = self._steps_done + done * self.config.steps_per_iteration
                columns = collector.collect(self._actor(lane, np.asarray(keys)), step)
            for seed, latest in enumerate(self.latest[place]):
                latest.extend(columns.episode_return[:, seed][columns.ended[:, seed]].tolist())
            lane = jax.block_until_ready(self._learners[number](lane, columns))
        return lane

    def _actor(self, lane: Progress, keys: np.ndarray) -> Act:
        """How a lane's seeds act in a rollout, with these keys [T, seeds, words]."""
        leaves = _acting(lane)

        def act(part: int, time: int, observation: np.ndarray) -> np.ndarray:
            # The halves of a seed's environments have its key in common: for the second one it is changed.
            return np.asarray(self._act(leaves, keys[time] ^ np.uint32(part), observation))

        return act


def _slices(total: int, parts: int) -> list[slice]:
    """0 ... total-1 in so many parts of nearly the same size, or fewer where there is no more."""
    bounds = [round(total * i / min(parts, total)) for i in range(min(parts, total) + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]


def _acting(lane: Progress) -> list[Array]:
    """What acting needs, as a plain list: to take a tree of modules apart at every step takes longer than to act."""
    return jax.tree.leaves((lane.state.learner.params, lane.state.scales))


def _next_keys(calls: int, lane: Progress) -> tuple[Progress, UInt32[Array, "calls seeds words"]]:
    """Keys for each seed to act with in the next rollout, as plain words, which can be taken one by one at no cost."""
    keys = jax.vmap(lambda key: jax.random.split(key, calls + 1), out_axes=1)(lane.state.key)
    return eqx.tree_at(lambda p: p.state.key, lane, keys[0]), jax.random.key_data(keys[1:])


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
