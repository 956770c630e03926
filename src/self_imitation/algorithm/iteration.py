"""Algorithm 1, on one page: collect, explore, remember, learn, imitate.

Collecting is a function of the environment's backend (`self_imitation.rollout`); all that follows is here. Functions
are of one seed; callers `vmap`.
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key, PRNGKeyArray, Shaped

from self_imitation.algorithm import movement, self_imitation
from self_imitation.algorithm.components import Agent, Exploration
from self_imitation.algorithm.normalisation import NormaliserState
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import ReplayBuffer
from self_imitation.types import ActorCritic, Metrics, Observation, Params, Rollout, TrainState


class Policy(eqx.Module):
    """What acting needs."""

    params: Params
    normaliser: NormaliserState | None


class AgentState(eqx.Module):
    """All that changes while one seed learns."""

    train: TrainState
    imitation_optimiser_state: Any
    """Where self-imitation has an optimiser of its own."""
    normaliser: NormaliserState | None
    """Running statistics, where observations or rewards are normalised."""
    buffer: ReplayBuffer | None
    components: dict[str, Any]
    """States of the learner and of the bonuses, by name."""
    key: Key[Array, "*seeds"]

    @property
    def policy(self) -> Policy:
        return Policy(self.train.params, self.normaliser)


def act(
    agent: Agent, policy: Policy, observation: Observation, key: PRNGKeyArray
) -> tuple[Shaped[Array, "N ..."], dict[str, Array]]:
    """Sample an action for each environment; also what the learner wants recorded with it."""
    distribution, value = actor_critic(agent, policy.normaliser)(policy.params, observation)
    action = distribution.sample(key)
    return action, agent.learner.extras(distribution, action, value)


def actor_critic(agent: Agent, normaliser: NormaliserState | None) -> ActorCritic:
    """The actor-critic as a function of raw observations."""
    if agent.normaliser is None or normaliser is None:
        return agent.actor_critic
    return agent.normaliser.with_normalised_observations(agent.actor_critic, normaliser)


def update(agent: Agent, state: AgentState, rollout: Rollout) -> tuple[AgentState, Metrics]:
    """One pass of Algorithm 1 after collecting."""
    start = state.train.params
    state, learned = update_on_policy(agent, state, rollout)
    after_learning = state.train.params
    state, imitated = imitate(agent, state)  # M times
    moved = measure_movement(agent, state, rollout, (start, after_learning), (after_learning, state.train.params))
    return state, {**learned, **imitated, **moved}


def update_on_policy(agent: Agent, state: AgentState, rollout: Rollout) -> tuple[AgentState, Metrics]:
    state = update_normaliser(agent, state, rollout)
    state, exploration, explored = explore(agent, state, rollout)
    state = remember(agent, state, rollout)  # finished episodes, without any bonus
    state, learned = learn(agent, state, rollout, exploration)
    return state, {**learned, **explored}


def update_normaliser(agent: Agent, state: AgentState, rollout: Rollout) -> AgentState:
    if agent.normaliser is None or state.normaliser is None:
        return state
    return eqx.tree_at(lambda s: s.normaliser, state, agent.normaliser.update(state.normaliser, rollout))


def explore(agent: Agent, state: AgentState, rollout: Rollout) -> tuple[AgentState, Exploration, Metrics]:
    total, components, key = Exploration(), dict(state.components), state.key
    metrics: Metrics = {}
    for name, bonus in agent.bonuses.items():
        key, key_bonus = jax.random.split(key)
        components[name], exploration, own = bonus.update(components[name], rollout, key_bonus)
        total, metrics = total + exploration, {**metrics, **own}
    return dataclasses.replace(state, components=components, key=key), total, metrics


def remember(agent: Agent, state: AgentState, rollout: Rollout) -> AgentState:
    if agent.self_imitation is None or state.buffer is None:
        return state
    return dataclasses.replace(state, buffer=replay.insert(state.buffer, rollout, agent.self_imitation))


def learn(agent: Agent, state: AgentState, rollout: Rollout, exploration: Exploration) -> tuple[AgentState, Metrics]:
    if agent.normaliser is not None and state.normaliser is not None:
        rollout = agent.normaliser.rollout(state.normaliser, rollout)
    key, key_learn = jax.random.split(state.key)
    own, train, metrics = agent.learner.update(
        agent.actor_critic,
        agent.optimiser,
        state.components[agent.learner_name],
        state.train,
        rollout,
        exploration,
        key_learn,
    )
    components = {**state.components, agent.learner_name: own}
    return dataclasses.replace(state, train=train, components=components, key=key), metrics


def imitate(agent: Agent, state: AgentState, updates: int | None = None) -> tuple[AgentState, Metrics]:
    """M self-imitation updates, or another number of them."""
    if agent.self_imitation is None or state.buffer is None:
        return state, {}
    config = agent.self_imitation if updates is None else dataclasses.replace(agent.self_imitation, updates=updates)
    key, key_sample = jax.random.split(state.key)
    normalise = lambda batch: batch  # noqa: E731
    if agent.normaliser is not None and state.normaliser is not None:
        normalise = partial(agent.normaliser.batch, state.normaliser)
    own, optimiser = agent.imitation_optimiser, agent.imitation_optimiser or agent.optimiser
    before = state.train if own is None else TrainState(state.train.params, state.imitation_optimiser_state)
    after, buffer, metrics = self_imitation.imitate(
        agent.actor_critic, optimiser, before, state.buffer, key_sample, config, normalise
    )
    if own is None:
        state = dataclasses.replace(state, train=after)
    else:
        train = TrainState(after.params, state.train.optimiser_state)
        state = dataclasses.replace(state, train=train, imitation_optimiser_state=after.optimiser_state)
    state = dataclasses.replace(state, buffer=buffer, key=key)
    return state, {**metrics, "memory_size": buffer.size.astype("float32")}


def measure_movement(
    agent: Agent, state: AgentState, rollout: Rollout, learner: tuple[Params, Params], imitation: tuple[Params, Params]
) -> Metrics:
    """With self-imitation: how far it moved the policy, beside the learner. Parameters before and after each."""
    if agent.self_imitation is None:
        return {}
    return movement.measure(actor_critic(agent, state.normaliser), rollout, learner, imitation)
