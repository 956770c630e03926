"""How well policies do, in fresh episodes, acting as they do in training (sampled) or greedily."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from self_imitation import collection
from self_imitation.algorithm import Agent, seeing
from self_imitation.config import TrainConfig, override
from self_imitation.environments import catalogue, maze
from self_imitation.errors import UsageError
from self_imitation.normalisation import Scales
from self_imitation.types import ActorCritic, Distribution, Params, Rollout

if TYPE_CHECKING:
    from self_imitation.environments.host.spaces import Spaces

Listener: TypeAlias = Callable[[int, int], None]
"""Of how many episodes have ended, and how many there are."""
MAZE_SPEED = 25 / 3
"""Steps of a maze to be shown in a second; other environments say how fast they are."""


class Episode(NamedTuple):
    """One episode, step by step; `observations` has one more, where it ended."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    frames: dict[int, np.ndarray]
    """Pictures, [height, width, 3] of uint8, by the number of steps made before; the last one shows how it ended."""
    steps_per_second: float
    """How fast it would be in life."""
    ended: bool = True
    """Not so where it took longer than a film can."""

    @property
    def total(self) -> float:
        return float(self.rewards.sum())


class Policies(eqx.Module):
    """What acting needs: of one seed, or stacked of several."""

    params: Params
    scales: Scales | None


class Greedy(eqx.Module):
    """A distribution that always gives its most likely action."""

    distribution: Distribution

    def sample(self, key: PRNGKeyArray) -> Shaped[Array, "batch ..."]:
        return self.distribution.mode()


def acting(agent: Agent, policies: Policies, greedy: bool) -> ActorCritic:
    """The actor-critic as a function of raw observations, made to act in the given way."""
    raw = seeing(agent, policies.scales)

    def act(params: Params, observation: Shaped[Array, "batch ..."]) -> tuple:
        distribution, value = raw(params, observation)
        return (Greedy(distribution) if greedy else distribution), value

    return act


def act(
    agent: Agent, greedy: bool, policy: Policies, observation: Shaped[Array, "batch ..."], key: PRNGKeyArray
) -> Shaped[Array, "batch ..."]:
    return acting(agent, policy, greedy)(policy.params, observation)[0].sample(key)


def returns_of_seeds(
    config: TrainConfig, agent: Agent, policies: Policies, episodes: int, greedy: bool, key: int, listener: Listener
) -> tuple[np.ndarray, np.ndarray]:
    """[seeds, episodes] of returns and of lengths. `listener`: hears now and then how many have ended, on the host."""
    if agent.environment is None:
        from self_imitation.runs import host_evaluation

        return host_evaluation.returns_of_seeds(config, agent, policies, episodes, greedy, key, listener)
    keys = jax.random.split(jax.random.key(key), config.seeds)
    returns, lengths = jax.jit(jax.vmap(partial(_episode_returns, agent, episodes, greedy)))(policies, keys)
    return np.asarray(returns), np.asarray(lengths)


def one_episode(config: TrainConfig, agent: Agent, policy: Policies, greedy: bool, key: int) -> Episode:
    """With pictures."""
    if agent.environment is None:
        from self_imitation.runs import host_evaluation

        return host_evaluation.one_episode(config, agent, policy, greedy, key)
    play = jax.jit(partial(_play_episodes, agent, 1, greedy))
    rollout = play(policy, jax.random.key(key))
    last = int(np.argmax(rollout.ended[:, 0]))
    seen = np.stack([*np.asarray(rollout.observation[: last + 1, 0]), np.asarray(rollout.successor[last, 0])])
    actions, rewards = np.asarray(rollout.action[: last + 1, 0]), np.asarray(rollout.reward[: last + 1, 0])
    return Episode(seen, actions, rewards, {i: maze.to_pixels(one) for i, one in enumerate(seen)}, MAZE_SPEED)


def _play_episodes(agent: Agent, episodes: int, greedy: bool, policy: Policies, key: PRNGKeyArray) -> Rollout:
    """Each copy of the environment plays for as long as an episode can last; its first episode counts."""
    assert agent.environment is not None
    assert agent.spec.max_episode_steps is not None
    key_begin, key_act = jax.random.split(key)
    begun = collection.begin(agent.environment, episodes, key_begin)
    actor_critic, steps = acting(agent, policy, greedy), agent.spec.max_episode_steps
    return collection.collect_on_device(agent.environment, actor_critic, policy.params, begun, steps, key_act)[1]


def _episode_returns(
    agent: Agent, episodes: int, greedy: bool, policy: Policies, key: PRNGKeyArray
) -> tuple[Float[Array, " episodes"], Int[Array, " episodes"]]:
    """Returns and lengths."""
    rollout = _play_episodes(agent, episodes, greedy, policy, key)
    end = jnp.argmax(rollout.ended, axis=0)[None]
    return (
        jnp.take_along_axis(rollout.episode_return, end, axis=0)[0],
        jnp.take_along_axis(rollout.episode_length, end, axis=0)[0],
    )


def with_engine_at_hand(config: TrainConfig) -> TrainConfig:
    """Policies don't mind which engine runs their environment: one that is installed here."""
    if catalogue.find(config.env).host_id is None:
        return config
    from self_imitation.environments.host import engines

    try:
        engine = engines.choose(config.env, config.engine)
    except UsageError:
        engine = engines.choose(config.env, "auto")
    return override(config, {"engine": engine})


def spaces_of(config: TrainConfig) -> "Spaces | None":
    if catalogue.find(config.env).host_id is None:
        return None
    from self_imitation.environments.host import engines

    return engines.inspect(config)
