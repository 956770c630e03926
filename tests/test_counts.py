"""Count-based exploration: beta / sqrt(N(s')), and who gets to see it."""

import itertools
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import ObservedReward, TwoSteps

from self_imitation.training import agents
from self_imitation.algorithm.iteration import iteration as algorithm
from self_imitation.config import CountConfig, resolve
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.errors import UsageError
from self_imitation.exploration.counts import MAX_COUNT, CountBonus
from self_imitation.types import Discrete, Rollout, Spec

SPEC = Spec(observation_shape=(2,), actions=Discrete(2), max_episode_steps=10, observation_levels=(3, 2))
A, B, C = (0, 0), (2, 1), (1, 0)
ELSEWHERE = (2, 0)


def rollout_of(observation, last_observation, next_observation=None, ended=None):
    """Observations [T, N, 2]; where an episode did not end, the next_observation is what is seen next."""
    observation, last = np.array(observation, np.float32), np.array(last_observation, np.float32)
    steps, environments = observation.shape[:2]
    seen_next = np.concatenate([observation[1:], last[None]])
    ended = np.zeros((steps, environments), bool) if ended is None else np.array(ended)
    next_observation = np.where(ended[..., None], np.array(next_observation or ELSEWHERE, np.float32), seen_next)
    return Rollout(
        observation=jnp.asarray(observation),
        action=jnp.zeros((steps, environments), jnp.int32),
        reward=jnp.zeros((steps, environments)),
        terminated=jnp.asarray(ended),
        truncated=jnp.zeros((steps, environments), bool),
        next_observation=jnp.asarray(next_observation),
        last_observation=jnp.asarray(last),
        episode_return=jnp.zeros((steps, environments)),
        episode_length=jnp.ones((steps, environments), jnp.int32),
    )


def bonus_of(rollout, scale=1.0, counts=None):
    counter = CountBonus(SPEC, CountConfig(scale=scale))
    counts, bonus = counter.bonus(counter.create() if counts is None else counts, rollout)
    return counts, np.asarray(bonus)


def test_all_environments_are_counted_first_and_then_paid():
    """Two of three environments arrive in A at once: each gets 1 / sqrt(2), not 1 and then 1 / sqrt(2)."""
    rollout = rollout_of([[C, C, C], [A, A, B]], last_observation=[A, B, C])
    counts, bonus = bonus_of(rollout)
    # after the first step N(A) = 2, N(B) = 1; after the second N(A) = 3, N(B) = 2, N(C) = 1
    expected = [[1 / np.sqrt(2), 1 / np.sqrt(2), 1.0], [1 / np.sqrt(3), 1 / np.sqrt(2), 1.0]]
    np.testing.assert_allclose(bonus, expected, rtol=1e-6)
    assert counts.sum() == 6  # the states that the rollout began in were counted when they were arrived in


def test_counts_go_on_from_rollout_to_rollout():
    rollout = rollout_of([[A]], last_observation=[B])
    counts = None
    for visits in range(1, 6):
        counts, bonus = bonus_of(rollout, counts=counts)
        assert bonus[0, 0] == pytest.approx(1 / np.sqrt(visits))


def test_beta_scales_the_bonus():
    assert bonus_of(rollout_of([[A]], last_observation=[B]), scale=0.25)[1][0, 0] == 0.25


def test_where_an_episode_ended_the_first_state_of_the_next_one_counts():
    """The episode ends in a state that is never acted in: it is neither counted nor paid for."""
    rollout = rollout_of([[C], [A], [A]], last_observation=[A], next_observation=ELSEWHERE, ended=[[True], [False], [True]])
    counts, bonus = bonus_of(rollout)
    np.testing.assert_allclose(bonus[:, 0], [1.0, 1 / np.sqrt(2), 1 / np.sqrt(3)], rtol=1e-6)
    counter = CountBonus(SPEC, CountConfig())
    assert counts[counter.state_number(jnp.array(A))] == 3
    assert counts[counter.state_number(jnp.array(ELSEWHERE))] == 0


@pytest.mark.parametrize("seed", range(3))
def test_bonus_equals_a_dictionary_of_counts(seed):
    rng = np.random.default_rng(seed)
    counter = CountBonus(SPEC, CountConfig(scale=2.0))
    counts, seen = counter.create(), Counter()
    for _ in range(3):
        observation = np.stack([rng.integers(3, size=(6, 4)), rng.integers(2, size=(6, 4))], axis=-1)
        rollout = rollout_of(observation[:-1], observation[-1], ended=rng.random((5, 4)) < 0.3)
        counts, bonus = counter.bonus(counts, rollout)
        for t, arrived in enumerate(observation[1:]):
            seen.update(map(tuple, arrived.tolist()))
            expected = [2.0 / np.sqrt(seen[tuple(state)]) for state in arrived.tolist()]
            np.testing.assert_allclose(bonus[t], expected, rtol=1e-6)


@pytest.mark.parametrize("spec", [SPEC, KeyDoorTreasure().spec, KeyDoorTreasure(apples=True).spec])
def test_every_state_has_a_count_of_its_own(spec):
    counter = CountBonus(spec, CountConfig())
    states = list(itertools.product(*map(range, spec.observation_levels)))
    numbers = counter.state_number(jnp.array(states, jnp.float32))
    assert sorted(numbers.tolist()) == list(range(len(counter.create())))


def test_counts_stop_at_the_largest_instead_of_overflowing():
    counter = CountBonus(SPEC, CountConfig())
    full = jnp.full_like(counter.create(), MAX_COUNT - 1)
    rollout = rollout_of([[A] * 5] * 4, last_observation=[A] * 5)
    counts, bonus = bonus_of(rollout, counts=full)
    assert counts.max() == MAX_COUNT
    assert counts[counter.state_number(jnp.array(B))] == MAX_COUNT - 1
    np.testing.assert_allclose(bonus, MAX_COUNT**-0.5, rtol=1e-6)


def test_an_environment_whose_observations_cannot_be_counted_is_refused():
    config = resolve("key-door-treasure", "authors", {"agent": "a2c+exp"})
    with pytest.raises(UsageError, match=r"agent.*exp.*count"):
        agents.build(config, environment=ObservedReward())


def test_the_bonus_reaches_the_on_policy_reward_and_never_the_memory():
    """Rewards 0 and 1, bonuses of thousands: the memory holds 1 and the discount, the A2C loss sees thousands."""
    overrides = {"agent": "a2c+sil+exp", "num_envs": 3, "num_steps": 4, "exp.scale": 5000.0}
    config = resolve("key-door-treasure", "authors", {**overrides, "sil.gamma": 0.5, "sil.buffer_size": 600})
    agent = agents.build(config, environment=TwoSteps())
    state = agents.begin(agent, agents.initial_params(config, agent, 0), jnp.int32(0))
    iteration = jax.jit(partial(algorithm.iteration, agent))
    for _ in range(3):
        state, rollout, metrics = iteration(state)
        assert set(np.unique(rollout.reward)) == {0.0, 1.0}
        assert float(rollout.episode_return.max()) == 1.0
    assert state.memory.size == 36
    assert sorted(set(np.asarray(state.memory.returns[:36]).tolist())) == [0.5, 1.0]
    # Three environments in step, so both states' counts go up by 3 at every other step: 15 and 18 in the third rollout.
    assert metrics["bonus"] == pytest.approx(5000 * np.mean([15**-0.5, 18**-0.5]), rel=1e-5)
    # All targets are above the least bonus, 5000 / sqrt(18) = 1178, and all values still next to 0.
    assert metrics["value_loss"] > 0.5 * 1100**2
