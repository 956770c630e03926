"""The same for environments on the host: many episodes at once for their returns, or one with its pictures."""

from collections.abc import Iterator
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Shaped

from self_imitation.algorithm import Agent
from self_imitation.columns import seen_by_network
from self_imitation.config import TrainConfig
from self_imitation.environments.host import engines, players
from self_imitation.environments.host.vectors import named, told
from self_imitation.errors import UsageError
from self_imitation.host_collection import HostCollector, Part
from self_imitation.runs.evaluation import Episode, Listener, Policies, act

COPIES = 16
"""Environments in which one seed's episodes are played, each its share of them, however long they take."""
STRETCH = 100
"""Steps between two looks at whether all have ended."""
LONGEST = 100_000
"""Steps after which an episode is taken for one that never ends."""
FRAMES_PER_SECOND = 30.0
"""No more are drawn: some environments make over a hundred steps a second, and to draw one may take long."""
MOST_FRAMES = 3000
"""Of a film; an episode that goes on is left there. They are held in memory, up to a megabyte each."""


def returns_of_seeds(
    config: TrainConfig, agent: Agent, policies: Policies, episodes: int, greedy: bool, key: int, listener: Listener
) -> tuple[np.ndarray, np.ndarray]:
    """Each copy of the environment plays a share of the episodes that is fixed beforehand: to take those that end first
    would favour short ones.
    """
    seeds, copies = config.seeds, min(episodes, COPIES)
    shares = np.array([len(part) for part in np.array_split(np.arange(episodes), copies)])
    spaces = engines.inspect(config)
    numbers = np.random.SeedSequence((key, 1)).generate_state(seeds * copies) >> 1
    vector = engines.make_vector(config, spaces, numbers.tolist())
    collector = HostCollector([Part(slice(0, copies), vector)], agent.spec, seeds, STRETCH, delay=1)
    returns, lengths = np.zeros((2, seeds, copies, shares.max()))
    played = np.zeros((seeds, copies), int)
    choose = jax.jit(jax.vmap(partial(_act, agent, greedy)))
    keys, done = _keys(key, seeds), 0
    try:
        with named(config.env):
            collector.begin(numbers.reshape(seeds, copies))
        while (played < shares).any():
            with named(config.env):
                rollout = collector.collect(lambda *step: np.asarray(choose(policies, step[-1], next(keys))), done)
            done += STRETCH * copies
            if collector.episode_length.max() >= LONGEST:
                raise UsageError(f"env: {config.env!r} can't be evaluated: {LONGEST:,} steps did not end an episode")
            for time, seed, copy in np.argwhere(rollout.ended):
                if played[seed, copy] < shares[copy]:
                    returns[seed, copy, played[seed, copy]] = rollout.episode_return[time, seed, copy]
                    lengths[seed, copy, played[seed, copy]] = rollout.episode_length[time, seed, copy]
                    played[seed, copy] += 1
            listener(int(played.sum()), seeds * episodes)
    finally:
        collector.close()
    counted = np.arange(shares.max()) < shares[:, None]
    return returns[:, counted], lengths[:, counted]


def _act(
    agent: Agent, greedy: bool, policies: Policies, observation: Shaped[Array, "n ..."], key: PRNGKeyArray
) -> Shaped[Array, "n ..."]:
    return act(agent, greedy, policies, seen_by_network(agent.spec, observation), key)


def _keys(key: int, seeds: int) -> Iterator[PRNGKeyArray]:
    """One for each seed, again and again."""
    split = jax.jit(lambda chain: jax.random.split(chain, seeds + 1))
    chain = jax.random.key(key)
    while True:
        many = split(chain)
        chain = many[0]
        yield many[1:]


def one_episode(config: TrainConfig, agent: Agent, policy: Policies, greedy: bool, key: int) -> Episode:
    spaces, player = engines.inspect(config), players.make(config)
    choose, keys = jax.jit(partial(act, agent, greedy)), _keys(key, 1)
    every = max(1, round(player.steps_per_second / FRAMES_PER_SECOND))
    frames: dict[int, np.ndarray] = {}
    seen: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    rewards: list[float] = []
    ended = False
    try:
        with named(config.env), told():
            observation = player.reset(key)
        while not ended and len(frames) < MOST_FRAMES:
            if len(actions) % every == 0:
                frames[len(actions)] = player.picture()
            seen.append(spaces.observation(observation)[0])
            action = spaces.action(np.asarray(choose(policy, seen[-1][None], next(keys)[0])))
            with named(config.env), told():
                observation, reward, ended = player.step(action)
            actions.append(action[0])
            rewards.append(reward)
        frames[len(actions)] = player.picture()
        seen.append(spaces.observation(observation)[0])
    finally:
        player.close()
    return Episode(np.stack(seen), np.stack(actions), np.array(rewards), frames, player.steps_per_second, ended)
