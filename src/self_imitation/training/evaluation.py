"""Fresh episodes with trained policies, sampling actions as in training or taking the most likely ones."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
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
from self_imitation.environments.batched import BatchedEnvironment
from self_imitation.environments.gymnasium import rendering
from self_imitation.environments.gymnasium.make import EnvSource
from self_imitation.environments.gymnasium.rendering import Player
from self_imitation.environments.registry import find
from self_imitation.errors import Interrupted, UsageError
from self_imitation.report import statistics
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


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths of fresh episodes."""

    seeds: tuple[int, ...]
    """Those of the rows of `returns` and `lengths`."""
    returns: np.ndarray
    """[seeds, episodes]"""
    lengths: np.ndarray
    """[seeds, episodes]: steps."""

    @property
    def mean(self) -> float:
        """Of the returns of all episodes."""
        return float(self.returns.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95 % interval of the mean over seeds; NaN for a single one."""
        return statistics.mean_interval(self.returns.mean(axis=1))


class Evaluator:
    """Evaluates the policies of a run as often as it is asked to. Its environments are its own."""

    def __init__(self, config: TrainConfig, agent: Agent, episodes: int, greedy: bool):
        self._config, self._agent, self._episodes, self._greedy = config, agent, episodes, greedy
        by_seed = agent.spec.observation_kind == "image"
        self._groups = np.split(np.arange(config.seeds), config.seeds if by_seed else 1)
        """With images one seed comes after another, so that none plays on beside one whose episodes take longer."""
        self._copies = min(episodes, COPIES)
        self._players: dict[int, InProgram | InPython] = {}
        """By the first seed of their group."""

    def evaluate(
        self,
        policies: Policy,
        key: int,
        progress: Progress = lambda ended, of: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Evaluation:
        """Of all seeds. Raises `Interrupted` once `stop` returns True, and `UsageError` if an episode does not end."""
        found = []
        for group in self._groups:
            first, last = int(group[0]), int(group[-1]) + 1
            own = jax.tree.map(itemgetter(slice(first, last)), policies)

            def report(ended: int, before: int = first * self._episodes) -> None:
                progress(before + ended, self._config.seeds * self._episodes)

            found.append(self._evaluate_group(own, (key, first), report, stop))
        returns, lengths = np.concatenate(found, axis=1)
        return Evaluation(self._config.seed_numbers, returns, lengths)

    def close(self) -> None:
        for player in self._players.values():
            player.close()
        self._players.clear()

    def _evaluate_group(
        self, policies: Policy, key: tuple[int, int], progress: Callable[[int], None], stop: Callable[[], bool]
    ) -> np.ndarray:
        """Returns and lengths, [2, seeds, episodes].

        Each environment plays a share of the episodes that is fixed beforehand: taking those that end first would
        favour short ones.
        """
        seeds, copies = len(jax.tree.leaves(policies)[0]), self._copies
        shares = np.array([len(part) for part in np.array_split(np.arange(self._episodes), copies)])
        found, played = np.zeros((2, seeds, copies, shares.max())), np.zeros((seeds, copies), int)
        numbers = (np.random.SeedSequence((*key, 1)).generate_state(seeds * copies) >> 1).reshape(seeds, copies)
        key_play = jax.random.fold_in(jax.random.key(key[0]), key[1])
        player = self._player(key[1], numbers.size)
        with contextlib.closing(player.play(policies, key_play, numbers, stop)) as stretches:
            for ended, returns, lengths in stretches:
                if lengths[-1].max() >= MAX_STEPS:
                    env = self._config.env
                    raise UsageError(f"env: {env!r} can't be evaluated: an episode took {MAX_STEPS:,} steps")
                for time, seed, copy in np.argwhere(ended):
                    if played[seed, copy] < shares[copy]:
                        at = time, seed, copy
                        found[:, seed, copy, played[seed, copy]] = returns[at], lengths[at]
                        played[seed, copy] += 1
                progress(int(played.sum()))
                if (played >= shares).all():
                    break
                if stop():
                    raise Interrupted
        return found[:, :, np.arange(shares.max()) < shares[:, None]]

    def _player(self, first: int, copies: int) -> "InProgram | InPython":
        if first not in self._players:
            backend = backends.create(self._config, num_envs=copies)
            kind = InProgram if backend.in_program else InPython
            self._players[first] = kind(backend, self._agent, self._greedy)
        return self._players[first]


Stretch: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Whether episodes ended, and their returns and lengths so far: [STRETCH, seeds, copies]."""


class InProgram:
    """Plays inside a compiled program, which is compiled once."""

    def __init__(self, backend: Backend, agent: Agent, greedy: bool):
        self._backend, self._agent, self._greedy = backend, agent, greedy
        self._environment: BatchedEnvironment | None = None
        self._program: Any = None

    def play(
        self, policies: Policy, key: PRNGKeyArray, numbers: np.ndarray, stop: Callable[[], bool]
    ) -> Generator[Stretch, None, None]:
        """Play on and on; `numbers` [seeds, copies] seed the environments."""
        environment = self._environment = self._environment or self._backend.make(numbers, devices.cores())
        self._program = self._program or jax.jit(partial(self._stretch, environment))
        try:
            collection = in_program.begin(environment, jax.random.split(key, len(numbers)), numbers.shape[1])
            for number in itertools.count(1):
                collection, played = self._program(policies, collection, jax.random.fold_in(key, number))
                yield jax.device_get(tuple(played))
        finally:
            if environment.can_be_shared and not environment.can_be_saved:
                # The next evaluation gets new ones, with its own seeds. Not where the program would have to be
                # compiled again (EnvPool): those go on with their random numbers.
                self.close()

    def _stretch(
        self, environment: BatchedEnvironment, policies: Policy, collection: Collection, key: PRNGKeyArray
    ) -> tuple[Collection, list[Array]]:
        def choose(agent: Agent, policy: Policy, observation: Observation, key: PRNGKeyArray) -> tuple[Array, dict]:
            return act(agent, self._greedy, policy, observation, key), {}

        collector = Collector(self._agent, environment, act=choose)
        keys = jax.random.split(key, len(jax.tree.leaves(policies)[0]))
        collection, rollout = collector.collect(policies, collection, keys, STRETCH)
        played = rollout.ended, rollout.episode_return, rollout.episode_length
        return collection, [jnp.swapaxes(leaf, 0, 1) for leaf in played]

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
        self._environment = None


class InPython:
    """The same in a Python loop."""

    def __init__(self, backend: Backend, agent: Agent, greedy: bool):
        self._vector = backend.vector
        self._choose: Any = jax.jit(jax.vmap(partial(act, agent, greedy)))

    def play(
        self, policies: Policy, key: PRNGKeyArray, numbers: np.ndarray, stop: Callable[[], bool]
    ) -> Generator[Stretch, None, None]:
        shape, steps = numbers.shape, itertools.count()

        def choose_all(observation: Observation, time: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            by_seed = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), observation)
            keys = jax.random.split(jax.random.fold_in(key, next(steps)), shape[0])
            action = np.asarray(self._choose(policies, by_seed, keys))
            return action.reshape(-1, *action.shape[2:]), {}

        self._vector.interrupt_when(stop)
        observation = self._vector.reset(numbers.reshape(-1).tolist())
        total, count = np.zeros(shape), np.zeros(shape, np.int64)
        while True:
            rollout = python_loop.collect(self._vector, choose_all, observation, STRETCH)
            observation = rollout.last_observation
            ended = (rollout.terminated | rollout.truncated).reshape(STRETCH, *shape)
            returns, lengths = np.zeros(ended.shape), np.zeros(ended.shape, np.int64)
            for time, reward in enumerate(rollout.reward.reshape(STRETCH, *shape)):
                returns[time], lengths[time] = total + reward, count + 1
                total, count = returns[time] * ~ended[time], lengths[time] * ~ended[time]
            yield ended, returns, lengths

    def close(self) -> None:
        self._vector.close()


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
    player = rendering.make_player(*renderable(config))
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


def renderable(config: TrainConfig) -> tuple[EnvSource | None, str | None]:
    """Source and Atari ROM of an environment that can be rendered; raises `UsageError` for others."""
    source, rom = backends.env_source(config), find(config.env).atari_rom
    if source is None and rom is None:
        raise UsageError(f"env: {config.env!r} can't be rendered; register it with a render_id")
    return source, rom
