"""How well a policy does, in fresh episodes, acting as it does in training (sampled) or greedily."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from self_imitation import collection
from self_imitation.types import ActorCritic, Distribution, Environment, Params, Rollout


class Episode(NamedTuple):
    """One episode, step by step; `observations` has one more, where it ended."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray

    @property
    def total(self) -> float:
        return float(self.rewards.sum())


class Greedy(eqx.Module):
    """A distribution that always gives its most likely action."""

    distribution: Distribution

    def sample(self, key: PRNGKeyArray) -> Shaped[Array, "batch ..."]:
        return self.distribution.mode()


def greedily(actor_critic: ActorCritic) -> ActorCritic:
    def act(params: Params, observation: Shaped[Array, "batch ..."]) -> tuple:
        distribution, value = actor_critic(params, observation)
        return Greedy(distribution), value

    return act


def play_episodes(
    environment: Environment, actor_critic: ActorCritic, params: Params, episodes: int, key: PRNGKeyArray
) -> Rollout:
    """Each copy of the environment plays for as long as an episode can last; its first episode counts."""
    key_begin, key_act = jax.random.split(key)
    acting = collection.begin(environment, episodes, key_begin)
    steps = environment.spec.max_episode_steps
    return collection.collect_on_device(environment, actor_critic, params, acting, steps, key_act)[1]


def episode_returns(
    environment: Environment, actor_critic: ActorCritic, params: Params, episodes: int, key: PRNGKeyArray
) -> tuple[Float[Array, " episodes"], Int[Array, " episodes"]]:
    """Returns and lengths."""
    rollout = play_episodes(environment, actor_critic, params, episodes, key)
    end = jnp.argmax(rollout.ended, axis=0)[None]
    return (
        jnp.take_along_axis(rollout.episode_return, end, axis=0)[0],
        jnp.take_along_axis(rollout.episode_length, end, axis=0)[0],
    )


def returns_of_seeds(
    environment: Environment, actor_critic: ActorCritic, params: Params, seeds: int, episodes: int, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """[seeds, episodes] of returns and of lengths, for the stacked parameters of several seeds."""
    evaluate = jax.jit(jax.vmap(partial(episode_returns, environment, actor_critic), (0, None, 0)), static_argnums=1)
    returns, lengths = evaluate(params, episodes, jax.random.split(key, seeds))
    return np.asarray(returns), np.asarray(lengths)


def one_episode(environment: Environment, actor_critic: ActorCritic, params: Params, key: PRNGKeyArray) -> Episode:
    rollout = jax.jit(partial(play_episodes, environment, actor_critic), static_argnums=1)(params, 1, key)
    last = int(np.argmax(rollout.ended[:, 0]))
    seen = [*np.asarray(rollout.observation[: last + 1, 0]), np.asarray(rollout.successor[last, 0])]
    return Episode(np.stack(seen), np.asarray(rollout.action[: last + 1, 0]), np.asarray(rollout.reward[: last + 1, 0]))
