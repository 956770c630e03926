"""Delayed rewards, their sign, and the returns of episodes, against a loop over single episodes."""

from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from self_imitation.rollout.episodes import EpisodeTracker, track


@cache
def tracking(delay, sign, has_resets):
    def step(tracker, row):
        reward, ended, valid = row
        return track(tracker, reward, ended, valid if has_resets else None, delay, sign)

    return jax.jit(lambda tracker, rows: jax.lax.scan(step, tracker, rows))


def follow(reward, ended, valid=None, delay=1, sign=False, rollouts=1):
    """Fields of the tracked steps [T, ...], in several rollouts of the same length."""
    rows = [np.asarray(reward, np.float32), np.asarray(ended), np.ones_like(ended) if valid is None else valid]
    tracker, parts = EpisodeTracker.create(np.shape(reward)[1:]), []
    for part in zip(*(np.split(np.asarray(row), rollouts) for row in rows), strict=True):
        tracker, tracked = tracking(delay, sign, valid is not None)(tracker, part)
        parts.append(tracked)
    fields = ("reward", "episode_return", "episode_length")
    return [np.concatenate([getattr(part, name) for part in parts]) for name in fields]


def pay(rewards, delay, ended=True):
    """The twin: one episode, step by step."""
    paid, owed = [], 0.0
    for number, reward in enumerate(rewards, start=1):
        owed += reward
        due = number % delay == 0 or (ended and number == len(rewards))
        paid.append(owed if due else 0.0)
        owed = 0.0 if due else owed
    return paid


def one_episode(rewards, **options):
    ended = np.arange(1, len(rewards) + 1) == len(rewards)
    return [column[:, 0] for column in follow(np.array(rewards)[:, None], ended[:, None], **options)]


def test_a_delay_of_three_by_hand():
    reward, total, length = one_episode([1, 2, 3, 4, 5, 6, 7], delay=3)
    assert reward.tolist() == [0, 0, 6, 0, 0, 15, 7]
    assert total.tolist() == [0, 0, 6, 6, 6, 21, 28]
    assert length.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_the_papers_delay_pays_every_twentieth_step_and_at_the_end():
    reward, _, _ = one_episode([1] * 45, delay=20)
    assert {step: paid for step, paid in enumerate(reward.tolist(), start=1) if paid} == {20: 20, 40: 20, 45: 5}


def test_without_a_delay_rewards_are_unchanged():
    assert one_episode([0.5, -1, 0, 3])[0].tolist() == [0.5, -1, 0, 3]


def test_training_uses_the_sign_and_returns_stay_raw():
    reward, total, _ = one_episode([5, 0, -30], sign=True)
    assert reward.tolist() == [1, 0, -1]
    assert total.tolist() == [5, 5, -25]


def test_the_sign_is_that_of_the_delayed_reward():
    assert one_episode([5, -9, 3, 4], delay=2, sign=True)[0].tolist() == [0, -1, 0, 1]


def test_reset_steps_take_no_time_and_pay_nothing():
    """Episodes of 3 steps, delay 2, with a reset step between them; their rewards are 0."""
    reward, total, length = (
        column[:, 0]
        for column in follow(
            [[1], [2], [4], [0], [8], [16]],
            [[False], [False], [True], [False], [False], [False]],
            [[True], [True], [True], [False], [True], [True]],
            delay=2,
        )
    )
    assert reward.tolist() == [0, 3, 4, 0, 0, 24]
    assert total.tolist() == [0, 3, 7, 0, 0, 24]
    assert length.tolist() == [1, 2, 3, 0, 1, 2]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), delay=st.sampled_from([1, 3, 7]), resets=st.booleans())
def test_every_environment_follows_the_twin_across_rollouts(seed, delay, resets):
    """Two seeds x three environments, 24 steps in three rollouts."""
    generator, shape = np.random.default_rng(seed), (24, 2, 3)
    ended, valid = generator.random(shape) < 0.2, np.ones(shape, bool)
    if resets:  # the step after an end only resets
        for t in range(1, 24):
            valid[t] = ~(ended[t - 1] & valid[t - 1])
        ended &= valid
    reward = np.where(valid, generator.integers(-50, 50, shape), 0)
    found, total, length = follow(reward, ended, valid if resets else None, delay=delay, rollouts=3)
    for k, n in np.ndindex(2, 3):
        rows = np.flatnonzero(valid[:, k, n])
        for episode in np.split(rows, np.flatnonzero(ended[rows, k, n]) + 1):
            rewards = reward[episode, k, n].tolist()
            over = bool(len(episode)) and bool(ended[episode[-1], k, n])
            paid = pay(rewards, delay, over)
            assert found[episode, k, n].tolist() == paid
            assert total[episode, k, n].tolist() == np.cumsum(paid).tolist()
            assert length[episode, k, n].tolist() == list(range(1, len(episode) + 1))
    assert not found[~valid].any()


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_trackers_start_at_zero(shape):
    tracker = EpisodeTracker.create(shape)
    assert all(leaf.shape == shape and not leaf.any() for leaf in jax.tree.leaves(tracker))
