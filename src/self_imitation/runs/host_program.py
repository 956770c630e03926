"""The program of a run whose environments are on the host: a loop acts in them, the device learns."""

import itertools
from collections import deque
from collections.abc import Generator, Mapping, Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from self_imitation import agents, devices
from self_imitation.config import TrainConfig
from self_imitation.environments.host import engines
from self_imitation.environments.host.vectors import named
from self_imitation.host_collection import HostCollector, Part, next_of, shapes
from self_imitation.runs.host_functions import Functions, Leaves, Told
from self_imitation.runs.host_memory import MemoryOnHost
from self_imitation.runs.program import Shapes, name_of
from self_imitation.runs.tally import Progress, Tally

ACTING = 1
"""Tells the random numbers to act with from those of the environments."""
LATEST = 100
"""Episodes over which `return_latest` averages."""


class HostProgram:
    """All of its seeds act and learn together, on one device, in this process.

    With overlap, acting runs ahead of learning: self-imitation updates are issued whenever environments have begun to
    step, and the first step of a rollout begins before what the last one taught is learnt. The updates themselves come
    in the order of Algorithm 1.
    """

    columns: tuple[str, ...] = ("return_latest",)

    def __init__(self, config: TrainConfig, twin: "HostProgram | None" = None, parts: int | None = None):
        """`twin`: one for as many other seeds of the same run, whose compiled functions serve this one too. `parts`:
        into how many each seed's environments are divided, else as many as pay.
        """
        self.config = config
        self.agent = agents.build(config)
        self.spaces = engines.inspect(config)
        self.shapes = Shapes(config, self.agent)
        self.latest = [deque[float](maxlen=LATEST) for _ in config.seed_numbers]
        self._device = devices.available(config)[0]
        self.device = f"{name_of([self._device])}, environments by {config.engine}"
        self.collector: HostCollector | None = None
        self._steps_done = 0
        self._overlap = config.overlap == "on" and self.agent.spec.observation_kind == "image"
        self._ahead = self._overlap and config.engine != "gymnasium"
        """Only with engines that step by themselves; those can't be saved, and nothing under way is lost."""
        apart = self._overlap or config.sil.memory == "host"
        self._updates = self.agent.imitation.updates if self.agent.imitation is not None and apart else 0
        """Of self-imitation, issued one by one, before A2C or PPO learns; else they follow on it in one program."""
        self.functions: Functions | MemoryOnHost = twin.functions if twin else self._compiled()
        self._parts = parts or self._parts_that_pay()

    def _compiled(self) -> Functions | MemoryOnHost:
        on_host = self.config.sil.memory == "host" and self.agent.imitation is not None
        return (MemoryOnHost if on_host else Functions)(self.agent, self.shapes.one_seed, self._device)

    def begin(self) -> Leaves:
        self._open(step=0)
        return self.functions.flatten(self.shapes.begin(self.config.seed_numbers))

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[Leaves, str]:
        collector = self._open(step)
        for place, returns in enumerate(environments["latest"]):
            self.latest[place].extend(returns[np.isfinite(returns)].tolist())
        if "observation" in environments and collector.can_be_saved:
            collector.restore(environments)
            return self.functions.flatten(saved), ""
        why = f"the environments' state is not saved with engine {self.config.engine!r}"
        if self.config.engine == "gymnasium":
            why = "the state of this environment can't be saved"
        fresh = self.functions.flatten(without_unfinished(saved))
        return fresh, f"{why}: unfinished episodes are dropped, fresh ones begin"

    def compile(self, progress: Leaves) -> None:
        collector = self._opened
        acting = self.functions.acting(progress)
        for part in collector.parts:
            self.functions.act(acting, self._keys_there()[0], collector.observation[:, part.columns])
        columns = shapes(self.agent.spec, (self.config.rollout, collector.seeds, self.config.envs))
        self.functions.compile(progress, columns, self._updates)

    def advance(self, progress: Leaves, iterations: int) -> Leaves:
        return jax.block_until_ready(take_turns([self.turns(progress, iterations)])[0])

    def turns(self, progress: Leaves, iterations: int) -> Generator[None, None, Leaves]:
        """The same, in turns: it pauses where environments step, for other seeds to act."""
        for _ in range(iterations):
            progress = yield from self._iterate(progress)
            if self._ahead:
                yield
        return progress

    def _iterate(self, progress: Leaves) -> Generator[None, None, Leaves]:
        collector, config = self._opened, self.config
        pauses = (config.rollout - self._ahead) * len(collector.parts)
        actor = Actor(self.functions, progress, self._keys_there(), self._updates, pauses)
        if not self._overlap:
            actor.imitate_up_to(self._updates)
        collecting = collector.steps_of(actor, self._steps_done, self._ahead)
        while True:
            with named(config.env):
                columns = next_of(collecting)
            if columns is not None:
                break
            if self._overlap:
                actor.meanwhile()
            yield
        actor.imitate_up_to(self._updates)
        for seed, latest in enumerate(self.latest):
            latest.extend(columns.episode_return[:, seed][columns.ended[:, seed]].tolist())
        self._steps_done += config.steps_per_iteration
        return self.functions.learn(actor.progress, columns, actor.copied)

    def _keys_there(self) -> list[Array]:
        return jax.device_put(list(self.keys()), self._device)

    def keys(self) -> np.ndarray:
        """To act with in the next rollout, for each part of each seed's environments, [parts, seeds, words]. The host's
        own: to ask the device for them would be to wait for what it is doing.
        """
        parts, numbers = len(self._opened.parts), self.config.seed_numbers
        sources = [np.random.SeedSequence((seed, self._steps_done), spawn_key=(ACTING,)) for seed in numbers]
        return np.stack([source.generate_state(2 * parts).reshape(parts, 2) for source in sources], axis=1)

    def clear_tally(self, progress: Leaves) -> Leaves:
        return self.functions.clear_tally(progress)

    def tally(self, progress: Leaves) -> Tally:
        return jax.device_get(self.functions.unflatten(progress).tally)

    def whole(self, progress: Leaves) -> Progress:
        whole = self.functions.unflatten(progress)
        return whole if self._opened.can_be_saved else without_unfinished(whole)

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
            for columns in share_out(config.envs, self._parts)
        ]
        self.collector = HostCollector(
            parts, self.agent.spec, config.seeds, config.rollout, config.delay, config.rewards
        )
        with named(config.env):
            self.collector.begin(seeds)
        return self.collector

    def _parts_that_pay(self) -> int:
        """Two halves, where that lets one step while the policy acts for the other: with an engine that steps by
        itself, and another core to do so. Not with images: to ask a GPU twice takes the host longer than it saves
        (on an H200, 4,858 steps/s in one part and 4,196 in two).
        """
        return 1 if self.config.engine == "gymnasium" or devices.cores() == 1 or self._overlap else 2


class Actor:
    """How the seeds act in a rollout, each part from its key on; and imitate while their environments step."""

    def __init__(
        self, functions: Functions | MemoryOnHost, progress: Leaves, keys: list[Array], updates: int, pauses: int
    ):
        self.functions, self.progress = functions, progress
        self._keys = keys
        """From act to act they stay on the device: to bring one there takes nearly as long as to act."""
        self.updates, self.pauses, self._paused = updates, pauses, 0
        self.copied: list[Told] = []
        self._acting = functions.acting(progress)

    def __call__(self, part: int, time: int, observation: np.ndarray) -> np.ndarray:
        action, self._keys[part] = self.functions.act(self._acting, self._keys[part], observation)
        return np.asarray(action)

    def meanwhile(self) -> None:
        """A share of the updates, so that they are spread over the pauses."""
        self._paused += 1
        self.imitate_up_to(self.updates * self._paused // max(self.pauses, 1))

    def imitate_up_to(self, updates: int) -> None:
        while len(self.copied) < min(updates, self.updates):
            self.progress, metrics = self.functions.imitate(self.progress)
            self.copied.append(metrics)
            self._acting = self.functions.acting(self.progress)


def take_turns(going: Sequence[Generator[None, None, Leaves]]) -> list[Leaves]:
    """Each in its turn up to where its environments step, again and again, until all have come to their end."""
    ends: dict[int, Leaves] = {}
    while len(ends) < len(going):
        for number, one in enumerate(going):
            if number not in ends and (end := next_of(one)) is not None:
                ends[number] = end
    return [ends[number] for number in range(len(going))]


def share_out(total: int, parts: int) -> list[slice]:
    """0 ... total-1 in so many parts of nearly the same size, or fewer where there is no more."""
    bounds = [round(total * i / min(parts, total)) for i in range(min(parts, total) + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]


def without_unfinished(saved: Progress) -> Progress:
    """Nothing of the episodes that will not go on: neither in the memory's waiting room nor in the running sums."""
    state = saved.state
    if state.memory is not None:
        nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state.memory.recent)
        state = eqx.tree_at(lambda s: s.memory.recent, state, nothing)
    if state.scales is not None:
        state = eqx.tree_at(lambda s: s.scales.running, state, np.zeros_like(state.scales.running))
    return eqx.tree_at(lambda p: p.state, saved, state)
