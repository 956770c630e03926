"""A group of seeds that learns while its environments step: for images, which take long to learn from.

The order of programs on the device decides what overlaps: one program finishes a step of the environments, acts and
starts the next step; the programs that follow it compute while the engine's threads step. So a rollout is learnt from
while the next one is collected, by a policy that is one iteration behind.

Nothing of the environments is saved, so what is under way lives in the group, not in its state.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from self_imitation.algorithm import iteration as algorithm
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState, Policy
from self_imitation.config import TrainConfig
from self_imitation.rollout.episodes import EpisodeTracker
from self_imitation.rollout.in_program import InFlight, seeds_first
from self_imitation.training.group import GroupState, accumulate, over_seeds
from self_imitation.training.in_program_group import InProgramGroup
from self_imitation.training.metrics import MetricsAccumulator
from self_imitation.types import Rollout, SeedMetrics


def applies(config: TrainConfig, agent: Agent) -> bool:
    """Whether to overlap: pays with images; needs EnvPool's `send` and `recv` and a learner that tolerates lag."""
    images = agent.spec.observation_kind == "image"
    return config.overlap == "on" and images and config.engine == "envpool" and agent.learner.tolerates_lag


class Programs(NamedTuple):
    step: Any
    """Finish a step, act, start the next one."""
    learn: Any
    """Learn from a rollout on policy."""
    imitate: Any
    """One self-imitation update."""
    finish: Any
    """From rows to a rollout, and metrics."""


class OverlappedGroup(InProgramGroup):
    """Learning and acting are programs of their own, dispatched in an order that overlaps them with environments."""

    def begin(self, step: int) -> None:  # type: ignore[override]
        self._open(step)
        assert self.environment is not None
        seeds, num_envs = len(self.seeds), self.config.num_envs
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), step))(np.array(self.seeds, np.uint32))
        rollout = self._zeros(self.rollout_shape)
        columns = {"observation": rollout.last_observation, "action": rollout.action[:, 0]}
        columns["extras"] = {name: extra[:, 0] for name, extra in rollout.extras.items()}
        flight = InFlight(self.environment.start(), columns, EpisodeTracker.create((seeds, num_envs)), keys)
        self._flight: InFlight = jax.device_put(flight, self.device)
        self._rollout: Rollout = jax.device_put(rollout, self.device)  # has no valid step
        self._policies: Policy | None = None

    def _zeros(self, shape: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros((len(self.seeds), *leaf.shape), leaf.dtype), shape)

    def compile(self, state: GroupState) -> None:
        policies, rest = _apart(state.agents)
        step = jax.jit(self.collector.step_in_flight, donate_argnums=1).lower(policies, self._flight)
        row = step.out_info[1]
        shared = (len(self.seeds), self.device)
        learn = jax.jit(self._learn_on_policy, donate_argnums=1).lower(policies, rest, self._rollout)
        imitate = jax.jit(self._imitate, donate_argnums=1).lower(policies, rest)
        rows, last = [row] * self.config.num_steps, self._rollout.last_observation
        measured = (learn.out_info[2], [imitate.out_info[2]] * self._updates)
        finish = jax.jit(self._finish, donate_argnums=0).lower(state.metrics, rows, last, *measured)
        self._programs = Programs(
            step.compile(),
            self._shared.get(("learn", *shared), learn.compile),
            self._shared.get(("imitate", *shared), imitate.compile),
            self._shared.get(("finish", *shared), finish.compile),
        )

    def run(self, state: GroupState, iterations: int) -> GroupState:
        for _ in range(iterations):
            state = self._iterate(state)
        return jax.block_until_ready(state)

    @property
    def _updates(self) -> int:
        return 0 if self.agent.self_imitation is None else self.agent.self_imitation.updates

    def _iterate(self, state: GroupState) -> GroupState:
        steps, programs = self.config.num_steps, self._programs
        newest, rest = _apart(state.agents)
        policies = self._policies or newest
        rows: list[dict[str, Any]] = []
        imitated: list[Metrics] = []
        newest, rest, learned = programs.learn(newest, rest, self._rollout)
        for time in range(steps):
            due = self._updates * (time + 1) // steps
            while len(imitated) < due:
                newest, rest, measured = programs.imitate(newest, rest)
                imitated.append(measured)
            if time == steps - 1:
                policies = self._policies = newest  # acts from the first step of the next rollout on
            self._flight, row = programs.step(policies, self._flight)
            rows.append(row)
        last_observation = self._flight.columns["observation"]
        self._rollout, accumulated = programs.finish(state.metrics, rows, last_observation, learned, imitated)
        return GroupState(_together(newest, rest), None, accumulated)

    def _learn_on_policy(
        self, policies: Policy, rest: AgentState, rollout: Rollout
    ) -> tuple[Policy, AgentState, SeedMetrics]:
        agents, measured = over_seeds(algorithm.update_on_policy, self.agent)(_together(policies, rest), rollout)
        return *_apart(agents), measured

    def _imitate(self, policies: Policy, rest: AgentState) -> tuple[Policy, AgentState, SeedMetrics]:
        agents, measured = jax.vmap(lambda state: algorithm.imitate(self.agent, state, updates=1))(
            _together(policies, rest)
        )
        return *_apart(agents), measured

    def _finish(
        self,
        accumulators: MetricsAccumulator,
        rows: list[dict[str, Any]],
        last_observation: Array,
        learned: SeedMetrics,
        imitated: list[SeedMetrics],
    ) -> tuple[Rollout, MetricsAccumulator]:
        columns = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        rollout = seeds_first(columns, last_observation)
        mean = jax.tree.map(lambda *leaves: jnp.mean(jnp.stack(leaves), axis=0), *imitated) if imitated else {}
        return rollout, accumulate(accumulators, rollout, {**learned, **mean})


def _apart(agents: AgentState) -> tuple[Policy, AgentState]:
    """What acting needs, which programs must not donate, and the rest."""
    return agents.policy, _replace(agents, None, None)


def _together(policies: Policy, rest: AgentState) -> AgentState:
    return _replace(rest, policies.params, policies.normaliser)


def _replace(agents: AgentState, params: Any, normaliser: Any) -> AgentState:
    train = type(agents.train)(params, agents.train.optimiser_state)
    return AgentState(train, normaliser, agents.buffer, agents.components, agents.key)
