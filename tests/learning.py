"""Agents that learn on probes, where the answer is known. The discount is 1/2, so that values settle soon.

They are built from the parts of Algorithm 1 alone, with a collector of a few lines, so that a failure points at the
algorithm and not at the runtime.
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from self_imitation import registry
from self_imitation.algorithm import degree, iteration, lower_bounds, strength
from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.a2c import A2CConfig
from self_imitation.algorithm.acer import ACERConfig, ACPERConfig
from self_imitation.algorithm.components import Agent, Learner
from self_imitation.algorithm.iteration import AgentState
from self_imitation.algorithm.normalisation import Normaliser
from self_imitation.algorithm.ppo import PPOConfig
from self_imitation.algorithm.vtrace import VTraceConfig
from self_imitation.arrays import select
from self_imitation.networks.actor_critic import Network
from self_imitation.replay import buffer as replay
from self_imitation.settings import NetworkConfig, NormaliseConfig, OptimiserConfig, SelfImitationConfig
from self_imitation.types import Rollout, TrainState

NUM_ENVS, NUM_STEPS, ITERATIONS = 8, 4, 600
NETWORK = NetworkConfig(hidden=(16,))
OPTIMISER = OptimiserConfig(learning_rate=0.01)
CONFIGS = {
    "a2c": A2CConfig(gamma=0.5),
    "vtrace": VTraceConfig(gamma=0.5),
    "acer": ACERConfig(gamma=0.5, segment_steps=4, learning_starts=20, buffer_size=1000),
    "acper": ACPERConfig(gamma=0.5, segment_steps=4, learning_starts=20, buffer_size=1000),
    "ppo": PPOConfig(gamma=0.5, ent_coef=0.01, num_minibatches=2, update_epochs=4),
}
PAPER = SelfImitationConfig()
AUTHORS = SelfImitationConfig(
    max_advantage=1.0,
    average="imitated",
    vf_coef=0.005,
    ent_coef=0.01,
    max_neg_log_prob=5.0,
    keep="positive",
)
"""Self-imitation as in the authors' code."""
SIL = dataclasses.replace(AUTHORS, batch_size=64, buffer_size=1000)


class NoLearning(Learner):
    """Leaves learning to self-imitation."""

    Config = A2CConfig

    def update(self, actor_critic, optimiser, state, train_state, rollout, exploration, key):
        return state, train_state, {}


def build(
    environment,
    name="a2c",
    *,
    bootstrap=False,
    sil=SIL,
    normalise=None,
    learner=None,
    bonuses=None,
    actor_critic=Network.__call__,
    imitation_optimiser=None,
    **configs,
) -> Agent:
    """The agent of this name for a probe; `a2c=A2CConfig(...)` replaces the settings of a component."""
    parts, entries, spec = registry.parse_agent(name), registry.components(), environment.spec
    config = configs.get(parts.learner, CONFIGS[parts.learner])
    normalise = NormaliseConfig() if normalise is None else normalise
    normaliser = Normaliser(
        normalise.observations, normalise.rewards, normalise.clip, config.gamma, spec, num_envs=NUM_ENVS
    )
    if bonuses is None:
        bonuses = {
            bonus: entries[bonus].component(configs.get(bonus, entries[bonus].component.Config()), spec)
            for bonus in parts.bonuses
        }
    return Agent(
        spec=spec,
        actor_critic=actor_critic,
        optimiser=optimisers.create(OPTIMISER, 1),
        imitation_optimiser=imitation_optimiser,
        value_optimiser=optax.adam(0.01) if parts.self_imitation and sil.value == "own" else None,
        num_envs=NUM_ENVS,
        num_steps=NUM_STEPS,
        iterations=ITERATIONS,
        learner_name=parts.learner,
        learner=learner or entries[parts.learner].component(config, bootstrap),
        bonuses=bonuses,
        self_imitation=sil if parts.self_imitation else None,
        normaliser=normaliser if normalise.observations or normalise.rewards else None,
    )


class Envs(eqx.Module):
    """Where the environments of a seed are."""

    state: Any
    key: jax.Array
    episode_return: jax.Array
    episode_length: jax.Array


class Training(eqx.Module):
    agent: AgentState
    envs: Envs


def begin(environment, agent, seed=0) -> Training:
    params = Network(agent.spec, NETWORK, np.random.default_rng(seed), agent.learner.action_values)
    key, key_envs, key_learner, key_bonus = jax.random.split(jax.random.key(seed), 4)
    keys = jax.random.split(key_envs, NUM_ENVS + 1)
    zeros = jnp.zeros(NUM_ENVS)
    envs = Envs(jax.vmap(environment.reset)(keys[1:]), keys[0], zeros, zeros.astype(jnp.int32))
    normaliser = None if agent.normaliser is None else agent.normaliser.init()
    components = {name: bonus.init(key_bonus, NUM_ENVS) for name, bonus in agent.bonuses.items()}
    components[agent.learner_name] = agent.learner.init(key_learner, agent.spec, params)
    train, own = TrainState(params, agent.optimiser.init(params)), agent.imitation_optimiser
    value = None
    if agent.value_optimiser is not None:
        value_params = Network(agent.spec, NETWORK, np.random.default_rng((seed, 1)))
        value = TrainState(value_params, agent.value_optimiser.init(value_params))
    state = AgentState(train, own and own.init(params), value, normaliser, None, None, None, None, components, key)
    like, limit = jax.eval_shape(partial(collect, environment, agent), state, envs)[2], agent.spec.max_episode_steps
    if agent.self_imitation is not None:
        extras = lower_bounds.replay_extras(agent.self_imitation)
        buffer = replay.create(like, agent.self_imitation, limit, extras=extras)
        follows = None if agent.self_imitation.kl_ratio is None else strength.init()
        state = dataclasses.replace(state, buffer=buffer, degree=degree.init(agent.self_imitation), strength=follows)
    if agent.learner.replay is not None:
        like = jax.eval_shape(agent.learner.to_replay, like)
        buffer = replay.create(like, agent.learner.replay, limit, extras=agent.learner.replay_extras)
        state = dataclasses.replace(state, learner_buffer=buffer)
    return Training(state, envs)


def collect(environment, agent, state, envs) -> tuple[AgentState, Envs, Rollout]:
    """A rollout in environments that reset themselves in the step that ends an episode."""
    key_state, key_act = jax.random.split(state.key)

    def step(envs, key):
        observation = jax.vmap(environment.observe)(envs.state)
        action, extras = iteration.act(agent, state.policy, observation, key)
        result = jax.vmap(environment.step)(envs.state, action)
        ended = result.terminated | result.truncated
        key_reset, key_next = jax.random.split(envs.key)
        fresh = jax.vmap(environment.reset)(jax.random.split(key_reset, NUM_ENVS))
        total, length = envs.episode_return + result.reward, envs.episode_length + 1
        after = Envs(
            select(ended, fresh, result.state), key_next, jnp.where(ended, 0, total), jnp.where(ended, 0, length)
        )
        ends = result.terminated, result.truncated
        return after, (observation, action, result.reward, *ends, result.observation, total, length, extras)

    envs, rows = jax.lax.scan(step, envs, jax.random.split(key_act, NUM_STEPS))
    observation, action, reward, terminated, truncated, following, total, length, extras = rows
    last = jax.vmap(environment.observe)(envs.state)
    rollout = Rollout(observation, action, reward, terminated, truncated, None, following, last, total, length, extras)
    return dataclasses.replace(state, key=key_state), envs, rollout


def iterate(environment, agent, training) -> tuple[Training, Rollout, dict]:
    """One pass of Algorithm 1."""
    state, envs, rollout = collect(environment, agent, training.agent, training.envs)
    state, metrics = iteration.update(agent, state, rollout)
    return Training(state, envs), rollout, metrics


def compiled_iteration(environment, agent):
    return jax.jit(partial(iterate, environment, agent))


def trainer(environment, agent):
    """Compiled once for any number of iterations."""

    @jax.jit
    def train(training, iterations):
        return jax.lax.fori_loop(0, iterations, lambda _, t: iterate(environment, agent, t)[0], training)

    return train


def policy_and_value(agent, training, observations):
    """Distribution and values at these raw observations."""
    state = training.agent
    observations = jnp.asarray(np.asarray(observations, np.float32))
    distribution, value = iteration.actor_critic(agent, state.normaliser)(state.train.params, observations)
    return distribution, np.asarray(value)


def learnt(environment, observations, name="a2c", iterations=600, **options):
    """Values and probabilities of action 1 after training."""
    agent = build(environment, name, **options)
    training = trainer(environment, agent)(begin(environment, agent), iterations)
    distribution, value = policy_and_value(agent, training, observations)
    return value, np.exp(distribution.log_prob(jnp.ones(len(value), jnp.int32)))
