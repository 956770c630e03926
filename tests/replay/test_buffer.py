"""The replay buffer against a plain model of it, and what is sampled from it against hand-made numbers."""

import dataclasses
import math
import re
from collections import deque
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from self_imitation.errors import UsageError
from self_imitation.replay import buffer as replay
from self_imitation.replay import priority_tree
from self_imitation.replay.buffer import CHUNK, ENTROPY_RETURN, LOG_PROB, REWARD, STEPS_LEFT, Batch, ReplayBuffer
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import Rollout

insert = jax.jit(replay.insert, static_argnums=2)
sample_at = jax.jit(replay.sample_at, static_argnums=2)
update_priorities = jax.jit(replay.update_priorities, static_argnums=3)


def make_rollout(observation, action, reward, terminated, truncated) -> Rollout:
    """Fields that the replay buffer must not read are junk."""
    observation, reward = np.asarray(observation), np.asarray(reward, np.float32)
    columns = {
        "observation": observation,
        "action": action,
        "reward": reward,
        "terminated": np.asarray(terminated, bool),
        "truncated": np.asarray(truncated, bool),
        "next_observation": np.full_like(observation, 99),
        "last_observation": np.full_like(observation[0], 99),
        "episode_return": np.full_like(reward, np.nan),
        "episode_length": np.full(reward.shape, -99, np.int32),
    }
    return Rollout(**{name: jnp.asarray(column) for name, column in columns.items()}, valid=None, extras={})


def on_host(tree):
    """NumPy's arrays: looking into JAX's would compile a program for every shape and slice."""
    return jax.tree.map(np.asarray, tree)


class Steps:
    """Rollouts in which no two observations and no two actions are equal, none of them 0."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.taken = 0

    def rollout(self, reward, ended, truncated=None) -> Rollout:
        """Rewards and ends as [T, N], or as [T] where there is one environment."""
        reward = np.asarray(reward, np.float32).reshape(-1, self.num_envs)
        ended = np.asarray(ended, bool).reshape(reward.shape)
        truncated = np.zeros_like(ended) if truncated is None else np.asarray(truncated, bool).reshape(reward.shape)
        number = 1 + self.taken + np.arange(reward.size, dtype=np.int32).reshape(reward.shape)
        self.taken += reward.size
        environment = np.broadcast_to(np.arange(1, self.num_envs + 1, dtype=np.int32), reward.shape)
        rollout = make_rollout(
            np.stack([number, environment], axis=-1), -number, reward, ended & ~truncated, ended & truncated
        )
        pair = np.stack([2 * number, 3 * number], axis=-1)
        log_prob = -(1 + number % 7).astype(np.float32) / 4
        return dataclasses.replace(rollout, extras={PAIR: jnp.asarray(pair), LOG_PROB: jnp.asarray(log_prob)})


PAIR = "pair"
"""An extra of these rollouts: two numbers per step, not to be confused with those of another."""


@dataclasses.dataclass
class Item:
    observation: tuple[int, int]
    action: int
    returns: float
    priority: float
    extras: dict[str, object]


class Model:
    """The replay buffer in plain Python: a queue of finished steps, and a list of pending ones for each environment."""

    def __init__(
        self, num_envs: int, max_pending_steps: int, config: SelfImitationConfig, records_extras: bool = False
    ) -> None:
        self.config = config
        self.records_extras = records_extras
        self.max_pending_steps = max_pending_steps
        self.items: deque[Item] = deque(maxlen=config.buffer_size)
        self.written = 0
        self.largest_priority = 1.0
        self.negative_seen = False
        self.seen: list[list[float]] = [[] for _ in range(num_envs)]
        """All rewards of each unfinished episode."""
        self.unfinished: list[list[tuple]] = [[] for _ in range(num_envs)]

    @property
    def head(self) -> int:
        return self.written % self.config.buffer_size

    def insert(self, rollout: Rollout) -> None:
        observation, action, reward, ended, terminated = map(
            np.asarray, (rollout.observation, rollout.action, rollout.reward, rollout.ended, rollout.terminated)
        )
        valid = np.ones_like(ended) if rollout.valid is None else np.asarray(rollout.valid)
        self.negative_seen |= bool((reward[valid] < 0).any())
        for t, n in np.argwhere(valid):
            steps = self.unfinished[n]
            extras = {name: np.asarray(extra)[t, n].tolist() for name, extra in rollout.extras.items()}
            self.seen[n].append(float(reward[t, n]))
            steps.append((tuple(observation[t, n].tolist()), int(action[t, n]), float(reward[t, n]), extras))
            if ended[t, n]:
                self._move(steps, waiting=0, seen=[] if terminated[t, n] else self.seen[n])
                self.unfinished[n], self.seen[n] = [], []
            elif len(steps) == self.max_pending_steps:
                waiting = self.max_pending_steps // 2
                self._move(steps, waiting, self.seen[n])
                self.unfinished[n] = steps[len(steps) - waiting :]

    def _move(self, steps: list[tuple], waiting: int, seen: list[float]) -> None:
        """`seen`: all rewards of an episode that is cut off."""
        rewards, keep = [reward for _, _, reward, _ in steps], self.config.keep
        if keep == "positive" and not any(reward > 0 for reward in rewards):
            return
        if keep == "informative" and not any(rewards) and not self.negative_seen:
            return
        tail = 0
        if keep != "all" and not self.negative_seen and not self.records_extras:
            tail = next((i for i, reward in enumerate(reversed(rewards)) if reward), len(rewards))
        items, following, following_entropy = [], 0.0, 0.0
        if seen and self.config.truncated_returns == "continued":
            following = min(np.mean(seen), 0.0) / max(1 - self.config.gamma, 1e-6)
        for observation, action, reward, extras in reversed(steps):
            following = reward + self.config.gamma * following
            following_entropy = -extras.get(LOG_PROB, 0.0) + self.config.gamma * following_entropy
            computed = {REWARD: reward, ENTROPY_RETURN: following_entropy}
            items.append(Item(observation, action, following, self.largest_priority, extras | computed))
        kept = items[max(waiting, tail) :][::-1]
        for following_steps, item in enumerate(reversed(kept)):
            item.extras[STEPS_LEFT] = following_steps
        self.items.extend(kept)
        self.written += len(kept)

    def item(self, slot: int) -> Item:
        return self.items[(slot - (self.written - len(self.items))) % self.config.buffer_size]

    def update_priorities(self, slots: np.ndarray, advantage: np.ndarray) -> None:
        for slot, gap in zip(slots.tolist(), advantage.tolist(), strict=True):
            self.item(slot).priority = max(gap, 1e-6)
            self.largest_priority = max(self.largest_priority, gap)


def weights_of(stored: ReplayBuffer) -> np.ndarray:
    """Each slot is sampled in proportion to this."""
    first, capacity = stored.tree.first_leaf, stored.returns.shape[0]
    return np.asarray(stored.tree.sums)[first : first + capacity]


def assert_agrees(stored: ReplayBuffer, model: Model) -> None:
    capacity, size = model.config.buffer_size, len(model.items)
    assert int(stored.size) == size
    assert int(stored.head) == model.head
    slots = (model.written - size + np.arange(size)) % capacity  # from the oldest item to the newest
    observation = np.array([item.observation for item in model.items], np.int32).reshape(size, 2)
    assert_array_equal(np.asarray(stored.observation)[slots], observation)
    assert_array_equal(np.asarray(stored.action)[slots], [item.action for item in model.items])
    assert_allclose(np.asarray(stored.returns)[slots], [item.returns for item in model.items], rtol=2e-5, atol=2e-5)
    for name, extra in stored.extras.items():
        expected = np.array([item.extras[name] for item in model.items]).reshape(size, *extra.shape[1:])
        assert_allclose(np.asarray(extra)[slots], expected, rtol=2e-5, atol=2e-5, err_msg=name)
    weight = np.zeros(capacity)
    weight[slots] = np.array([item.priority for item in model.items]) ** model.config.priority_exponent
    assert_allclose(weights_of(stored), weight, rtol=1e-5)
    assert_allclose(stored.tree.minimum, weight[slots].min(initial=np.inf), rtol=1e-5)
    assert_allclose(stored.largest_priority, model.largest_priority, rtol=1e-6)
    assert_array_equal(stored.pending.unfinished.length, [len(steps) for steps in model.unfinished])
    assert bool(stored.pending.negative_seen) == model.negative_seen


def empty(
    rollout: Rollout, config: SelfImitationConfig, max_pending_steps: int = 150, extras: tuple[str, ...] = ()
) -> tuple[ReplayBuffer, Model]:
    stored = replay.create(rollout, config, max_pending_steps, extras=extras)
    records_extras = bool({PAIR, LOG_PROB} & set(extras))
    return on_host(stored), Model(
        rollout.reward.shape[1], stored.pending.max_pending_steps, config, records_extras=records_extras
    )


def follow(config: SelfImitationConfig, rollouts: list[Rollout], max_pending_steps: int = 150) -> ReplayBuffer:
    """Take in the rollouts one after the other, in step with the model."""
    stored, model = empty(rollouts[0], config, max_pending_steps)
    for rollout in rollouts:
        stored = on_host(insert(stored, rollout, config))
        model.insert(rollout)
        assert_agrees(stored, model)
    return stored


def one_env(lengths: list[int], steps: int = 20, rewards=None) -> list[Rollout]:
    """Episodes of these lengths, one after the other in one environment, cut into rollouts of so many steps."""
    total = -(-sum(lengths) // steps) * steps
    ended = np.zeros(total, bool)
    ended[np.cumsum(lengths) - 1] = True
    reward = np.ones(total) if rewards is None else np.pad(np.asarray(rewards, float), (0, total - len(rewards)))
    source = Steps(1)
    return [source.rollout(reward[i : i + steps], ended[i : i + steps]) for i in range(0, total, steps)]


PLAIN = SelfImitationConfig(buffer_size=200, gamma=0.5, learning_starts=4)
"""Shared, with rollouts of 20 steps in one environment, by the tests that need nothing special."""


def with_advantages(stored: ReplayBuffer, advantage, config: SelfImitationConfig) -> ReplayBuffer:
    """Slot i gets advantage i."""
    advantage = np.asarray(advantage, np.float32)
    slot = np.arange(len(advantage), dtype=np.int32)
    held = stored.observation[slot], stored.action[slot], stored.returns[slot]
    batch = Batch(*map(jnp.asarray, (slot, *held, np.ones_like(advantage))))
    return on_host(update_priorities(stored, batch, advantage, config))


def of_advantages(advantage, config: SelfImitationConfig) -> ReplayBuffer:
    """A buffer of one episode with these advantages; `config` may differ from `PLAIN` in how it samples."""
    return with_advantages(follow(PLAIN, one_env([len(advantage)])), advantage, config)


def assert_same_bits(one, other) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def without_pending(stored: ReplayBuffer) -> tuple:
    return tuple(getattr(stored, f.name) for f in dataclasses.fields(stored) if f.name not in ("pending", "stack"))


def with_resets(rollout: Rollout, resetting: np.ndarray) -> tuple[Rollout, np.ndarray]:
    """The step after each end is a reset step with a reward of 1e6, which ends nothing.

    `resetting`: whether the first step of an environment is one; also returned for the next rollout.
    """
    columns = {name: np.array(getattr(rollout, name)) for name in ("reward", "terminated", "truncated")}
    valid = np.ones(columns["reward"].shape, bool)
    for t in range(len(valid)):
        valid[t] = ~resetting
        columns["reward"][t, resetting] = 1e6
        columns["terminated"][t, resetting] = columns["truncated"][t, resetting] = False
        resetting = columns["terminated"][t] | columns["truncated"][t]
    columns = {name: jnp.asarray(column) for name, column in columns.items()}
    return dataclasses.replace(rollout, **columns, valid=jnp.asarray(valid)), resetting


# Against the plain model


@dataclasses.dataclass(frozen=True)
class Setting:
    steps: int
    num_envs: int
    config: SelfImitationConfig
    max_pending_steps: int
    rollouts: int
    resets: bool
    """Environments reset on the next step: the step after an end is a reset step."""
    extras: tuple[str, ...]


def setting(
    steps: int,
    num_envs: int,
    capacity: int,
    max_pending_steps: int,
    keep: str,
    rollouts: int,
    resets: bool = False,
    extras: tuple[str, ...] = (),
    truncated_returns: str = "as-is",
) -> Setting:
    config = SelfImitationConfig(
        buffer_size=capacity, keep=keep, truncated_returns=truncated_returns, learning_starts=3, gamma=0.9
    )
    return Setting(steps, num_envs, config, max_pending_steps, rollouts, resets, extras)


EXTRAS = (PAIR, LOG_PROB, REWARD, STEPS_LEFT, ENTROPY_RETURN)


SETTINGS = {
    "short rollouts, several environments": setting(5, 3, 31, 12, "all", 10, resets=True),
    "single steps, only rewarded episodes": setting(1, 4, 30, 6, "positive", 25, resets=True),
    "rollouts longer than an episode may wait and than the capacity": setting(40, 2, 31, 6, "all", 3),
    "episodes of several chunks, a tree with levels": setting(100, 2, 1100, 190, "all", 8),
    "episodes longer than the capacity, only rewarded ones": setting(32, 2, 100, 1000, "positive", 10),
    "episodes in parts, only informative ones": setting(7, 2, 60, 10, "informative", 12, resets=True),
    "extras of episodes in parts, only rewarded ones": setting(5, 3, 31, 12, "positive", 10, True, EXTRAS),
    "extras of episodes of several chunks": setting(100, 2, 1100, 190, "all", 8, extras=EXTRAS),
    "episodes in parts, continued": setting(
        7, 2, 60, 10, "informative", 12, resets=True, truncated_returns="continued"
    ),
    "episodes of several chunks, continued": setting(100, 2, 1100, 190, "all", 8, truncated_returns="continued"),
    "steps left, only informative ones": setting(7, 2, 60, 10, "informative", 12, True, (STEPS_LEFT,)),
}


@pytest.mark.parametrize("name", SETTINGS)
@settings(deadline=None, derandomize=True, max_examples=8)
@given(data=st.data())
def test_rollouts_and_new_priorities_match_a_plain_model(name, data):
    chosen = SETTINGS[name]
    config, shape = chosen.config, (chosen.steps, chosen.num_envs)
    end_rate = st.sampled_from([0.0, 0.01, 0.05, 0.3, 1.0])
    end_rates = data.draw(st.tuples(*[end_rate] * chosen.num_envs), label="ends per step in each environment")
    reward_rate = data.draw(st.sampled_from([0.0, 0.02, 0.3, 1.0]), label="share of steps with a reward")
    lowest = data.draw(st.sampled_from([-1.0, 0.25]), label="lowest reward")
    operations = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=chosen.rollouts), label="seeds")
    source = Steps(chosen.num_envs)
    stored = model = None
    resetting = np.zeros(chosen.num_envs, bool)
    for seed in operations:
        rng = np.random.default_rng(seed)
        reward = np.where(rng.random(shape) < reward_rate, rng.choice([lowest, 0.5, 2.0], shape), 0.0)
        ended = rng.random(shape) < end_rates
        rollout = source.rollout(reward, ended, truncated=rng.random(shape) < 0.5)
        if chosen.resets:
            rollout, resetting = with_resets(rollout, resetting)
        if stored is None:
            stored, model = empty(rollout, config, chosen.max_pending_steps, chosen.extras)
        stored = insert(stored, rollout, config)
        model.insert(rollout)
        assert_agrees(stored, model)

        batch = sample_at(stored, rng.random((stored.tree.levels, 16), dtype=np.float32), config)
        counted = min(16, len(model.items)) if len(model.items) > config.learning_starts else 0
        assert_array_equal(np.asarray(batch.weight) > 0, np.arange(16) < counted)
        slots = np.asarray(batch.slot)
        assert (slots < max(len(model.items), 1)).all()
        if rng.random() < 0.5:
            table = rng.choice([-1.0, 0.0, 1e-8, 0.01, 0.7, 3.0], config.buffer_size) * rng.uniform(
                0.5, 1, config.buffer_size
            )
            advantage = table.astype(np.float32)[slots]
            advantage[counted:] = 50.0
            stored = update_priorities(stored, batch, advantage, config)
            model.update_priorities(slots[:counted], advantage[:counted])
            assert_agrees(stored, model)


# How episodes arrive


def test_episodes_that_end_in_one_rollout_are_stored_by_time_then_by_environment():
    #  environment     0  1  2
    ended = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 1]])
    stored = follow(SelfImitationConfig(buffer_size=150), [Steps(3).rollout(np.ones((4, 3)), ended)])
    assert stored.size == 10
    assert_array_equal(stored.observation[:10, 1], [3, 1, 1, 2, 2, 2, 2, 3, 3, 3])
    assert_array_equal(stored.observation[:10, 0], [3, 1, 4, 2, 5, 8, 11, 6, 9, 12])


def test_environments_do_not_mix():
    """Each stored episode is one stretch of steps of one environment, however the others end."""
    source, rng = Steps(3), np.random.default_rng(0)
    ended = rng.random((12, 4, 3)) < [0.9, 0.3, 0.05]
    ended[-1, -1] = True
    stored = follow(SelfImitationConfig(buffer_size=150), [source.rollout(np.ones((4, 3)), end) for end in ended])
    assert stored.size == ended.size
    number, environment = stored.observation[: stored.size].T
    assert_array_equal((number - 1) % 3 + 1, environment)
    ended = ended.reshape(-1, 3)
    for here, following in zip(number[:-1] - 1, number[1:] - 1, strict=True):
        assert following == here + 3 or ended[here // 3, here % 3]


@pytest.mark.parametrize("lengths", [[4, 4, 5, 7], [5, 9, 3, 8, 2, 7], [12, 12, 1], [13], [11, 2]])
def test_the_oldest_steps_leave_first(lengths):
    """Also where one rollout brings more than the buffer holds."""
    stored = follow(SelfImitationConfig(buffer_size=12, learning_starts=1), one_env(lengths, sum(lengths)))
    total = sum(lengths)
    assert stored.head == total % 12
    newest_first = (total - 1 - np.arange(12)) % 12
    assert_array_equal(stored.observation[newest_first, 0], total - np.arange(12))


def test_a_long_episode_survives_shorter_ones_beside_it():
    """One environment takes 37 steps, the other ends at every second step: the ring of recent steps goes round."""
    source, t = Steps(2), np.arange(80)
    ended = np.stack([t % 37 == 36, t % 2 == 1], axis=1)
    reward = np.stack([t % 5, t % 3], axis=1)
    rollouts = [source.rollout(reward[i : i + 4], ended[i : i + 4]) for i in range(0, 80, 4)]
    stored = follow(SelfImitationConfig(buffer_size=200), rollouts, max_pending_steps=37)
    number, environment = stored.observation[: stored.size].T
    assert_array_equal(number[environment == 1], 1 + 2 * np.arange(74))


FOUR_WAIT = SelfImitationConfig(buffer_size=100, max_pending_steps=4, gamma=0.5, keep="positive")
"""Of an unfinished episode, four steps wait; of a longer one, two move on at a time."""


def test_an_over_long_episode_is_stored_in_parts():
    """The first steps with the returns of the four steps seen by then, the last ones with exact returns."""
    stored = follow(FOUR_WAIT, one_env([23], 5, np.arange(1, 24)))
    assert stored.size == 23
    assert_array_equal(stored.observation[:23, 0], np.arange(1, 24))
    assert_allclose(stored.returns[:3], [1 + 2 / 2 + 3 / 4 + 4 / 8, 2 + 3 / 2 + 4 / 4, 3 + 4 / 2 + 5 / 4 + 6 / 8])
    assert_allclose(stored.returns[20:23], [21 + 22 / 2 + 23 / 4, 22 + 23 / 2, 23])


@pytest.mark.parametrize(
    ("rewarded_step", "stored_steps"),
    [(1, [1]), (6, [3, 4, 5, 6]), (19, [17, 18, 19]), (20, [17, 18, 19, 20]), (None, [])],
)
def test_what_is_judged_is_what_is_stored(rewarded_step, stored_steps):
    """An episode of 20 steps with one reward: the steps before it that waited with it, and none after it."""
    stored = follow(FOUR_WAIT, one_env([20], steps=5, rewards=np.arange(1, 21) == rewarded_step))
    assert_array_equal(stored.observation[: stored.size, 0], stored_steps)
    assert (stored.returns[: stored.size] > 0).all()


def test_a_reward_that_has_moved_on_does_not_keep_the_rest():
    """After a reward below 0 nothing is cut off, so that only the judgement of the last part decides."""
    stored = follow(FOUR_WAIT, one_env([20], steps=5, rewards=[1, -1, *[0] * 18]))
    assert_array_equal(stored.observation[: stored.size, 0], [1, 2])


@pytest.mark.parametrize(
    ("keep", "rewards", "stored_steps"),
    [
        ("informative", [0, 0, 0, 0, 1, 0, 0, 0, 0], [4, 5]),
        ("informative", [0, 0, 0, 0, 0, 0, 0, 0, 0], []),
        ("informative", [0, 0, -1, 0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("positive", [0, 0, -1, 0, 0, 0, 0, 1, 0], [7, 8, 9]),
        ("all", [0, 0, 0, 0, 1, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_which_of_three_episodes_are_kept(keep, rewards, stored_steps):
    """Of three steps each. Where no reward is below 0, a return of 0 teaches nothing; else it may be the best one."""
    config = SelfImitationConfig(buffer_size=100, keep=keep)
    stored = follow(config, one_env([3, 3, 3], steps=9, rewards=rewards))
    assert_array_equal(stored.observation[: stored.size, 0], stored_steps)


def test_a_reward_does_not_count_for_the_next_episode():
    rollouts = one_env([3, 3, 2, 4], steps=5, rewards=[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    stored = follow(FOUR_WAIT, rollouts)
    assert_array_equal(stored.observation[: stored.size, 0], [4, 5])


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1, 300])
def test_returns_reach_back_over_all_chunks_of_an_episode(length):
    rewards = np.zeros(length)
    rewards[-1] = 1
    config = SelfImitationConfig(buffer_size=1000, gamma=0.99)
    stored = follow(config, one_env([length], 100, rewards), max_pending_steps=300)
    assert stored.size == length
    assert_allclose(stored.returns[:length], 0.99 ** np.arange(length)[::-1], rtol=1e-5)


def test_several_episodes_of_one_environment_in_one_rollout():
    lengths = [3, 1, 1, 6, 2, 4]
    stored = follow(PLAIN, one_env(lengths))
    assert stored.size == sum(lengths)
    assert_allclose(stored.returns[:17], np.concatenate([2 - 0.5 ** np.arange(n)[::-1] for n in lengths]))
    assert stored.pending.unfinished.length[0] == 3


def test_an_episode_that_is_not_kept_leaves_the_buffer_untouched():
    """Bit for bit, also when the buffer is full and its priorities have changed."""
    config = SelfImitationConfig(buffer_size=20, keep="positive", learning_starts=1)
    source = Steps(2)

    def rollout(reward: float, *ends: int) -> Rollout:
        return source.rollout(np.full((10, 2), reward), np.arange(10)[:, None] == ends)

    stored, _ = empty(rollout(1.0, 4, 6), config)
    for _ in range(3):
        stored = on_host(insert(stored, rollout(1.0, 4, 6), config))
    stored = with_advantages(stored, np.linspace(0, 5, 20), config)
    stored = on_host(insert(stored, rollout(0.0, 0, 9), config))  # ends the episodes that have had rewards
    before = without_pending(stored)
    for reward, *ends in ((0.0, 9, 9), (-1.0, 3, 9), (0.0, 0, 1), (0.0, 20, 20), (-2.0, 5, 7)):
        stored = on_host(insert(stored, rollout(reward, *ends), config))
        assert_same_bits(without_pending(stored), before)
    after = on_host(insert(stored, rollout(1.0, 0, 20), config))
    assert after.head != stored.head


def test_as_is_a_time_limit_ends_an_episode_as_a_terminal_state_does():
    """Stored returns never bootstrap."""
    ended = np.arange(20) % 5 == 4
    results = [
        follow(PLAIN, [Steps(1).rollout(np.ones(20), ended, truncated)])
        for truncated in (np.zeros(20, bool), np.ones(20, bool), np.arange(20) < 6)
    ]
    both = Steps(1).rollout(np.ones(20), ended)
    results.append(follow(PLAIN, [dataclasses.replace(both, truncated=both.terminated)]))
    for stored in results:
        assert_same_bits(stored, results[0])
        assert_allclose(stored.returns[:5], [1.9375, 1.875, 1.75, 1.5, 1.0])


CONTINUED = dataclasses.replace(PLAIN, truncated_returns="continued")


@pytest.mark.parametrize(
    ("rewards", "limit", "returns"),
    [
        # the first episode goes on with its mean of -1 for ever, a return of -1 / (1 - 1/2); the second is over
        ([-1, -1, -1, -1, -1, -1], True, [-2, -2, -2, -1.75, -1.5, -1]),
        ([-1, -1, -1, -1, -1, -1], False, [-1.75, -1.5, -1, -1.75, -1.5, -1]),
        ([0, 0, -3, 0, 0, 0], True, [-1, -2, -4, 0, 0, 0]),
        ([2, -1, -1, 0, 0, -9], True, [1.25, -1.5, -1, -2.25, -4.5, -9]),  # a mean of 0 costs nothing
        ([0, 0, 2, 0, 0, -9], True, [0.5, 1, 2, -2.25, -4.5, -9]),  # nor does one above 0: it is not assumed to go on
    ],
)
def test_an_episode_that_costs_goes_on_at_its_mean_reward_after_a_time_limit(rewards, limit, returns):
    """Two episodes of three steps: a time limit or a terminal state ends the first, a terminal state the second."""
    stored = follow(CONTINUED, [Steps(1).rollout(rewards, [0, 0, 1, 0, 0, 1], [0, 0, limit, 0, 0, 0])])
    assert_allclose(stored.returns[:6], returns)


def test_an_end_that_is_both_terminal_and_a_time_limit_is_terminal():
    both = Steps(1).rollout([-1, -1], [0, 1])
    stored = follow(CONTINUED, [dataclasses.replace(both, truncated=both.terminated)])
    assert_allclose(stored.returns[:2], [-1.5, -1])


def test_a_part_of_an_episode_goes_on_at_the_mean_reward_so_far():
    """Of seven steps, two move on after the fourth and two after the sixth; the mean counts all before them."""
    config = dataclasses.replace(CONTINUED, max_pending_steps=4)
    stored = follow(config, one_env([7], 7, [-4, 0, 0, 0, 0, -2, -1]))
    # after four steps the mean is -1, a return of -2 from then on; after six it is -1 again
    assert_allclose(stored.returns[:2], [-4 - 2 / 16, -2 / 8])
    assert_allclose(stored.returns[2:4], [-2 / 8 - 2 / 16, -2 / 4 - 2 / 8])
    assert_allclose(stored.returns[4:7], [-2 / 2 - 1 / 4, -2 - 1 / 2, -1])


def test_without_a_discount_what_follows_is_finite():
    config = dataclasses.replace(CONTINUED, gamma=1.0)
    stored = follow(config, [Steps(1).rollout([-1, -1], [0, 1], [0, 1])])
    assert_allclose(stored.returns[:2], [-1e6, -1e6], rtol=1e-5)


def test_steps_without_terminated_are_refused_where_it_is_needed():
    class OwnSteps(NamedTuple):
        observation: jax.Array
        action: jax.Array
        reward: jax.Array
        ended: jax.Array
        valid: None = None

    rollout = Steps(1).rollout([-1, -1], [0, 1])
    own = OwnSteps(rollout.observation, rollout.action, rollout.reward, rollout.ended)
    replay.insert(replay.create(own, PLAIN, 2), own, PLAIN)
    with pytest.raises(UsageError, match="terminated: the steps need this field with truncated_returns = continued"):
        replay.insert(replay.create(own, CONTINUED, 2), own, CONTINUED)


def test_the_last_state_of_a_stored_episode_is_what_was_seen():
    """Not zeros, and not the first state of the next episode."""
    lengths = [1, 2, 70, 5, 64, 3]
    stored = follow(PLAIN, one_env(lengths))
    last = np.cumsum(lengths) - 1
    assert_array_equal(stored.observation[last, 0], last + 1)
    assert (stored.observation[: sum(lengths)] != 0).all()


def test_returns_stop_at_the_end_of_their_episode():
    stored = follow(PLAIN, one_env([3, 1, 4, 1], rewards=[1, 0, 2, 100, 0, 0, 0, -5, 7]))
    assert_allclose(stored.returns[:9], [1.5, 1.0, 2.0, 100.0, -0.625, -1.25, -2.5, -5.0, 7.0])


def test_reset_steps_are_not_stored():
    """Episodes of 3, 1, 4 and 2 steps, of which the first and the third are rewarded, with and without reset steps."""
    config = SelfImitationConfig(buffer_size=20, keep="positive", learning_starts=1)
    rewards = [0, 1, 0, 0, 0, 0, 0, 2, 0, 0]
    (plain,) = one_env([3, 1, 4, 2], 10, rewards)
    rows = [0, 1, 2, None, 3, None, 4, 5, 6, 7, None, 8, 9, None]

    def spread(column):
        column = np.asarray(column)
        garbage = np.zeros_like(column[0]) if column.dtype == bool else np.full_like(column[0], 12345)
        return jnp.asarray(np.stack([garbage if row is None else column[row] for row in rows]))

    names = ("observation", "action", "reward", "terminated", "truncated")
    columns = {name: spread(getattr(plain, name)) for name in names}
    valid = jnp.asarray(np.array([[row is not None] for row in rows]))
    masked = make_rollout(*columns.values())
    masked = dataclasses.replace(masked, **columns, valid=valid)
    expected, stored = (on_host(insert(replay.create(r, config, 14), r, config)) for r in (plain, masked))
    assert stored.size == 2 + 4, "not the step after the first reward"
    assert_same_bits(without_pending(stored), without_pending(expected))
    assert_array_equal(stored.pending.unfinished.length, expected.pending.unfinished.length)
    assert_array_equal(stored.pending.unfinished.since_positive, expected.pending.unfinished.since_positive)


def test_observations_and_actions_keep_their_shape_and_type():
    """Images of bytes with numbers beside them, and continuous actions, in two environments."""
    rng = np.random.default_rng(3)
    observation = {
        "image": jnp.asarray(rng.integers(0, 256, (9, 2, 4, 3, 1), dtype=np.uint8)),
        "numbers": jnp.asarray(rng.normal(size=(9, 2, 2)).astype(np.float32)),
    }
    action = rng.normal(size=(9, 2, 5)).astype(np.float32)
    ended = np.arange(9)[:, None] == [8, 3]
    rollout = make_rollout(np.zeros((9, 2, 1)), action, np.ones((9, 2)), ended, 0 * ended)
    rollout = dataclasses.replace(rollout, observation=observation)
    config = SelfImitationConfig(buffer_size=30, learning_starts=0, batch_size=8)
    stored = insert(replay.create(rollout, config, 30), rollout, config)
    batch = jax.jit(replay.sample, static_argnums=2)(stored, jax.random.key(0), config)
    assert stored.size == 13
    for column, sampled in ((action, batch.action), *((observation[k], batch.observation[k]) for k in observation)):
        inserted = np.asarray(column)
        inserted = np.concatenate([inserted[:4, 1], inserted[:, 0]])  # in the order of ending
        assert sampled.dtype == inserted.dtype
        assert_array_equal(sampled, inserted[np.asarray(batch.slot)])


def test_a_buffer_without_extras_has_no_arrays_for_them():
    rollout = Steps(2).rollout(np.zeros((5, 2)), np.zeros((5, 2)))
    without, with_extras = (
        replay.create(rollout, SelfImitationConfig(buffer_size=60), 12, extras=extras) for extras in ((), EXTRAS)
    )
    assert without.extras == without.pending.extras == {}
    names = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(without)}
    fields = "observation action returns tree.sums tree.minima tree.minimum head size largest_priority"
    pending = "observation action reward position negative_seen"
    unfinished = "length since_positive since_reward truncated_start"
    assert names == {
        *(f".{name}" for name in fields.split()),
        *(f".pending.{name}" for name in pending.split()),
        *(f".pending.unfinished.{name}" for name in unfinished.split()),
    }
    assert len(jax.tree.leaves(with_extras)) == len(names) + len(EXTRAS) + 2  # the recorded ones wait for the end, too
    assert {name: extra.dtype for name, extra in with_extras.extras.items()} == {
        **dict.fromkeys((LOG_PROB, REWARD, ENTROPY_RETURN), np.float32),
        **dict.fromkeys((PAIR, STEPS_LEFT), np.int32),
    }
    assert with_extras.extras[PAIR].shape == (60, 2)


def test_the_discounted_sum_of_entropies_by_hand():
    """Of -log mu(a|s) = 1, 2, 4 with the discount 1/2: 1 + 2/2 + 4/4, 2 + 4/2 and 4."""
    rollout = one_env([3], 3)[0]
    rollout = dataclasses.replace(rollout, extras={LOG_PROB: jnp.array([[-1.0], [-2.0], [-4.0]])})
    stored = insert(replay.create(rollout, PLAIN, 10, extras=(ENTROPY_RETURN,)), rollout, PLAIN)
    assert stored.extras.keys() == {ENTROPY_RETURN}
    assert_array_equal(stored.extras[ENTROPY_RETURN][:3], [3.0, 4.0, 4.0])


def test_sums_of_entropies_continue_over_chunks_and_not_over_episodes():
    """With the entropy 1/4 at every step and no discount, they count the steps to the end of each episode."""
    config, lengths = dataclasses.replace(PLAIN, gamma=1.0), [2 * CHUNK + 5, 7, CHUNK]
    rollouts = one_env(lengths, steps=sum(lengths))
    quarters = {LOG_PROB: jnp.full(rollouts[0].reward.shape, -0.25)}
    rollout = dataclasses.replace(rollouts[0], extras=quarters)
    stored = insert(replay.create(rollout, config, 150, extras=(ENTROPY_RETURN, STEPS_LEFT)), rollout, config)
    left = np.concatenate([np.arange(length)[::-1] for length in lengths])[-PLAIN.buffer_size :]
    slots = (int(stored.head) - len(left) + np.arange(len(left))) % PLAIN.buffer_size
    assert_array_equal(np.asarray(stored.extras[STEPS_LEFT])[slots], left)
    assert_allclose(np.asarray(stored.extras[ENTROPY_RETURN])[slots], (left + 1) / 4, rtol=1e-6)


def test_pending_episodes_can_be_dropped():
    """But not that rewards can be negative."""
    stored = follow(PLAIN, one_env([5, 100], rewards=[-1.0] + [1.0] * 104))
    assert stored.pending.unfinished.length[0] > 0
    dropped = replay.drop_pending(stored)
    assert dropped.pending.negative_seen
    dropped = eqx.tree_at(lambda b: b.pending.negative_seen, dropped, np.array(False))
    for leaf, before in zip(jax.tree.leaves(dropped.pending), jax.tree.leaves(stored.pending), strict=True):
        assert not np.asarray(leaf).any()
        assert (leaf.shape, leaf.dtype) == (before.shape, before.dtype)
    assert_same_bits(without_pending(dropped), without_pending(stored))


def test_max_pending_steps_is_configured_or_the_time_limit_and_never_above_the_capacity():
    rollout = jax.eval_shape(lambda: Steps(2).rollout(np.zeros((5, 2)), np.zeros((5, 2))))
    for configured, limit, capacity, expected in ((None, 50, 100, 50), (20, 50, 100, 20), (None, 500, 100, 100)):
        stored = replay.create(rollout, SelfImitationConfig(max_pending_steps=configured, buffer_size=capacity), limit)
        assert stored.pending.max_pending_steps == expected
        assert stored.pending.reward.shape[0] >= expected + 5 - 1
        assert stored.pending.reward.shape[0] % 5 == 0
        assert stored.returns.shape == (capacity,)


# Priorities and sampling


def test_a_new_item_gets_the_largest_priority_seen_so_far():
    config = SelfImitationConfig(buffer_size=6, learning_starts=1)
    rollouts = one_env([3, 2, 2, 5], 3)
    stored = follow(config, rollouts[:1])
    assert_allclose(weights_of(stored), [1, 1, 1, 0, 0, 0])
    stored = with_advantages(stored, [0.2, 5.0, 0.3], config)
    stored = with_advantages(stored, [0.2, 0.1, 0.3], config)  # the largest so far, not the largest present
    assert_allclose(stored.largest_priority, 5.0)
    stored = on_host(insert(stored, rollouts[1], config))
    assert_allclose(weights_of(stored), np.array([0.2, 0.1, 0.3, 5, 5, 0]) ** 0.6, rtol=1e-5)
    for rollout in rollouts[2:]:
        stored = on_host(insert(stored, rollout, config))
    assert_allclose(weights_of(stored), np.full(6, 5) ** 0.6, rtol=1e-5)


def test_the_floor_of_a_priority_is_a_millionth():
    stored = of_advantages([0.0, -3.0, 1e-7, 2e-6, 1.0], PLAIN)
    assert_allclose(weights_of(stored)[:5], np.array([1e-6, 1e-6, 1e-6, 2e-6, 1.0]) ** 0.6, rtol=1e-5)
    assert stored.largest_priority == 1


@pytest.mark.parametrize(("exponent", "smallest"), [(0.0, 1e-3), (0.6, 1e-6), (1.0, 1e-3)])
def test_items_are_sampled_in_proportion_to_their_advantage_to_the_exponent(exponent, smallest):
    config = dataclasses.replace(PLAIN, priority_exponent=exponent)
    advantage = np.concatenate([np.geomspace(smallest, 1, 37), [3.0, 3.0]])
    if exponent < 1:
        advantage = np.append(advantage, [0.0, -2.0, 1e-9])
    stored = of_advantages(advantage, config)
    uniform = np.random.default_rng(6).random((stored.tree.levels, 500_000), dtype=np.float32)
    slot = np.asarray(sample_at(stored, uniform, config).slot)
    expected = np.maximum(advantage, 1e-6) ** exponent
    expected *= uniform.shape[1] / expected.sum()
    assert expected.min() > 5
    assert slot.max() < len(advantage)
    assert stats.chisquare(np.bincount(slot, minlength=len(advantage)), expected).pvalue > 1e-4


def test_a_batch_holds_what_its_slots_hold():
    stored = follow(PLAIN, one_env([90, 80, 70], rewards=np.arange(240) % 11))
    batch = on_host(
        sample_at(stored, np.random.default_rng(7).random((stored.tree.levels, 128), dtype=np.float32), PLAIN)
    )
    assert len(set(batch.slot.tolist())) > 60
    assert_array_equal(batch.observation, stored.observation[batch.slot])
    assert_array_equal(batch.action, stored.action[batch.slot])
    assert_array_equal(batch.returns, stored.returns[batch.slot])


def sample_evenly(stored: ReplayBuffer, config: SelfImitationConfig) -> Batch:
    """Twelve items of the few that are stored, which all lie below one node: from the first to the last."""
    return sample_at(stored, np.tile(np.linspace(0, 0.999, 12, dtype=np.float32), (stored.tree.levels, 1)), config)


@pytest.mark.parametrize(("importance_exponent", "by_hand"), [(0.0, 1.0), (0.1, 0.44), (0.4, 0.036)])
def test_importance_weights_are_relative_to_the_smallest_priority(importance_exponent, by_hand):
    """An item of advantage 1 beside one at the floor: (1 / 1e-6)^(-0.6 beta)."""
    config = dataclasses.replace(PLAIN, importance_exponent=importance_exponent)
    advantage = np.array([1.0, 0.0, *[0.3] * 9, 1.0])
    batch = on_host(sample_evenly(of_advantages(advantage, config), config))
    sampled = np.maximum(advantage, 1e-6)[batch.slot]
    assert set(sampled.tolist()) == {0.3, 1.0}
    assert_allclose(batch.weight[sampled == 1], by_hand, rtol=0.02)
    assert_allclose(batch.weight, (sampled / 1e-6) ** (-0.6 * importance_exponent), rtol=1e-4)


def test_the_smallest_priority_is_that_of_items_that_can_be_sampled():
    """Neither empty slots nor an item that was pushed out count."""
    config = SelfImitationConfig(buffer_size=6, learning_starts=1)
    rollouts = one_env([3, 3, 3], 3)
    stored = follow(config, rollouts[:1])
    assert_allclose(sample_evenly(stored, config).weight[:3], 1.0)
    stored = with_advantages(stored, [0.5, 0.0, 0.5], config)
    assert_allclose(sample_evenly(stored, config).weight[:3], (0.5 / 1e-6) ** -0.24, rtol=1e-4)
    for rollout in rollouts[1:]:
        stored = on_host(insert(stored, rollout, config))
    assert_allclose(sample_evenly(stored, config).weight[:6], 1.0)


def test_entries_beyond_the_number_stored_are_empty():
    batch = on_host(sample_evenly(follow(PLAIN, one_env([5])), PLAIN))
    assert_array_equal(batch.weight, [1.0] * 5 + [0.0] * 7)
    assert set(batch.slot.tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("stored_steps", "counted"), [(1, 0), (4, 0), (5, 5), (6, 6)])
def test_batches_are_empty_until_more_than_learning_starts_steps_are_stored(stored_steps, counted):
    assert PLAIN.learning_starts == 4
    stored = follow(PLAIN, one_env([stored_steps]))
    batch = sample_evenly(stored, PLAIN)
    assert_array_equal(batch.weight, np.arange(12) < counted)
    after = on_host(update_priorities(stored, batch, np.full(12, 9, np.float32), PLAIN))
    if counted:
        assert after.largest_priority == 9
    else:
        assert_same_bits(after, stored)


def test_an_empty_buffer_gives_an_empty_batch():
    config = SelfImitationConfig(buffer_size=2000, learning_starts=0)
    stored, _ = empty(Steps(1).rollout(np.zeros(20), np.zeros(20)), config)
    batch = sample_evenly(stored, config)
    assert_array_equal(batch.weight, np.zeros(12))
    assert_array_equal(batch.slot, np.zeros(12))
    assert np.isfinite(batch.returns).all()
    assert_same_bits(update_priorities(stored, batch, np.full(12, 7, np.float32), config), stored)


def test_empty_entries_never_change_a_priority():
    stored = of_advantages([0.1, 0.2, 0.3, 0.4, 0.5], PLAIN)
    uniform = np.array([0.0, 0.999, 0.999, 0.0, 0.999, 0.999, 0.5, 0.0, 0.3, 0.4, 0.6, 0.7], np.float32)
    batch = sample_at(stored, np.tile(uniform, (stored.tree.levels, 1)), PLAIN)
    advantage = np.array([0.6, 0.7, 0.7, 0.6, 0.7, 80, 90, 0, 70, 0, 60, 0], np.float32)
    after = on_host(update_priorities(stored, batch, advantage, PLAIN))
    assert_allclose(weights_of(after)[:5], np.array([0.6, 0.2, 0.3, 0.4, 0.7]) ** 0.6, rtol=1e-5)
    assert_array_equal(weights_of(after)[5:], np.zeros(PLAIN.buffer_size - 5))
    assert after.largest_priority == 1
    nothing = dataclasses.replace(batch, weight=jnp.zeros(12))
    assert_same_bits(update_priorities(stored, nothing, advantage, PLAIN), stored)


# Seeds side by side, and the cost


def rollouts_of_seeds(rng: np.random.Generator, sources: list[Steps], steps: int, rates: list[float]) -> list[Rollout]:
    shape = (steps, sources[0].num_envs)
    rollouts = []
    for source, rate in zip(sources, rates, strict=True):
        ended = rng.random(shape) < rate
        ended[-1, -1] |= rate > 0 and rng.random() < 0.3  # at the very last place too
        rollouts.append(source.rollout(rng.choice([0.0, 0.0, 1.0, -0.5], shape), ended))
    return rollouts


def stack(trees: list):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def test_seeds_side_by_side_are_as_each_alone():
    """Bit for bit, though one seed's episodes are short, one's are long and one's never end.

    A matrix product may round differently when it is one of several: without discount, sums of halves are exact.
    """
    config = SelfImitationConfig(
        buffer_size=300, max_pending_steps=200, keep="positive", learning_starts=5, gamma=1.0, batch_size=16
    )
    rng, sources = np.random.default_rng(8), [Steps(2) for _ in range(4)]

    def both(stored: ReplayBuffer, rollout: Rollout, key: jax.Array) -> ReplayBuffer:
        stored = replay.insert(stored, rollout, config)
        batch = replay.sample(stored, key, config)
        return replay.update_priorities(stored, batch, jnp.sin(batch.slot.astype(jnp.float32)), config)

    one_seed, all_seeds = jax.jit(both), jax.jit(jax.vmap(both))
    alone = together = None
    for number in range(14):
        rates = [0.3, 0.007, 0.0, 0.05] if number < 12 else [0.0, 0.0, 0.02, 0.05]
        rollouts = rollouts_of_seeds(rng, sources, 30, rates)
        if alone is None:
            alone = [empty(rollout, config, extras=EXTRAS)[0] for rollout in rollouts]
            together = stack(alone)
        keys = jax.random.split(jax.random.key(number), 4)
        alone = [on_host(one_seed(*seed)) for seed in zip(alone, rollouts, keys, strict=True)]
        together = on_host(all_seeds(together, stack(rollouts), keys))
        for seed, stored in enumerate(alone):
            mine = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
            assert_same_bits(mine, stored)
    assert len({int(stored.head) for stored in alone}) > 1, "the seeds went different ways"


CHEAP = {"parameter", "get-tuple-element", "tuple", "while", "bitcast", "fusion", "scatter", "dynamic-update-slice"}
"""Operations that change a few places of an array in place or do not touch it. A fusion's parts are listed as well."""


def whole_passes(compiled: str, elements: int) -> list[str]:
    """Instructions that produce an array of at least so many elements in another way than the cheap ones."""
    found = []
    for line in compiled.splitlines():
        match = re.match(r"\s*(?:ROOT )?%\S+ = (\w+)\[([\d,]+)\]\S* ([\w-]+)\(", line)
        if match and math.prod(map(int, match[2].split(","))) >= elements and match[3] not in CHEAP:
            found.append(line.strip()[:120])
    return found


def test_inserting_makes_no_pass_over_the_whole_buffer():
    """Neither a copy nor a choice between two copies, although seeds with different episodes share the loop."""
    config = SelfImitationConfig(buffer_size=40_000, max_pending_steps=100, keep="positive")
    rollout = Steps(2).rollout(np.ones((5, 2)), np.zeros((5, 2)))
    stored = replay.create(rollout, config, 100, extras=EXTRAS)

    def one(stored: ReplayBuffer, rollout: Rollout) -> ReplayBuffer:
        return replay.insert(stored, rollout, config)

    stored, rollout = stack([stored] * 3), stack([rollout] * 3)
    compiled = jax.jit(jax.vmap(one), donate_argnums=0).lower(stored, rollout).compile().as_text()
    shape = ",".join(map(str, stored.observation.shape))
    assert f"s32[{shape}]" in compiled
    assert "while(" in compiled
    assert whole_passes(compiled, stored.returns.size) == []


@pytest.fixture
def moved(monkeypatch) -> list[int]:
    """Grows by one entry at each turn of the loop that moves episodes: the number of steps it handled."""
    turns: list[int] = []
    original = priority_tree.update

    def counting(tree, leaf, weight, where):
        jax.debug.callback(lambda: turns.append(leaf.shape[0]))
        return original(tree, leaf, weight, where)

    monkeypatch.setattr(priority_tree, "update", counting)
    return turns


def test_cost_is_proportional_to_the_length_of_the_finished_episodes(moved):
    config = SelfImitationConfig(buffer_size=5000, max_pending_steps=600, keep="positive")
    take_in = jax.jit(lambda stored, rollout: replay.insert(stored, rollout, config))
    stored, _ = empty(Steps(1).rollout(np.zeros(500), np.zeros(500)), config)
    for lengths, turns in (
        ([1], 1),
        ([CHUNK - 1], 1),
        ([CHUNK], 1),
        ([CHUNK + 1], 2),
        ([3 * CHUNK], 3),
        ([200, 1, 64, 70], 4 + 1 + 1 + 2),
        ([400], 7),
    ):
        ended = np.zeros(500, bool)
        ended[np.cumsum(lengths) - 1] = True
        for reward, expected in ((1.0, turns), (0.0, 0)):  # an episode that is not kept costs nothing
            moved.clear()
            after = jax.block_until_ready(take_in(stored, Steps(1).rollout(np.full(500, reward), ended)))
            jax.effects_barrier()
            assert after.size == (sum(lengths) if reward else 0)
            assert moved == [CHUNK] * expected
