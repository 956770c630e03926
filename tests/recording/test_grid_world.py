"""The states of the grid worlds, against episodes of the environment itself."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from self_imitation.recording import grid_world
from self_imitation.recording.remembered import Memory, episodes

IDS = {False: "self_imitation/KeyDoorTreasure-v0", True: "self_imitation/AppleKeyDoorTreasure-v0"}
TO_KEY = [1, 1, 1, 2, *[1] * 6, 2, 2]
TO_DOOR = [0] * 5


def played(apples, actions):
    """Observations, rewards and ends of an episode."""
    env = gymnasium.make(IDS[apples])
    observations, rewards, ended = [env.reset(seed=0)[0]], [], False
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(np.int64(action))
        observations.append(observation)
        rewards.append(reward)
        ended = terminated or truncated
        if ended:
            break
    return np.array(observations), np.array(rewards), ended


@pytest.mark.parametrize("apples", [False, True])
def test_states_follow_each_other_as_in_the_environment(apples):
    world, rng = grid_world.create(apples), np.random.default_rng(0)
    assert len(world.stages) == (12 if apples else 3)
    actions = [*TO_KEY, *TO_DOOR, *rng.integers(0, 4, 33)]
    observations, rewards, _ = played(apples, actions)
    states = world.state_of(observations)
    assert states[0] == world.start
    taken = np.array(actions[: len(rewards)])
    assert_array_equal(world.next_state[states[:-1], taken], states[1:])
    assert_array_equal(world.reward[states[:-1], taken], rewards)
    assert_array_equal(world.cells[world.next_cell[states[:-1], taken]], observations[1:, 1::-1])
    assert {0, 1, 2} == set(states // len(world.cells) // (4 if apples else 1))


def test_visits_of_a_deterministic_policy_are_those_of_its_episode():
    """From the start to the right, for ever."""
    world = grid_world.create(False)
    policy = np.zeros((len(world.observations), 4))
    policy[:, 1] = 1.0
    visits, total = world.visits(policy)
    observations, rewards, _ = played(False, [1] * 50)
    assert_allclose(visits, np.bincount(world.state_of(observations[:-1]), minlength=len(visits)))
    assert total == rewards.sum()


def test_visits_of_a_random_policy_agree_with_simulation():
    world, rng = grid_world.create(True), np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(4), len(world.observations))
    visits, total = world.visits(policy)
    counts, rewards, episodes_ = np.zeros_like(visits), 0.0, 4000
    state = np.full(episodes_, world.start)
    for _ in range(world.max_episode_steps):
        counts += np.bincount(state[state >= 0], minlength=len(counts))
        action = (policy[state].cumsum(axis=1) > rng.random((episodes_, 1))).argmax(axis=1)
        rewards += np.where(state >= 0, world.reward[state, action], 0).sum()
        state = np.where(state >= 0, world.next_state[state, action], -1)
    assert_allclose(counts / episodes_, visits, atol=0.15)
    assert rewards / episodes_ == pytest.approx(total, abs=0.1)


def test_the_best_episode_is_a_path_with_its_rewards_and_stages():
    world, actions = grid_world.create(False), np.array([*TO_KEY, *TO_DOOR])
    observations, rewards, _ = played(False, actions)
    count = len(rewards)
    memory = Memory(np.arange(count), rewards, rewards, np.arange(count)[::-1], np.ones(count), 1000)
    path = world.path(memory, episodes(memory), observations[:-1], actions)
    assert path["return"] == 3
    assert world.cells[path["cells"]].tolist() == observations[:, 1::-1].astype(int).tolist()
    assert path["stages"] == [0] * len(TO_KEY) + [1] * len(TO_DOOR)
    assert [reward for reward in path["rewards"] if reward] == [1, 2]


def test_only_grid_worlds_have_a_maze():
    assert grid_world.is_one("apple-key-door-treasure")
    assert not grid_world.is_one("gym:CartPole-v1")
    assert grid_world.of_environment("mujoco:Hopper") is None
