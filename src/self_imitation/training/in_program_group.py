"""A group of seeds whose environments step inside the compiled program."""

import dataclasses
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from self_imitation.algorithm import iteration as algorithm
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState, Policy
from self_imitation.config import TrainConfig
from self_imitation.environments.batched import BatchedEnvironment
from self_imitation.rollout import in_program
from self_imitation.rollout.in_program import Collection, Collector
from self_imitation.storage.trees import from_arrays
from self_imitation.training import devices
from self_imitation.training.backends import Backend
from self_imitation.training.group import (
    GroupState,
    SeedGroup,
    accumulate,
    drop_unfinished,
    environment_seeds,
    over_seeds,
    split_keys,
)
from self_imitation.training.metrics import MetricsAccumulator
from self_imitation.types import Rollout


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
        cores: Sequence[int],
        shared: CompileOnce | None = None,
    ):
        """`cores`: where the group runs, one thread of its engine on each. `shared`: see `CompileOnce`."""
        super().__init__(config, agent, seeds, device)
        self.backend, self.cores = backend, cores
        self.environment: BatchedEnvironment | None = None
        self._shared = shared or CompileOnce()
        self._run: Callable[[GroupState, int], GroupState]

    @property
    def resets_in_next_step(self) -> bool:  # type: ignore[override]
        return self.backend.engine != "jax"

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
        with devices.pinned(self.cores):
            self.environment = self.backend.make(numbers, len(self.cores))

    def init(self) -> GroupState:
        return jax.device_put(super().init(), self.device)

    def restore(self, saved: GroupState, collection: Mapping[str, np.ndarray], step: int) -> tuple[GroupState, bool]:
        """Continue from a checkpoint; also whether the environments do. `collection`: where they stood, if saved."""
        fresh = self.begin(step)
        assert self.environment is not None
        continues = self.environment.can_be_saved and bool(collection)
        if continues:
            state = dataclasses.replace(saved, collection=from_arrays(collection, fresh, "collection"))
        else:
            state = GroupState(drop_unfinished(saved.agents), fresh, saved.metrics)
        return jax.device_put(state, self.device), continues

    def saved(self, state: GroupState) -> GroupState:
        """What a checkpoint holds."""
        assert self.environment is not None
        collection = state.collection if self.environment.can_be_saved else None
        return dataclasses.replace(state, collection=collection)

    def compile(self, state: GroupState) -> None:
        """One program for whole iterations; but learning is a program of its own where collecting has to be compiled
        anew for every group and at every start.
        """
        assert self.environment is not None
        if self.environment.can_be_shared:
            key = ("iterations", len(self.seeds), self.device)
            program = self._shared.get(key, lambda: self._compile_iterations(state))
            self._run = lambda state, iterations: program(state, np.int32(iterations))
        else:
            self._run = self._compile_in_two(state)

    def run(self, state: GroupState, iterations: int) -> tuple[GroupState, int]:
        """Train for some iterations; also returns how many were made. Donates `state`."""
        with devices.pinned(self.cores):
            return jax.block_until_ready(self._run(state, iterations)), iterations

    def _compile_iterations(self, state: GroupState) -> Any:
        """The number of iterations is an argument, so that one program serves every call: how a run is divided into
        calls does not change its results.
        """

        def iterations(state: GroupState, count: Int[Array, ""]) -> GroupState:
            return jax.lax.fori_loop(0, count, lambda _, state: self._iteration(state), state)

        return jax.jit(iterations, donate_argnums=0).lower(state, jnp.int32(0)).compile()

    def _compile_in_two(self, state: GroupState) -> Callable[[GroupState, int], GroupState]:
        seeds = len(self.seeds)
        rollout = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), self.rollout_shape)

        def compile_collect() -> Any:
            # The agents' states, with their replay buffers, are not arguments: as results they would be copied.
            arguments = state.agents.policy, state.collection, state.agents.key
            return jax.jit(self._collect, donate_argnums=1).lower(*arguments).compile()

        def compile_learn() -> Any:
            return jax.jit(self._learn, donate_argnums=(0, 1)).lower(state.agents, state.metrics, rollout).compile()

        with ThreadPoolExecutor(1) as thread:  # side by side
            compiling = thread.submit(self._shared.get, ("learn", seeds, self.device), compile_learn)
            collect, learn = compile_collect(), compiling.result()

        def run(state: GroupState, iterations: int) -> GroupState:
            for _ in range(iterations):
                key, collection, rollout = collect(state.agents.policy, state.collection, state.agents.key)
                agents_ = dataclasses.replace(state.agents, key=key)
                agents_, accumulated = learn(agents_, state.metrics, rollout)
                state = GroupState(agents_, collection, accumulated)
            return state

        return run

    def close(self) -> str:
        if self.environment is not None:
            self.environment.close()
        return ""

    def _iteration(self, state: GroupState) -> GroupState:
        assert state.collection is not None
        key, collection, rollout = self._collect(state.agents.policy, state.collection, state.agents.key)
        agents_ = dataclasses.replace(state.agents, key=key)
        agents_, accumulated = self._learn(agents_, state.metrics, rollout)
        return GroupState(agents_, collection, accumulated)

    def _collect(
        self, policies: Policy, collection: Collection, keys: Key[Array, " K"]
    ) -> tuple[Key[Array, " K"], Collection, Rollout]:
        """A rollout of each seed; also its next key."""
        keys, key = split_keys(keys)
        collection, rollout = self.collector.collect(policies, collection, key, self.config.num_steps)
        return keys, collection, rollout

    def _learn(
        self, agents_: AgentState, accumulators: MetricsAccumulator, rollout: Rollout
    ) -> tuple[AgentState, MetricsAccumulator]:
        agents_, measured = over_seeds(algorithm.update, self.agent)(agents_, rollout)
        return agents_, accumulate(accumulators, rollout, measured)
