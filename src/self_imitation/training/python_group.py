"""A group of seeds whose environments are stepped by a Python loop; acting and learning are compiled."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int

from self_imitation.algorithm import iteration as algorithm
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState, Policy
from self_imitation.config import TrainConfig
from self_imitation.errors import Interrupted
from self_imitation.rollout import python_loop
from self_imitation.rollout.episodes import EpisodeTracker, TrackedStep, track
from self_imitation.rollout.in_program import Collection
from self_imitation.rollout.python_loop import HostRollout
from self_imitation.storage.trees import from_arrays
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


class PythonGroup(SeedGroup):
    """Seeds whose environments belong to one Gymnasium vector environment."""

    def __init__(self, config: TrainConfig, agent: Agent, seeds: Sequence[int], device: jax.Device, backend: Backend):
        super().__init__(config, agent, seeds, device)
        self.vector = backend.vector
        self._act: Any = jax.jit(jax.vmap(self._act_one, in_axes=(0, 0, 0, None)))
        self._learn: Any = jax.jit(self._update, donate_argnums=(0,))
        self._steps = 0

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

    def restore(self, saved: GroupState, collection: Mapping[str, np.ndarray], step: int) -> tuple[GroupState, bool]:
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
        assert state.collection is not None
        first = state.collection.observation
        self._act = self._act.lower(state.agents.policy, first, state.agents.key, 0).compile()
        seeds, one = len(self.seeds), self.rollout_shape
        shapes = HostRollout(**{name: getattr(one, name) for name in HostRollout._fields})
        rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), shapes)
        self._learn = self._learn.lower(state.agents, state.collection.episodes, state.metrics, rows).compile()

    def interrupt_when(self, stop: Callable[[], bool]) -> None:
        """In the middle of a rollout, which is then dropped. Not where environments resume exactly: their steps are
        fast.
        """
        if not self.vector.can_snapshot:
            self.vector.interrupt_when(stop)

    def run(self, state: GroupState, iterations: int) -> tuple[GroupState, int]:
        for made in range(iterations):
            next_keys, keys = split_keys(state.agents.key)
            agents_ = dataclasses.replace(state.agents, key=next_keys)
            policies, collection = agents_.policy, state.collection
            assert collection is not None

            def act(observation: Any, time: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
                action, extras = self._act(policies, self._by_seed(observation), keys, time)  # noqa: B023
                return _flat(np.asarray(action)), {name: _flat(np.asarray(own)) for name, own in extras.items()}

            first = jax.tree.map(_flat, collection.observation)
            try:
                rollout = python_loop.collect(self.vector, act, first, self.config.num_steps, self._steps)
            except Interrupted:
                return jax.block_until_ready(state), made
            self._steps += self.config.steps_per_iteration
            rows = jax.tree.map(self._rows_by_seed, rollout._replace(last_observation=None))
            rows = rows._replace(last_observation=self._by_seed(rollout.last_observation))
            learned, episodes, accumulated = self._learn(agents_, collection.episodes, state.metrics, rows)
            collection = Collection(None, rows.last_observation, episodes)
            state = GroupState(learned, collection, accumulated)
        return jax.block_until_ready(state), iterations

    def close(self) -> str:
        return self.vector.close()

    def _act_one(self, policy: Policy, observation: Any, key: Array, time: Int[Array, ""]) -> tuple:
        return algorithm.act(self.agent, policy, observation, jax.random.fold_in(key, time))

    def _update(
        self, agents_: AgentState, episodes: EpisodeTracker, accumulators: MetricsAccumulator, rows: HostRollout
    ) -> tuple[AgentState, EpisodeTracker, MetricsAccumulator]:
        episodes, rollout = jax.vmap(self._track)(episodes, rows)
        agents_, measured = over_seeds(algorithm.update, self.agent)(agents_, rollout)
        return agents_, episodes, accumulate(accumulators, rollout, measured)

    def _track(self, episodes: EpisodeTracker, rows: HostRollout) -> tuple[EpisodeTracker, Rollout]:
        """One seed's rollout, with the rewards as they are trained on."""

        def follow(tracker: EpisodeTracker, step: tuple[Array, Array]) -> tuple:
            reward, ended = step
            return track(tracker, reward, ended, None, self.config.delay, self.config.rewards == "sign")

        tracked: TrackedStep
        episodes, tracked = jax.lax.scan(follow, episodes, (rows.reward, rows.terminated | rows.truncated))
        rollout = Rollout(
            observation=rows.observation,
            action=rows.action,
            reward=tracked.reward,
            terminated=rows.terminated,
            truncated=rows.truncated,
            valid=None,
            next_observation=rows.next_observation,
            last_observation=rows.last_observation,
            episode_return=tracked.episode_return,
            episode_length=tracked.episode_length,
            extras=rows.extras,
        )
        return episodes, rollout

    def _by_seed(self, tree: Any) -> Any:
        shape = len(self.seeds), self.config.num_envs
        return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), tree)

    def _rows_by_seed(self, leaf: np.ndarray) -> np.ndarray:
        """[T, K * N, ...] to [K, T, N, ...]"""
        return leaf.reshape(leaf.shape[0], len(self.seeds), self.config.num_envs, *leaf.shape[2:]).swapaxes(0, 1)


def _flat(leaf: np.ndarray) -> np.ndarray:
    """[K, N, ...] to [K * N, ...]"""
    return np.asarray(leaf).reshape(-1, *leaf.shape[2:])
