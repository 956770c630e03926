"""Returns and advantages against numbers worked out by hand and plain loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from self_imitation.algorithm.returns import discounted_sums, generalised_advantages, n_step_returns

run_n_step = jax.jit(n_step_returns, static_argnames="discount")
run_advantages = jax.jit(generalised_advantages, static_argnames=("discount", "decay"))
run_sums = jax.jit(discounted_sums, static_argnames="discount")


def column(*numbers):
    """One environment: [T] to [T, 1]."""
    return np.array(numbers, bool if isinstance(numbers[0], bool) else np.float32)[:, None]


def n_step(reward, ended, bootstrap_value, last_value):
    last_value = np.array([last_value], np.float32)
    targets = run_n_step(column(*reward), column(*ended), column(*bootstrap_value), last_value, discount=0.5)
    return targets[:, 0].tolist()


def test_unfinished_rollout_bootstraps_from_the_last_value():
    # 4 + 8/2 = 8; 2 + 8/2 = 6; 1 + 6/2 = 4
    assert n_step([1.0, 2.0, 4.0], [False] * 3, [0.0] * 3, 8.0) == [4.0, 6.0, 8.0]


def test_terminal_state_is_worth_nothing():
    # the second step is terminal: 2 + 0 = 2 and 1 + 2/2 = 2; after it 4 + 8/2 = 8
    assert n_step([1.0, 2.0, 4.0], [False, True, False], [0.0] * 3, 8.0) == [2.0, 2.0, 8.0]


def test_time_limit_bootstraps_from_the_state_reached():
    # truncated at the second step, in a state worth 6: 2 + 6/2 = 5 and 1 + 5/2 = 3.5; after it 4 + 8/2 = 8
    assert n_step([1.0, 2.0, 4.0], [False, True, False], [0.0, 6.0, 0.0], 8.0) == [3.5, 5.0, 8.0]


def test_several_episodes_in_one_rollout():
    # terminal, step, truncated (worth 10), step, terminal: 1; 2 + (4 + 10/2)/2 = 6.5; 4 + 10/2 = 9; 8 + 16/2 = 16; 16
    reward = [1.0, 2.0, 4.0, 8.0, 16.0]
    ended = [True, False, True, False, True]
    assert n_step(reward, ended, [0.0, 0.0, 10.0, 0.0, 0.0], 1e9) == [1.0, 6.5, 9.0, 16.0, 16.0]


def test_bootstrap_value_is_ignored_where_no_episode_ended():
    assert n_step([1.0, 2.0, 4.0], [False] * 3, [1e9] * 3, 8.0) == [4.0, 6.0, 8.0]


def random_columns(seed, steps, num_envs):
    """Rewards, ends, values, bootstrap values, and the values after the last step."""
    rng = np.random.default_rng(seed)
    reward, value, bootstrap_value = rng.normal(size=(3, steps, num_envs)).astype(np.float32)
    last_value = rng.normal(size=num_envs).astype(np.float32)
    return reward, rng.random((steps, num_envs)) < 0.3, value, bootstrap_value, last_value


sizes = pytest.mark.parametrize(("steps", "num_envs"), [(1, 1), (5, 16), (30, 3)])


def n_step_by_definition(reward, ended, bootstrap_value, last_value, discount):
    """Forwards, from each step on its own, in float64."""
    steps, num_envs = reward.shape
    targets = np.zeros((steps, num_envs))
    for start, n in np.ndindex(steps, num_envs):
        power = 1.0
        for t in range(start, steps):
            targets[start, n] += power * reward[t, n]
            power *= discount
            if ended[t, n]:
                targets[start, n] += power * bootstrap_value[t, n]
                break
        else:
            targets[start, n] += power * last_value[n]
    return targets


@sizes
def test_n_step_returns_match_their_definition(steps, num_envs):
    reward, ended, _, *values = random_columns(steps, steps, num_envs)
    expected = n_step_by_definition(reward, ended, *values, 0.9)
    np.testing.assert_allclose(run_n_step(reward, ended, *values, discount=0.9), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [n_step_returns, generalised_advantages])
def test_last_value_of_the_wrong_shape_is_refused(function):
    zeros = jnp.zeros((3, 2))
    others = (
        (zeros, jnp.zeros((2, 1)), 0.9) if function is n_step_returns else (zeros, zeros, jnp.zeros((2, 1)), 0.9, 0.9)
    )
    with pytest.raises(TypeCheckError):
        function(zeros, jnp.zeros((3, 2), bool), *others)


# Generalised advantages. Discount and lambda are 1/2, so that each advantage passes a quarter of itself back.


def advantages(ended, bootstrap_value, decay=0.5, last_value=16.0):
    """Rewards 1, 2 and 4 in states worth 2, 4 and 8."""
    values = column(2.0, 4.0, 8.0), column(*bootstrap_value), np.array([last_value], np.float32)
    result = run_advantages(column(1.0, 2.0, 4.0), column(*ended), *values, discount=0.5, decay=decay)
    return result[:, 0].tolist()


def test_advantages_of_an_unfinished_rollout():
    # temporal differences: 1 + 4/2 - 2 = 1; 2 + 8/2 - 4 = 2; 4 + 16/2 - 8 = 4
    # from the last: 4; 2 + 4/4 = 3; 1 + 3/4 = 1.75
    assert advantages([False] * 3, [0.0] * 3) == [1.75, 3.0, 4.0]


def test_advantages_stop_at_a_terminal_state():
    # the second step is terminal: 2 + 0 - 4 = -2; before it 1 - 2/4 = 0.5; after it 4 as before
    assert advantages([False, True, False], [0.0] * 3) == [0.5, -2.0, 4.0]


def test_advantages_at_a_time_limit_bootstrap_from_the_state_reached():
    # truncated at the second step, in a state worth 6: 2 + 6/2 - 4 = 1; before it 1 + 1/4 = 1.25
    assert advantages([False, True, False], [0.0, 6.0, 0.0]) == [1.25, 1.0, 4.0]


def test_end_at_the_last_step_ignores_the_last_value():
    # 4 + 0 - 8 = -4; 2 - 4/4 = 1; 1 + 1/4 = 1.25
    assert advantages([False, False, True], [0.0] * 3, last_value=1e9) == [1.25, 1.0, -4.0]


def test_advantages_ignore_bootstrap_values_where_no_episode_ended():
    assert advantages([False] * 3, [1e9] * 3) == [1.75, 3.0, 4.0]


def test_lambda_zero_gives_temporal_differences():
    assert advantages([False] * 3, [0.0] * 3, decay=0.0) == [1.0, 2.0, 4.0]
    assert advantages([False, True, False], [0.0, 6.0, 0.0], decay=0.0) == [1.0, 1.0, 4.0]


def test_lambda_one_gives_n_step_returns_minus_values():
    reward, ended, value, *values = random_columns(0, 30, 3)
    whole = run_advantages(reward, ended, value, *values, discount=0.9, decay=1.0)
    targets = run_n_step(reward, ended, *values, discount=0.9)
    np.testing.assert_allclose(whole, np.asarray(targets) - value, rtol=1e-5, atol=1e-5)


def advantages_by_definition(reward, ended, value, bootstrap_value, last_value, discount, decay):
    """The sum over later differences, each (discount decay)^k times, from each step on its own, in float64."""
    steps, num_envs = reward.shape
    result = np.zeros((steps, num_envs))
    for start, n in np.ndindex(steps, num_envs):
        for t in range(start, steps):
            following = last_value[n] if t == steps - 1 else value[t + 1, n]
            if ended[t, n]:
                following = bootstrap_value[t, n]
            error = float(reward[t, n]) + discount * float(following) - float(value[t, n])
            result[start, n] += (discount * decay) ** (t - start) * error
            if ended[t, n]:
                break
    return result


@sizes
def test_generalised_advantages_match_their_definition(steps, num_envs):
    columns = random_columns(steps, steps, num_envs)
    result = run_advantages(*columns, discount=0.99, decay=0.95)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, advantages_by_definition(*columns, 0.99, 0.95), rtol=1e-4, atol=1e-5)


# Discounted sums, which look back.


def sums(reward, ended, before):
    totals, after = run_sums(column(*reward), column(*ended), np.array([before], np.float32), discount=0.5)
    return totals[:, 0].tolist(), float(after[0])


def test_discounted_sums_by_hand():
    # 8/2 + 1 = 5; 5/2 + 2 = 4.5; 4.5/2 + 4 = 6.25; 6.25/2 + 8 = 11.125
    assert sums([1.0, 2.0, 4.0, 8.0], [False] * 4, before=8.0) == ([5.0, 4.5, 6.25, 11.125], 11.125)


def test_discounted_sums_restart_in_each_episode():
    # the second step is the last of its episode: its own reward counts, and nothing of it reaches the third
    ended = [False, True, False, False]
    assert sums([1.0, 2.0, 4.0, 8.0], ended, before=8.0) == ([5.0, 4.5, 4.0, 10.0], 10.0)
    ended = [False, False, False, True]
    assert sums([1.0, 2.0, 4.0, 8.0], ended, before=8.0) == ([5.0, 4.5, 6.25, 11.125], 0.0)


@pytest.mark.parametrize("steps", [1, 7, 28])
def test_discounted_sums_continue_over_rollouts(steps):
    """28 steps in three environments, cut into rollouts, match one loop."""
    rng = np.random.default_rng(0)
    reward, ended = rng.normal(size=(28, 3)).astype(np.float32), rng.random((28, 3)) < 0.2
    running, parts = np.zeros(3, np.float32), []
    for start in range(0, 28, steps):
        now = slice(start, start + steps)
        totals, running = run_sums(reward[now], ended[now], running, discount=0.9)
        parts.append(np.asarray(totals))

    expected, total = np.zeros((28, 3)), np.zeros(3)
    for t in range(28):
        total = 0.9 * total + reward[t]
        expected[t] = total
        total = np.where(ended[t], 0.0, total)
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(running, total, rtol=1e-5, atol=1e-6)
