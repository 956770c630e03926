"""The memory of finished episodes against a plain model of it, and what is drawn from it against hand-made numbers."""

import dataclasses
import math
import re
from collections import deque

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from self_imitation.algorithm.iteration import iteration as algorithm
from self_imitation import collection
from self_imitation.replay import buffer as memory
from self_imitation.replay import priority_tree
from self_imitation.config import SelfImitationConfig
from self_imitation.networks.distributions import Categorical
from self_imitation.replay.buffer import CHUNK, Batch, ReplayBuffer
from self_imitation.types import Discrete, TrainState, Rollout, Spec, Step

remember = jax.jit(memory.remember, static_argnums=2)
draw_at = jax.jit(memory.draw_at, static_argnums=2)
update_priorities = jax.jit(memory.update_priorities, static_argnums=3)


def make_rollout(observation, action, reward, terminated, truncated) -> Rollout:
    """What the memory has no business with is junk, so that any use of it shows."""
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
    return Rollout(**{name: jnp.asarray(column) for name, column in columns.items()})


def on_host(tree):
    """NumPy's arrays: looking into JAX's would compile a program for every shape and slice."""
    return jax.tree.map(np.asarray, tree)


class Steps:
    """Rollouts in which no two observations and no two actions are equal, none of them 0."""

    def __init__(self, environments: int) -> None:
        self.environments = environments
        self.taken = 0

    def rollout(self, reward, ended, truncated=None) -> Rollout:
        """Rewards and ends as [T, N], or as [T] where there is one environment."""
        reward = np.asarray(reward, np.float32).reshape(-1, self.environments)
        ended = np.asarray(ended, bool).reshape(reward.shape)
        truncated = np.zeros_like(ended) if truncated is None else np.asarray(truncated, bool).reshape(reward.shape)
        number = 1 + self.taken + np.arange(reward.size, dtype=np.int32).reshape(reward.shape)
        self.taken += reward.size
        environment = np.broadcast_to(np.arange(1, self.environments + 1, dtype=np.int32), reward.shape)
        return make_rollout(
            np.stack([number, environment], axis=-1), -number, reward, ended & ~truncated, ended & truncated
        )


@dataclasses.dataclass
class Item:
    observation: tuple[int, int]
    action: int
    returns: float
    priority: float


class Model:
    """The memory in plain Python: a queue of finished steps and a list of unfinished ones for each environment."""

    def __init__(self, environments: int, room: int, config: SelfImitationConfig) -> None:
        self.config = config
        self.room = room
        self.items: deque[Item] = deque(maxlen=config.capacity)
        self.written = 0
        self.largest_priority = 1.0
        self.unfinished: list[list[tuple]] = [[] for _ in range(environments)]

    @property
    def head(self) -> int:
        return self.written % self.config.capacity

    def remember(self, rollout: Rollout) -> None:
        observation, action, reward, ended = map(
            np.asarray, (rollout.observation, rollout.action, rollout.reward, rollout.ended)
        )
        for t, n in np.ndindex(reward.shape):
            self.unfinished[n].append((tuple(observation[t, n].tolist()), int(action[t, n]), float(reward[t, n])))
            if ended[t, n]:
                self._finish(n)

    def _finish(self, environment: int) -> None:
        steps, self.unfinished[environment] = self.unfinished[environment], []
        if self.config.keep == "positive" and not any(reward > 0 for _, _, reward in steps):
            return
        items, following = [], 0.0
        for observation, action, reward in reversed(steps):
            following = reward + self.config.gamma * following
            items.append(Item(observation, action, following, self.largest_priority))
        kept = items[: self.room][::-1]
        self.items.extend(kept)
        self.written += len(kept)

    def item(self, slot: int) -> Item:
        return self.items[(slot - (self.written - len(self.items))) % self.config.capacity]

    def update_priorities(self, slots: np.ndarray, advantage: np.ndarray) -> None:
        for slot, gap in zip(slots.tolist(), advantage.tolist(), strict=True):
            self.item(slot).priority = max(gap, 1e-6)
            self.largest_priority = max(self.largest_priority, gap)


def weights_of(stored: ReplayBuffer) -> np.ndarray:
    """What each slot is drawn in proportion to."""
    first, capacity = stored.tree.first_leaf, stored.returns.shape[0]
    return np.asarray(stored.tree.sums)[first : first + capacity]


def assert_agrees(stored: ReplayBuffer, model: Model) -> None:
    capacity, size = model.config.capacity, len(model.items)
    assert int(stored.size) == size
    assert int(stored.head) == model.head
    slots = (model.written - size + np.arange(size)) % capacity  # from the oldest item to the newest
    observation = np.array([item.observation for item in model.items], np.int32).reshape(size, 2)
    assert_array_equal(np.asarray(stored.observation)[slots], observation)
    assert_array_equal(np.asarray(stored.action)[slots], [item.action for item in model.items])
    assert_allclose(np.asarray(stored.returns)[slots], [item.returns for item in model.items], rtol=2e-5, atol=2e-5)
    weight = np.zeros(capacity)
    weight[slots] = np.array([item.priority for item in model.items]) ** model.config.priority_exponent
    assert_allclose(weights_of(stored), weight, rtol=1e-5)
    assert_allclose(stored.tree.minimum, weight[slots].min(initial=np.inf), rtol=1e-5)
    assert_allclose(stored.largest_priority, model.largest_priority, rtol=1e-6)
    assert_array_equal(stored.recent.length, [min(len(steps), model.room) for steps in model.unfinished])


def empty(rollout: Rollout, config: SelfImitationConfig, room: int = 150) -> tuple[ReplayBuffer, Model]:
    stored = memory.create(rollout, config, room)
    return on_host(stored), Model(rollout.reward.shape[1], stored.recent.room, config)


def follow(config: SelfImitationConfig, rollouts: list[Rollout], room: int = 150) -> ReplayBuffer:
    """Take in the rollouts one after the other, in step with the model."""
    stored, model = empty(rollouts[0], config, room)
    for rollout in rollouts:
        stored = on_host(remember(stored, rollout, config))
        model.remember(rollout)
        assert_agrees(stored, model)
    return stored


def one_environment(lengths: list[int], steps: int = 20, rewards=None) -> list[Rollout]:
    """Episodes of these lengths, one after the other in one environment, cut into rollouts of so many steps."""
    total = -(-sum(lengths) // steps) * steps
    ended = np.zeros(total, bool)
    ended[np.cumsum(lengths) - 1] = True
    reward = np.ones(total) if rewards is None else np.pad(np.asarray(rewards, float), (0, total - len(rewards)))
    source = Steps(1)
    return [source.rollout(reward[i : i + steps], ended[i : i + steps]) for i in range(0, total, steps)]


PLAIN = SelfImitationConfig(capacity=200, discount=0.5, learning_starts=4)
"""Shared, with rollouts of 20 steps in one environment, by the tests that need nothing special."""


def with_advantages(stored: ReplayBuffer, advantage, config: SelfImitationConfig) -> ReplayBuffer:
    """Slot i gets advantage i."""
    advantage = np.asarray(advantage, np.float32)
    slot = np.arange(len(advantage), dtype=np.int32)
    held = stored.observation[slot], stored.action[slot], stored.returns[slot]
    batch = Batch(*map(jnp.asarray, (slot, *held, np.ones_like(advantage))))
    return on_host(update_priorities(stored, batch, advantage, config))


def of_advantages(advantage, config: SelfImitationConfig) -> ReplayBuffer:
    """A memory of one episode with these advantages; `config` may differ from `PLAIN` in how it draws."""
    return with_advantages(follow(PLAIN, one_environment([len(advantage)])), advantage, config)


def assert_same_bits(one, other) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def without_recent(stored: ReplayBuffer) -> tuple:
    return tuple(getattr(stored, f.name) for f in dataclasses.fields(stored) if f.name not in ("recent", "stack"))


# Against the plain model


@dataclasses.dataclass(frozen=True)
class Setting:
    steps: int
    environments: int
    config: SelfImitationConfig
    room: int
    rollouts: int


def setting(steps: int, environments: int, capacity: int, room: int, keep: str, rollouts: int) -> Setting:
    config = SelfImitationConfig(capacity=capacity, keep=keep, learning_starts=3, discount=0.9)
    return Setting(steps, environments, config, room, rollouts)


SETTINGS = {
    "short rollouts, several environments": setting(5, 3, 31, 12, "all", 14),
    "single steps, only rewarded episodes": setting(1, 4, 30, 6, "positive", 40),
    "rollouts longer than the room and than what is held": setting(40, 2, 31, 6, "all", 4),
    "episodes of several chunks": setting(30, 2, 300, 150, "all", 16),
    "episodes longer than the capacity, only rewarded ones": setting(32, 2, 100, 1000, "positive", 14),
    "a tree with levels, one environment": setting(200, 1, 1100, 190, "all", 8),
    "a capacity of one": setting(3, 2, 1, 5, "all", 4),
}


@pytest.mark.parametrize("name", SETTINGS)
@settings(deadline=None, derandomize=True, max_examples=16)
@given(data=st.data())
def test_any_rollouts_and_new_priorities_agree_with_a_plain_model(name, data):
    chosen = SETTINGS[name]
    config, shape = chosen.config, (chosen.steps, chosen.environments)
    end_rate = st.sampled_from([0.0, 0.01, 0.05, 0.3, 1.0])
    end_rates = data.draw(st.tuples(*[end_rate] * chosen.environments), label="ends per step in each environment")
    reward_rate = data.draw(st.sampled_from([0.0, 0.02, 0.3, 1.0]), label="share of steps with a reward")
    operations = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=chosen.rollouts), label="seeds")
    source = Steps(chosen.environments)
    stored = model = None
    for seed in operations:
        rng = np.random.default_rng(seed)
        reward = np.where(rng.random(shape) < reward_rate, rng.choice([-1.0, 0.5, 2.0], shape), 0.0)
        rollout = source.rollout(reward, rng.random(shape) < end_rates, truncated=rng.random(shape) < 0.5)
        if stored is None:
            stored, model = empty(rollout, config, chosen.room)
        stored = remember(stored, rollout, config)
        model.remember(rollout)
        assert_agrees(stored, model)

        batch = draw_at(stored, rng.random((stored.tree.levels, 16), dtype=np.float32), config)
        counted = min(16, len(model.items)) if len(model.items) > config.learning_starts else 0
        assert_array_equal(np.asarray(batch.weight) > 0, np.arange(16) < counted)
        slots = np.asarray(batch.slot)
        assert (slots < max(len(model.items), 1)).all()
        if rng.random() < 0.5:
            table = rng.choice([-1.0, 0.0, 1e-8, 0.01, 0.7, 3.0], config.capacity) * rng.uniform(
                0.5, 1, config.capacity
            )
            advantage = table.astype(np.float32)[slots]
            advantage[counted:] = 50.0
            stored = update_priorities(stored, batch, advantage, config)
            model.update_priorities(slots[:counted], advantage[:counted])
            assert_agrees(stored, model)


# How episodes arrive


def test_episodes_that_end_in_one_rollout_join_by_time_then_by_environment():
    #  environment     0  1  2
    ended = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 1]])
    stored = follow(SelfImitationConfig(capacity=150), [Steps(3).rollout(np.ones((4, 3)), ended)])
    assert stored.size == 10
    assert_array_equal(stored.observation[:10, 1], [3, 1, 1, 2, 2, 2, 2, 3, 3, 3])
    assert_array_equal(stored.observation[:10, 0], [3, 1, 4, 2, 5, 8, 11, 6, 9, 12])


def test_environments_side_by_side_do_not_mix():
    """Each stored episode is one stretch of steps of one environment, however the others end."""
    source, rng = Steps(3), np.random.default_rng(0)
    ended = rng.random((12, 4, 3)) < [0.9, 0.3, 0.05]
    ended[-1, -1] = True
    stored = follow(SelfImitationConfig(capacity=150), [source.rollout(np.ones((4, 3)), end) for end in ended])
    assert stored.size == ended.size
    number, environment = stored.observation[: stored.size].T
    assert_array_equal((number - 1) % 3 + 1, environment)
    ended = ended.reshape(-1, 3)
    for here, following in zip(number[:-1] - 1, number[1:] - 1, strict=True):
        assert following == here + 3 or ended[here // 3, here % 3]


@pytest.mark.parametrize("lengths", [[4, 4, 5, 7], [5, 9, 3, 8, 2, 7], [12, 12, 1], [13], [11, 2]])
def test_the_oldest_steps_leave_first(lengths):
    """Also where one rollout brings more than the memory holds."""
    stored = follow(SelfImitationConfig(capacity=12, learning_starts=1), one_environment(lengths, 34))
    total = sum(lengths) - max(0, lengths[0] - 12)
    assert stored.head == total % 12
    newest_first = (total - 1 - np.arange(12)) % 12
    assert_array_equal(stored.observation[newest_first, 0], sum(lengths) - np.arange(12))


def test_an_episode_over_many_rollouts_survives_the_others_that_come_and_go():
    """One environment takes 37 steps, the other ends at every second step: the ring of recent steps goes round."""
    source, t = Steps(2), np.arange(80)
    ended = np.stack([t % 37 == 36, t % 2 == 1], axis=1)
    reward = np.stack([t % 5, t % 3], axis=1)
    rollouts = [source.rollout(reward[i : i + 4], ended[i : i + 4]) for i in range(0, 80, 4)]
    stored = follow(SelfImitationConfig(capacity=200), rollouts, room=37)
    number, environment = stored.observation[: stored.size].T
    assert_array_equal(number[environment == 1], 1 + 2 * np.arange(74))


@pytest.mark.parametrize("steps", [3, 50])
def test_an_over_long_episode_keeps_its_latest_steps_with_right_returns(steps):
    config = SelfImitationConfig(capacity=100, room=7, discount=0.5)
    stored = follow(config, one_environment([23], steps, np.arange(1, 24)))
    assert stored.size == 7
    assert_array_equal(stored.observation[:7, 0], np.arange(17, 24))
    assert_allclose(stored.returns[4:7], [21 + 22 / 2 + 23 / 4, 22 + 23 / 2, 23])


@pytest.mark.parametrize("rewarded_step", [0, 5, 18, 19, None])
def test_whether_an_episode_is_kept_depends_on_all_of_it(rewarded_step):
    """A reward that came before the steps that there is room for counts as well."""
    rewards = np.zeros(20)
    if rewarded_step is not None:
        rewards[rewarded_step] = 1
    stored = follow(
        SelfImitationConfig(capacity=100, room=4, keep="positive"), one_environment([20], steps=5, rewards=rewards)
    )
    assert stored.size == (0 if rewarded_step is None else 4)


def test_a_reward_does_not_count_for_the_next_episode():
    config = SelfImitationConfig(capacity=100, room=4, keep="positive")
    rollouts = one_environment([3, 3, 2, 4], steps=5, rewards=[0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0])
    stored = follow(config, rollouts)
    assert_array_equal(stored.observation[: stored.size, 0], [4, 5, 6])


def test_an_episode_longer_than_the_capacity_leaves_its_latest_steps():
    config = SelfImitationConfig(capacity=90, discount=0.97)
    stored = follow(config, one_environment([20, 250, 30], 25, np.arange(300) % 7), room=1000)
    assert stored.recent.room == 90
    assert stored.size == 90
    assert_array_equal(np.sort(stored.observation[:, 0]), np.arange(211, 301))


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1, 300])
def test_returns_reach_back_over_the_chunks_in_which_an_episode_is_moved(length):
    rewards = np.zeros(length)
    rewards[-1] = 1
    config = SelfImitationConfig(capacity=1000, discount=0.99)
    stored = follow(config, one_environment([length], 100, rewards), room=300)
    assert stored.size == length
    assert_allclose(stored.returns[:length], 0.99 ** np.arange(length)[::-1], rtol=1e-5)


def test_several_episodes_of_one_environment_in_one_rollout():
    lengths = [3, 1, 1, 6, 2, 4]
    stored = follow(PLAIN, one_environment(lengths))
    assert stored.size == sum(lengths)
    assert_allclose(stored.returns[:17], np.concatenate([2 - 0.5 ** np.arange(n)[::-1] for n in lengths]))
    assert stored.recent.length[0] == 3


def test_an_episode_that_is_not_kept_leaves_the_memory_untouched():
    """Bit for bit, also when the memory is full and its priorities have changed."""
    config = SelfImitationConfig(capacity=20, keep="positive", learning_starts=1)
    source = Steps(2)

    def rollout(reward: float, *ends: int) -> Rollout:
        return source.rollout(np.full((10, 2), reward), np.arange(10)[:, None] == ends)

    stored, _ = empty(rollout(1.0, 4, 6), config)
    for _ in range(3):
        stored = on_host(remember(stored, rollout(1.0, 4, 6), config))
    stored = with_advantages(stored, np.linspace(0, 5, 20), config)
    stored = on_host(remember(stored, rollout(0.0, 0, 9), config))  # ends the episodes that have had rewards
    before = without_recent(stored)
    for reward, *ends in ((0.0, 9, 9), (-1.0, 3, 9), (0.0, 0, 1), (0.0, 20, 20), (-2.0, 5, 7)):
        stored = on_host(remember(stored, rollout(reward, *ends), config))
        assert_same_bits(without_recent(stored), before)
    after = on_host(remember(stored, rollout(1.0, 0, 20), config))
    assert after.head != stored.head


def test_a_time_limit_ends_an_episode_as_a_terminal_state_does():
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


def test_the_last_state_of_a_stored_episode_is_what_was_seen():
    """Not zeros, and not the first state of the next episode."""
    lengths = [1, 2, 70, 5, 64, 3]
    stored = follow(PLAIN, one_environment(lengths))
    last = np.cumsum(lengths) - 1
    assert_array_equal(stored.observation[last, 0], last + 1)
    assert (stored.observation[: sum(lengths)] != 0).all()


def test_returns_stop_at_the_end_of_their_episode():
    stored = follow(PLAIN, one_environment([3, 1, 4, 1], rewards=[1, 0, 2, 100, 0, 0, 0, -5, 7]))
    assert_allclose(stored.returns[:9], [1.5, 1.0, 2.0, 100.0, -0.625, -1.25, -2.5, -5.0, 7.0])


def test_observations_and_actions_keep_their_shape_and_type():
    """Images of bytes and vectors of floats pass through unchanged."""
    rng = np.random.default_rng(5)
    observation = rng.integers(0, 256, (9, 2, 4, 3), dtype=np.uint8)
    action = rng.normal(size=(9, 2, 5)).astype(np.float32)
    ended = np.arange(9)[:, None] == [8, 3]
    rollout = make_rollout(observation, action, np.ones((9, 2)), ended, np.zeros((9, 2)))
    config = SelfImitationConfig(capacity=30)
    stored = on_host(remember(memory.create(rollout, config, 30), rollout, config))
    assert stored.observation.dtype == np.uint8
    assert_array_equal(stored.observation[:13], np.concatenate([observation[:4, 1], observation[:, 0]]))
    assert_array_equal(stored.action[:13], np.concatenate([action[:4, 1], action[:, 0]]))


def test_room_is_the_configured_one_or_the_time_limit_and_never_above_the_capacity():
    rollout = jax.eval_shape(lambda: Steps(2).rollout(np.zeros((5, 2)), np.zeros((5, 2))))
    for room, limit, capacity, expected in ((None, 50, 100, 50), (20, 50, 100, 20), (None, 500, 100, 100)):
        stored = memory.create(rollout, SelfImitationConfig(room=room, capacity=capacity), limit)
        assert stored.recent.room == expected
        assert stored.recent.reward.shape[0] >= expected + 5 - 1
        assert stored.recent.reward.shape[0] % 5 == 0
        assert stored.returns.shape == (capacity,)


class Corridor:
    """Three steps to the right, whatever the action; the last one pays 1."""

    spec = Spec(observation_shape=(1,), actions=Discrete(2), max_episode_steps=3)

    def reset(self, key):
        return jnp.int32(0)

    def observe(self, state):
        return (state + 1).astype(jnp.float32)[None]

    def step(self, state, action):
        done = state == 2
        return Step(state + 1, self.observe(state + 1), done.astype(jnp.float32), done, jnp.array(False))


class Generous:
    """A bonus that would be hard to overlook."""

    def create(self):
        return jnp.int32(0)

    def bonus(self, state, rollout):
        return state + 1, jnp.full(rollout.reward.shape, 1000.0)


class Idle:
    def improve(self, actor_critic, optimiser, train_state, rollout, bonus, key):
        return train_state, {}


def test_the_exploration_bonus_does_not_reach_the_stored_returns():
    config = SelfImitationConfig(capacity=40, batch=4, updates=1, discount=0.5)
    agent = algorithm.Agent(
        spec=Corridor.spec,
        environment=Corridor(),
        actor_critic=lambda params, observation: (Categorical(observation * params), observation[:, 0] * 0),
        optimiser=optax.sgd(0.0),
        environments=2,
        rollout=6,
        improvement=Idle(),
        imitation=config,
        exploration=Generous(),
        normaliser=None,
    )
    train_state = TrainState(jnp.zeros((1, 2)), agent.optimiser.init(jnp.zeros((1, 2))))
    example = make_rollout(np.zeros((6, 2, 1), np.float32), np.zeros((6, 2), np.int32), *np.zeros((3, 6, 2)))
    state = algorithm.State(
        train_state,
        None,
        collection.begin(agent.environment, 2, jax.random.key(0)),
        memory.create(example, config, 3),
        agent.exploration.create(),
        jax.random.key(1),
    )
    state, _, metrics = jax.jit(lambda state: algorithm.iteration(agent, state))(state)
    assert metrics["bonus"] == 1000
    assert state.memory.size == 12
    stored = on_host(state.memory)
    assert_allclose(stored.returns[:12], np.tile([0.25, 0.5, 1.0], 4))
    assert_allclose(stored.observation[:12, 0], np.tile([1, 2, 3], 4))


# Priorities and draws


def test_a_new_item_gets_the_largest_priority_seen_so_far():
    config = SelfImitationConfig(capacity=6, learning_starts=1)
    rollouts = one_environment([3, 2, 2, 5], 3)
    stored = follow(config, rollouts[:1])
    assert_allclose(weights_of(stored), [1, 1, 1, 0, 0, 0])
    stored = with_advantages(stored, [0.2, 5.0, 0.3], config)
    stored = with_advantages(stored, [0.2, 0.1, 0.3], config)  # the largest so far, not the largest present
    assert_allclose(stored.largest_priority, 5.0)
    stored = on_host(remember(stored, rollouts[1], config))
    assert_allclose(weights_of(stored), np.array([0.2, 0.1, 0.3, 5, 5, 0]) ** 0.6, rtol=1e-5)
    for rollout in rollouts[2:]:
        stored = on_host(remember(stored, rollout, config))
    assert_allclose(weights_of(stored), np.full(6, 5) ** 0.6, rtol=1e-5)


def test_the_floor_of_a_priority_is_a_millionth():
    stored = of_advantages([0.0, -3.0, 1e-7, 2e-6, 1.0], PLAIN)
    assert_allclose(weights_of(stored)[:5], np.array([1e-6, 1e-6, 1e-6, 2e-6, 1.0]) ** 0.6, rtol=1e-5)
    assert stored.largest_priority == 1


@pytest.mark.parametrize(("exponent", "smallest"), [(0.0, 1e-3), (0.6, 1e-6), (1.0, 1e-3)])
def test_items_are_drawn_in_proportion_to_their_advantage_to_the_exponent(exponent, smallest):
    config = dataclasses.replace(PLAIN, priority_exponent=exponent)
    advantage = np.concatenate([np.geomspace(smallest, 1, 37), [3.0, 3.0]])
    if exponent < 1:
        advantage = np.append(advantage, [0.0, -2.0, 1e-9])
    stored = of_advantages(advantage, config)
    uniform = np.random.default_rng(6).random((stored.tree.levels, 2_000_000), dtype=np.float32)
    slot = np.asarray(draw_at(stored, uniform, config).slot)
    expected = np.maximum(advantage, 1e-6) ** exponent
    expected *= uniform.shape[1] / expected.sum()
    assert expected.min() > 5
    assert slot.max() < len(advantage)
    assert stats.chisquare(np.bincount(slot, minlength=len(advantage)), expected).pvalue > 1e-4


def test_a_batch_holds_what_its_slots_hold():
    stored = follow(PLAIN, one_environment([90, 80, 70], rewards=np.arange(240) % 11))
    batch = on_host(
        draw_at(stored, np.random.default_rng(7).random((stored.tree.levels, 128), dtype=np.float32), PLAIN)
    )
    assert len(set(batch.slot.tolist())) > 60
    assert_array_equal(batch.observation, stored.observation[batch.slot])
    assert_array_equal(batch.action, stored.action[batch.slot])
    assert_array_equal(batch.returns, stored.returns[batch.slot])


def draw_evenly(stored: ReplayBuffer, config: SelfImitationConfig) -> memory.Batch:
    """Twelve items of the few that are stored, which all lie below one node: from the first to the last."""
    return draw_at(stored, np.tile(np.linspace(0, 0.999, 12, dtype=np.float32), (stored.tree.levels, 1)), config)


@pytest.mark.parametrize(("importance_exponent", "by_hand"), [(0.0, 1.0), (0.1, 0.44), (0.4, 0.036)])
def test_importance_weights_are_relative_to_the_smallest_priority(importance_exponent, by_hand):
    """An item of advantage 1 beside one at the floor: (1 / 1e-6)^(-0.6 beta)."""
    config = dataclasses.replace(PLAIN, importance_exponent=importance_exponent)
    advantage = np.array([1.0, 0.0, *[0.3] * 9, 1.0])
    batch = on_host(draw_evenly(of_advantages(advantage, config), config))
    drawn = np.maximum(advantage, 1e-6)[batch.slot]
    assert set(drawn.tolist()) == {0.3, 1.0}
    assert_allclose(batch.weight[drawn == 1], by_hand, rtol=0.02)
    assert_allclose(batch.weight, (drawn / 1e-6) ** (-0.6 * importance_exponent), rtol=1e-4)


def test_the_smallest_priority_is_of_items_that_can_be_drawn():
    """Neither empty slots nor an item that was pushed out count."""
    config = SelfImitationConfig(capacity=6, learning_starts=1)
    rollouts = one_environment([3, 3, 3], 3)
    stored = follow(config, rollouts[:1])
    assert_allclose(draw_evenly(stored, config).weight[:3], 1.0)
    stored = with_advantages(stored, [0.5, 0.0, 0.5], config)
    assert_allclose(draw_evenly(stored, config).weight[:3], (0.5 / 1e-6) ** -0.24, rtol=1e-4)
    for rollout in rollouts[1:]:
        stored = on_host(remember(stored, rollout, config))
    assert_allclose(draw_evenly(stored, config).weight[:6], 1.0)


def test_places_beyond_the_number_stored_weigh_nothing():
    batch = on_host(draw_evenly(follow(PLAIN, one_environment([5])), PLAIN))
    assert_array_equal(batch.weight, [1.0] * 5 + [0.0] * 7)
    assert set(batch.slot.tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("stored_steps", "counted"), [(1, 0), (4, 0), (5, 5), (6, 6)])
def test_nothing_counts_until_more_than_start_after_steps_are_stored(stored_steps, counted):
    assert PLAIN.learning_starts == 4
    stored = follow(PLAIN, one_environment([stored_steps]))
    batch = draw_evenly(stored, PLAIN)
    assert_array_equal(batch.weight, np.arange(12) < counted)
    after = on_host(update_priorities(stored, batch, np.full(12, 9, np.float32), PLAIN))
    if counted:
        assert after.largest_priority == 9
    else:
        assert_same_bits(after, stored)


def test_an_empty_memory_gives_a_batch_in_which_nothing_counts():
    config = SelfImitationConfig(capacity=2000, learning_starts=0)
    stored, _ = empty(Steps(1).rollout(np.zeros(20), np.zeros(20)), config)
    batch = draw_evenly(stored, config)
    assert_array_equal(batch.weight, np.zeros(12))
    assert_array_equal(batch.slot, np.zeros(12))
    assert np.isfinite(batch.returns).all()
    assert_same_bits(update_priorities(stored, batch, np.full(12, 7, np.float32), config), stored)


def test_places_that_weigh_nothing_never_alter_a_priority():
    stored = of_advantages([0.1, 0.2, 0.3, 0.4, 0.5], PLAIN)
    uniform = np.array([0.0, 0.999, 0.999, 0.0, 0.999, 0.999, 0.5, 0.0, 0.3, 0.4, 0.6, 0.7], np.float32)
    batch = draw_at(stored, np.tile(uniform, (stored.tree.levels, 1)), PLAIN)
    advantage = np.array([0.6, 0.7, 0.7, 0.6, 0.7, 80, 90, 0, 70, 0, 60, 0], np.float32)
    after = on_host(update_priorities(stored, batch, advantage, PLAIN))
    assert_allclose(weights_of(after)[:5], np.array([0.6, 0.2, 0.3, 0.4, 0.7]) ** 0.6, rtol=1e-5)
    assert_array_equal(weights_of(after)[5:], np.zeros(PLAIN.capacity - 5))
    assert after.largest_priority == 1
    nothing = dataclasses.replace(batch, weight=jnp.zeros(12))
    assert_same_bits(update_priorities(stored, nothing, advantage, PLAIN), stored)


# Seeds side by side, and the cost


def rollouts_of_seeds(rng: np.random.Generator, sources: list[Steps], steps: int, rates: list[float]) -> list[Rollout]:
    shape = (steps, sources[0].environments)
    rollouts = []
    for source, rate in zip(sources, rates, strict=True):
        ended = rng.random(shape) < rate
        ended[-1, -1] |= rate > 0 and rng.random() < 0.3  # at the very last place too
        rollouts.append(source.rollout(rng.choice([0.0, 0.0, 1.0, -0.5], shape), ended))
    return rollouts


def stack(trees: list):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


@pytest.mark.parametrize(("keep", "discount"), [("all", 1.0), ("positive", 0.99)])
def test_seeds_side_by_side_are_as_each_alone(keep, discount):
    """Bit for bit, though one seed's episodes are short, one's are long and one's never end.

    A product of matrices may round differently when it is one of several, so that is checked without discount, where
    sums of halves are exact; with it, the returns alone may differ in their last bits.
    """
    config = SelfImitationConfig(capacity=300, room=200, keep=keep, learning_starts=5, discount=discount, batch=16)
    rng, sources = np.random.default_rng(8), [Steps(2) for _ in range(4)]

    def both(stored: ReplayBuffer, rollout: Rollout, key: jax.Array) -> ReplayBuffer:
        stored = memory.remember(stored, rollout, config)
        batch = memory.draw(stored, key, config)
        return memory.update_priorities(stored, batch, jnp.sin(batch.slot.astype(jnp.float32)), config)

    one_seed, all_seeds = jax.jit(both), jax.jit(jax.vmap(both))
    alone = together = None
    for number in range(14):
        rates = [0.3, 0.007, 0.0, 0.05] if number < 12 else [0.0, 0.0, 0.02, 0.05]
        rollouts = rollouts_of_seeds(rng, sources, 30, rates)
        if alone is None:
            alone = [empty(rollout, config)[0] for rollout in rollouts]
            together = stack(alone)
        keys = jax.random.split(jax.random.key(number), 4)
        alone = [on_host(one_seed(*seed)) for seed in zip(alone, rollouts, keys, strict=True)]
        together = on_host(all_seeds(together, stack(rollouts), keys))
        for seed, stored in enumerate(alone):
            mine = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
            if discount != 1:
                assert_allclose(mine.returns, stored.returns, rtol=1e-6, atol=1e-6)
                mine = eqx.tree_at(lambda m: m.returns, mine, stored.returns)
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


@pytest.mark.parametrize("seeds", [None, 3])
def test_remembering_makes_no_pass_over_the_whole_memory(seeds):
    """Neither a copy of it nor a choice between two of it, also where seeds with different episodes share the loop."""
    config = SelfImitationConfig(capacity=40_000, room=100, keep="positive")
    rollout = Steps(2).rollout(np.ones((5, 2)), np.zeros((5, 2)))
    stored = memory.create(rollout, config, 100)

    def one(stored: ReplayBuffer, rollout: Rollout) -> ReplayBuffer:
        return memory.remember(stored, rollout, config)

    if seeds:
        stored, rollout = stack([stored] * seeds), stack([rollout] * seeds)
    function = jax.vmap(one) if seeds else one
    compiled = jax.jit(function, donate_argnums=0).lower(stored, rollout).compile().as_text()
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


def test_the_cost_is_in_proportion_to_the_length_of_the_finished_episodes(moved):
    config = SelfImitationConfig(capacity=5000, room=350, keep="positive")
    update = jax.jit(lambda stored, rollout: memory.remember(stored, rollout, config))
    stored, _ = empty(Steps(1).rollout(np.zeros(500), np.zeros(500)), config)
    for lengths, turns in (
        ([1], 1),
        ([CHUNK - 1], 1),
        ([CHUNK], 1),
        ([CHUNK + 1], 2),
        ([3 * CHUNK], 3),
        ([200, 1, 64, 70], 4 + 1 + 1 + 2),
        ([400], 6),  # no more than there is room for
    ):
        ended = np.zeros(500, bool)
        ended[np.cumsum(lengths) - 1] = True
        for reward, expected in ((1.0, turns), (0.0, 0)):  # an episode that is not kept costs nothing
            moved.clear()
            after = jax.block_until_ready(update(stored, Steps(1).rollout(np.full(500, reward), ended)))
            jax.effects_barrier()
            assert after.size == (sum(min(length, 350) for length in lengths) if reward else 0)
            assert moved == [CHUNK] * expected
