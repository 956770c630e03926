"""A group of seeds that train together: their state, and how it begins."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, Key

from self_imitation.algorithm import iteration as algorithm
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState, Policy
from self_imitation.algorithm.normalisation import drop_running
from self_imitation.config import TrainConfig
from self_imitation.replay.buffer import drop_pending
from self_imitation.rollout.in_program import Collection
from self_imitation.training import agents, metrics
from self_imitation.training.metrics import MetricsAccumulator
from self_imitation.types import Observation, Params, Rollout, SeedMetrics


class GroupState(eqx.Module):
    """All that changes while a group of K seeds trains; every array has the seeds first."""

    agents: AgentState
    collection: Collection | None
    """None in checkpoints of environments whose state can't be saved."""
    metrics: MetricsAccumulator


class SeedGroup:
    """What groups have in common. `seeds`: the numbers of their seeds."""

    resets_in_next_step = False
    """Whether environments reset in the step after an end, which is then not valid."""

    def __init__(self, config: TrainConfig, agent: Agent, seeds: Sequence[int], device: jax.Device):
        self.config, self.agent, self.seeds, self.device = config, agent, tuple(seeds), device

    def init(self) -> GroupState:
        """Every seed at its start. Environments start, too."""
        like = self.rollout_shape
        params = [agents.initial_params(self.config, self.agent, seed) for seed in self.seeds]
        values = [agents.initial_value(self.config, self.agent, seed) for seed in self.seeds]
        components = [
            agents.initial_components(self.agent, own, seed) for own, seed in zip(params, self.seeds, strict=True)
        ]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *zip(params, values, components, strict=True))
        make = jax.jit(jax.vmap(partial(self._init_one, like=like)))
        agent_states, accumulators = make(*stacked, np.array(self.seeds, np.uint32))
        return GroupState(agent_states, self.begin(step=0), accumulators)

    def _init_one(
        self,
        params: Params,
        value_params: Params | None,
        components: dict[str, Any],
        seed: Integer[Array, ""],
        like: Rollout,
    ) -> tuple[AgentState, MetricsAccumulator]:
        state = agents.initial_state(self.agent, params, value_params, components, seed, like)
        _, names = jax.eval_shape(partial(algorithm.update, self.agent), state, like)
        return state, metrics.create(tuple(names))

    @cached_property
    def one_seed(self) -> tuple[AgentState, MetricsAccumulator]:
        """Shapes of one seed's state, without its arrays."""
        params = agents.initial_params(self.config, self.agent, self.seeds[0])
        value = agents.initial_value(self.config, self.agent, self.seeds[0])
        components = agents.initial_components(self.agent, params, self.seeds[0])
        seed = jax.ShapeDtypeStruct((), np.uint32)
        return jax.eval_shape(partial(self._init_one, like=self.rollout_shape), params, value, components, seed)

    @cached_property
    def policy_shape(self) -> Policy:
        """Shapes of one seed's policy."""
        params = agents.initial_params(self.config, self.agent, self.seeds[0])
        normaliser = None if self.agent.normaliser is None else self.agent.normaliser.init()
        return jax.eval_shape(lambda: Policy(params, normaliser))

    @cached_property
    def rollout_shape(self) -> Rollout:
        """Shapes of one seed's rollouts."""
        return jax.eval_shape(self._empty_rollout, self.policy_shape)

    def _empty_rollout(self, policy: Policy) -> Rollout:
        steps, num_envs, spec = self.config.num_steps, self.config.num_envs, self.agent.spec

        def zeros(*outer: int) -> Observation:
            return jax.tree.map(lambda leaf: jnp.zeros((*outer, *leaf.shape), leaf.dtype), spec.observation)

        def each(dtype: Any) -> Array:
            return jnp.zeros((steps, num_envs), dtype)

        action, extras = algorithm.act(self.agent, policy, zeros(num_envs), jax.random.key(0))
        return Rollout(
            observation=zeros(steps, num_envs),
            action=jnp.stack([action] * steps),
            reward=each(jnp.float32),
            terminated=each(bool),
            truncated=each(bool),
            valid=each(bool) if self.resets_in_next_step else None,
            next_observation=None if self.resets_in_next_step else zeros(steps, num_envs),
            last_observation=zeros(num_envs),
            episode_return=each(jnp.float32),
            episode_length=each(jnp.int32),
            extras={name: jnp.stack([extra] * steps) for name, extra in extras.items()},
        )

    def interrupt_when(self, stop: Callable[[], bool]) -> None:
        """Once `stop` returns True, `run` may end before the iterations that it was asked for."""

    def begin(self, step: int) -> Collection:
        """Start the environments. Their random numbers depend on the step, so that a resumed run gets new ones."""
        raise NotImplementedError


def environment_seeds(seeds: Sequence[int], num_envs: int, step: int) -> np.ndarray:
    """[K, N] numbers, below 2**31."""
    return np.stack([np.random.SeedSequence((seed, step)).generate_state(num_envs) >> 1 for seed in seeds])


def drop_unfinished(state: AgentState) -> AgentState:
    """Forget unfinished episodes, in the replay buffer and in the running sums."""
    buffer, learner_buffer = (
        None if stored is None else drop_pending(stored) for stored in (state.buffer, state.learner_buffer)
    )
    normaliser = None if state.normaliser is None else drop_running(state.normaliser)
    return dataclasses.replace(state, buffer=buffer, learner_buffer=learner_buffer, normaliser=normaliser)


def split_keys(keys: Key[Array, " K"]) -> tuple[Key[Array, " K"], Key[Array, " K"]]:
    """The next key of each seed, and one to collect with."""
    both = jax.vmap(jax.random.split)(keys)
    return both[:, 0], both[:, 1]


def over_seeds(update: Any, agent: Agent) -> Any:
    """`update` of an agent's state and a rollout, over the seeds of a group."""
    return jax.vmap(partial(update, agent))


def accumulate(accumulators: MetricsAccumulator, rollout: Rollout, measured: SeedMetrics) -> MetricsAccumulator:
    return jax.vmap(metrics.accumulate)(accumulators, rollout, measured)
