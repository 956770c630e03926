"""From a configuration to an agent and the state that it begins in."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, PyTree

from self_imitation import collection, columns, optimisation
from self_imitation import memory as episodic_memory
from self_imitation.algorithm import Agent, Improvement, State
from self_imitation.config import TrainConfig, agent_parts
from self_imitation.environments import catalogue, on_device
from self_imitation.exploration.counts import CountBonus
from self_imitation.improvement.a2c import A2C
from self_imitation.improvement.ppo import PPO
from self_imitation.networks import Network
from self_imitation.normalisation import Normaliser
from self_imitation.types import Environment, Learner, Params, Rollout, Spec


def build(config: TrainConfig, environment: Environment | None = None) -> Agent:
    """The agent that the name `config.agent` spells out, in the named environment or in the one given."""
    if environment is None and catalogue.find(config.env).host_id is not None:
        from self_imitation.environments.host import engines

        spec = engines.inspect(config).spec
    else:
        environment = environment or on_device.make(config.env)
        spec = environment.spec
    parts = agent_parts(config.agent)
    return Agent(
        spec=spec,
        environment=environment,
        actor_critic=partial(Network.__call__, precision=jnp.dtype(config.precision)),
        optimiser=optimisation.create(config.optimiser, _gradient_steps(config, parts)),
        environments=config.envs,
        rollout=config.rollout,
        improvement=_improvement(config, parts[0]),
        imitation=config.sil if "sil" in parts else None,
        exploration=CountBonus(spec, config.exp) if "exp" in parts else None,
        normaliser=_normaliser(config, spec, parts[0]),
    )


def _gradient_steps(config: TrainConfig, parts: tuple[str, ...]) -> int:
    """Of one seed, in the whole run."""
    on_policy = config.ppo.epochs * config.ppo.minibatches if parts[0] == "ppo" else 1
    return config.iterations * (on_policy + (config.sil.updates if "sil" in parts else 0))


def _improvement(config: TrainConfig, base: str) -> Improvement:
    bootstrap = config.time_limit == "bootstrap"
    return PPO(config.ppo, bootstrap) if base == "ppo" else A2C(config.a2c, bootstrap)


def _normaliser(config: TrainConfig, spec: Spec, base: str) -> Normaliser | None:
    """Pixels and categories have scales of their own: only numbers are normalised."""
    observations = config.normalise.observations and spec.observation_kind == "numbers"
    if not observations and not config.normalise.rewards:
        return None
    discount = config.ppo.discount if base == "ppo" else config.a2c.discount
    return Normaliser(observations, config.normalise.rewards, config.normalise.clip, discount, spec, config.envs)


def initial_params(config: TrainConfig, agent: Agent, seed: int) -> Params:
    return Network(agent.spec, config.network, np.random.default_rng(seed))


def begin(agent: Agent, params: Params, seed: Integer[Array, ""]) -> State:
    """How a seed starts, with these parameters. Can be traced: with the seeds as an axis, or for its shapes alone."""
    key, key_acting = jax.random.split(jax.random.key(seed))
    acting = None
    if agent.environment is not None:
        acting = collection.begin(agent.environment, agent.environments, key_acting)
    memory = None
    if agent.imitation is not None:
        shape = rollout_shape(agent, params, acting)
        memory = episodic_memory.create(shape, agent.imitation, _room(agent), agent.spec.stack)
    exploration = None if agent.exploration is None else agent.exploration.create()
    scales = None if agent.normaliser is None else agent.normaliser.create()
    return State(Learner(params, agent.optimiser.init(params)), scales, acting, memory, exploration, key)


def _room(agent: Agent) -> int:
    """Steps that the memory keeps of an unfinished episode: a whole one, or where nothing limits its length or frames
    would take too much room, as many as make the environments together wait for no more than the memory holds.
    """
    assert agent.imitation is not None
    share = max(agent.spec.stack, agent.imitation.capacity // agent.environments)
    longest = agent.spec.max_episode_steps or share
    return longest if agent.spec.stack == 1 else min(longest, share)


def rollout_shape(agent: Agent, params: Params, acting: PyTree) -> Rollout:
    """Shapes and types of the agent's rollouts, without acting."""
    if agent.environment is None:
        of_host = columns.shapes(agent.spec, (agent.rollout, agent.environments))
        return jax.eval_shape(type(of_host).on_device, of_host)
    environment = agent.environment
    _, rollout = jax.eval_shape(
        lambda params, acting: collection.collect_on_device(
            environment, agent.actor_critic, params, acting, agent.rollout, jax.random.key(0)
        ),
        params,
        acting,
    )
    return rollout
