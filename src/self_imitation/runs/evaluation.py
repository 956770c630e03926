"""How well policies do, in fresh episodes, acting as they do in training (sampled) or greedily."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from self_imitation import collection, devices
from self_imitation.algorithm import Agent, seeing
from self_imitation.config import TrainConfig, override
from self_imitation.environments import catalogue, maze
from self_imitation.errors import UsageError
from self_imitation.normalisation import Scales
from self_imitation.types import ActorCritic, Distribution, Params, Rollout

if TYPE_CHECKING:
    from self_imitation.environments.host.spaces import Spaces

COPIES = 16
"""Environments in which one seed's episodes are played, each its share of them, however long they take."""
STRETCH = 100
"""Steps between two looks at whether all have ended."""
MAZE_SPEED = 25 / 3
"""Steps of a maze to be shown in a second; other environments say how fast they are."""
FRAMES_PER_SECOND = 30.0
"""No more are drawn: some environments make over a hundred steps a second, and to draw one may take long."""


class Episode(NamedTuple):
    """One episode, step by step; `observations` has one more, where it ended."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    frames: dict[int, np.ndarray]
    """Pictures, [height, width, 3] of uint8, by the number of steps made before; the last one shows how it ended."""
    steps_per_second: float
    """How fast it would be in life."""

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
    config: TrainConfig, agent: Agent, policies: Policies, episodes: int, greedy: bool, key: int
) -> tuple[np.ndarray, np.ndarray]:
    """[seeds, episodes] of returns and of lengths."""
    if agent.environment is None:
        return _on_host(config, agent, policies, episodes, greedy, key)
    keys = jax.random.split(jax.random.key(key), config.seeds)
    returns, lengths = jax.jit(jax.vmap(partial(_episode_returns, agent, episodes, greedy)))(policies, keys)
    return np.asarray(returns), np.asarray(lengths)


def one_episode(config: TrainConfig, agent: Agent, policy: Policies, greedy: bool, key: int) -> Episode:
    """With pictures."""
    if agent.environment is None:
        return _one_on_host(config, agent, policy, greedy, key)
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


def _on_host(
    config: TrainConfig, agent: Agent, policies: Policies, episodes: int, greedy: bool, key: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each copy of the environment plays a share of the episodes that is fixed beforehand: to take those that end first
    would favour short ones.
    """
    from self_imitation.environments.host import engines
    from self_imitation.environments.host.vectors import named
    from self_imitation.host_collection import HostCollector, Part

    seeds, copies = config.seeds, min(episodes, COPIES)
    shares = np.array([len(part) for part in np.array_split(np.arange(episodes), copies)])
    spaces = engines.inspect(config)
    numbers = np.random.SeedSequence((key, 1)).generate_state(seeds * copies) >> 1
    vector = engines.make_vector(config, spaces, numbers.tolist(), devices.cores())
    collector = HostCollector([Part(slice(0, copies), vector)], agent.spec, seeds, STRETCH, delay=1)
    returns, lengths = np.zeros((2, seeds, copies, shares.max()))
    played = np.zeros((seeds, copies), int)
    choose = jax.jit(jax.vmap(partial(act, agent, greedy)))
    keys, done = _keys(key, seeds), 0
    try:
        with named(config.env):
            collector.begin(numbers.reshape(seeds, copies))
        while (played < shares).any():
            with named(config.env):
                rollout = collector.collect(lambda *step: np.asarray(choose(policies, step[-1], next(keys))), done)
            done += STRETCH * copies
            for time, seed, copy in np.argwhere(rollout.ended):
                if played[seed, copy] < shares[copy]:
                    returns[seed, copy, played[seed, copy]] = rollout.episode_return[time, seed, copy]
                    lengths[seed, copy, played[seed, copy]] = rollout.episode_length[time, seed, copy]
                    played[seed, copy] += 1
    finally:
        collector.close()
    counted = np.arange(shares.max()) < shares[:, None]
    return returns[:, counted], lengths[:, counted]


def _keys(key: int, seeds: int) -> Iterator[PRNGKeyArray]:
    """One for each seed, again and again."""
    split = jax.jit(lambda chain: jax.random.split(chain, seeds + 1))
    chain = jax.random.key(key)
    while True:
        many = split(chain)
        chain = many[0]
        yield many[1:]


def _one_on_host(config: TrainConfig, agent: Agent, policy: Policies, greedy: bool, key: int) -> Episode:
    from self_imitation.environments.host import engines

    spaces = engines.inspect(config)
    env = engines.make_one(config.env, render_mode=_render_mode(config))
    choose, keys = jax.jit(partial(act, agent, greedy)), _keys(key, 1)
    speed = float(env.metadata.get("render_fps") or FRAMES_PER_SECOND)
    every = max(1, round(speed / FRAMES_PER_SECOND))
    frames: dict[int, np.ndarray] = {}
    seen: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    rewards: list[float] = []
    try:
        observation, _ = env.reset(seed=key)
        ended = False
        while not ended:
            if len(actions) % every == 0:
                frames[len(actions)] = _picture(env, config.env)
            seen.append(spaces.observation(np.asarray(observation)[None])[0])
            action = spaces.action(np.asarray(choose(policy, seen[-1][None], next(keys)[0])))[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            actions.append(action)
            rewards.append(float(reward))
            ended = terminated or truncated
        frames[len(actions)] = _picture(env, config.env)
        seen.append(spaces.observation(np.asarray(observation)[None])[0])
    finally:
        env.close()
    return Episode(np.stack(seen), np.stack(actions), np.array(rewards), frames, speed)


def _render_mode(config: TrainConfig) -> str:
    from self_imitation.environments.host import engines

    env = engines.make_one(config.env)
    modes = env.metadata.get("render_modes") or []
    env.close()
    if "rgb_array" not in modes:
        offered = ", ".join(map(str, modes)) or "none"
        raise UsageError(f"env: {config.env!r} can't be drawn: it has no render mode 'rgb_array' (it has: {offered})")
    return "rgb_array"


def _picture(env: Any, name: str) -> np.ndarray:
    try:
        picture = np.asarray(env.render(), np.uint8)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        hint = "; on a machine without a screen, set MUJOCO_GL=egl or osmesa" if name.startswith("mujoco:") else ""
        raise UsageError(f"env: {name!r} can't be drawn; {type(error).__name__}: {lines[0]}{hint}") from error
    if picture.ndim != 3 or picture.shape[-1] != 3:
        raise UsageError(f"env: {name!r} can't be drawn: its picture has shape {picture.shape}, not height x width x 3")
    return picture


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
