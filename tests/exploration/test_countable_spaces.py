"""Which Gymnasium observations the count-based bonus can count."""

import contextlib

import jax
import numpy as np
import pytest
from gymnasium import spaces

from self_imitation.config import resolve
from self_imitation.environments.gymnasium.spaces import describe
from self_imitation.errors import UsageError
from self_imitation.exploration.counts import CountBonus, CountConfig
from self_imitation.training import agents, backends


def spec(space):
    return describe(space, spaces.Discrete(2), None, "it").spec


def countable(space):
    """The number of states; None if the space is refused."""
    with contextlib.suppress(UsageError):
        return CountBonus(CountConfig(), spec(space)).init(jax.random.key(0), 1).shape[0]


def test_small_integers_from_0_can_be_counted():
    assert countable(spaces.Box(0, 4, (2, 2), np.uint8)) == 5**4
    assert countable(spaces.Box(0, 9, (7,), np.int32)) == 10**7, "the largest table"
    assert countable(spaces.Discrete(6, start=2)) == 6
    assert countable(spaces.MultiDiscrete([2, 3])) == 6
    assert countable(spaces.MultiBinary(3)) == 8


def test_other_observations_are_refused():
    assert countable(spaces.Box(0, 9, (8,), np.int32)) is None, "too many states"
    assert countable(spaces.Box(0, 9, (64,), np.int64)) is None, "more states than a 64-bit integer"
    assert countable(spaces.Box(0, 2**40, (1,), np.int64)) is None
    assert countable(spaces.Box(1, 9, (1,), np.int32)) is None, "not from 0"
    assert countable(spaces.Box(0, 9, (1,), np.float32)) is None, "not integers"
    assert countable(spaces.MultiBinary(40)) is None
    assert spec(spaces.MultiBinary(40)).observation_levels == (2,) * 40


def build(env):
    config = resolve(env, "authors", {"agent": "a2c+exp", "engine": "gymnasium"})
    return agents.build(config, backends.create(config, num_envs=1).spec)


def test_frozen_lake_can_be_counted_and_cartpole_is_refused():
    assert build("gym:FrozenLake-v1").bonuses["exp"].levels == (16,)
    with pytest.raises(UsageError, match="agent: 'exp' counts states; the observations of this environment can't be"):
        build("gym:CartPole-v1")
