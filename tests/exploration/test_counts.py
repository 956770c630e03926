"""Count-based exploration: beta / sqrt(N(s'))."""

import itertools
from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import ObservedReward
from tabular import make_rollout, with_reset_step

from self_imitation.errors import UsageError
from self_imitation.exploration.counts import MAX_COUNT, MAX_STATES, CountBonus, CountConfig
from self_imitation.types import Discrete, Spec

SPEC = Spec(observation_shape=(2,), actions=Discrete(2), max_episode_steps=10, observation_levels=(3, 2))
KEY = jax.random.key(0)  # counting needs no random numbers
A, B, C = (0, 0), (2, 1), (1, 0)
ELSEWHERE = (2, 0)


def rollout_of(observation, last_observation, ended=None):
    """Observations [T, N, 2]; episodes end in `ELSEWHERE`, where nothing is ever done."""
    observation, last = np.array(observation, np.float32), np.array(last_observation, np.float32)
    ended = np.zeros(observation.shape[:2], bool) if ended is None else np.array(ended)
    following = np.concatenate([observation[1:], last[None]])
    following = np.where(ended[..., None], np.array(ELSEWHERE, np.float32), following)
    return make_rollout(observation, np.zeros(ended.shape), last, following, terminated=ended)


@cache
def compiled(scale):
    counter = CountBonus(CountConfig(scale), SPEC)
    return counter, jax.jit(counter.update)


def explored(rollout, scale=1.0, counts=None):
    """Counts and bonuses after a rollout."""
    counter, update = compiled(scale)
    counts, exploration, metrics = update(counter.init(KEY, 4) if counts is None else counts, rollout, KEY)
    assert exploration.advantage is None
    valid = True if rollout.valid is None else np.asarray(rollout.valid)
    assert float(metrics["bonus"]) == pytest.approx(np.mean(np.asarray(exploration.reward), where=valid), rel=1e-5)
    return counts, np.asarray(exploration.reward)


def count_of(counts, state):
    return int(counts[compiled(1.0)[0].state_index(jnp.array(state))])


def test_all_environments_are_counted_before_any_is_rewarded():
    """Two of three environments arrive in A at once: each gets 1 / sqrt(2), not 1 and then 1 / sqrt(2)."""
    counts, bonus = explored(rollout_of([[C, C, C], [A, A, B]], last_observation=[A, B, C]))
    # after the first step N(A) = 2, N(B) = 1; after the second N(A) = 3, N(B) = 2, N(C) = 1
    expected = [[1 / np.sqrt(2), 1 / np.sqrt(2), 1.0], [1 / np.sqrt(3), 1 / np.sqrt(2), 1.0]]
    np.testing.assert_allclose(bonus, expected, rtol=1e-6)
    assert counts.sum() == 6  # the first states of the rollout were counted when they were reached


def test_counts_continue_from_rollout_to_rollout():
    counts = None
    for visits in range(1, 6):
        counts, bonus = explored(rollout_of([[A]], last_observation=[B]), counts=counts)
        assert bonus[0, 0] == pytest.approx(1 / np.sqrt(visits))


def test_beta_scales_the_bonus():
    assert explored(rollout_of([[A]], last_observation=[B]), scale=0.25)[1][0, 0] == 0.25


ENDING = rollout_of([[C], [A], [A]], last_observation=[A], ended=[[True], [False], [True]])


def test_after_an_episode_the_first_state_of_the_next_one_counts():
    """Nothing is done in the state in which the episode ends: it is neither counted nor rewarded."""
    counts, bonus = explored(ENDING)
    np.testing.assert_allclose(bonus[:, 0], [1.0, 1 / np.sqrt(2), 1 / np.sqrt(3)], rtol=1e-6)
    assert (count_of(counts, A), count_of(counts, ELSEWHERE)) == (3, 0)


def test_reset_steps_are_neither_counted_nor_rewarded():
    expected_counts, expected = explored(ENDING)
    counts, bonus = explored(with_reset_step(ENDING, after=0))
    np.testing.assert_array_equal(counts, expected_counts)
    np.testing.assert_allclose(bonus[:, 0], [expected[0, 0], 0.0, *expected[1:, 0]], rtol=1e-6)


def test_bonus_matches_a_dictionary_of_counts():
    rng = np.random.default_rng(0)
    counts, seen = None, Counter()
    for _ in range(3):
        observation = np.stack([rng.integers(3, size=(6, 4)), rng.integers(2, size=(6, 4))], axis=-1)
        rollout = rollout_of(observation[:-1], observation[-1], ended=rng.random((5, 4)) < 0.3)
        counts, bonus = explored(rollout, scale=2.0, counts=counts)
        for t, arrived in enumerate(observation[1:]):
            seen.update(map(tuple, arrived.tolist()))
            expected = [2.0 / np.sqrt(seen[tuple(state)]) for state in arrived.tolist()]
            np.testing.assert_allclose(bonus[t], expected, rtol=1e-6)


@pytest.mark.parametrize("levels", [(3, 2), (13, 13, 2, 2, 2)])
def test_every_state_has_a_count_of_its_own(levels):
    counter = CountBonus(CountConfig(), Spec((len(levels),), Discrete(4), 50, levels))
    states = list(itertools.product(*map(range, levels)))
    index = counter.state_index(jnp.array(states, jnp.float32))
    assert sorted(index.tolist()) == list(range(len(counter.init(KEY, 1))))


def test_counts_saturate_instead_of_overflowing():
    full = jnp.full(6, MAX_COUNT - 1)
    counts, bonus = explored(rollout_of([[A] * 5] * 4, last_observation=[A] * 5), counts=full)
    assert counts.max() == MAX_COUNT
    assert count_of(counts, B) == MAX_COUNT - 1
    np.testing.assert_allclose(bonus, MAX_COUNT**-0.5, rtol=1e-6)


@pytest.mark.parametrize("spec", [ObservedReward.spec, Spec((2,), Discrete(2), 10, (MAX_STATES, 2))])
def test_observations_that_cannot_be_counted_are_refused(spec):
    with pytest.raises(UsageError, match=r"agent.*exp.*count"):
        CountBonus(CountConfig(), spec)
