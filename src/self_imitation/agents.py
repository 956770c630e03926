"""From a configuration to an agent and the state that it begins in."""

import jax
import numpy as np
from jaxtyping import Array, Integer, PyTree

from self_imitation import collection, optimisation
from self_imitation import memory as episodic_memory
from self_imitation.algorithm import Agent, State
from self_imitation.config import TrainConfig, agent_parts
from self_imitation.environments import on_device
from self_imitation.exploration.counts import CountBonus
from self_imitation.improvement.a2c import A2C
from self_imitation.networks import MLP
from self_imitation.types import Environment, Learner, Params, Rollout


def build(config: TrainConfig, environment: Environment | None = None) -> Agent:
    """The agent that the name `config.agent` spells out, in the named environment or in the one given."""
    environment = environment or on_device.make(config.env)
    parts = agent_parts(config.agent)
    return Agent(
        environment=environment,
        actor_critic=MLP.__call__,
        optimiser=optimisation.create(config.optimiser),
        environments=config.envs,
        rollout=config.rollout,
        improvement=A2C(config.a2c, bootstrap_time_limits=config.time_limit == "bootstrap"),
        imitation=config.sil if "sil" in parts else None,
        exploration=CountBonus(environment.spec, config.exp) if "exp" in parts else None,
    )


def initial_params(config: TrainConfig, agent: Agent, seed: int) -> Params:
    return MLP(agent.environment.spec, config.network, np.random.default_rng(seed))


def begin(agent: Agent, params: Params, seed: Integer[Array, ""]) -> State:
    """How a seed starts, with these parameters. Can be traced: with the seeds as an axis, or for its shapes alone."""
    key, key_acting = jax.random.split(jax.random.key(seed))
    acting = collection.begin(agent.environment, agent.environments, key_acting)
    memory = None
    if agent.imitation is not None:
        room = agent.environment.spec.max_episode_steps
        memory = episodic_memory.create(rollout_shape(agent, params, acting), agent.imitation, room)
    exploration = None if agent.exploration is None else agent.exploration.create()
    return State(Learner(params, agent.optimiser.init(params)), acting, memory, exploration, key)


def rollout_shape(agent: Agent, params: Params, acting: PyTree) -> Rollout:
    """Shapes and types of the agent's rollouts, without acting."""
    _, rollout = jax.eval_shape(
        lambda params, acting: collection.collect_on_device(
            agent.environment, agent.actor_critic, params, acting, agent.rollout, jax.random.key(0)
        ),
        params,
        acting,
    )
    return rollout
