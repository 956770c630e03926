"""The plain Python loop, in Gymnasium environments whose every transition is known."""

import jax
import numpy as np
import pytest
from gymnasium_probes import FAULT_STEP

from self_imitation.environments.batched import PureJax
from self_imitation.environments.gymnasium.vector import make_vector
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.errors import FaultyEnvironmentError
from self_imitation.rollout import in_program
from self_imitation.rollout.python_loop import collect


def make(name, count):
    return make_vector(f"gymnasium_probes:{name}-v0", count, in_processes=False)


def alternate(observation, time):
    """Actions 0, 1, 0, 1 ...; also records the step."""
    return np.full(len(observation), time % 2), {"time": np.full(len(observation), time, np.float32)}


@pytest.fixture(scope="module")
def rollout():
    """`Counter` with seeds 0 and 1: episodes of 2, 3 and 4 steps, and of 3, 4 and 2."""
    vector = make("Counter", 2)
    return collect(vector, alternate, vector.reset([0, 1]), 6)


def test_rows_are_what_the_policy_saw_and_what_came_of_it(rollout):
    assert rollout.observation[:, 0, 1:].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 0]]
    assert rollout.next_observation[:, 0, 1:].tolist() == [[0, 1], [0, 2], [1, 1], [1, 2], [1, 3], [2, 1]]
    assert rollout.observation[:, 1, 1:].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert rollout.last_observation.tolist() == [[0, 2, 1], [1, 1, 3]]


def test_rewards_are_raw_float32(rollout):
    assert rollout.reward[:, 0].tolist() == [1, 2, 101, 102, 103, 201]
    assert rollout.reward.dtype == np.float32


def test_ends_are_told_apart(rollout):
    assert rollout.terminated[:, 0].tolist() == [False, True, False, False, False, False]
    assert rollout.truncated[:, 0].tolist() == [False, False, False, False, True, False]


def test_actions_and_extras_are_recorded(rollout):
    assert rollout.action[:, 1].tolist() == [0, 1, 0, 1, 0, 1]
    assert rollout.extras["time"][:, 1].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_next_rollout_continues_where_the_last_one_ended(rollout):
    vector = make("Counter", 2)
    first = collect(vector, alternate, vector.reset([0, 1]), 4)
    second = collect(vector, alternate, first.last_observation, 2)
    for name in ("observation", "reward", "terminated", "truncated", "next_observation"):
        joined = np.concatenate([getattr(first, name), getattr(second, name)])
        np.testing.assert_array_equal(joined, getattr(rollout, name))
    np.testing.assert_array_equal(second.last_observation, rollout.last_observation)


def test_observations_of_several_parts_are_collected_by_name():
    vector = make("SampledImageAndNumbers", 2)
    first = vector.reset([0, 1])
    found = collect(vector, lambda observation, _: (np.zeros(2, int), {}), first, 3)
    assert found.observation["image"].shape == (3, 2, *first["image"].shape[1:])
    np.testing.assert_array_equal(found.observation["numbers"][0], first["numbers"])


def test_a_fault_names_its_step():
    vector = make("Raises", 2)
    with pytest.raises(FaultyEnvironmentError, match=f"the ball left the field, at step {100 + FAULT_STEP}$"):
        collect(vector, alternate, vector.reset([0, 1]), 20, first_step=100)


def test_gymnasium_and_pure_jax_give_the_same_rollout():
    """The grid world in both forms, with the same fixed policy, over a time limit."""
    from rollout_probes import collector_with

    table = np.random.default_rng(3).integers(4, size=(13, 13))
    environment = PureJax(KeyDoorTreasure(), 2)

    def in_jax(agent, policy, observation, key):
        column, row = observation[:, :2].astype(int).T
        return jax.numpy.asarray(table)[row, column], {}

    def in_numpy(observation, time):
        column, row = observation[:, :2].astype(int).T
        return table[row, column], {}

    collector, policies = collector_with(environment, in_jax, seeds=1)
    start = in_program.begin(environment, jax.random.split(jax.random.key(0), 1), 2)
    _, expected = jax.jit(collector.collect, static_argnums=3)(
        policies, start, jax.random.split(jax.random.key(1), 1), 60
    )
    vector = make_vector("self_imitation/KeyDoorTreasure-v0", 2, in_processes=False)
    found = collect(vector, in_numpy, vector.reset([0, 1]), 60)
    for name in ("observation", "action", "reward", "terminated", "truncated", "next_observation"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name)[0], err_msg=name)
    np.testing.assert_array_equal(found.last_observation, expected.last_observation[0])
    assert found.truncated.any()
