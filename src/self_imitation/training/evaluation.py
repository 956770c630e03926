"""Fresh episodes with trained policies, sampling actions as in training or taking the most likely ones."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Shaped

from self_imitation.algorithm import iteration
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy
from self_imitation.config import TrainConfig
from self_imitation.environments.gymnasium import rendering
from self_imitation.environments.gymnasium.rendering import Player
from self_imitation.environments.registry import find
from self_imitation.errors import UsageError
from self_imitation.report.animation import Episode
from self_imitation.rollout import in_program, python_loop
from self_imitation.rollout.in_program import Collection, Collector
from self_imitation.training import backends, devices
from self_imitation.training.backends import Backend
from self_imitation.types import Observation

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of episodes that have ended, and of all episodes."""

COPIES = 16
"""Environments per seed, each of which plays a fixed share of the episodes."""
STRETCH = 100
"""Steps between checks whether all episodes have ended."""
MAX_STEPS = 100_000
"""Longer episodes are taken to be endless."""
FRAMES_PER_SECOND = 30.0
"""Frames that are rendered per second of an episode at most."""
MAX_FRAMES = 3000
"""Of an animation; a longer episode is cut. Frames are held in memory, up to a megabyte each."""


def act(
    agent: Agent, greedy: bool, policy: Policy, observation: Observation, key: PRNGKeyArray
) -> Shaped[Array, "batch ..."]:
    distribution, _ = iteration.actor_critic(agent, policy.normaliser)(policy.params, observation)
    return distribution.mode() if greedy else distribution.sample(key)


def evaluate(
    config: TrainConfig, agent: Agent, policies: Policy, episodes: int, greedy: bool, key: int, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths of fresh episodes, [seeds, episodes].

    With images one seed comes after another, so that none plays on beside one whose episodes take longer.
    """
    groups = np.split(np.arange(config.seeds), config.seeds if agent.spec.observation_kind == "image" else 1)
    found = []
    for group in groups:
        first, last = int(group[0]), int(group[-1]) + 1
        own = jax.tree.map(itemgetter(slice(first, last)), policies)
        ended_before = first * episodes

        def group_progress(ended: int, before: int = ended_before) -> None:
            progress(before + ended, config.seeds * episodes)

        found.append(_evaluate_group(config, agent, own, episodes, greedy, (key, first), group_progress))
    returns, lengths = np.concatenate(found, axis=1)
    return returns, lengths


def _evaluate_group(
    config: TrainConfig,
    agent: Agent,
    policies: Policy,
    episodes: int,
    greedy: bool,
    key: tuple[int, int],
    progress: Callable[[int], None],
) -> np.ndarray:
    """Returns and lengths, [2, seeds, episodes].

    Each environment plays a share of the episodes that is fixed beforehand: taking those that end first would favour
    short ones.
    """
    seeds, copies = len(jax.tree.leaves(policies)[0]), min(episodes, COPIES)
    shares = np.array([len(part) for part in np.array_split(np.arange(episodes), copies)])
    found, played = np.zeros((2, seeds, copies, shares.max())), np.zeros((seeds, copies), int)
    numbers = (np.random.SeedSequence((*key, 1)).generate_state(seeds * copies) >> 1).reshape(seeds, copies)
    key_play = jax.random.fold_in(jax.random.key(key[0]), key[1])
    backend = backends.create(config, num_envs=numbers.size)
    stretches = _in_program if backend.in_program else _in_python
    with contextlib.closing(stretches(backend, agent, policies, greedy, key_play, numbers)) as played_on:
        for ended, returns, lengths in played_on:
            if lengths[-1].max() >= MAX_STEPS:
                raise UsageError(f"env: {config.env!r} can't be evaluated: an episode took {MAX_STEPS:,} steps")
            for time, seed, copy in np.argwhere(ended):
                if played[seed, copy] < shares[copy]:
                    at = time, seed, copy
                    found[:, seed, copy, played[seed, copy]] = returns[at], lengths[at]
                    played[seed, copy] += 1
            progress(int(played.sum()))
            if (played >= shares).all():
                break
    return found[:, :, np.arange(shares.max()) < shares[:, None]]


Stretch: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Whether episodes ended, and their returns and lengths so far: [STRETCH, seeds, copies]."""


def _in_program(
    backend: Backend, agent: Agent, policies: Policy, greedy: bool, key: PRNGKeyArray, numbers: np.ndarray
) -> Generator[Stretch, None, None]:
    """Play on and on inside a compiled program; `numbers` [seeds, copies] seed the environments."""

    def choose(agent: Agent, policy: Policy, observation: Observation, key: PRNGKeyArray) -> tuple[Array, dict]:
        return act(agent, greedy, policy, observation, key), {}

    environment, seeds = backend.make(numbers, devices.cores()), len(numbers)
    collector = Collector(agent, environment, act=choose)

    @jax.jit
    def play(collection: Collection, key: PRNGKeyArray) -> tuple[Collection, list[Array]]:
        collection, rollout = collector.collect(policies, collection, jax.random.split(key, seeds), STRETCH)
        played = rollout.ended, rollout.episode_return, rollout.episode_length
        return collection, [jnp.swapaxes(leaf, 0, 1) for leaf in played]

    try:
        collection = in_program.begin(environment, jax.random.split(key, seeds), numbers.shape[1])
        for number in itertools.count(1):
            collection, played = play(collection, jax.random.fold_in(key, number))
            yield jax.device_get(tuple(played))
    finally:
        environment.close()


def _in_python(
    backend: Backend, agent: Agent, policies: Policy, greedy: bool, key: PRNGKeyArray, numbers: np.ndarray
) -> Generator[Stretch, None, None]:
    """The same in a Python loop."""
    vector, shape = backend.vector, numbers.shape
    choose: Any = jax.jit(jax.vmap(partial(act, agent, greedy)))
    steps = itertools.count()

    def choose_all(observation: Observation, time: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        by_seed = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), observation)
        keys = jax.random.split(jax.random.fold_in(key, next(steps)), shape[0])
        action = np.asarray(choose(policies, by_seed, keys))
        return action.reshape(-1, *action.shape[2:]), {}

    try:
        observation = vector.reset(numbers.reshape(-1).tolist())
        total, count = np.zeros(shape), np.zeros(shape, np.int64)
        while True:
            rollout = python_loop.collect(vector, choose_all, observation, STRETCH)
            observation = rollout.last_observation
            ended = (rollout.terminated | rollout.truncated).reshape(STRETCH, *shape)
            returns, lengths = np.zeros(ended.shape), np.zeros(ended.shape, np.int64)
            for time, reward in enumerate(rollout.reward.reshape(STRETCH, *shape)):
                returns[time], lengths[time] = total + reward, count + 1
                total, count = returns[time] * ~ended[time], lengths[time] * ~ended[time]
            yield ended, returns, lengths
    finally:
        vector.close()


class PlayedStep(NamedTuple):
    """One step of an episode; observations and actions are batches of 1."""

    observation: Observation
    action: np.ndarray
    reward: float
    next_observation: Observation
    ended: bool


def play_on(
    player: Player, choose: Callable[[Observation, PRNGKeyArray], Array], observation: Observation, key: int
) -> Iterator[PlayedStep]:
    """Play an episode from its first observation to its end, step by step."""
    keys, ended = jax.random.key(key), False
    for number in itertools.count():
        if ended:
            return
        action = np.asarray(choose(observation, jax.random.fold_in(keys, number)))
        before = observation
        observation, reward, ended = player.step(action)
        yield PlayedStep(before, action, reward, observation, ended)


def play(config: TrainConfig, agent: Agent, policy: Policy, greedy: bool, key: int) -> Episode:
    """One episode with pictures, of one seed's policy."""
    player = rendering.make_player(*renderable(config.env))
    choose: Any = jax.jit(partial(act, agent, greedy))
    every = max(1, round(player.steps_per_second / FRAMES_PER_SECOND))
    steps: list[PlayedStep] = []
    try:
        observation = player.reset(key)
        frames = {0: player.picture()}
        for step in play_on(player, partial(choose, policy), observation, key):
            steps.append(step)
            if len(frames) == MAX_FRAMES or step.ended:
                break
            if len(steps) % every == 0:
                frames[len(steps)] = player.picture()
        frames[len(steps)] = player.picture()
    finally:
        player.close()
    seen = [step.observation for step in steps] + [steps[-1].next_observation]
    observations = jax.tree.map(lambda *leaves: np.concatenate(leaves), *seen)
    actions, rewards = np.concatenate([step.action for step in steps]), np.array([step.reward for step in steps])
    return Episode(observations, actions, rewards, frames, player.steps_per_second, steps[-1].ended)


def renderable(env: str) -> tuple[str | None, str | None]:
    """Gymnasium id and Atari ROM of an environment that can be rendered; raises `UsageError` for others."""
    entry = find(env)
    if entry.gym_id is None and entry.atari_rom is None:
        raise UsageError(f"env: {env!r} can't be rendered; register it with a render_id")
    return entry.gym_id, entry.atari_rom
