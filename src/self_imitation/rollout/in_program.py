"""Rollouts inside the compiled program, for pure-JAX environments and for engines with an XLA interface.

The environments of all seeds of a group are one batch [K, N]; acting is `vmap`ped over the seeds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from self_imitation.algorithm import iteration
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy
from self_imitation.environments.batched import BatchedEnvironment
from self_imitation.rollout.episodes import EpisodeTracker, track
from self_imitation.types import Observation, Rollout, SeedMetrics

S = TypeVar("S")
Work: TypeAlias = Callable[[S], tuple[S, SeedMetrics]]
"""What is computed while environments step: from a state to the next one and metrics."""


class Collection(eqx.Module):
    """Where the environments of a group of seeds stand."""

    environment: Any
    """The state of the `BatchedEnvironment`."""
    observation: Observation
    """What the policy sees next, [K, N, ...]."""
    episodes: EpisodeTracker


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
        return collection, _seeds_first(columns, collection)

    def collect_while(
        self,
        policies: Policy,
        collection: Collection,
        key: Key[Array, " K"],
        steps: int,
        first: Work,
        later: Work,
        state: S,
    ) -> tuple[Collection, Rollout, S, tuple[SeedMetrics, SeedMetrics]]:
        """The same, with `first` and then `later`, once per step, computed while the engine's threads make the steps.

        Also returns the metrics of `first`, and those of `later`, averaged. On a GPU the order of operations in the
        program decides what overlaps: send, then the kernels of the work, then recv, which makes the host wait. The
        barriers keep that order.
        """

        def step(work: Work, carry: tuple[Collection, S], keys: Key[Array, "2 K"]) -> tuple:
            collection, state = carry
            request, columns = self._send(policies, collection, keys[0])
            request, state = jax.lax.optimization_barrier((request, state))
            state, metrics = work(state)
            request, state = jax.lax.optimization_barrier((request, state))
            collection, row = self._recv(collection.episodes, request, columns, keys[1])
            return (collection, state), (row, metrics)

        keys = self._step_keys(key, steps)
        carry, (row, first_metrics) = step(first, (collection, state), keys[0])
        rows: tuple[dict[str, Any], SeedMetrics]
        (collection, state), rows = jax.lax.scan(partial(step, later), carry, keys[1:])
        columns = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), row, rows[0])
        mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), rows[1])
        return collection, _seeds_first(columns, collection), state, (first_metrics, mean)

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


def _seeds_first(columns: dict[str, Any], collection: Collection) -> Rollout:
    """From rows [T, K, N, ...] to a rollout [K, T, N, ...]."""
    by_seed = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), columns)
    return Rollout(**by_seed, last_observation=collection.observation)
