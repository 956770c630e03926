"""Algorithm 1, on one page: collect, explore, remember, improve, imitate."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from self_imitation import collection, imitation
from self_imitation import memory as episodic_memory
from self_imitation.collection import Acting
from self_imitation.config import SelfImitationConfig
from self_imitation.memory import Batch, Memory
from self_imitation.normalisation import Normaliser, Scales
from self_imitation.types import ActorCritic, Environment, Learner, Metrics, Rollout, Spec


@runtime_checkable
class Improvement(Protocol):
    """A way to learn from on-policy experience: A2C, PPO ..."""

    def improve(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        learner: Learner,
        rollout: Rollout,
        bonus: Float[Array, "T N"] | None,
        key: PRNGKeyArray,
    ) -> tuple[Learner, Metrics]: ...


@runtime_checkable
class Exploration(Protocol):
    """A bonus for what is new, with a state of its own."""

    def create(self) -> Any: ...
    def bonus(self, state: Any, rollout: Rollout) -> tuple[Any, Float[Array, "T N"]]: ...


@dataclass(frozen=True)
class Agent:
    """What an agent is made of. The parts know nothing of each other."""

    spec: Spec
    environment: Environment | None
    """Its functions on the device. None: it runs on the host, which collects the rollouts."""
    actor_critic: ActorCritic
    optimiser: optax.GradientTransformation
    environments: int
    rollout: int
    improvement: Improvement
    imitation: SelfImitationConfig | None
    exploration: Exploration | None
    normaliser: Normaliser | None


class State(eqx.Module):
    """All that changes while one seed trains."""

    learner: Learner
    scales: Scales | None
    """Running statistics, where observations or rewards are normalised."""
    acting: Acting | None
    """Where the environments on the device stand."""
    memory: Memory | None
    exploration: Any
    key: PRNGKeyArray


def iteration(agent: Agent, state: State) -> tuple[State, Rollout, Metrics]:
    """One pass of Algorithm 1."""
    state, rollout = collect(agent, state)  # act on policy
    state, metrics = learn(agent, state, rollout)
    return state, rollout, metrics


def learn(agent: Agent, state: State, rollout: Rollout, ends: bool = True) -> tuple[State, Metrics]:
    """All that follows on acting, wherever that took place. `ends`: whether an episode may have ended meanwhile."""
    state, learned = learn_on_policy(agent, state, rollout, ends)
    state, copied = imitate(agent, state)  # M times
    return state, {**learned, **copied}


def learn_on_policy(agent: Agent, state: State, rollout: Rollout, ends: bool = True) -> tuple[State, Metrics]:
    """`ends`: whether an episode may have ended in the rollout."""
    state = adjust(agent, state, rollout)  # the running normalisation, if the agent wants it
    state, bonus = explore(agent, state, rollout)  # novelty, if the agent wants it
    state = remember(agent, state, rollout, ends)  # finished episodes, environment reward only
    state, learned = improve(agent, state, rollout, bonus)
    novelty = {} if bonus is None else {"bonus": bonus.mean()}
    return state, {**learned, **novelty}


def collect(agent: Agent, state: State) -> tuple[State, Rollout]:
    assert agent.environment is not None
    assert state.acting is not None
    key, key_act = jax.random.split(state.key)
    acting, rollout = collection.collect_on_device(
        agent.environment, seeing(agent, state.scales), state.learner.params, state.acting, agent.rollout, key_act
    )
    return eqx.tree_at(lambda s: (s.acting, s.key), state, (acting, key)), rollout


def seeing(agent: Agent, scales: Scales | None) -> ActorCritic:
    """The actor-critic as a function of raw observations."""
    if agent.normaliser is None or scales is None:
        return agent.actor_critic
    return agent.normaliser.seeing(agent.actor_critic, scales)


def adjust(agent: Agent, state: State, rollout: Rollout) -> State:
    if agent.normaliser is None or state.scales is None:
        return state
    return eqx.tree_at(lambda s: s.scales, state, agent.normaliser.update(state.scales, rollout))


def explore(agent: Agent, state: State, rollout: Rollout) -> tuple[State, Float[Array, "T N"] | None]:
    if agent.exploration is None:
        return state, None
    exploration, bonus = agent.exploration.bonus(state.exploration, rollout)
    return eqx.tree_at(lambda s: s.exploration, state, exploration), bonus


def remember(agent: Agent, state: State, rollout: Rollout, ends: bool = True) -> State:
    if agent.imitation is None or state.memory is None:
        return state
    memory = episodic_memory.remember(state.memory, rollout, agent.imitation, ends)
    return eqx.tree_at(lambda s: s.memory, state, memory)


def improve(agent: Agent, state: State, rollout: Rollout, bonus: Float[Array, "T N"] | None) -> tuple[State, Metrics]:
    if agent.normaliser is not None and state.scales is not None:
        rollout = agent.normaliser.rollout(state.scales, rollout)
    key, key_improve = jax.random.split(state.key)
    learner, metrics = agent.improvement.improve(
        agent.actor_critic, agent.optimiser, state.learner, rollout, bonus, key_improve
    )
    return eqx.tree_at(lambda s: (s.learner, s.key), state, (learner, key)), metrics


def imitate(agent: Agent, state: State, updates: int | None = None) -> tuple[State, Metrics]:
    """M updates, or another number of them."""
    if agent.imitation is None or state.memory is None:
        return state, {}
    config = agent.imitation if updates is None else dataclasses.replace(agent.imitation, updates=updates)
    key, key_draw = jax.random.split(state.key)
    learner, memory, metrics = imitation.imitate(
        agent.actor_critic, agent.optimiser, state.learner, state.memory, key_draw, config, _batches_seen(agent, state)
    )
    state = eqx.tree_at(lambda s: (s.learner, s.memory, s.key), state, (learner, memory, key))
    return state, {**metrics, "memory_size": memory.size.astype("float32")}


def imitate_batch(agent: Agent, state: State, batch: Batch) -> tuple[State, Float[Array, " batch"], Metrics]:
    """One update with a batch from a memory that is elsewhere; also (R - V)+ of each item."""
    assert agent.imitation is not None
    seen = _batches_seen(agent, state)
    learned, advantage, metrics = imitation.step(
        agent.actor_critic, agent.optimiser, state.learner, seen(batch), agent.imitation
    )
    learner = jax.tree.map(lambda new, old: jnp.where(jnp.any(batch.weight > 0), new, old), learned, state.learner)
    return eqx.tree_at(lambda s: s.learner, state, learner), advantage, metrics


def _batches_seen(agent: Agent, state: State) -> Callable[[Batch], Batch]:
    """From what the memory holds to what the actor-critic sees."""
    if agent.normaliser is None or state.scales is None:
        return lambda batch: batch
    return partial(agent.normaliser.batch, state.scales)
