"""What is recorded of a replay buffer, against buffers filled by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from self_imitation.recording import remembered
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import REWARD, STEPS_LEFT
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import Rollout

CONFIG = SelfImitationConfig(gamma=0.5, keep="all", buffer_size=8, batch_size=4, learning_starts=0)


insert = jax.jit(replay.insert, static_argnums=2)
STEPS = 10


def filled(*episodes, weights=()):
    """A buffer of two seeds, the second with these episodes, given by their rewards, and with these priorities."""
    rewards, ended = np.zeros((STEPS, 1), np.float32), np.zeros((STEPS, 1), bool)
    ends = np.cumsum([len(own) for own in episodes])
    rewards[: ends[-1], 0], ended[ends - 1] = np.concatenate(episodes), True  # the steps after them never end
    number = np.arange(STEPS, dtype=np.int32)[:, None]
    columns = {
        "observation": number[..., None],
        "action": number,
        "reward": rewards,
        "terminated": ended,
        "truncated": np.zeros_like(ended),
        "next_observation": number[..., None],
        "last_observation": number[:1],
        "episode_return": rewards,
        "episode_length": number,
    }
    rollout = Rollout(**jax.tree.map(jnp.asarray, columns), valid=None, extras={})
    empty = replay.create(rollout, CONFIG, 8, extras=(REWARD, STEPS_LEFT))
    empty, buffer = jax.tree.map(np.array, (empty, insert(empty, rollout, CONFIG)))
    if weights:
        slots = (buffer.head - len(weights) + np.arange(len(weights))) % len(buffer.returns)
        buffer.tree.sums[buffer.tree.first_leaf + slots] = weights
    return remembered.read(jax.tree.map(lambda *leaves: np.stack(leaves), empty, buffer), 1)


def test_episodes_are_cut_apart_with_return_age_length_and_share_of_the_sampling():
    memory = filled([0, 1], [2], [0, 0, 3], weights=[1, 1, 2, 0, 0, 4])
    found = remembered.episodes(memory)
    assert_allclose(found.total, [1, 2, 3])
    assert_array_equal(found.length, [2, 1, 3])
    assert_array_equal(found.age, [4, 3, 0])
    assert_allclose(found.share, [2 / 8, 2 / 8, 4 / 8])
    assert_allclose(memory.returns, [0.5, 1, 2, 0.75, 1.5, 3]), "with the discount 0.5"
    assert found.complete.all()


def test_an_oldest_episode_that_lost_its_first_steps_is_not_the_best():
    found = remembered.episodes(filled([9, 9, 9], [1, 1], [0, 2, 0, 0]))
    assert_allclose(found.total, [18, 2, 2])
    assert found.complete.tolist() == [False, True, True]
    assert found.best() == 1, "of two with the same return, the shorter one"


def test_an_empty_buffer_has_no_episodes():
    memory = dataclasses.replace(filled([1.0]), **dict.fromkeys(("slot", "reward", "returns", "weight"), np.zeros(0)))
    memory = dataclasses.replace(memory, steps_left=np.zeros(0, int))
    found = remembered.episodes(memory)
    content = remembered.to_json(memory, found)
    assert found.best() is None
    assert (content["episodes"], content["best"], content["points"]["age"]) == (0, None, [])
    assert remembered.imitated(memory, np.zeros(0, int), np.zeros(0))["of_memory"] is None


def test_the_share_with_r_above_v_of_the_buffer_and_of_the_sampling():
    memory = filled([0, 1], [2], weights=[1, 1, 6])  # R = 0.5, 1, 2
    found = remembered.imitated(memory, np.arange(3), np.array([1.0, 1.0, 1.5]))
    assert (found["of_memory"], found["of_sampling"]) == (pytest.approx(1 / 3, abs=1e-3), 0.75)
    assert (found["return"], found["value"]) == ([0.5, 1, 2], [1, 1, 1.5])


def many(returns, share):
    last = np.arange(len(returns))
    return remembered.Episodes(last, last, np.array(returns), last[::-1], np.array(share), np.ones(len(returns), bool))


def test_few_different_returns_have_a_bar_each():
    bars = remembered._histogram(many([1.0, 3.0, 1.0, 1.0], [0.1, 0.7, 0.1, 0.1]))
    assert bars == {"return": [1, 3], "width": 2, "episodes": [0.75, 0.25], "sampling": [0.3, 0.7]}


def test_many_returns_share_bars_and_only_some_episodes_are_points():
    rng = np.random.default_rng(0)
    found = many(rng.normal(size=2000), np.full(2000, 1 / 2000))
    content = remembered.to_json(filled([1.0]), found)
    assert len(content["histogram"]["return"]) == remembered.BARS
    assert sum(content["histogram"]["episodes"]) == pytest.approx(1, abs=1e-3)
    assert sum(content["histogram"]["sampling"]) == pytest.approx(1, abs=1e-3)
    assert remembered.MAX_POINTS / 2 < len(content["points"]["age"]) <= remembered.MAX_POINTS
    assert content["best"] in content["points"]["return"]
