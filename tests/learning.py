"""Agents that learn on probes, where the answer is known. The discount is 1/2, so that values settle soon."""

import jax
import jax.numpy as jnp
import numpy as np

from self_imitation import agents, algorithm
from self_imitation.config import resolve


def probe_config(**overrides):
    """Small and fast; `sil__batch=8` stands for `sil.batch`."""
    return resolve(
        "key-door-treasure",
        "authors",
        {
            "agent": "a2c",
            "envs": 8,
            "rollout": 4,
            "network.hidden": (16,),
            "optimiser.learning_rate": 0.01,
            "a2c.discount": 0.5,
            "a2c.entropy_weight": 0.01,
            "ppo.discount": 0.5,
            "ppo.entropy_weight": 0.01,
            "ppo.minibatches": 2,
            "ppo.epochs": 4,
            "sil.batch": 64,
            "sil.capacity": 1000,
            **{name.replace("__", "."): value for name, value in overrides.items()},
        },
    )


def begin(config, agent, seed=0):
    return agents.begin(agent, agents.initial_params(config, agent, seed), jnp.int32(seed))


def trainer(agent):
    """Compiled once for any number of iterations."""
    return jax.jit(
        lambda state, iterations: jax.lax.fori_loop(
            0, iterations, lambda _, state: algorithm.iteration(agent, state)[0], state
        )
    )


def shown(agent, state, observations):
    """Values of these observations, and the probability of action 1."""
    distribution, value = algorithm.seeing(agent, state.scales)(
        state.learner.params, jnp.array(observations, jnp.float32)
    )
    return np.asarray(value), np.asarray(jnp.exp(distribution.log_prob(jnp.ones(len(observations), jnp.int32))))


def learnt(environment, observations, iterations=600, **overrides):
    """Values and probabilities of action 1 after training."""
    config = probe_config(**overrides)
    agent = agents.build(config, environment=environment)
    return shown(agent, trainer(agent)(begin(config, agent), iterations), observations)


class NoImprovement:
    """Leaves learning to self-imitation."""

    def improve(self, actor_critic, optimiser, learner, rollout, bonus, key):
        return learner, {}
