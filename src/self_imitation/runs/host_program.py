"""The program of a run whose environments are on the host: a loop acts in them, the device learns."""

import itertools
from collections import deque
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from self_imitation import agents, devices
from self_imitation.columns import Columns, StackColumns, shapes
from self_imitation.config import TrainConfig
from self_imitation.environments.host import engines
from self_imitation.environments.host.vectors import named
from self_imitation.host_collection import HostCollector, Part
from self_imitation.improvement.a2c import A2C
from self_imitation.runs.host_functions import Functions, Leaves
from self_imitation.runs.host_memory import MemoryOnHost
from self_imitation.runs.meeting import Meeting, orders_for, watched
from self_imitation.runs.program import Shapes, name_of
from self_imitation.runs.rollouts import Actor, EarlySight, Rollout, Sight, news_of
from self_imitation.runs.tally import Progress, Tally

ACTING = 1
"""Tells the random numbers to act with from those of the environments."""
LATEST = 100
"""Episodes over which `return_latest` averages."""


class HostProgram:
    """All of its seeds act and learn together, on one device, in this process.

    With overlap they do both at the same time: while environments step, the device learns; from a rollout while the
    next one is made, with the policy as it was one iteration ago. The updates themselves come in the order of
    Algorithm 1.
    """

    columns: tuple[str, ...] = ("return_latest",)

    def __init__(self, config: TrainConfig, parts: int | None = None):
        """`parts`: into how many each seed's environments are divided, else as many as pay."""
        self.config = config
        self.agent = agents.build(config)
        self.spaces = engines.inspect(config)
        self.shapes = Shapes(config, self.agent)
        self.latest = [deque[float](maxlen=LATEST) for _ in config.seed_numbers]
        self._device = devices.available(config)[0]
        self.device = f"{name_of([self._device])}, environments by {config.engine}"
        self.collector: HostCollector | None = None
        self._steps_begun = 0
        """By each seed, with those of rollouts that are under way."""
        self._overlap = config.overlap == "on" and self._may_overlap()
        one_by_one = self._overlap or config.sil.memory == "host"
        self._updates = self.agent.imitation.updates if self.agent.imitation is not None and one_by_one else 0
        """Of self-imitation, issued one by one, before A2C or PPO learns; else they follow within its program."""
        self.functions: Functions | MemoryOnHost = self._compiled()
        memories = {memory.kind for memory in self._device.addressable_memories()}
        self._orders = orders_for(self._device.platform, memories) if self._step_by_themselves else None
        """By which the device is told to wait for environments; None: it can't be, or they might need it meanwhile."""
        self._parts = min(parts or self._parts_that_pay(), config.envs)
        self._policy: list[Array] | None = None
        """That the next rollout is to be made with; None: the newest."""
        self._sights: list[Sight] = []
        """Of each part."""

    def _may_overlap(self) -> bool:
        """With images, which take long to learn from; with A2C, for PPO compares its policy with the one that acted;
        and with engines that step by themselves: their state can't be saved, so that no resumed run needs the policy
        of one iteration ago.
        """
        image = self.agent.spec.observation_kind == "image"
        return image and isinstance(self.agent.improvement, A2C) and self._step_by_themselves

    @property
    def _step_by_themselves(self) -> bool:
        """Whether environments do, while this process goes on."""
        return self.config.engine != "gymnasium"

    def _compiled(self) -> Functions | MemoryOnHost:
        on_host = self.config.sil.memory == "host" and self.agent.imitation is not None
        if on_host:
            return MemoryOnHost(self.agent, self.shapes.one_seed, self._device)
        return Functions(self.agent, self.shapes.one_seed, self._device, one_by_one=self._updates > 0)

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
        collector, spec = self._opened, self.agent.spec
        steps = self.config.rollout, collector.seeds, self.config.envs
        parts = [part.columns for part in collector.parts]
        forms = [shapes(spec, steps, parts, ends) for ends in ((True, False) if spec.stack > 1 else (True,))]
        self.functions.compile(progress, forms)
        with watched(self._meetings):
            for part, keys in enumerate(self._keys()):
                self._sights[part].try_out(progress.acting, keys, news_of(collector, part))

    def advance(self, progress: Leaves, iterations: int) -> Leaves:
        advance = self._at_the_same_time if self._overlap else self._in_order
        try:
            with watched(self._meetings):
                return jax.block_until_ready(advance(progress, iterations))
        finally:
            for sight in self._sights:  # after a fault something may still wait there
                sight.let_go()

    def _in_order(self, progress: Leaves, iterations: int) -> Leaves:
        """Algorithm 1 to the letter."""
        for _ in range(iterations):
            progress = self._imitate(progress, self._updates)
            rollout = self._new_rollout(progress.acting)
            for _ in range(self.config.rollout):
                self._act_in_all_parts(rollout)
            for part in self._numbers:
                rollout.go_on(part)
            progress = self._learn(progress, rollout.columns())
        return progress

    def _at_the_same_time(self, progress: Leaves, iterations: int) -> Leaves:
        """While environments make the first step of a rollout, the device learns from the one before; while they make
        the others, it imitates.
        """
        steps, before = self.config.rollout, None
        due = [self._updates * step // max(1, steps - 1) for step in range(steps)]
        due[-1] = self._updates
        for _ in range(iterations):
            # at first a copy: updates use up what they are given
            rollout = self._new_rollout(self._policy or jax.tree.map(jnp.copy, progress.acting))
            for step in range(steps):
                self._act_in_all_parts(rollout, before if step == 0 else None)
                if step == 0 and before is not None:
                    progress = self._learn(progress, before.columns())
                progress = self._imitate(progress, due[step] - (due[step - 1] if step else 0))
            self._policy, before = progress.acting, rollout
        if before is not None:
            for part in self._numbers:
                before.go_on(part)
            progress = self._learn(progress, before.columns())
        return progress

    def _act_in_all_parts(self, rollout: Rollout, before: Rollout | None = None) -> None:
        """And so begin a step. `before`: a rollout whose last step is not done yet."""
        for part in self._numbers:
            rollout.prepare(part)
            if before is not None:
                before.go_on(part)
            rollout.go_on(part)

    def _imitate(self, progress: Leaves, updates: int) -> Leaves:
        for _ in range(updates):
            progress = self.functions.imitate(progress)
        return progress

    def _new_rollout(self, policy: list[Array]) -> Rollout:
        actor = Actor(self._opened, policy, self._keys(), self._sights)
        step = self._steps_begun
        self._steps_begun += self.config.steps_per_iteration
        return Rollout(self._opened, actor, step, self.config.env)

    def _learn(self, progress: Leaves, columns: Columns | StackColumns) -> Leaves:
        for seed, latest in enumerate(self.latest):
            latest.extend(columns.episode_return[:, seed][columns.ended[:, seed]].tolist())
        return self.functions.learn(progress, columns)

    def _new_sight(self, part: int) -> Sight:
        collector, spec, seen = self._opened, self.agent.spec, self._opened.seen[part]
        stack = jax.device_put(np.zeros_like(seen), self._device) if self.functions.stacked else None
        if self._orders is None:
            why = f"{self._device.platform} can't wait for them" if self._step_by_themselves else "they step here"
            return Sight(self.functions, stack, late=why)
        actions = jax.ShapeDtypeStruct((*seen.shape[:2], *spec.action_shape), spec.action_dtype)
        return EarlySight(self.functions, stack, news_of(collector, part), actions, self._device, self._orders)

    def _keys(self) -> list[Array]:
        """To act with in the next rollout, of each part."""
        keys = self.keys()
        return jax.device_put([keys[:, part.columns] for part in self._opened.parts], self._device)

    def keys(self) -> np.ndarray:
        """To act with in the next rollout, one for each environment, [seeds, environments, words]. The host's own: to
        ask the device for them would be to wait for what it is doing.
        """
        numbers, environments = self.config.seed_numbers, self.config.envs
        sources = [np.random.SeedSequence((seed, self._steps_begun), spawn_key=(ACTING,)) for seed in numbers]
        return np.stack([source.generate_state(2 * environments).reshape(environments, 2) for source in sources])

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
    def late(self) -> str:
        """Why not all acts are started before environments have stepped; else nothing."""
        return next((sight.late for sight in self._sights if sight.late), "")

    @property
    def _meetings(self) -> list[Meeting]:
        return [sight.meeting for sight in self._sights if isinstance(sight, EarlySight)]

    @property
    def _numbers(self) -> range:
        """Of the parts."""
        return range(len(self._opened.parts))

    @property
    def _opened(self) -> HostCollector:
        assert self.collector is not None, "begin or restore first"
        return self.collector

    def _open(self, step: int) -> HostCollector:
        """New environments. Their random numbers depend on the step, so that no resumed run sees its start again."""
        config, self._steps_begun = self.config, step
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
        self._sights = [self._new_sight(part) for part in self._numbers]
        return self.collector

    def _parts_that_pay(self) -> int:
        """Two halves, where that lets one step while the policy acts for the other: with an engine that steps by
        itself, and cores that have something to do all the time. Where a CPU learns from images, they have anyway; and
        where the device waits for environments, to act is soon done, so that more cores than environments can wait.
        """
        busy = self._overlap and self._device.platform == "cpu"
        idle = self._orders is not None and self.config.seeds * self.config.envs <= devices.cores()
        return 1 if not self._step_by_themselves or devices.cores() == 1 or busy or idle else 2


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
