"""Returns of stored episodes, which the replay buffer computes in chunks from the last step to the first."""

import jax
import numpy as np
import pytest

from self_imitation.replay.returns import discounted_returns

run = jax.jit(discounted_returns, static_argnames="discount")


def loop(reward_from_last, following, discount):
    returns = []
    for reward in np.asarray(reward_from_last, np.float64):
        following = reward + discount * following
        returns.append(following)
    return np.array(returns)


def test_returns_by_hand():
    # from the last step to the first, followed by 8: 1 + 8/2 = 5; 2 + 5/2 = 4.5; 4 + 4.5/2 = 6.25
    returns = run(np.array([1.0, 2.0, 4.0], np.float32), np.float32(8.0), discount=0.5)
    assert returns.tolist() == [5.0, 4.5, 6.25]


@pytest.mark.parametrize("discount", [0.0, 0.99, 1.0])
@pytest.mark.parametrize("steps", [1, 64])
def test_returns_match_a_loop(steps, discount):
    reward = np.random.default_rng(steps).normal(size=steps).astype(np.float32)
    returns = run(reward, np.float32(3.0), discount=discount)
    np.testing.assert_allclose(returns, loop(reward, 3.0, discount), rtol=1e-5, atol=1e-4)


def test_a_long_episode_in_chunks_matches_one_loop():
    """6400 steps in a hundred chunks, each followed by the return of the step after it."""
    reward = np.random.default_rng(1).random(6400).astype(np.float32)
    following, returns = np.float32(0.0), []
    for chunk in reward.reshape(100, -1):
        returns.append(np.asarray(run(chunk, following, discount=0.99)))
        following = returns[-1][-1]
    np.testing.assert_allclose(np.concatenate(returns), loop(reward, 0.0, 0.99), rtol=2e-5)


def test_a_late_reward_reaches_the_first_of_a_thousand_steps():
    """0.99^1000 = 4.3e-5, and not 0."""
    reward = np.zeros(1001, np.float32)
    reward[0] = 1.0
    returns = np.asarray(run(reward, np.float32(0.0), discount=0.99), np.float64)
    np.testing.assert_allclose(returns, 0.99 ** np.arange(1001.0), rtol=1e-4)
