"""From Gymnasium's spaces to what the train_state sees and back."""

import contextlib

import numpy as np
import pytest
from gymnasium import spaces

from self_imitation.config import CountConfig, override, resolve
from self_imitation.environments.gymnasium.spaces import describe
from self_imitation.errors import UsageError
from self_imitation.exploration.counts import CountBonus
from self_imitation.training import agents

TWO = spaces.Discrete(2)


def seen(space):
    return describe(space, TWO, None, "it").spec


def config_of(env, **settings):
    return override(resolve(env, "authors", settings), {"engine": "gymnasium"})


def countable(space):
    """How many states; None where that is refused."""
    with contextlib.suppress(UsageError):
        return CountBonus(seen(space), CountConfig()).create().shape[0]


def test_few_enough_whole_numbers_from_0_can_be_counted():
    assert countable(spaces.Box(0, 4, (2, 2), np.uint8)) == 5**4
    assert countable(spaces.Box(0, 9, (7,), np.int32)) == 10**7, "as many as there may be"
    assert countable(spaces.Box(0, 9, (8,), np.int32)) is None
    assert countable(spaces.Box(0, 2**40, (1,), np.int64)) is None
    assert countable(spaces.Box(0, 9, (64,), np.int64)) is None, "more than a 64-bit number can tell"
    assert countable(spaces.Box(1, 9, (1,), np.int32)) is None, "they don't start at 0"
    assert countable(spaces.Box(0, 9, (1,), np.float32)) is None, "they are not whole"
    assert countable(spaces.Discrete(6, start=2)) == 6
    assert countable(spaces.MultiDiscrete([2, 3])) == 6
    assert countable(spaces.MultiBinary(3)) == 8
    assert countable(spaces.MultiBinary(40)) is None, "a network can tell them apart, but nobody can count them"
    assert seen(spaces.MultiBinary(40)).observation_levels == (2,) * 40


def test_counting_takes_frozen_lake_and_refuses_a_pole():
    agent = agents.build(config_of("gym:FrozenLake-v1", agent="a2c+exp"))
    assert agent.exploration.create().shape == (16,)
    with pytest.raises(
        UsageError, match="agent: 'exp' counts states; this environment's observations can't be counted"
    ):
        agents.build(config_of("gym:CartPole-v1", agent="a2c+exp"))
    whole = agents.build(config_of("gym:host_probes:SightsWhole-v0", agent="ppo+sil+exp"))
    assert whole.exploration.create().shape == (4 * 7,)
