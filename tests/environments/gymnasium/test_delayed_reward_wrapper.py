"""Delayed rewards: given every so many steps of an episode and at its end, none lost and none twice."""

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from self_imitation.environments.gymnasium.delayed_reward import DelayedReward


class Scripted(gymnasium.Env):
    """Gives these rewards, one per step, and ends with the last one in the given way."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(1)

    def __init__(self, rewards, terminated=True, truncated=False):
        self.rewards, self.end = rewards, (terminated, truncated)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return 0, {}

    def step(self, action):
        self.time += 1
        over = self.time == len(self.rewards)
        return 0, self.rewards[self.time - 1], *(over and end for end in self.end), {}


def rewards_of(env, steps=None):
    env.reset()
    return [env.step(0)[1] for _ in range(steps or len(env.unwrapped.rewards))]


def delayed_in_a_loop(rewards, delay):
    """The independent twin, for one episode."""
    out, accumulated = [], 0.0
    for step, reward in enumerate(rewards, start=1):
        accumulated += reward
        due = step % delay == 0 or step == len(rewards)
        out.append(accumulated if due else 0.0)
        accumulated = 0.0 if due else accumulated
    return out


def test_seven_steps_with_a_delay_of_three_by_hand():
    env = DelayedReward(Scripted([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), 3)
    for _ in range(2):
        assert rewards_of(env) == [0.0, 0.0, 6.0, 0.0, 0.0, 15.0, 7.0]


def test_the_papers_delay():
    rewards = rewards_of(DelayedReward(Scripted([1.0] * 45), 20))
    assert {step: reward for step, reward in enumerate(rewards, start=1) if reward} == {20: 20.0, 40: 20.0, 45: 5.0}


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
def test_every_kind_of_end(ends):
    assert rewards_of(DelayedReward(Scripted([1.0, 2.0, 4.0, 8.0], *ends), 3)) == [0.0, 0.0, 7.0, 8.0]


@given(
    st.lists(st.integers(-100, 100).map(float), min_size=1, max_size=60),
    st.integers(1, 25),
    st.sampled_from([(True, False), (False, True), (True, True)]),
)
def test_every_reward_is_given_once_and_on_time(rewards, delay, ends):
    delayed = rewards_of(DelayedReward(Scripted(rewards, *ends), delay))
    assert delayed == delayed_in_a_loop(rewards, delay)
    assert sum(delayed) == sum(rewards)


def test_a_reset_in_mid_episode_starts_again():
    env = DelayedReward(Scripted([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]), 3)
    assert rewards_of(env, steps=2) == [0.0, 0.0]
    assert (env.accumulated, env.waited) == (3.0, 2)
    assert rewards_of(env) == [0.0, 0.0, 7.0, 0.0, 0.0, 56.0]


def test_a_delay_of_one_changes_nothing():
    rewards = [0.5, -1.0, 0.0, 3.0]
    assert rewards_of(DelayedReward(Scripted(rewards), 1)) == rewards


@pytest.mark.parametrize("delay", [0, -3, 2.5, "a", None])
def test_other_delays_are_refused(delay):
    with pytest.raises((ValueError, TypeCheckError), match=f"delay: {delay} is not allowed; allowed: a whole|'delay'"):
        DelayedReward(Scripted([1.0]), delay)
