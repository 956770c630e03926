"""V-trace: by hand, against its definition in NumPy, and on policy against A2C."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from tabular import state_rollout, updated_tables, with_reset_step

from self_imitation.algorithm.a2c import A2C, A2CConfig
from self_imitation.algorithm.returns import n_step_returns
from self_imitation.algorithm.vtrace import VTrace, VTraceConfig, vtrace_loss, vtrace_returns
from self_imitation.networks.distributions import Categorical
from self_imitation.types import Discrete, Spec

returns = jax.jit(vtrace_returns, static_argnames=("gamma", "rho_clip", "c_clip"))
update = partial(updated_tables, VTrace)


def by_hand(ratio, ended=(False, False, False), bootstrap=(0.0, 0.0, 0.0), rho_clip=1.0, c_clip=1.0, last_value=16.0):
    """Rewards 1, 2 and 4 in states worth 2, 4 and 8, with the discount 1/2; targets and advantages as lists."""
    columns = [np.log(np.array(ratio)), [1.0, 2.0, 4.0], ended, [2.0, 4.0, 8.0], bootstrap]
    dtypes = (np.float32, np.float32, bool, np.float32, np.float32)
    columns = [np.array(column, dtype)[:, None] for column, dtype in zip(columns, dtypes, strict=True)]
    result = returns(*columns, np.array([last_value], np.float32), gamma=0.5, rho_clip=rho_clip, c_clip=c_clip)
    return result.target[:, 0].tolist(), result.advantage[:, 0].tolist()


# Temporal differences before their weight: 1 + 4/2 - 2 = 1; 2 + 8/2 - 4 = 2; 4 + 16/2 - 8 = 4.


def test_on_policy_by_hand():
    # corrections v - V from the last: 4; 2 + 4/2 = 4; 1 + 4/2 = 3: targets 8 + 4, 4 + 4 and 2 + 3
    # advantages r + v'/2 - V: 1 + 8/2 - 2 = 3; 2 + 12/2 - 4 = 4; 4 + 16/2 - 8 = 4
    assert by_hand([1.0, 1.0, 1.0]) == ([5.0, 8.0, 12.0], [3.0, 4.0, 4.0])


def test_small_ratios_by_hand():
    # ratios 1/2, 1/4, 1/2, none of them clipped
    # corrections: 1/2 * 4 = 2; 1/4 * 2 + 1/2 * 1/4 * 2 = 0.75; 1/2 * 1 + 1/2 * 1/2 * 0.75 = 0.6875
    # advantages, without rho: 1 + 4.75/2 - 2 = 1.375; 2 + 10/2 - 4 = 3; 4 + 16/2 - 8 = 4
    assert by_hand([0.5, 0.25, 0.5]) == ([2.6875, 4.75, 10.0], [1.375, 3.0, 4.0])


def test_ratios_above_one_are_clipped():
    assert by_hand([3.0, 100.0, 7.0]) == by_hand([1.0, 1.0, 1.0])


def test_rho_and_c_have_clips_of_their_own():
    # ratios 4, 4, 4; rho = min(4, 2) = 2, c = min(4, 1/2) = 1/2
    # corrections: 2 * 4 = 8; 2 * 2 + 1/2 * 1/2 * 8 = 6; 2 * 1 + 1/2 * 1/2 * 6 = 3.5
    # advantages: 1 + 10/2 - 2 = 4; 2 + 16/2 - 4 = 6; 4 + 16/2 - 8 = 4
    targets, advantages = by_hand([4.0, 4.0, 4.0], rho_clip=2.0, c_clip=0.5)
    assert targets == pytest.approx([5.5, 10.0, 16.0])
    assert advantages == pytest.approx([4.0, 6.0, 4.0])


def test_terminal_state_inside_a_rollout_by_hand():
    # the second step is the last of its episode: its difference is 2 + 0 - 4 = -2 and nothing follows
    # corrections with ratios 1, 1/2, 1: 4; 1/2 * -2 = -1; 1 + 1/2 * -1 = 0.5
    # advantages: 1 + 3/2 - 2 = 0.5; 2 + 0 - 4 = -2; 4
    ended = (False, True, False)
    assert by_hand([1.0, 0.5, 1.0], ended) == ([2.5, 3.0, 12.0], [0.5, -2.0, 4.0])


def test_time_limit_inside_a_rollout_by_hand():
    # truncated at the second step, in a state worth 6: 2 + 6/2 - 4 = 1
    # corrections with ratios 1, 1/2, 1: 4; 1/2 * 1 = 0.5; 1 + 1/2 * 0.5 = 1.25
    # advantages: 1 + 4.5/2 - 2 = 1.25; 2 + 6/2 - 4 = 1; 4
    ended = (False, True, False)
    assert by_hand([1.0, 0.5, 1.0], ended, (0.0, 6.0, 0.0)) == ([3.25, 4.5, 12.0], [1.25, 1.0, 4.0])


def test_end_at_the_last_step_ignores_the_last_value():
    ended = (False, False, True)
    assert by_hand([1.0] * 3, ended, last_value=1e9) == by_hand([1.0] * 3, ended, last_value=0.0)


def random_columns(seed, shape):
    rng = np.random.default_rng(seed)
    reward, value, bootstrap = rng.normal(size=(3, *shape)).astype(np.float32)
    log_ratio = rng.normal(0, 0.7, size=shape).astype(np.float32)
    last_value = rng.normal(size=shape[1]).astype(np.float32)
    return log_ratio, reward, rng.random(shape) < 0.25, value, bootstrap, last_value


def by_definition(log_ratio, reward, ended, value, bootstrap, last_value, gamma, rho_clip, c_clip):
    """v_s = V(s) + sum over t >= s of gamma^(t-s) (product of c_i, s <= i < t) rho_t delta_t, up to the end of the
    episode (Espeholt et al. 2018, Eq. 1), in float64.
    """
    steps, num_envs = reward.shape
    ratio = np.exp(log_ratio.astype(np.float64))
    rho, c = np.minimum(ratio, rho_clip), np.minimum(ratio, c_clip)

    def next_value(t, n, table):
        if ended[t, n]:
            return float(bootstrap[t, n])
        return float(last_value[n]) if t == steps - 1 else float(table[t + 1, n])

    target = value.astype(np.float64)
    for start, n in np.ndindex(steps, num_envs):
        for t in range(start, steps):
            delta = reward[t, n] + gamma * next_value(t, n, value) - value[t, n]
            target[start, n] += gamma ** (t - start) * np.prod(c[start:t, n]) * rho[t, n] * delta
            if ended[t, n]:
                break
    advantage = np.zeros((steps, num_envs))
    for t, n in np.ndindex(steps, num_envs):
        advantage[t, n] = reward[t, n] + gamma * next_value(t, n, target) - value[t, n]
    return target, advantage


@pytest.mark.parametrize(("rho_clip", "c_clip"), [(1.0, 1.0), (2.0, 0.5)])
@pytest.mark.parametrize("shape", [(5, 3), (20, 2)])
def test_returns_match_their_definition(shape, rho_clip, c_clip):
    columns = random_columns(0, shape)
    result = returns(*columns, gamma=0.9, rho_clip=rho_clip, c_clip=c_clip)
    target, advantage = by_definition(*columns, 0.9, rho_clip, c_clip)
    np.testing.assert_allclose(result.target, target, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.advantage, advantage, rtol=1e-4, atol=1e-5)


def test_on_policy_targets_are_n_step_returns():
    log_ratio, *columns = random_columns(1, (20, 2))
    result = returns(0 * log_ratio, *columns, gamma=0.9)
    reward, ended, value, bootstrap, last_value = map(jnp.asarray, columns)
    expected = n_step_returns(reward, ended, bootstrap, last_value, 0.9)
    np.testing.assert_allclose(result.target, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.advantage, expected - value, rtol=1e-4, atol=1e-5)


def test_loss_by_hand():
    config = VTraceConfig(ent_coef=0.1, vf_coef=0.5)
    loss, metrics = vtrace_loss(
        *map(jnp.array, ([-1.0, -2.0], [0.5, 0.25], [1.0, 3.0], [3.0, 2.0], [2.0, -0.5])), config
    )
    # policy (1 * 2 + 2 * -0.5) / 2 = 0.5; value (0.5 * 4 + 0.5 * 1) / 2 = 1.25; entropy 0.375
    assert float(metrics["policy_loss"]) == pytest.approx(0.5)
    assert float(metrics["value_loss"]) == pytest.approx(1.25)
    assert float(loss) == float(metrics["loss"]) == pytest.approx(0.5 + 0.5 * 1.25 - 0.1 * 0.375)


@pytest.mark.parametrize("place", range(5))
def test_column_vectors_are_refused(place):
    arguments = [jnp.zeros(3)] * 5
    arguments[place] = jnp.zeros((3, 1))
    with pytest.raises(TypeCheckError):
        vtrace_loss(*arguments, VTraceConfig())


# The learner, in four states with two actions.

VALUES = [1.0, 2.0, 8.0, 5.0]
LOGITS = [[0.5, -0.5], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.3]]
# State 1 is truncated in state 2; the next episode goes from state 3 on to state 0.
COLUMNS = {
    "state": [[0], [1], [3]],
    "next_state": [[1], [2], [0]],
    "last_state": [0],
    "reward": [[1.0], [2.0], [4.0]],
    "truncated": [[False], [True], [False]],
    "action": [[1], [0], [1]],
}
CONFIG = VTraceConfig(gamma=0.5, ent_coef=0.1, vf_coef=0.5)


def log_probs(state, action):
    logits = np.array(LOGITS)[np.array(state)]
    log_prob = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return np.take_along_axis(log_prob, np.array(action)[..., None], axis=-1)[..., 0].astype(np.float32)


def behaved(log_ratio=0.0):
    """The rollout of a policy whose log-probabilities were lower than those of `LOGITS` by `log_ratio`."""
    log_prob = log_probs(COLUMNS["state"], COLUMNS["action"]) - np.float32(log_ratio)
    return state_rollout(**COLUMNS, extras={"log_prob": log_prob})


@pytest.mark.parametrize(("bootstrap", "exploring"), [(True, False), (False, True)])
def test_on_policy_update_equals_that_of_a2c(bootstrap, exploring):
    bonus = {"reward": [[2.0], [1.0], [0.5]], "advantage": [[-1.0], [3.0], [0.25]]} if exploring else {}
    options = {"logits": LOGITS, "bootstrap": bootstrap, **bonus}
    params, metrics = update(CONFIG, behaved(), VALUES, **options)
    a2c = A2CConfig(gamma=0.5, ent_coef=0.1, vf_coef=0.5)
    expected, expected_metrics = updated_tables(A2C, a2c, behaved(), VALUES, **options)
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-5, atol=1e-6)
    assert metrics.pop("ratio") == pytest.approx(1.0)
    assert metrics == pytest.approx(expected_metrics, rel=1e-4, abs=1e-6)


def test_policy_gradient_is_weighted_by_the_clipped_ratio():
    """One step, terminal, advantage 3 - 1 = 2: the ratio 1/4 counts as it is, the ratio 4 as 1."""
    step = {"state": [[0]], "next_state": [[1]], "last_state": [1], "reward": [[3.0]], "terminated": [[True]]}
    config = VTraceConfig(gamma=0.5, ent_coef=0.0, vf_coef=0.5)
    for ratio, rho in ((0.25, 0.25), (4.0, 1.0)):
        extras = {"log_prob": np.array([[np.log(0.5 / ratio)]], np.float32)}
        params, metrics = update(config, state_rollout(**step, extras=extras), VALUES)
        assert metrics["ratio"] == pytest.approx(ratio, rel=1e-5)
        # rho A (onehot(0) - 1/2); the value goes half the way to V + rho (r - V)
        np.testing.assert_allclose(params["logits"][0], [rho, -rho], rtol=1e-5)
        np.testing.assert_allclose(params["value"][0], 1.0 + 0.5 * rho * 2, rtol=1e-5)


def test_reset_steps_change_nothing():
    rollout = behaved(log_ratio=[[0.3], [-0.4], [1.0]])
    expected, expected_metrics = update(CONFIG, rollout, VALUES, LOGITS, bootstrap=True)
    params, metrics = update(CONFIG, with_reset_step(rollout, after=1), VALUES, LOGITS, bootstrap=True)
    assert metrics == pytest.approx(expected_metrics, rel=1e-5)
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-5)


def test_log_probabilities_are_recorded_while_acting():
    learner = VTrace(CONFIG, True)
    assert learner.init(jax.random.key(0), Spec((4,), Discrete(2), None), {}) is None
    action = jnp.array([1, 0, 1, 1])
    extras = learner.extras(Categorical(jnp.array(LOGITS)), action, jnp.zeros(4))
    assert extras.keys() == {"log_prob"}
    np.testing.assert_allclose(extras["log_prob"], log_probs([0, 1, 2, 3], action), rtol=1e-6)
