"""A group of seeds that train together: their state, and how it advances by whole iterations of Algorithm 1."""

import dataclasses
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Integer

from self_imitation.algorithm import iteration as algorithm
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState
from self_imitation.algorithm.normalisation import drop_running
from self_imitation.config import TrainConfig
from self_imitation.environments.backends import Backend
from self_imitation.environments.batched import BatchedEnvironment
from self_imitation.replay.buffer import drop_pending
from self_imitation.rollout import in_program, python_loop
from self_imitation.rollout.episodes import EpisodeTracker, track
from self_imitation.rollout.in_program import Collection, Collector
from self_imitation.rollout.python_loop import HostRollout
from self_imitation.storage.trees import from_arrays
from self_imitation.training import agents, metrics
from self_imitation.training.metrics import MetricsAccumulator
from self_imitation.types import Metrics, Params, Rollout

ROLLOUT_AXES = Rollout(
    observation=1,
    action=1,
    reward=1,
    terminated=1,
    truncated=1,
    valid=1,
    next_observation=1,
    last_observation=0,
    episode_return=1,
    episode_length=1,
    extras=1,  # type: ignore[arg-type]
)
"""Where the seeds are in the rollouts of a group."""


class GroupState(eqx.Module):
    """All that changes while a group of K seeds trains; every array has the seeds first."""

    agents: AgentState
    collection: Collection | None
    """None in checkpoints of environments whose state can't be saved."""
    metrics: MetricsAccumulator
    pending: Rollout | None = None
    """With overlap: the latest rollout, which is learnt from while the next one is collected."""


class SeedGroup:
    """What groups have in common. `seeds`: the numbers of their seeds."""

    def __init__(self, config: TrainConfig, agent: Agent, seeds: Sequence[int], device: jax.Device):
        self.config, self.agent, self.seeds, self.device = config, agent, tuple(seeds), device

    def init(self) -> GroupState:
        """Every seed at its start. Environments start, too."""
        like = self.rollout_shape
        params = [agents.initial_params(self.config, self.agent, seed) for seed in self.seeds]
        components = [
            agents.initial_components(self.agent, own, seed) for own, seed in zip(params, self.seeds, strict=True)
        ]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *zip(params, components, strict=True))
        make = jax.jit(jax.vmap(partial(self._init_one, like=like)))
        agent_states, accumulators = make(*stacked, np.array(self.seeds, np.uint32))
        return GroupState(agent_states, self.begin(step=0), accumulators)

    def _init_one(
        self, params: Params, components: dict[str, Any], seed: Integer[Array, ""], like: Rollout
    ) -> tuple[AgentState, MetricsAccumulator]:
        state = agents.initial_state(self.agent, params, components, seed, like)
        _, names = jax.eval_shape(partial(algorithm.update, self.agent), state, like)
        return state, metrics.create(tuple(names))

    @cached_property
    def one_seed(self) -> tuple[AgentState, MetricsAccumulator]:
        """Shapes of one seed's state, without its arrays."""
        params = agents.initial_params(self.config, self.agent, self.seeds[0])
        components = agents.initial_components(self.agent, params, self.seeds[0])
        seed = jax.ShapeDtypeStruct((), np.uint32)
        return jax.eval_shape(partial(self._init_one, like=self.rollout_shape), params, components, seed)

    @property
    def rollout_shape(self) -> Rollout:
        """Shapes of one seed's rollouts."""
        raise NotImplementedError

    def begin(self, step: int) -> Collection:
        """Start the environments. Their random numbers depend on the step, so that a resumed run gets new ones."""
        raise NotImplementedError


def environment_seeds(seeds: Sequence[int], num_envs: int, step: int) -> np.ndarray:
    """[K, N] numbers, below 2**31."""
    return np.stack([np.random.SeedSequence((seed, step)).generate_state(num_envs) >> 1 for seed in seeds])


def drop_unfinished(state: AgentState) -> AgentState:
    """Forget the episodes that will not go on, in the replay buffer and in the running sums."""
    buffer = None if state.buffer is None else drop_pending(state.buffer)
    normaliser = None if state.normaliser is None else drop_running(state.normaliser)
    return dataclasses.replace(state, buffer=buffer, normaliser=normaliser)


class CompileOnce:
    """Programs that several groups share: the first one to ask compiles, the others wait."""

    def __init__(self) -> None:
        self._programs: dict[Hashable, Any] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, compile_: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._programs:
                self._programs[key] = compile_()
            return self._programs[key]


class InProgramGroup(SeedGroup):
    """Environments step inside the compiled program."""

    def __init__(
        self,
        config: TrainConfig,
        agent: Agent,
        seeds: Sequence[int],
        device: jax.Device,
        backend: Backend,
        num_threads: int,
        shared: CompileOnce | None = None,
    ):
        """`num_threads`: of the environments' engine. `shared`: programs of all groups."""
        super().__init__(config, agent, seeds, device)
        self.backend, self.num_threads = backend, num_threads
        self.environment: BatchedEnvironment | None = None
        self._shared = shared or CompileOnce()
        self._run: Callable[[GroupState, int], GroupState]

    @property
    def overlaps(self) -> bool:
        """Whether to learn while environments step: pays with images, needs an engine that steps by itself."""
        wanted = self.config.overlap == "on" and self.agent.spec.observation_kind == "image"
        return wanted and self.agent.learner.tolerates_lag and self.config.engine == "envpool"

    @property
    def collector(self) -> Collector:
        assert self.environment is not None, "begin first"
        return Collector(self.agent, self.environment, self.config.delay, self.config.rewards == "sign")

    def begin(self, step: int) -> Collection:
        self._open(step)
        assert self.environment is not None
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), step))(np.array(self.seeds, np.uint32))
        return in_program.begin(self.environment, keys, self.config.num_envs)

    def _open(self, step: int) -> None:
        if self.environment is not None:
            self.environment.close()
        numbers = environment_seeds(self.seeds, self.config.num_envs, step)
        self.environment = self.backend.make(numbers, self.num_threads)

    @cached_property
    def rollout_shape(self) -> Rollout:
        if self.environment is None:
            self._open(step=0)
        params = agents.initial_params(self.config, self.agent, self.seeds[0])
        normaliser = None if self.agent.normaliser is None else self.agent.normaliser.init()
        one = algorithm.Policy(params, normaliser)

        def rollout(policy: algorithm.Policy, collection: Collection, key: Array) -> Rollout:
            policies = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(self.seeds)), policy)
            rollouts = self.collector.collect(policies, collection, key, self.config.num_steps)[1]
            return jax.tree.map(
                lambda axis, tree: jax.tree.map(lambda leaf: jnp.take(leaf, 0, axis=axis), tree),
                ROLLOUT_AXES,
                rollouts,
                is_leaf=lambda node: node is None,
            )

        keys = jax.random.split(jax.random.key(0), len(self.seeds))
        assert self.environment is not None
        collection = in_program.begin(self.environment, keys, self.config.num_envs)
        return jax.eval_shape(rollout, one, collection, keys)

    def init(self) -> GroupState:
        return self._with_pending(jax.device_put(super().init(), self.device))

    def _with_pending(self, state: GroupState) -> GroupState:
        """With overlap, the first rollout to learn from is one without a valid step."""
        if not self.overlaps:
            return state
        seeds = len(self.seeds)
        zeros = jax.tree.map(
            lambda axis, tree: jax.tree.map(
                lambda leaf: jnp.zeros((*leaf.shape[:axis], seeds, *leaf.shape[axis:]), leaf.dtype), tree
            ),
            ROLLOUT_AXES,
            self.rollout_shape,
            is_leaf=lambda node: node is None,
        )
        return dataclasses.replace(state, pending=jax.device_put(zeros, self.device))

    def restore(
        self, saved: GroupState, collection: Mapping[str, np.ndarray], step: int
    ) -> tuple[GroupState, bool]:
        """Continue from a checkpoint; also whether the environments do. `collection`: where they stood, if saved."""
        fresh = self.begin(step)
        assert self.environment is not None
        continues = self.environment.can_be_saved and bool(collection)
        if continues:
            state = dataclasses.replace(saved, collection=from_arrays(collection, fresh, "collection"))
        else:
            state = GroupState(drop_unfinished(saved.agents), fresh, saved.metrics)
        return self._with_pending(jax.device_put(state, self.device)), continues

    def saved(self, state: GroupState) -> GroupState:
        """What a checkpoint holds."""
        assert self.environment is not None
        collection = state.collection if self.environment.can_be_saved else None
        return dataclasses.replace(state, collection=collection, pending=None)

    def compile(self, state: GroupState) -> None:
        """One program for whole iterations. Only if it would have to be compiled anew for every group and every start,
        learning is a program of its own, unless it overlaps with the environments.
        """
        assert self.environment is not None
        if self.environment.can_be_shared:
            key = ("iterations", len(self.seeds), self.device)
            program = self._shared.get(key, lambda: self._compile_iterations(state))
            self._run = lambda state, iterations: program(state, np.int32(iterations))
        elif self.overlaps:
            own = self._compile_iterations(state)
            self._run = lambda state, iterations: own(state, np.int32(iterations))
        else:
            self._run = self._compile_in_two(state)

    def run(self, state: GroupState, iterations: int) -> GroupState:
        """Train for some iterations. Donates `state`."""
        return jax.block_until_ready(self._run(state, iterations))

    def _compile_iterations(self, state: GroupState) -> Any:
        """The number of iterations is an argument, so that one program serves every call: how a run is divided into
        calls does not change its results.
        """
        once = self._overlapped_iteration if self.overlaps else self._iteration

        def iterations(state: GroupState, count: Int[Array, ""]) -> GroupState:
            return jax.lax.fori_loop(0, count, lambda _, state: once(state), state)

        return jax.jit(iterations, donate_argnums=0).lower(state, jnp.int32(0)).compile()

    def _compile_in_two(self, state: GroupState) -> Callable[[GroupState, int], GroupState]:
        lowered = jax.jit(self._collect, donate_argnums=1).lower(state.agents, state.collection)
        agents_, _, rollout = lowered.out_info
        collect = lowered.compile()
        key = ("learn", len(self.seeds), self.device)
        learn = self._shared.get(
            key,
            lambda: jax.jit(self._learn, donate_argnums=(0, 1)).lower(agents_, state.metrics, rollout).compile(),
        )

        def run(state: GroupState, iterations: int) -> GroupState:
            for _ in range(iterations):
                agents_, collection, rollout = collect(state.agents, state.collection)
                agents_, accumulated = learn(agents_, state.metrics, rollout)
                state = GroupState(agents_, collection, accumulated)
            return state

        return run

    def close(self) -> None:
        if self.environment is not None:
            self.environment.close()

    def _iteration(self, state: GroupState) -> GroupState:
        agents_, collection, rollout = self._collect(state.agents, state.collection)
        agents_, accumulated = self._learn(agents_, state.metrics, rollout)
        return GroupState(agents_, collection, accumulated)

    def _collect(self, agents_: AgentState, collection: Collection) -> tuple[AgentState, Collection, Rollout]:
        agents_, key = _split_keys(agents_)
        collection, rollout = self.collector.collect(agents_.policy, collection, key, self.config.num_steps)
        return agents_, collection, rollout

    def _learn(
        self, agents_: AgentState, accumulators: MetricsAccumulator, rollout: Rollout
    ) -> tuple[AgentState, MetricsAccumulator]:
        agents_, measured = _over_seeds(algorithm.update, self.agent)(agents_, rollout)
        return agents_, _accumulate(accumulators, rollout, measured)

    def _overlapped_iteration(self, state: GroupState) -> GroupState:
        """Collect with the policy of the beginning. Meanwhile learn from the latest rollout, then imitate."""
        agents_, key = _split_keys(state.agents)
        assert state.collection is not None
        assert state.pending is not None

        def learn(work: Work) -> Work:
            updated, measured = _over_seeds(algorithm.update_on_policy, self.agent)(work.agents, state.pending)
            return Work(updated, {**work.metrics, **measured})

        def imitate(updates: int, work: Work) -> Work:
            updated, measured = jax.vmap(partial(algorithm.imitate, self.agent, updates=updates))(work.agents)
            return Work(updated, {**work.metrics, **measured})

        steps = self.config.num_steps
        imitations = [partial(imitate, count) for count in self._updates_per_step(steps - 1)]
        collection, rollout, work = self.collector.collect_while(
            agents_.policy, state.collection, key, [learn, *imitations], Work(agents_, {})
        )
        accumulated = _accumulate(state.metrics, rollout, work.metrics)
        return GroupState(work.agents, collection, accumulated, rollout)

    def _updates_per_step(self, steps: int) -> list[int]:
        """Self-imitation's M updates, spread over the steps."""
        updates = 0 if self.agent.self_imitation is None else self.agent.self_imitation.updates
        due = [updates * (step + 1) // steps for step in range(steps)]
        return [after - before for before, after in zip([0, *due[:-1]], due, strict=True)]


class Work(eqx.Module):
    """What is computed while environments step."""

    agents: AgentState
    metrics: Metrics


def _split_keys(state: AgentState) -> tuple[AgentState, Array]:
    """A key of each seed to collect with."""
    keys = jax.vmap(jax.random.split)(state.key)
    return dataclasses.replace(state, key=keys[:, 0]), keys[:, 1]


def _over_seeds(update: Any, agent: Agent) -> Any:
    """`update` of an agent's state and a rollout, over the seeds of a group."""
    return jax.vmap(partial(update, agent), in_axes=(0, ROLLOUT_AXES))


def _accumulate(accumulators: MetricsAccumulator, rollout: Rollout, measured: Metrics) -> MetricsAccumulator:
    return jax.vmap(metrics.accumulate, in_axes=(0, ROLLOUT_AXES, 0))(accumulators, rollout, measured)


class PythonGroup(SeedGroup):
    """A Python loop steps the environments; acting and learning are compiled."""

    def __init__(
        self, config: TrainConfig, agent: Agent, seeds: Sequence[int], device: jax.Device, backend: Backend
    ):
        super().__init__(config, agent, seeds, device)
        self.vector = backend.vector
        self._act: Any = jax.jit(jax.vmap(self._act_one, in_axes=(0, 0, 0, None)))
        self._learn: Any = jax.jit(self._update, donate_argnums=(0,))
        self._steps = 0

    @cached_property
    def rollout_shape(self) -> Rollout:
        shape = self.config.num_steps, self.config.num_envs
        spec = self.agent.spec

        def rows(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((*shape, *leaf.shape), leaf.dtype)

        observation = jax.tree.map(rows, spec.observation)
        action = jax.ShapeDtypeStruct((*shape, *spec.action_shape), spec.action_dtype)
        number, flag = jax.ShapeDtypeStruct(shape, np.float32), jax.ShapeDtypeStruct(shape, bool)
        first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), observation)
        normaliser = None if self.agent.normaliser is None else self.agent.normaliser.init()
        policy = algorithm.Policy(agents.initial_params(self.config, self.agent, self.seeds[0]), normaliser)
        _, extras = jax.eval_shape(self._act_one, policy, first, jax.random.key(0), 0)
        return Rollout(
            observation=observation,
            action=action,
            reward=number,
            terminated=flag,
            truncated=flag,
            valid=None,
            next_observation=observation,
            last_observation=first,
            episode_return=number,
            episode_length=jax.ShapeDtypeStruct(shape, np.int32),
            extras=jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((shape[0], *leaf.shape), leaf.dtype), extras),
        )

    def begin(self, step: int) -> Collection:
        seeds = environment_seeds(self.seeds, self.config.num_envs, step)
        observation = self._by_seed(self.vector.reset(seeds.reshape(-1).tolist()))
        self._steps = step
        return Collection(None, observation, EpisodeTracker.create(seeds.shape))

    def init(self) -> GroupState:
        return self._placed(super().init())

    def _placed(self, state: GroupState) -> GroupState:
        """On the device, but for what the environments show."""
        assert state.collection is not None
        observation = jax.tree.map(np.asarray, state.collection.observation)
        state = jax.device_put(state, self.device)
        return eqx.tree_at(lambda s: s.collection.observation, state, observation)

    def restore(
        self, saved: GroupState, collection: Mapping[str, np.ndarray], step: int
    ) -> tuple[GroupState, bool]:
        fresh = self.begin(step)
        if not (self.vector.can_snapshot and collection):
            return self._placed(GroupState(drop_unfinished(saved.agents), fresh, saved.metrics)), False
        like = dataclasses.replace(fresh, environment=self._by_seed(self.vector.snapshot()))
        kept = from_arrays(collection, like, "collection")
        self.vector.restore(jax.tree.map(_flat, kept.environment))
        kept = dataclasses.replace(kept, environment=None)
        return self._placed(dataclasses.replace(saved, collection=kept)), True

    def saved(self, state: GroupState) -> GroupState:
        if not self.vector.can_snapshot:
            return dataclasses.replace(state, collection=None)
        assert state.collection is not None
        snapshot = self._by_seed(self.vector.snapshot())
        return dataclasses.replace(state, collection=dataclasses.replace(state.collection, environment=snapshot))

    def compile(self, state: GroupState) -> None:
        """Left to the first iteration."""

    def run(self, state: GroupState, iterations: int) -> GroupState:
        for _ in range(iterations):
            agents_, keys = _split_keys(state.agents)
            policies, collection = agents_.policy, state.collection
            assert collection is not None

            def act(observation: Any, time: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
                action, extras = self._act(policies, self._by_seed(observation), keys, time)  # noqa: B023
                return _flat(np.asarray(action)), {name: _flat(np.asarray(own)) for name, own in extras.items()}

            first = jax.tree.map(_flat, collection.observation)
            rollout = python_loop.collect(self.vector, act, first, self.config.num_steps, self._steps)
            self._steps += self.config.steps_per_iteration
            rows = jax.tree.map(self._rows_by_seed, rollout._replace(last_observation=None))
            rows = rows._replace(last_observation=self._by_seed(rollout.last_observation))
            learned, episodes, accumulated = self._learn(
                agents_, collection.episodes, state.metrics, rows
            )
            collection = Collection(None, rows.last_observation, episodes)
            state = GroupState(learned, collection, accumulated)
        return jax.block_until_ready(state)

    def close(self) -> None:
        self.vector.close()

    def _act_one(self, policy: algorithm.Policy, observation: Any, key: Array, time: int) -> tuple:
        return algorithm.act(self.agent, policy, observation, jax.random.fold_in(key, time))

    def _update(
        self, agents_: AgentState, episodes: EpisodeTracker, accumulators: MetricsAccumulator, rows: HostRollout
    ) -> tuple[AgentState, EpisodeTracker, MetricsAccumulator]:
        ended = rows.terminated | rows.truncated

        def follow(tracker: EpisodeTracker, step: tuple) -> tuple:
            return track(tracker, *step, None, self.config.delay, self.config.rewards == "sign")

        episodes, tracked = jax.lax.scan(follow, episodes, (rows.reward, ended))
        rollout = Rollout(
            **{
                **rows._asdict(),
                "reward": tracked.reward,
                "valid": None,
                "episode_return": tracked.episode_return,
                "episode_length": tracked.episode_length,
            }
        )
        agents_, measured = _over_seeds(algorithm.update, self.agent)(agents_, rollout)
        return agents_, episodes, _accumulate(accumulators, rollout, measured)

    def _by_seed(self, tree: Any) -> Any:
        shape = len(self.seeds), self.config.num_envs
        return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), tree)

    def _rows_by_seed(self, leaf: np.ndarray) -> np.ndarray:
        return leaf.reshape(leaf.shape[0], len(self.seeds), self.config.num_envs, *leaf.shape[2:])


def _flat(leaf: np.ndarray) -> np.ndarray:
    """[K, N, ...] to [K * N, ...]"""
    return np.asarray(leaf).reshape(-1, *leaf.shape[2:])
