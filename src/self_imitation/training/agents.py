"""From the settings of a run to its agent and to the state that a seed begins with."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Integer

from self_imitation import registry
from self_imitation.algorithm import degree, lower_bounds, strength
from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.components import Agent, Learner
from self_imitation.algorithm.degree import ARMS
from self_imitation.algorithm.iteration import AgentState
from self_imitation.algorithm.normalisation import Normaliser
from self_imitation.config import TrainConfig
from self_imitation.networks import actor_critic, checks
from self_imitation.networks.actor_critic import Network
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import ReplayBuffer
from self_imitation.settings import ReplayConfig, SelfImitationConfig
from self_imitation.types import Params, Rollout, Spec, TrainState


def build(config: TrainConfig, spec: Spec) -> Agent:
    """The agent that `config.agent` names, for environments with this spec."""
    parts = config.parts
    learner: Learner = registry.learners()[parts.learner].component(
        config.components[parts.learner], config.time_limit == "bootstrap"
    )
    learner.check_spec(spec)
    bonuses = {name: registry.bonuses()[name].component(config.components[name], spec) for name in parts.bonuses}
    own_optimiser = parts.self_imitation and config.sil.optimiser == "own"
    shares = parts.self_imitation and not own_optimiser
    imitations = _updates_per_iteration(config.sil) if parts.self_imitation else 0
    gradient_steps = learner.gradient_steps + (imitations if shares else 0)
    return Agent(
        spec=spec,
        actor_critic=partial(_call, precision=jnp.dtype(config.precision)),
        optimiser=optimisers.create(config.optimiser, round(config.iterations * gradient_steps)),
        imitation_optimiser=_own_optimiser(config) if own_optimiser else None,
        value_optimiser=_value_optimiser(config),
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        iterations=config.iterations,
        learner_name=parts.learner,
        learner=learner,
        bonuses=bonuses,
        self_imitation=_self_imitation(config, learner.config.gamma) if parts.self_imitation else None,
        normaliser=_normaliser(config, spec, learner.config.gamma),
        recorded_extras=(replay.REWARD, replay.STEPS_LEFT) if config.record else (),
    )


def _self_imitation(config: TrainConfig, gamma: float) -> SelfImitationConfig:
    """R means the same as V: by default the learner's discount, and time limits end both or neither."""
    return dataclasses.replace(
        config.sil,
        gamma=gamma if config.sil.gamma is None else config.sil.gamma,
        truncated_returns="as-is" if config.time_limit == "terminal" else config.sil.truncated_returns,
    )


def _own_optimiser(config: TrainConfig) -> optax.GradientTransformation:
    learning_rate = config.sil.learning_rate or config.optimiser.learning_rate
    own = dataclasses.replace(config.optimiser, learning_rate=learning_rate)
    return optimisers.create(own, round(config.iterations * _updates_per_iteration(config.sil)))


def _value_optimiser(config: TrainConfig) -> optax.GradientTransformation | None:
    if not config.parts.self_imitation or config.sil.value == "shared":
        return None
    return optax.adam(config.sil.value_learning_rate)


def _updates_per_iteration(config: SelfImitationConfig) -> float:
    """Mean number of self-imitation updates, over which a linear learning rate decays; of a bandit, its arms' mean."""
    means = {"constant": config.updates, "linear": config.updates / 2, "bandit": sum(ARMS) / len(ARMS)}
    return means[config.updates_schedule]


def _call(network: Any, observation: Any, precision: np.dtype) -> Any:
    return network(observation) if precision == jnp.float32 else network(observation, precision)


def _normaliser(config: TrainConfig, spec: Spec, gamma: float) -> Normaliser | None:
    """Pixels and categories have a scale of their own: only numbers are normalised."""
    has_numbers = spec.observation_kind == "numbers" or spec.numbers_beside_image > 0
    observations = config.normalise.observations and has_numbers
    if not observations and not config.normalise.rewards:
        return None
    return Normaliser(observations, config.normalise.rewards, config.normalise.clip, gamma, spec, config.num_envs)


def initial_params(config: TrainConfig, agent: Agent, seed: int) -> Params:
    generator = np.random.default_rng(seed)
    params = actor_critic.create(agent.spec, config.network, generator, agent.learner.action_values)
    if type(params) is not Network:
        checks.require_usable(params, config.network.kind, agent.spec, config.precision)
    return params


def initial_value(config: TrainConfig, agent: Agent, seed: int) -> Params | None:
    """Parameters of self-imitation's own value: a network like that of the policy, of which only the value is used."""
    if agent.value_optimiser is None:
        return None
    generator = np.random.default_rng((seed, 1))
    network = dataclasses.replace(config.network, shared=True)  # a body for a policy would be wasted
    return actor_critic.create(agent.spec, network, generator)


def initial_components(agent: Agent, params: Params, seed: int) -> dict[str, Any]:
    """States of the learner and the bonuses. Not traced: networks are initialised with NumPy."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), 1 + len(agent.bonuses))
    states = {agent.learner_name: agent.learner.init(keys[0], agent.spec, params)}
    for key, (name, bonus) in zip(keys[1:], agent.bonuses.items(), strict=True):
        states[name] = bonus.init(key, agent.num_envs)
    return states


def initial_state(
    agent: Agent,
    params: Params,
    value_params: Params | None,
    components: dict[str, Any],
    seed: Integer[Array, ""],
    like: Rollout,
) -> AgentState:
    """How a seed begins. Can be traced, with seeds as an axis. `like`: shapes of one seed's rollouts."""
    buffer = learner_buffer = degree_state = strength_state = None
    if agent.self_imitation is not None:
        extras = dict.fromkeys((*lower_bounds.replay_extras(agent.self_imitation), *agent.recorded_extras))
        buffer = _empty_buffer(agent, like, agent.self_imitation, tuple(extras))
        degree_state = degree.init(agent.self_imitation)
        strength_state = None if agent.self_imitation.kl_ratio is None else strength.init()
    if agent.learner.replay is not None:
        shapes = jax.eval_shape(agent.learner.to_replay, like)
        learner_buffer = _empty_buffer(agent, shapes, agent.learner.replay, agent.learner.replay_extras)
    normaliser = None if agent.normaliser is None else agent.normaliser.init()
    train = TrainState(params, agent.optimiser.init(params))
    own = agent.imitation_optimiser
    own_state = None if own is None else own.init(params)
    value = None
    if agent.value_optimiser is not None:
        value = TrainState(value_params, agent.value_optimiser.init(value_params))
    return AgentState(
        train=train,
        imitation_optimiser_state=own_state,
        imitation_value=value,
        normaliser=normaliser,
        buffer=buffer,
        learner_buffer=learner_buffer,
        degree=degree_state,
        strength=strength_state,
        components=components,
        key=jax.random.key(seed),
    )


def _empty_buffer(agent: Agent, like: Rollout, config: ReplayConfig, extras: tuple[str, ...]) -> ReplayBuffer:
    """An unfinished episode waits as a whole; without a time limit, or with images, the environments share the size of
    the replay buffer.
    """
    share = max(agent.spec.stack, config.buffer_size // agent.num_envs)
    longest = agent.spec.max_episode_steps or share
    max_pending_steps = min(longest, share) if agent.spec.observation_kind == "image" else longest
    return replay.create(like, config, max_pending_steps, agent.spec.stack, extras)
