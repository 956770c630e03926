"""Algorithm 1, on one page: collect, explore, remember, learn, imitate.

Collecting is a function of the environment's backend (`self_imitation.rollout`); all that follows is here. Functions
are of one seed; callers `vmap`.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PRNGKeyArray, Shaped

from self_imitation.algorithm import degree, imitation_value, movement, self_imitation, strength
from self_imitation.algorithm.components import Agent, Exploration
from self_imitation.algorithm.degree import DegreeState
from self_imitation.algorithm.normalisation import NormaliserState
from self_imitation.algorithm.self_imitation import Baseline
from self_imitation.algorithm.strength import Strength
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import Batch, ReplayBuffer
from self_imitation.settings import SelfImitationConfig
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
    imitation_value: TrainState | None
    """Where self-imitation has a value of its own."""
    normaliser: NormaliserState | None
    """Running statistics, where observations or rewards are normalised."""
    buffer: ReplayBuffer | None
    """Of self-imitation."""
    learner_buffer: ReplayBuffer | None
    """Of a learner that replays episodes."""
    degree: DegreeState | None
    """Of self-imitation, where it is not constant."""
    strength: Strength | None
    """Where the size of self-imitation's steps follows a ratio of KL divergences."""
    components: dict[str, Any]
    """States of the learner and of the bonuses, by name."""
    key: Key[Array, "*seeds"]

    @property
    def policy(self) -> Policy:
        return Policy(self.train.params, self.normaliser)

    @property
    def compared(self) -> Policy:
        """The network whose value self-imitation compares returns with."""
        own = self.imitation_value
        return self.policy if own is None else Policy(own.params, self.normaliser)


def act(
    agent: Agent, policy: Policy, observation: Observation, key: PRNGKeyArray
) -> tuple[Shaped[Array, "N ..."], dict[str, Array]]:
    """Sample an action for each environment; also what learner and self-imitation want recorded with it."""
    distribution, value = actor_critic(agent, policy.normaliser)(policy.params, observation)
    action = distribution.sample(key)
    extras = agent.learner.extras(distribution, action, value)
    if agent.self_imitation is not None and agent.self_imitation.temperature > 0:
        extras = {**extras, replay.LOG_PROB: distribution.log_prob(action)}
    return action, extras


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
    state, moved = measure_movement(
        agent, state, rollout, (start, after_learning), (after_learning, state.train.params)
    )
    return state, {**learned, **imitated, **moved}


def update_on_policy(agent: Agent, state: AgentState, rollout: Rollout) -> tuple[AgentState, Metrics]:
    state = update_normaliser(agent, state, rollout)
    state, exploration, explored = explore(agent, state, rollout)
    state = remember(agent, state, rollout)  # finished episodes, without any bonus
    state, learned = learn(agent, state, rollout, exploration)
    state, replayed = learn_off_policy(agent, state)
    return state, {**learned, **replayed, **explored}


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
    if agent.self_imitation is not None and state.buffer is not None:
        state = dataclasses.replace(state, buffer=replay.insert(state.buffer, rollout, agent.self_imitation))
        if state.degree is not None:
            observed = degree.after_rollout(state.degree, rollout, agent.self_imitation)
            state = dataclasses.replace(state, degree=observed)
    if agent.learner.replay is not None and state.learner_buffer is not None:
        stored = replay.insert(state.learner_buffer, agent.learner.to_replay(rollout), agent.learner.replay)
        state = dataclasses.replace(state, learner_buffer=stored)
    return state


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


def learn_off_policy(agent: Agent, state: AgentState) -> tuple[AgentState, Metrics]:
    """Of a learner with a replay buffer: its updates on stored episodes."""
    if state.learner_buffer is None:
        return state, {}
    key, key_learn = jax.random.split(state.key)
    own, train, buffer, metrics = agent.learner.update_off_policy(
        agent.actor_critic,
        agent.optimiser,
        state.components[agent.learner_name],
        state.train,
        state.learner_buffer,
        key_learn,
        _normalise(agent, state),
    )
    components = {**state.components, agent.learner_name: own}
    return dataclasses.replace(state, train=train, learner_buffer=buffer, components=components, key=key), metrics


def imitate(agent: Agent, state: AgentState, updates: int | None = None) -> tuple[AgentState, Metrics]:
    """M self-imitation updates, or another number of them."""
    if agent.self_imitation is None or state.buffer is None:
        return state, {}
    config = agent.self_imitation if updates is None else dataclasses.replace(agent.self_imitation, updates=updates)
    stored = state.buffer
    state, baseline, fitted = update_value(agent, state, config)
    key, key_sample = jax.random.split(state.key)
    now = None if state.degree is None else degree.current(state.degree, config, agent.iterations)
    own, optimiser = agent.imitation_optimiser, agent.imitation_optimiser or agent.optimiser
    before = state.train if own is None else TrainState(state.train.params, state.imitation_optimiser_state)
    after, buffer, metrics = self_imitation.imitate(
        agent.actor_critic, optimiser, before, stored, key_sample, config, _normalise(agent, state), now, baseline
    )
    metrics |= fitted
    if state.strength is not None:
        after = TrainState(strength.scale(state.strength, before.params, after.params), after.optimiser_state)
    if own is None:
        state = dataclasses.replace(state, train=after)
    else:
        train = TrainState(after.params, state.train.optimiser_state)
        state = dataclasses.replace(state, train=train, imitation_optimiser_state=after.optimiser_state)
    state = dataclasses.replace(state, buffer=buffer, key=key)
    metrics["memory_size"] = buffer.size.astype("float32")
    if state.degree is not None and now is not None:
        updated = (now.updates > 0) & (buffer.size > config.learning_starts)
        state = dataclasses.replace(
            state, degree=degree.after_imitation(state.degree, metrics["sil_imitated"], updated)
        )
        metrics |= {"sil_updates": now.updates.astype("float32"), "sil_coef": now.loss_coef}
    return state, metrics


def update_value(
    agent: Agent, state: AgentState, config: SelfImitationConfig
) -> tuple[AgentState, Baseline | None, Metrics]:
    """Train self-imitation's own value, if it has one; also returns it as a function of normalised observations."""
    if agent.value_optimiser is None or state.imitation_value is None or state.buffer is None:
        return state, None, {}
    key, key_sample = jax.random.split(state.key)

    def value_function(params: Params, observation: Observation) -> Float[Array, " batch"]:
        return agent.actor_critic(params, observation)[1]

    fitted, metrics = imitation_value.fit_value(
        value_function,
        agent.value_optimiser,
        state.imitation_value,
        state.buffer,
        key_sample,
        config,
        _normalise(agent, state),
    )
    state = dataclasses.replace(state, imitation_value=fitted, key=key)
    return state, partial(value_function, fitted.params), metrics


def _normalise(agent: Agent, state: AgentState) -> Callable[[Batch], Batch]:
    """What is sampled is stored raw, and normalised by the present statistics."""
    if agent.normaliser is None or state.normaliser is None:
        return lambda batch: batch
    return partial(agent.normaliser.batch, state.normaliser)


def measure_movement(
    agent: Agent, state: AgentState, rollout: Rollout, learner: tuple[Params, Params], imitation: tuple[Params, Params]
) -> tuple[AgentState, Metrics]:
    """With self-imitation: how far it moved the policy, relative to the learner; its next steps follow that where they
    are to keep a ratio. `learner`, `imitation`: parameters before and after.
    """
    if agent.self_imitation is None:
        return state, {}
    metrics = movement.measure(actor_critic(agent, state.normaliser), rollout, learner, imitation)
    if state.strength is None or agent.self_imitation.kl_ratio is None:
        return state, metrics
    moved = metrics["policy_kl"], metrics["sil_kl"]
    adapted = strength.adapt(state.strength, *moved, agent.self_imitation.kl_ratio)
    metrics["sil_step_size"] = adapted.step_size
    return dataclasses.replace(state, strength=adapted), metrics
