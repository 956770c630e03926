"""The same for environments on the host: many episodes at once for their returns, or one with its pictures."""

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Shaped

from self_imitation.algorithm import Agent
from self_imitation.columns import seen_by_network
from self_imitation.config import TrainConfig
from self_imitation.environments.host import engines, players
from self_imitation.environments.host.vectors import named, told
from self_imitation.errors import UsageError
from self_imitation.host_collection import Act, HostCollector, Part
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
    """All seeds at once: to ask the device takes longer than to act. With images it is the other way round; there one
    seed comes after another, so that none goes on playing beside one whose episodes take longer.
    """
    seeds, copies, images = config.seeds, min(episodes, COPIES), agent.spec.observation_kind == "image"
    numbers = (np.random.SeedSequence((key, 1)).generate_state(seeds * copies) >> 1).reshape(seeds, copies)
    choose = jax.jit(jax.vmap(partial(_act, agent, greedy)))

    def play(group: np.ndarray) -> np.ndarray:
        own, keys = jax.tree.map(itemgetter(group), policies), _keys(key, group)
        before = int(group[0]) * episodes
        return _returns(
            config,
            agent,
            numbers[group],
            episodes,
            act=lambda *step: np.asarray(choose(own, step[-1], next(keys))),
            hear=lambda ended: listener(before + ended, seeds * episodes),
        )

    groups = np.split(np.arange(seeds), seeds if images else 1)
    returns, lengths = np.concatenate([play(group) for group in groups], axis=1)
    return returns, lengths


def _returns(
    config: TrainConfig, agent: Agent, numbers: np.ndarray, episodes: int, act: Act, hear: Callable[[int], None]
) -> np.ndarray:
    """Of some seeds' episodes, and lengths. Each copy of the environment, begun with its number, plays a share of them
    that is fixed beforehand: to take those that end first would favour short ones.
    """
    seeds, copies = numbers.shape
    shares = np.array([len(part) for part in np.array_split(np.arange(episodes), copies)])
    vector = engines.make_vector(config, engines.inspect(config), numbers.reshape(-1).tolist())
    collector = HostCollector([Part(slice(0, copies), vector)], agent.spec, seeds, STRETCH, delay=1)
    found, done = np.zeros((2, seeds, copies, shares.max())), 0
    played = np.zeros((seeds, copies), int)
    try:
        with named(config.env):
            collector.begin(numbers)
        while (played < shares).any():
            with named(config.env):
                rollout = collector.collect(act, done)
            done += STRETCH * copies
            if collector.episode_length.max() >= LONGEST:
                raise UsageError(f"env: {config.env!r} can't be evaluated: {LONGEST:,} steps did not end an episode")
            for time, seed, copy in np.argwhere(rollout.ended):
                if played[seed, copy] < shares[copy]:
                    at = time, seed, copy
                    found[:, seed, copy, played[seed, copy]] = rollout.episode_return[at], rollout.episode_length[at]
                    played[seed, copy] += 1
            hear(int(played.sum()))
    finally:
        collector.close()
    counted = np.arange(shares.max()) < shares[:, None]
    return found[:, :, counted]


def _act(
    agent: Agent, greedy: bool, policies: Policies, observation: Shaped[Array, "n ..."], key: PRNGKeyArray
) -> Shaped[Array, "n ..."]:
    return act(agent, greedy, policies, seen_by_network(agent.spec, observation), key)


def _keys(key: int, seeds: np.ndarray) -> Iterator[PRNGKeyArray]:
    """One for each of these seeds, again and again; not the same for others."""
    split = jax.jit(lambda chain: jax.random.split(chain, len(seeds) + 1))
    chain = jax.random.fold_in(jax.random.key(key), seeds[0])
    while True:
        many = split(chain)
        chain = many[0]
        yield many[1:]


def one_episode(config: TrainConfig, agent: Agent, policy: Policies, greedy: bool, key: int) -> Episode:
    spaces, player = engines.inspect(config), players.make(config)
    choose, keys = jax.jit(partial(act, agent, greedy)), _keys(key, np.arange(1))
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
