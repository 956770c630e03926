"""A group of seeds that learns while its environments step: for images, which take long to learn from.

A rollout is learnt from while the next one is collected, by a policy that is one iteration behind. All of it is one
program: on a GPU the order of its operations decides what overlaps.

Nothing of such environments can be saved, so where they stand is kept by the group, not in its state.
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from self_imitation.algorithm import iteration as algorithm
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState
from self_imitation.config import TrainConfig
from self_imitation.rollout.in_program import Collection
from self_imitation.training.group import GroupState, accumulate, over_seeds, split_keys
from self_imitation.training.in_program_group import InProgramGroup
from self_imitation.training.metrics import MetricsAccumulator
from self_imitation.types import Params, Rollout, SeedMetrics


def applies(config: TrainConfig, agent: Agent) -> bool:
    """Whether to overlap: pays with images; needs EnvPool's `send` and `recv` and a learner that tolerates lag."""
    images = agent.spec.observation_kind == "image"
    return config.overlap == "on" and images and config.engine == "envpool" and agent.learner.tolerates_lag


class Carry(eqx.Module):
    """All that changes in an iteration."""

    agents: AgentState
    metrics: MetricsAccumulator
    collection: Collection
    rollout: Rollout
    """The latest one, which is learnt from next."""
    after_learning: Params
    """Parameters after learning and before imitation, in the latest iteration."""


class Learning(eqx.Module):
    """What changes while environments step."""

    agents: AgentState
    after_learning: Params


class OverlappedGroup(InProgramGroup):
    """Learning sits between `send` and `recv` of the environments."""

    def begin(self, step: int) -> None:  # type: ignore[override]
        collection = super().begin(step)
        seeds = len(self.seeds)
        rollout = jax.tree.map(lambda leaf: jnp.zeros((seeds, *leaf.shape), leaf.dtype), self.rollout_shape)
        # The first rollout to learn from has no valid step.
        self._under_way: tuple[Any, ...] = jax.device_put((collection, rollout), self.device)

    def compile(self, state: GroupState) -> None:
        def iterations(carry: Carry, count: Int[Array, ""]) -> Carry:
            return jax.lax.fori_loop(0, count, lambda _, carry: self._iterate(carry), carry)

        self._under_way = (*self._under_way, jax.tree.map(jnp.copy, state.agents.train.params))
        carry = Carry(state.agents, state.metrics, *self._under_way)
        self._program: Any = jax.jit(iterations, donate_argnums=0).lower(carry, jnp.int32(0)).compile()

    def run(self, state: GroupState, iterations: int) -> tuple[GroupState, int]:
        carry = self._program(Carry(state.agents, state.metrics, *self._under_way), np.int32(iterations))
        self._under_way = carry.collection, carry.rollout, carry.after_learning
        return jax.block_until_ready(GroupState(carry.agents, None, carry.metrics)), iterations

    def _iterate(self, carry: Carry) -> Carry:
        """Collect with the policy of the beginning. Meanwhile learn from the latest rollout, then imitate."""
        keys, key = split_keys(carry.agents.key)
        agents = dataclasses.replace(carry.agents, key=keys)
        collection, rollout, done, (learned, imitated) = self.collector.collect_while(
            agents.policy,
            carry.collection,
            key,
            self.config.num_steps,
            partial(self._learn_from, carry.rollout),
            self._imitate_in_later_steps,
            Learning(agents, carry.after_learning),
        )
        measured = {**learned, **self._mean_over_updates(learned, imitated)}
        accumulated = accumulate(carry.metrics, rollout, measured)
        return Carry(done.agents, accumulated, collection, rollout, done.after_learning)

    def _learn_from(self, rollout: Rollout, state: Learning) -> tuple[Learning, SeedMetrics]:
        """In the first step: learn from the rollout, then make the updates that the later steps leave over.

        Self-imitation's movement of the policy is that of the iteration before.
        """
        start = state.agents.train.params
        agents, learned = over_seeds(algorithm.update_on_policy, self.agent)(state.agents, rollout)
        after_learning = agents.train.params
        measure = jax.vmap(partial(algorithm.measure_movement, self.agent))
        agents, moved = measure(agents, rollout, (start, after_learning), (state.after_learning, start))
        agents, imitated = self._imitate(self._updates_in_first_step, agents)
        return Learning(agents, after_learning), {**learned, **imitated, **moved}

    def _imitate_in_later_steps(self, state: Learning) -> tuple[Learning, SeedMetrics]:
        agents, measured = self._imitate(self._updates_per_step, state.agents)
        return Learning(agents, state.after_learning), measured

    def _imitate(self, updates: int, agents: AgentState) -> tuple[AgentState, SeedMetrics]:
        if not updates:
            return agents, {}
        return jax.vmap(partial(algorithm.imitate, self.agent, updates=updates))(agents)

    def _mean_over_updates(self, first: SeedMetrics, later: SeedMetrics) -> SeedMetrics:
        share = self._updates_in_first_step / max(1, self._updates)
        return {name: share * first[name] + (1 - share) * mean if share else mean for name, mean in later.items()}

    @property
    def _updates(self) -> int:
        """Self-imitation's M."""
        return 0 if self.agent.self_imitation is None else self.agent.self_imitation.updates

    @property
    def _updates_per_step(self) -> int:
        """In each step after the first. A number of updates that changes is made in the first step."""
        config = self.agent.self_imitation
        if config is not None and not config.constant_degree:
            return 0
        return self._updates // (self.config.num_steps - 1) if self.config.num_steps > 1 else 0

    @property
    def _updates_in_first_step(self) -> int:
        return self._updates - self._updates_per_step * (self.config.num_steps - 1)
