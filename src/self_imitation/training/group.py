"""A group of seeds that train together: their state, and how it begins."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Integer

from self_imitation.algorithm import iteration as algorithm
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState, Policy
from self_imitation.algorithm.normalisation import drop_running
from self_imitation.config import TrainConfig
from self_imitation.replay.buffer import drop_pending
from self_imitation.rollout.in_program import Collection
from self_imitation.training import agents, metrics
from self_imitation.training.metrics import MetricsAccumulator
from self_imitation.types import Metrics, Params, Rollout


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

    @cached_property
    def policy_shape(self) -> Policy:
        """Shapes of one seed's policy."""
        params = agents.initial_params(self.config, self.agent, self.seeds[0])
        normaliser = None if self.agent.normaliser is None else self.agent.normaliser.init()
        return jax.eval_shape(lambda: Policy(params, normaliser))

    @cached_property
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


def split_keys(state: AgentState) -> tuple[AgentState, Array]:
    """A key of each seed to collect with."""
    keys = jax.vmap(jax.random.split)(state.key)
    return dataclasses.replace(state, key=keys[:, 0]), keys[:, 1]


def over_seeds(update: Any, agent: Agent) -> Any:
    """`update` of an agent's state and a rollout, over the seeds of a group."""
    return jax.vmap(partial(update, agent))


def accumulate(accumulators: MetricsAccumulator, rollout: Rollout, measured: Metrics) -> MetricsAccumulator:
    return jax.vmap(metrics.accumulate)(accumulators, rollout, measured)
