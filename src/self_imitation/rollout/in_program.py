"""Rollouts inside the compiled program, for pure-JAX environments and for engines with an XLA interface.

The environments of all seeds of a group are one batch [K, N]; acting is `vmap`ped over the seeds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from self_imitation.algorithm import iteration
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy
from self_imitation.environments.batched import BatchedEnvironment
from self_imitation.rollout.episodes import EpisodeTracker, track
from self_imitation.types import Observation, Rollout


class Collection(eqx.Module):
    """Where the environments of a group of seeds stand."""

    environment: Any
    """The state of the `BatchedEnvironment`."""
    observation: Observation
    """What the policy sees next, [K, N, ...]."""
    episodes: EpisodeTracker


class InFlight(eqx.Module):
    """A step that environments have started."""

    request: Any
    """What `BatchedEnvironment.recv` needs."""
    columns: dict[str, Any]
    """Observation, action and extras of the step."""
    episodes: EpisodeTracker
    key: Key[Array, " K"]


def begin(environment: BatchedEnvironment, key: Key[Array, " K"], num_envs: int) -> Collection:
    state, observation = environment.reset(key)
    return Collection(state, observation, EpisodeTracker.create((len(key), num_envs)))


class Collector:
    """Collects rollouts [K, T, N] in a group's environments."""

    def __init__(
        self,
        agent: Agent,
        environment: BatchedEnvironment,
        delay: int = 1,
        sign: bool = False,
        act: Callable = iteration.act,
    ):
        """`delay`, `sign`: see `track`. `act`: how one seed acts."""
        self.environment, self.delay, self.sign = environment, delay, sign
        self._act = jax.vmap(partial(act, agent))

    def collect(
        self, policies: Policy, collection: Collection, key: Key[Array, " K"], steps: int
    ) -> tuple[Collection, Rollout]:
        """Act for some steps in every environment."""

        def step(collection: Collection, keys: Key[Array, "2 K"]) -> tuple[Collection, dict[str, Any]]:
            request, columns = self._send(policies, collection, keys[0])
            return self._recv(collection.episodes, request, columns, keys[1])

        collection, columns = jax.lax.scan(step, collection, self._step_keys(key, steps))
        return collection, seeds_first(columns, collection.observation)

    def step_in_flight(self, policies: Policy, flight: "InFlight") -> tuple["InFlight", dict[str, Any]]:
        """Finish the step that is under way, act, and start the next one; returns the row of the finished step.

        What the device computes between two such calls overlaps with the environments.
        """
        key, key_act, key_reset = jnp.moveaxis(jax.vmap(lambda k: jax.random.split(k, 3))(flight.key), 1, 0)
        collection, row = self._recv(flight.episodes, flight.request, flight.columns, key_reset)
        request, columns = self._send(policies, collection, key_act)
        return InFlight(request, columns, collection.episodes, key), row

    def _step_keys(self, key: Key[Array, " K"], steps: int) -> Key[Array, "T 2 K"]:
        """Keys to act and to reset with, of each step."""
        return jax.vmap(lambda k: jax.random.split(k, (steps, 2)), out_axes=2)(key)

    def _send(self, policies: Policy, collection: Collection, key: Key[Array, " K"]) -> tuple[Any, dict[str, Any]]:
        action, extras = self._act(policies, collection.observation, key)
        columns = {"observation": collection.observation, "action": action, "extras": extras}
        return self.environment.send(collection.environment, action), columns

    def _recv(
        self, episodes: EpisodeTracker, request: Any, columns: dict[str, Any], key: Key[Array, " K"]
    ) -> tuple[Collection, dict[str, Any]]:
        environment, result = self.environment.recv(request, key)
        ended = result.terminated | result.truncated
        episodes, tracked = track(episodes, result.reward, ended, result.valid, self.delay, self.sign)
        row = {
            **columns,
            "reward": tracked.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "valid": result.valid,
            "next_observation": result.next_observation,
            "episode_return": tracked.episode_return,
            "episode_length": tracked.episode_length,
        }
        return Collection(environment, result.observation, episodes), row


def seeds_first(columns: dict[str, Any], last_observation: Observation) -> Rollout:
    """From rows [T, K, N, ...] to a rollout [K, T, N, ...]."""
    by_seed = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), columns)
    return Rollout(**by_seed, last_observation=last_observation)
