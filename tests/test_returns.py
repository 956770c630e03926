"""Returns against numbers worked out by hand and against plain loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from self_imitation.returns import discounted_returns, discounted_sums, generalised_advantages, n_step_returns


def column(*numbers):
    """One environment: [T] to [T, 1]."""
    return jnp.array(numbers)[:, None]


def n_step(reward, ended, value_at_end, last_value, discount=0.5):
    targets = n_step_returns(
        column(*reward), column(*ended), column(*value_at_end), jnp.array([last_value]), discount=discount
    )
    return np.asarray(targets)[:, 0].tolist()


def test_a_rollout_that_goes_on_ends_with_the_value_of_where_it_stopped():
    # 4 + 8/2 = 8; 2 + 8/2 = 6; 1 + 6/2 = 4
    assert n_step([1.0, 2.0, 4.0], [False] * 3, [0.0] * 3, 8.0) == [4.0, 6.0, 8.0]


def test_a_terminal_state_is_worth_nothing():
    # the end is at the second step: 2 + 0 = 2 and 1 + 2/2 = 2; after it 4 + 8/2 = 8
    assert n_step([1.0, 2.0, 4.0], [False, True, False], [0.0] * 3, 8.0) == [2.0, 2.0, 8.0]


def test_a_time_limit_is_worth_the_state_that_it_cut_off():
    # cut at the second step, in a state worth 6: 2 + 6/2 = 5 and 1 + 5/2 = 3.5; after it 4 + 8/2 = 8
    assert n_step([1.0, 2.0, 4.0], [False, True, False], [0.0, 6.0, 0.0], 8.0) == [3.5, 5.0, 8.0]


def test_several_ends_in_one_rollout():
    # terminal, step, cut (worth 10), step, terminal: 1; 2 + (4 + 10/2)/2 = 6.5; 4 + 10/2 = 9; 8 + 16/2 = 16; 16
    reward = [1.0, 2.0, 4.0, 8.0, 16.0]
    ended = [True, False, True, False, True]
    assert n_step(reward, ended, [0.0, 0.0, 10.0, 0.0, 0.0], 1e9) == [1.0, 6.5, 9.0, 16.0, 16.0]


def test_the_value_at_an_end_is_read_only_where_there_is_one():
    assert n_step([1.0, 2.0], [False, False], [1e9, 1e9], 4.0) == [3.0, 4.0]


def random_steps(seed, steps, environments):
    """Rewards, ends, values, values at ends, and the values after the last step."""
    rng = np.random.default_rng(seed)
    reward, value, value_at_end = rng.normal(size=(3, steps, environments)).astype(np.float32)
    return (
        reward,
        rng.random((steps, environments)) < 0.3,
        value,
        value_at_end,
        rng.normal(size=environments).astype(np.float32),
    )


several_sizes = pytest.mark.parametrize(("seed", "steps", "environments"), [(0, 1, 1), (1, 5, 16), (2, 30, 3)])


def n_step_by_definition(reward, ended, value_at_end, last_value, discount):
    """Forwards, from each step on its own, in float64."""
    steps, environments = reward.shape
    targets = np.zeros((steps, environments))
    for start in range(steps):
        for n in range(environments):
            power = 1.0
            for t in range(start, steps):
                targets[start, n] += power * reward[t, n]
                power *= discount
                if ended[t, n]:
                    targets[start, n] += power * value_at_end[t, n]
                    break
            else:
                targets[start, n] += power * last_value[n]
    return targets


@several_sizes
def test_n_step_returns_equal_their_definition(seed, steps, environments):
    reward, ended, _, value_at_end, last_value = random_steps(seed, steps, environments)
    targets = n_step_returns(
        jnp.asarray(reward), jnp.asarray(ended), jnp.asarray(value_at_end), jnp.asarray(last_value), 0.9
    )
    expected = n_step_by_definition(reward, ended, value_at_end, last_value, 0.9)
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)


def test_a_last_value_per_environment_and_step_is_refused():
    with pytest.raises(TypeCheckError):
        n_step_returns(jnp.zeros((3, 2)), jnp.zeros((3, 2), bool), jnp.zeros((3, 2)), jnp.zeros((2, 1)), 0.9)


# Generalised advantages. Discount and decay are 1/2, so that an advantage hands a quarter of itself on.


def advantages(ended, value_at_end, decay=0.5, last_value=16.0):
    """Rewards 1, 2 and 4 in states worth 2, 4 and 8."""
    result = generalised_advantages(
        column(1.0, 2.0, 4.0),
        column(*ended),
        column(2.0, 4.0, 8.0),
        column(*value_at_end),
        jnp.array([last_value]),
        discount=0.5,
        decay=decay,
    )
    return np.asarray(result)[:, 0].tolist()


def test_advantages_of_a_rollout_that_goes_on():
    # errors of one step: 1 + 4/2 - 2 = 1; 2 + 8/2 - 4 = 2; 4 + 16/2 - 8 = 4
    # from the last: 4; 2 + 4/4 = 3; 1 + 3/4 = 1.75
    assert advantages([False] * 3, [0.0] * 3) == [1.75, 3.0, 4.0]


def test_an_advantage_hears_nothing_of_what_follows_a_terminal_state():
    # the end is at the second step: 2 + 0 - 4 = -2; before it 1 - 2/4 = 0.5; after it 4 as if nothing had been
    assert advantages([False, True, False], [0.0] * 3) == [0.5, -2.0, 4.0]


def test_an_advantage_at_a_time_limit_counts_the_state_that_it_cut_off():
    # cut at the second step, in a state worth 6: 2 + 6/2 - 4 = 1; before it 1 + 1/4 = 1.25
    assert advantages([False, True, False], [0.0, 6.0, 0.0]) == [1.25, 1.0, 4.0]


def test_an_end_at_the_last_step_leaves_the_value_after_it_unread():
    # 4 + 0 - 8 = -4; 2 - 4/4 = 1; 1 + 1/4 = 1.25
    assert advantages([False, False, True], [0.0] * 3, last_value=1e9) == [1.25, 1.0, -4.0]


def test_the_value_at_an_end_reaches_no_advantage_where_there_is_no_end():
    assert advantages([False] * 3, [1e9] * 3) == [1.75, 3.0, 4.0]


def test_without_trace_an_advantage_is_the_error_of_one_step():
    assert advantages([False] * 3, [0.0] * 3, decay=0.0) == [1.0, 2.0, 4.0]
    assert advantages([False, True, False], [0.0, 6.0, 0.0], decay=0.0) == [1.0, 1.0, 4.0]


@several_sizes
def test_with_the_whole_trace_an_advantage_is_the_n_step_return_less_the_value(seed, steps, environments):
    reward, ended, value, value_at_end, last_value = map(jnp.asarray, random_steps(seed, steps, environments))
    whole = generalised_advantages(reward, ended, value, value_at_end, last_value, discount=0.9, decay=1.0)
    targets = n_step_returns(reward, ended, value_at_end, last_value, discount=0.9)
    np.testing.assert_allclose(whole, targets - value, rtol=1e-5, atol=1e-5)


def advantages_by_definition(reward, ended, value, value_at_end, last_value, discount, decay):
    """The sum over later errors, each (discount decay)^k times, forwards from each step on its own, in float64."""
    steps, environments = reward.shape
    result = np.zeros((steps, environments))
    for start in range(steps):
        for n in range(environments):
            for t in range(start, steps):
                following = last_value[n] if t == steps - 1 else value[t + 1, n]
                if ended[t, n]:
                    following = value_at_end[t, n]
                error = float(reward[t, n]) + discount * float(following) - float(value[t, n])
                result[start, n] += (discount * decay) ** (t - start) * error
                if ended[t, n]:
                    break
    return result


@several_sizes
@pytest.mark.parametrize(("discount", "decay"), [(0.99, 0.95), (0.7, 0.4), (1.0, 1.0)])
def test_generalised_advantages_equal_their_definition(seed, steps, environments, discount, decay):
    columns = random_steps(seed, steps, environments)
    result = generalised_advantages(*map(jnp.asarray, columns), discount, decay)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, advantages_by_definition(*columns, discount, decay), rtol=1e-4, atol=1e-5)


def test_an_advantage_with_a_last_value_per_environment_and_step_is_refused():
    zeros = jnp.zeros((3, 2))
    with pytest.raises(TypeCheckError):
        generalised_advantages(zeros, zeros > 0, zeros, zeros, jnp.zeros((2, 1)), 0.9, 0.9)


# Discounted sums, which look back.


def sums(reward, ended, before, discount=0.5):
    totals, after = discounted_sums(column(*reward), column(*ended), jnp.array([before]), discount)
    return np.asarray(totals)[:, 0].tolist(), float(after[0])


def test_discounted_sums_by_hand():
    # 8/2 + 1 = 5; 5/2 + 2 = 4.5; 4.5/2 + 4 = 6.25
    assert sums([1.0, 2.0, 4.0], [False] * 3, before=8.0) == ([5.0, 4.5, 6.25], 6.25)


def test_a_discounted_sum_ends_with_the_last_reward_of_its_episode_and_the_next_begins_at_zero():
    # the second step is the last of its episode: its own reward counts, and nothing of it reaches the third
    assert sums([1.0, 2.0, 4.0, 8.0], [False, True, False, False], before=8.0) == ([5.0, 4.5, 4.0, 10.0], 10.0)
    assert sums([1.0, 2.0], [False, True], before=8.0) == ([5.0, 4.5], 0.0)


@pytest.mark.parametrize("rollout", [1, 7, 28])
def test_discounted_sums_over_several_rollouts_equal_one_loop(rollout):
    """28 steps in three environments, cut into rollouts that know of each other only by where the last one stood."""
    rng = np.random.default_rng(0)
    reward, ended = rng.normal(size=(28, 3)).astype(np.float32), rng.random((28, 3)) < 0.2
    standing, parts = jnp.zeros(3), []
    for start in range(0, 28, rollout):
        now = slice(start, start + rollout)
        totals, standing = discounted_sums(jnp.asarray(reward[now]), jnp.asarray(ended[now]), standing, 0.9)
        parts.append(np.asarray(totals))

    expected, total = np.zeros((28, 3)), np.zeros(3)
    for t in range(28):
        total = 0.9 * total + reward[t]
        expected[t] = total
        total = np.where(ended[t], 0.0, total)
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(standing, total, rtol=1e-5, atol=1e-6)


# The returns of whole episodes.


def test_discounted_returns_by_hand():
    # from the last step to the first, with 8 to follow: 1 + 8/2 = 5; 2 + 5/2 = 4.5; 4 + 4.5/2 = 6.25
    returns = discounted_returns(jnp.array([1.0, 2.0, 4.0]), jnp.float32(8.0), 0.5)
    assert returns.tolist() == [5.0, 4.5, 6.25]


def discounted_by_loop(reward_from_last, following, discount):
    returns = []
    for reward in np.asarray(reward_from_last, np.float64):
        following = reward + discount * following
        returns.append(following)
    return np.array(returns)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("steps", [1, 7, 64, 400])
def test_discounted_returns_equal_a_loop(steps, discount):
    rng = np.random.default_rng(steps)
    reward = rng.normal(size=steps).astype(np.float32)
    returns = discounted_returns(jnp.asarray(reward), jnp.float32(3.0), discount)
    np.testing.assert_allclose(returns, discounted_by_loop(reward, 3.0, discount), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("discount", [0.95, 0.99, 0.999])
def test_a_long_horizon_in_chunks_equals_one_loop(discount):
    """6400 steps in hundred chunks, each with the return of the step after it, as the memory does."""
    reward = np.random.default_rng(1).random(6400).astype(np.float32)

    def chunk(following, part):
        returns = discounted_returns(part, following, discount)
        return returns[-1], returns

    _, returns = jax.jit(lambda parts: jax.lax.scan(chunk, jnp.float32(0.0), parts))(
        jnp.asarray(reward.reshape(100, -1))
    )
    np.testing.assert_allclose(np.asarray(returns).reshape(-1), discounted_by_loop(reward, 0.0, discount), rtol=2e-5)


def test_a_single_late_reward_keeps_its_size_over_a_thousand_steps():
    """0.99^1000 = 4.3e-5, and not 0: the first step of a long episode still hears of its end."""
    reward = jnp.zeros(1001).at[0].set(1.0)
    returns = np.asarray(discounted_returns(reward, jnp.float32(0.0), 0.99), np.float64)
    np.testing.assert_allclose(returns, 0.99 ** np.arange(1001.0), rtol=1e-4)
