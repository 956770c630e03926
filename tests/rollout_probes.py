"""Collectors with a policy that the test chooses, and environments that reset like the engines: in the next step."""

import dataclasses

import jax
import jax.numpy as jnp

from self_imitation.algorithm.iteration import Policy
from self_imitation.config import resolve
from self_imitation.environments.batched import PureJax, StepResult
from self_imitation.environments.xla.engine import EngineState, FlatStep, to_result
from self_imitation.rollout.in_program import Collector
from self_imitation.training import agents


def collector_with(environment, act, seeds, **options):
    """Also policies without parameters."""
    agent = agents.build(resolve("gym:Any-v0", "authors", {"agent": "a2c"}), environment.spec)
    return Collector(agent, environment, act=act, **options), Policy(jnp.zeros(seeds), None)


class ResetsInNextStep:
    """A pure-JAX environment with the reset semantics of EnvPool and ale-py."""

    can_be_saved = False
    can_be_shared = False

    def __init__(self, environment, num_envs):
        self.inner = PureJax(environment, num_envs)
        self.environment, self.spec = environment, environment.spec

    def reset(self, key):
        state, observation = self.inner.reset(key)
        ended = jnp.zeros(jax.tree.leaves(observation)[0].shape[:2], bool)
        return (state, EngineState(jnp.zeros(8, jnp.uint8), ended)), observation

    def send(self, state, action):
        return state, action

    def recv(self, request, key):
        (state, engine), action = request
        fresh_state, fresh = self.inner.reset(key)
        step = jax.vmap(jax.vmap(self.environment.step))(state, action)

        def choose(new, old):
            return jnp.where(engine.ended.reshape(*engine.ended.shape, *(1,) * (new.ndim - 2)), new, old)

        state = jax.tree.map(choose, fresh_state, step.state)
        observation = jax.tree.map(choose, fresh, step.observation)
        flat = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in (observation, step.reward, step.terminated)]
        engine, result = to_result(engine.handle, engine.ended, FlatStep(*flat, step.truncated.reshape(-1)))
        assert isinstance(result, StepResult)
        return (state, dataclasses.replace(engine)), result

    def close(self):
        pass
