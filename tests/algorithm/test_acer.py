"""ACER and ACPER: each formula by hand, the loss against a twin in NumPy, and what is replayed."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tabular import SGD, one_hot, state_rollout, with_reset_step

from self_imitation.algorithm.acer import (
    ACER,
    ACPER,
    ACERConfig,
    ACPERConfig,
    Transitions,
    acer_loss,
    policy_gradient,
    within_trust_region,
)
from self_imitation.algorithm.components import Exploration
from self_imitation.algorithm.normalisation import Moments, Normaliser, NormaliserState
from self_imitation.algorithm.returns import retrace
from self_imitation.config import resolve, validate
from self_imitation.errors import UsageError
from self_imitation.networks import actor_critic
from self_imitation.networks.distributions import CategoricalWithValues
from self_imitation.replay import buffer as replay
from self_imitation.settings import NetworkConfig
from self_imitation.training import agents
from self_imitation.types import Continuous, Discrete, MultiDiscrete, Spec, TrainState

# Retrace

run_retrace = jax.jit(retrace, static_argnames="gamma")


def by_hand(ratio, ended=(False, False, False), bootstrap=(0.0, 0.0, 0.0), last_value=16.0):
    """Rewards 1, 2 and 4, Q of the actions taken 2, 4 and 8, in states worth 1, 3 and 5, with the discount 1/2."""
    columns = [ratio, [1.0, 2.0, 4.0], ended, [2.0, 4.0, 8.0], [1.0, 3.0, 5.0], bootstrap]
    dtypes = (np.float32, np.float32, bool, np.float32, np.float32, np.float32)
    columns = [np.array(column, dtype)[:, None] for column, dtype in zip(columns, dtypes, strict=True)]
    return run_retrace(*columns, np.array([last_value], np.float32), gamma=0.5)[:, 0].tolist()


def test_retrace_on_policy_by_hand():
    # 4 + 16/2 = 12; 2 + (12 - 8 + 5)/2 = 6.5; 1 + (6.5 - 4 + 3)/2 = 3.75
    assert by_hand([1.0, 1.0, 1.0]) == [3.75, 6.5, 12.0]


def test_retrace_with_small_ratios_by_hand():
    # 4 + 16/2 = 12; 2 + (1/4 * (12 - 8) + 5)/2 = 5; 1 + (1/2 * (5 - 4) + 3)/2 = 2.75
    assert by_hand([0.125, 0.5, 0.25]) == [2.75, 5.0, 12.0]


def test_retrace_truncates_ratios_at_one():
    assert by_hand([9.0, 100.0, 1e30]) == by_hand([1.0, 1.0, 1.0])


def test_retrace_does_not_depend_on_the_ratio_of_the_first_action():
    """Q is of an action that was taken: only what follows it needs a correction."""
    assert by_hand([0.0, 0.5, 0.25]) == by_hand([7.0, 0.5, 0.25])


def test_retrace_without_any_overlap_bootstraps_after_one_step():
    # 1 + 3/2 and 2 + 5/2
    assert by_hand([0.0, 0.0, 0.0]) == [2.5, 4.5, 12.0]


def test_retrace_stops_at_a_terminal_state():
    # 12; 2 + 0; 1 + (2 - 4 + 3)/2 = 1.5
    assert by_hand([1.0, 1.0, 1.0], (False, True, False)) == [1.5, 2.0, 12.0]


def test_retrace_bootstraps_at_a_time_limit():
    # in a state worth 6: 2 + 6/2 = 5; 1 + (5 - 4 + 3)/2 = 3
    assert by_hand([1.0, 1.0, 1.0], (False, True, False), (0.0, 6.0, 0.0)) == [3.0, 5.0, 12.0]


def retrace_by_definition(ratio, reward, ended, action_value, value, bootstrap, last_value, gamma):
    """Q^ret_t = Q_t + sum over k >= t of gamma^(k-t) (product of min(1, rho_i), t < i <= k) delta_k with
    delta_k = r_k + gamma V(s_k+1) - Q_k (Munos et al. 2016, Eq. 3 and 4), up to the end of the episode, in float64.
    """
    steps, num_envs = reward.shape
    following = np.concatenate([value[1:], last_value[None]]).astype(np.float64)
    delta = reward + gamma * np.where(ended, bootstrap, following) - action_value
    target = action_value.astype(np.float64)
    for start, n in np.ndindex(steps, num_envs):
        trace = 1.0
        for k in range(start, steps):
            trace *= 1.0 if k == start else min(1.0, float(ratio[k, n]))
            target[start, n] += gamma ** (k - start) * trace * delta[k, n]
            if ended[k, n]:
                break
    return target


@pytest.mark.parametrize("shape", [(5, 3), (20, 2)])
def test_retrace_matches_its_definition(shape):
    rng = np.random.default_rng(0)
    reward, action_value, value, bootstrap = rng.normal(size=(4, *shape)).astype(np.float32)
    ratio = np.exp(rng.normal(0, 1, shape)).astype(np.float32)
    last_value = rng.normal(size=shape[1]).astype(np.float32)
    columns = (ratio, reward, rng.random(shape) < 0.25, action_value, value, bootstrap, last_value)
    assert (ratio > 1).any()
    assert (ratio < 1).any()
    expected = retrace_by_definition(*columns, 0.9)
    np.testing.assert_allclose(run_retrace(*columns, gamma=0.9), expected, rtol=1e-4, atol=1e-5)


# The policy gradient with respect to the action probabilities

ascent = jax.jit(policy_gradient, static_argnames="config")
PLAIN = ACERConfig(ent_coef=0.0, ratio_clip=2.0)


def direction(pi, mu, action, target, action_values, config=PLAIN):
    """Of one state; V is the mean of Q under pi."""
    value = np.dot(pi, action_values)
    columns = np.log(pi), np.log(mu), action, target, action_values, value
    dtypes = (np.float32, np.float32, np.int32, *[np.float32] * 3)
    columns = [np.asarray(column, dtype)[None] for column, dtype in zip(columns, dtypes, strict=True)]
    with np.errstate(divide="ignore"):
        return np.asarray(ascent(*columns, config=config))[0]


def test_on_policy_direction_is_the_advantage_over_the_probability():
    """The derivative of log f(a) is 1 / f(a); nothing is truncated, so nothing has to be corrected."""
    pi = [0.25, 0.75]
    # V = 0.25 * 4 + 0.75 * 0 = 1
    np.testing.assert_allclose(direction(pi, pi, 0, 3.0, [4.0, 0.0]), [(3 - 1) / 0.25, 0.0], rtol=1e-5)
    np.testing.assert_allclose(direction(pi, pi, 1, 0.5, [4.0, 0.0]), [0.0, (0.5 - 1) / 0.75], rtol=1e-5)


def test_small_importance_weights_are_kept():
    # rho = 1/4 / 3/4 = 1/3: 1/3 * (3 - 1) / 1/4
    np.testing.assert_allclose(direction([0.25, 0.75], [0.75, 0.25], 0, 3.0, [4.0, 0.0])[0], 2 / 3 / 0.25, rtol=1e-5)


def test_truncation_and_bias_correction_by_hand():
    """Ratios of 8 and 2/9, truncated at 2; V = 0.8 * 1.25 = 1."""
    pi, mu, q = [0.8, 0.2], [0.1, 0.9], [1.25, 0.0]
    # taken: 2 * (3 - 1) / 0.8 = 5; correction of action 0: (1 - 2/8) (1.25 - 1) = 0.1875, of action 1: none
    np.testing.assert_allclose(direction(pi, mu, 0, 3.0, q), [5.1875, 0.0], rtol=1e-5)
    # the correction is of all actions, whichever was taken: 2/9 * (3 - 1) / 0.2
    np.testing.assert_allclose(direction(pi, mu, 1, 3.0, q), [0.1875, 2 / 9 * 2 / 0.2], rtol=1e-5)


@pytest.mark.parametrize("clip", [0.5, 1.0, 2.0, 100.0])
def test_the_mean_under_the_behaviour_policy_does_not_depend_on_the_truncation(clip):
    """With exact targets, sum over a of mu(a) g(a) is Q - V, the gradient of sum over a of f(a) (Q(a) - V)."""
    pi, mu, q = np.array([0.6, 0.3, 0.1]), np.array([0.05, 0.35, 0.6]), np.array([2.0, -1.0, 0.5])
    config = dataclasses.replace(PLAIN, ratio_clip=clip)
    mean = sum(mu[a] * direction(pi, mu, a, q[a], q, config) for a in range(3))
    np.testing.assert_allclose(mean, q - pi @ q, rtol=1e-4)


def test_the_entropy_is_differentiated_with_respect_to_the_probabilities():
    pi = np.array([0.25, 0.75])
    config = dataclasses.replace(PLAIN, ent_coef=0.1)
    # target = V: d/df of -f log f is -log f - 1
    np.testing.assert_allclose(direction(pi, pi, 0, 1.0, [1.0, 1.0], config), 0.1 * (-np.log(pi) - 1), rtol=1e-4)


def test_action_that_the_behaviour_policy_almost_never_took_gives_no_nan():
    """Its ratio is too large for float32; another action was taken."""
    behaviour = np.array([[-100.0, 0.0]], np.float32)
    log_prob = np.log(np.array([[0.5, 0.5]], np.float32))
    columns = (np.array([1]), np.array([2.0], np.float32), np.array([[3.0, 1.0]], np.float32))
    arguments = map(jnp.asarray, (log_prob, behaviour, *columns, np.array([1.0], np.float32)))
    found = policy_gradient(*arguments, PLAIN)  # not compiled: compilers may drop a product with 0
    # taken: 1/2 * (2 - 1) / 1/2 = 1; correction of action 0: (1 - 0) (3 - 1)
    np.testing.assert_allclose(found, [[2.0, 1.0]], rtol=1e-4)


# The trust region

project = jax.jit(within_trust_region, static_argnames="limit")
HALVES, AVERAGE = np.array([[0.5, 0.5]], np.float32), np.array([[0.75, 0.25]], np.float32)
K = np.array([-1.5, -0.5])
"""-f_average / f"""


def projected(gradient, limit):
    result, changed = project(np.array([gradient], np.float32), HALVES, AVERAGE, limit=limit)
    return np.asarray(result)[0], bool(changed[0])


@pytest.mark.parametrize("gradient", [[2.0, 0.0], [-0.5, 0.0], [0.0, -1.9]])
def test_directions_within_the_trust_region_are_unchanged(gradient):
    """The products k . g are -3, 0.75 and 0.95, below 1."""
    result, changed = projected(gradient, 1.0)
    np.testing.assert_array_equal(result, np.float32(gradient))
    assert not changed


def test_directions_outside_are_projected_on_the_border_by_hand():
    # k . g = 3, excess 2, |k|^2 = 2.5: g - 2 / 2.5 k = (-2 + 1.2, 0 + 0.4)
    result, changed = projected([-2.0, 0.0], 1.0)
    np.testing.assert_allclose(result, [-0.8, 0.4], rtol=1e-4)
    assert changed
    np.testing.assert_allclose(K @ result, 1.0, rtol=1e-5)


@pytest.mark.parametrize("limit", [0.1, 1.0, 5.0])
def test_projected_directions_have_the_divergence_of_the_limit(limit):
    rng = np.random.default_rng(1)
    gradient = rng.normal(0, 30, (50, 2)).astype(np.float32)
    result, changed = project(gradient, HALVES.repeat(50, 0), AVERAGE.repeat(50, 0), limit=limit)
    outside = gradient @ K > limit
    np.testing.assert_array_equal(changed, outside)
    assert 5 < outside.sum() < 45
    np.testing.assert_allclose(np.asarray(result)[outside] @ K, limit, rtol=1e-3, atol=1e-4)
    across = np.array([-K[1], K[0]])  # along the border nothing moves
    np.testing.assert_allclose(np.asarray(result) @ across, gradient @ across, rtol=1e-3, atol=1e-3)


def test_no_limit_means_no_trust_region():
    result, changed = projected([-1e6, 3.0], None)
    np.testing.assert_array_equal(result, np.float32([-1e6, 3.0]))
    assert not changed


# The loss, with tables: in each state a row of logits and a row of Q.


def tabular(params, observation):
    distribution = CategoricalWithValues(observation @ params["logits"], observation @ params["q"])
    return distribution, distribution.value()


def softmax(logits):
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def gradient_twin(params, average, state, action, reward, behaviour, ended, bootstrap, last_value, weight, config):
    """Gradient of the loss, one transition after the other, in float64. Also how many were outside the trust region."""
    logits, q = (np.asarray(params[name], np.float64) for name in ("logits", "q"))
    pi, pi_average, mu = softmax(logits), softmax(np.asarray(average["logits"], np.float64)), np.exp(behaviour)
    value = (pi * q).sum(axis=-1)
    ratio = np.take_along_axis(pi[state] / mu, action[..., None], -1)[..., 0]
    target = retrace_by_definition(
        ratio, reward, ended, q[state, action], value[state], bootstrap, last_value, config.gamma
    )
    gradient = {"logits": np.zeros_like(logits), "q": np.zeros_like(q)}
    count, limited = max((weight > 0).sum(), 1), 0
    for place in np.argwhere(weight > 0):
        t, n = place
        s, a, f = state[t, n], action[t, n], pi[state[t, n]]
        rho = f / mu[t, n]
        g = np.zeros_like(f)
        g[a] = min(rho[a], config.ratio_clip) * (target[t, n] - value[s]) / (f[a] + 1e-6)
        for b in range(len(f)):
            g[b] += max(0.0, 1 - config.ratio_clip / rho[b]) * (q[s, b] - value[s])
            g[b] += config.ent_coef * (-np.log(f[b] + 1e-6) - 1)
        if config.trust_region is not None:
            k = -pi_average[s] / (f + 1e-6)
            excess = max(0.0, k @ g - config.trust_region)
            limited += excess > 0
            g -= excess / (k @ k) * k
        # d f(b) / d logits(c) = f(b) (1[b = c] - f(c))
        gradient["logits"][s] -= weight[t, n] / count * (f * g - f * (f @ g))
        gradient["q"][s, a] += weight[t, n] / count * config.q_coef * (q[s, a] - target[t, n])
    return gradient, limited


def random_problem(seed, states=6, actions=3, shape=(7, 2)):
    rng = np.random.default_rng(seed)
    params, average = (
        {"logits": rng.normal(0, 1.5, (states, actions)), "q": rng.normal(size=(states, actions))} for _ in range(2)
    )
    behaviour = rng.normal(0, 1.5, (*shape, actions))
    columns = {
        "state": rng.integers(states, size=shape),
        "action": rng.integers(actions, size=shape),
        "reward": rng.normal(size=shape),
        "behaviour": behaviour - np.log(np.exp(behaviour).sum(axis=-1, keepdims=True)),
        "ended": rng.random(shape) < 0.2,
        "bootstrap": rng.normal(size=shape),
        "last_value": rng.normal(size=shape[1]),
        "weight": rng.random(shape) * (rng.random(shape) < 0.8),
    }
    return params, average, columns


def transitions(columns, states=6):
    def as_float(name):
        return jnp.asarray(columns[name].astype(np.float32))

    return Transitions(
        observation=jnp.asarray(one_hot(columns["state"], states).reshape(-1, states)),
        action=jnp.asarray(columns["action"].astype(np.int32)),
        reward=as_float("reward"),
        behaviour=as_float("behaviour"),
        ended=jnp.asarray(columns["ended"]),
        bootstrap_value=as_float("bootstrap"),
        last_value=as_float("last_value"),
        weight=as_float("weight"),
    )


def tables(values):
    return {name: jnp.asarray(np.asarray(table, np.float32)) for name, table in values.items()}


loss_gradient = jax.jit(
    lambda params, average, data, config: jax.grad(acer_loss, has_aux=True)(params, average, tabular, data, config),
    static_argnames="config",
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "config",
    [
        ACERConfig(gamma=0.9, ent_coef=0.05, q_coef=0.3, ratio_clip=1.5, trust_region=0.5),
        ACERConfig(gamma=0.9, ent_coef=0.0, q_coef=2.0, trust_region=None),
    ],
    ids=["trust region", "no trust region"],
)
def test_gradient_matches_a_numpy_twin(config, seed):
    params, average, columns = random_problem(seed)
    expected, limited = gradient_twin(params, average, **columns, config=config)
    found, metrics = loss_gradient(tables(params), tables(average), transitions(columns), config=config)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-4)
    weight = columns["weight"]
    assert (limited > 0) == (config.trust_region is not None)
    assert (float(metrics["limited"]) > 0) == (limited > 0)
    assert limited < (weight > 0).sum()


@pytest.mark.parametrize("garbage", [0.0, 1e6, -1e30])
def test_steps_of_weight_zero_change_nothing(garbage):
    """Whatever they hold, and although they lie between others: an end comes before them."""
    config = ACERConfig(gamma=0.9, ent_coef=0.05, trust_region=0.5)
    params, average, columns = random_problem(4)
    columns["weight"][:] = 1.0
    columns["ended"][2:4] = True
    columns["weight"][3] = 0.0
    expected = loss_gradient(tables(params), tables(average), transitions(columns), config=config)
    for name in ("reward", "bootstrap", "behaviour"):
        columns[name][3] = garbage
    found = loss_gradient(tables(params), tables(average), transitions(columns), config=config)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_on_policy_without_extras_it_is_the_plain_policy_gradient():
    """Of the action probabilities: A (onehot - pi) in the logits. The importance weights are exactly 1."""
    config = ACERConfig(gamma=0.9, ent_coef=0.0, ratio_clip=1.0, trust_region=None)
    params, average, columns = random_problem(5)
    logits, q, state, action = params["logits"].astype(np.float32), params["q"], columns["state"], columns["action"]
    columns["behaviour"] = np.asarray(jax.nn.log_softmax(jnp.asarray(logits)))[state]
    columns["weight"][:] = 1.0
    found, metrics = loss_gradient(tables(params), tables(average), transitions(columns), config=config)
    assert float(metrics["ratio"]) == 1.0

    pi = softmax(params["logits"])
    value = (pi * q).sum(axis=-1)
    arguments = (columns[name] for name in ("bootstrap", "last_value"))
    ones = np.ones_like(columns["reward"])
    target = retrace_by_definition(
        ones, columns["reward"], columns["ended"], q[state, action], value[state], *arguments, 0.9
    )
    expected = np.zeros_like(pi)
    np.add.at(expected, state, -(target - value[state])[..., None] * (np.eye(3)[action] - pi[state]) / ones.size)
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-3, atol=1e-5)


# The learner, in four states with two actions

LOGITS = np.array([[0.5, -0.5], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.3]])
Q = np.array([[1.0, 2.0], [2.0, 0.5], [8.0, 6.0], [5.0, -1.0]])
PARAMS = {"logits": LOGITS, "q": Q}
VALUE = (softmax(LOGITS) * Q).sum(axis=-1)
OTHER = {"logits": LOGITS[::-1], "q": Q[::-1]}
"""An average network that is not the present one."""
CONFIG = ACERConfig(
    gamma=0.5, ent_coef=0.1, ratio_clip=1.5, trust_region=0.5, replay_ratio=1, learning_starts=0, buffer_size=200
)
# State 1 is truncated in state 2; the next episode goes from state 3 on to state 0.
COLUMNS = {
    "state": [[0], [1], [3]],
    "next_state": [[1], [2], [0]],
    "last_state": [0],
    "reward": [[1.0], [2.0], [4.0]],
    "truncated": [[False], [True], [False]],
    "action": [[1], [0], [1]],
}
BEHAVIOUR = np.log(np.array([[[0.2, 0.8]], [[0.9, 0.1]], [[0.75, 0.25]]]))


def begun(optimiser=SGD):
    params = tables(PARAMS)
    return TrainState(params, optimiser.init(params))


@cache
def compiled_update(learner, config, bootstrap):
    return jax.jit(partial(learner(config, bootstrap).update, tabular, SGD))


def updated(rollout, bootstrap=True, config=CONFIG, learner=ACER):
    """The average network, the parameters and the metrics after an update."""
    update = compiled_update(learner, config, bootstrap)
    average, after, metrics = update(tables(OTHER), begun(), rollout, Exploration(), jax.random.key(0))
    return average, after.params, metrics


def behaved(**changes):
    extras = {"log_probs": BEHAVIOUR.astype(np.float32)}
    return state_rollout(**{**COLUMNS, **changes}, extras=extras)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_an_update_is_one_gradient_step_on_the_rollout(bootstrap):
    """The time limit bootstraps from the state that was reached, or is an end like any other."""
    expected, _ = gradient_twin(
        PARAMS,
        OTHER,
        state=np.array(COLUMNS["state"]),
        action=np.array(COLUMNS["action"]),
        reward=np.array(COLUMNS["reward"]),
        behaviour=BEHAVIOUR,
        ended=np.array(COLUMNS["truncated"]),
        bootstrap=np.array([[0.0], [VALUE[2] if bootstrap else 0.0], [0.0]]),
        last_value=VALUE[[0]],
        weight=np.ones((3, 1)),
        config=CONFIG,
    )
    _, params, _ = updated(behaved(), bootstrap)
    for name in PARAMS:
        np.testing.assert_allclose(params[name], PARAMS[name] - expected[name], rtol=1e-4, atol=1e-5)


def test_a_terminal_state_is_not_bootstrapped_from_although_the_time_is_up_as_well():
    both = behaved(terminated=COLUMNS["truncated"])
    for name, table in updated(both, bootstrap=True)[1].items():
        np.testing.assert_allclose(table, updated(behaved(), bootstrap=False)[1][name], rtol=1e-6)


def test_the_average_network_moves_by_one_minus_its_decay_towards_the_new_parameters():
    config = dataclasses.replace(CONFIG, average_decay=0.75)
    average, params, _ = updated(behaved(), config=config)
    for name in PARAMS:
        assert np.abs(np.asarray(params[name]) - PARAMS[name]).max() > 0.1
        np.testing.assert_allclose(average[name], 0.75 * OTHER[name] + 0.25 * np.asarray(params[name]), rtol=1e-5)


def test_the_average_network_begins_as_a_copy():
    spec = Spec((4,), Discrete(2), None)
    params = tables(PARAMS)
    average = ACER(CONFIG, True).init(jax.random.key(0), spec, params)
    for name in params:
        np.testing.assert_array_equal(average[name], params[name])
        assert average[name] is not params[name]


def test_reset_steps_change_nothing():
    expected = updated(behaved())
    found = updated(with_reset_step(behaved(), after=1))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_log_probabilities_of_all_actions_are_recorded_while_acting():
    distribution = CategoricalWithValues(jnp.asarray(LOGITS), jnp.asarray(Q))
    extras = ACER(CONFIG, True).extras(distribution, jnp.array([1, 0, 1, 1]), jnp.zeros(4))
    assert extras.keys() == {"log_probs"}
    np.testing.assert_allclose(extras["log_probs"], np.log(softmax(LOGITS)), rtol=1e-5)


# Replay. One episode: states 0, 1, 2 and 3, actions 1, 0, 1 and 0.

EPISODE = {
    "state": [[0], [1], [2], [3]],
    "next_state": [[1], [2], [3], [0]],
    "last_state": [0],
    "reward": [[1.0], [2.0], [-1.0], [4.0]],
    "action": [[1], [0], [1], [0]],
}
MU = np.log(np.array([[[0.2, 0.8]], [[0.9, 0.1]], [[0.75, 0.25]], [[0.4, 0.6]]]))
RETURNS = np.array([2.25, 2.5, 1.0, 4.0])
"""With the discount 1/2, from the last: 4; -1 + 4/2; 2 + 1/2; 1 + 2.5/2."""


def episode(ends="terminated"):
    last = [[False]] * 3 + [[True]]
    return state_rollout(**EPISODE, **{ends: last}, extras={"log_probs": MU.astype(np.float32)})


def stored(learner, rollout, copies=1):
    """The learner's buffer after as many copies of the rollout. What is stored does not depend on how it is sampled."""
    rollout = learner.to_replay(rollout)
    buffer = replay.create(rollout, CONFIG, 50, extras=learner.replay_extras)
    for _ in range(copies):
        buffer = insert(buffer, rollout, CONFIG)
    return buffer


insert = jax.jit(replay.insert, static_argnums=2)
sample = jax.jit(replay.sample, static_argnums=2)
batch_at = jax.jit(replay.batch_at)
prioritise = jax.jit(replay.update_priorities, static_argnums=3)


def unchanged(batch):
    return batch


def divide_by_four(batch):
    spec, moments = Spec((4,), Discrete(2), None), Moments(jnp.float32(0.0), jnp.float32(16.0), jnp.float32(1.0))
    state = NormaliserState(None, moments, jnp.zeros(1), jnp.float32(0.0))
    return Normaliser(False, True, 10.0, 0.5, spec, 1).batch(state, batch)


@partial(jax.jit, static_argnums=(0, 1, 4))
@partial(jax.vmap, in_axes=(None, None, None, 0, None))
def run_off_policy(update, optimiser, buffer, key, normalise):
    return update(tabular, optimiser, tables(OTHER), begun(optimiser), buffer, key, normalise)


def off_policy(learner, buffer, keys, optimiser=SGD, normalise=unchanged):
    """Results for each of these keys: average, train state, buffer and metrics."""
    keys = jax.random.split(jax.random.key(0), keys)
    return run_off_policy(learner.update_off_policy, optimiser, buffer, keys, normalise)


def segment_gradient(steps, terminal, config):
    """Of the transitions of these steps of the episode, the last of them terminal or followed by another state."""
    rows = list(steps)
    ended = np.zeros((len(rows), 1), bool)
    ended[-1] = True
    after = 0.0 if terminal else VALUE[rows[-1] + 1]
    return gradient_twin(
        PARAMS,
        OTHER,
        state=np.array(rows)[:, None],
        action=np.array(EPISODE["action"])[rows],
        reward=np.array(EPISODE["reward"])[rows],
        behaviour=MU[rows],
        ended=ended,
        bootstrap=np.full((len(rows), 1), after),
        last_value=np.zeros(1),
        weight=np.ones((len(rows), 1)),
        config=config,
    )[0]


@pytest.mark.parametrize(
    ("bootstrap", "ends", "length", "expected"),
    [
        (True, "terminated", 2, [((0, 1), False), ((1, 2), False), ((2, 3), True), ((3,), True)]),
        (True, "terminated", 10, [((0, 1, 2, 3), True), ((1, 2, 3), True), ((2, 3), True), ((3,), True)]),
        (False, "truncated", 2, [((0, 1), False), ((1, 2), False), ((2, 3), True), ((3,), True)]),
        # what came after the time limit is not stored: the last step has no target
        (True, "truncated", 10, [((0, 1, 2), False), ((1, 2), False), ((2,), False), ((), False)]),
    ],
    ids=["segments", "whole episodes", "a terminal time limit", "a bootstrapped time limit"],
)
def test_a_replayed_update_is_a_gradient_step_on_a_segment(bootstrap, ends, length, expected):
    config = dataclasses.replace(CONFIG, batch_size=1, segment_steps=length)
    learner = ACER(config, bootstrap)
    _, after, _, metrics = off_policy(learner, stored(learner, episode(ends)), keys=24)
    candidates = []
    for steps, terminal in expected:
        gradient = segment_gradient(steps, terminal, config) if steps else dict.fromkeys(PARAMS, 0.0)
        candidates.append({name: PARAMS[name] - gradient[name] for name in PARAMS})
    found = set()
    for number in range(24):
        params = {name: np.asarray(table)[number] for name, table in after.params.items()}
        distance = [max(np.abs(params[name] - one[name]).max() for name in PARAMS) for one in candidates]
        assert min(distance) < 1e-4, params
        found.add(int(np.argmin(distance)))
    assert found == {0, 1, 2, 3}, "from every step"
    assert metrics["replay_size"].tolist() == [4.0] * 24


def leaves(buffer, number):
    first = buffer.tree.first_leaf
    return np.asarray(buffer.tree.sums)[number, first : first + 4]


def test_priorities_of_the_first_steps_become_the_advantage_before_the_update():
    config = ACPERConfig(gamma=0.5, replay_ratio=1, batch_size=1, segment_steps=3, learning_starts=0, buffer_size=200)
    learner = ACPER(config, True)
    _, _, buffer, _ = off_policy(learner, stored(learner, episode()), keys=24, optimiser=optax.sgd(5.0))
    advantage = np.maximum(RETURNS - VALUE, 1e-6)  # the third is the floor
    assert (advantage > 1e-6).tolist() == [True, True, False, True]
    sampled = set()
    for number in range(24):
        priority = leaves(buffer, number)
        changed = np.flatnonzero(priority != 1.0)
        assert len(changed) == 1
        np.testing.assert_allclose(priority[changed], advantage[changed] ** 0.6, rtol=1e-4)
        sampled.update(changed.tolist())
    assert sampled == {0, 1, 2, 3}


def test_acper_samples_by_priority_and_acer_uniformly():
    for config, shares in ((ACERConfig, np.full(4, 0.25)), (ACPERConfig, np.array([8, 1, 4, 1]) ** 0.6)):
        config = config(gamma=0.5, batch_size=4, learning_starts=0, buffer_size=200)
        buffer = stored(ACER(config, True), episode())
        batch = batch_at(buffer, jnp.arange(4), jnp.ones(4))
        buffer = prioritise(buffer, batch, jnp.array([8.0, 1.0, 4.0, 1.0]), config)
        weight = leaves(jax.tree.map(lambda leaf: leaf[None], buffer), 0)
        np.testing.assert_allclose(weight / weight.sum(), shares / shares.sum(), rtol=1e-5)
        sampled = sample(buffer, jax.random.key(1), config)
        expected = (weight / weight.min())[np.asarray(sampled.slot)] ** -config.importance_exponent
        np.testing.assert_allclose(sampled.weight, expected, rtol=1e-5)


@pytest.mark.parametrize(("copies", "changes"), [(0, False), (2, False), (3, True)])
def test_nothing_is_replayed_until_more_than_learning_starts_steps_are_stored(copies, changes):
    config = dataclasses.replace(CONFIG, learning_starts=8, batch_size=4, segment_steps=3, priority_exponent=0.6)
    learner, optimiser = ACER(config, True), optax.adam(0.1)
    buffer = stored(learner, episode(), copies)
    average, after, buffer_after, metrics = off_policy(learner, buffer, keys=1, optimiser=optimiser)
    before = (tables(OTHER), begun(optimiser), buffer)
    same = [
        np.array_equal(old, new[0])
        for old, new in zip(jax.tree.leaves(before), jax.tree.leaves((average, after, buffer_after)), strict=True)
    ]
    assert all(same) != changes
    assert int(after.optimiser_state[0].count[0]) == int(changes)
    assert metrics["replay_size"] == 4 * copies
    assert all(np.isfinite(value).all() for value in metrics.values())
    if not changes:
        assert all(float(value[0]) == 0.0 for name, value in metrics.items() if name != "replay_size")


def test_each_replayed_update_continues_from_the_one_before():
    """And the average network follows each of them. Rewards are stored raw: here each is divided by 4."""
    config = dataclasses.replace(CONFIG, replay_ratio=3, batch_size=64, average_decay=0.5)
    learner = ACER(config, True)
    extras = {"log_probs": MU[:1].astype(np.float32)}
    one_step = state_rollout([[0]], [[12.0]], [1], [[1]], action=[[1]], terminated=[[True]], extras=extras)
    average, after, _, _ = off_policy(learner, stored(learner, one_step, copies=5), keys=1, normalise=divide_by_four)
    # Q(0, 1) goes half of the way to 3 with each step: 2, 2.5, 2.75, 2.875; of 64 entries, 5 are filled
    np.testing.assert_allclose(after.params["q"][0, 0], [1.0, 2.875], rtol=1e-5)
    # the average halves its distance each time: from -1 to 0.75, 1.75 and 2.3125
    assert OTHER["q"][0, 1] == -1.0
    np.testing.assert_allclose(average["q"][0, 0, 1], 2.3125, rtol=1e-5)


def test_without_replayed_updates_there_is_no_buffer():
    learner = ACER(dataclasses.replace(CONFIG, replay_ratio=0), True)
    assert learner.replay is None
    assert learner.gradient_steps == 1
    assert ACER(CONFIG, True).replay is CONFIG
    assert ACER(dataclasses.replace(CONFIG, replay_ratio=4), True).gradient_steps == 5


# What is refused


@pytest.mark.parametrize(
    ("actions", "words"),
    [(Continuous((-1.0,), (1.0,)), "are continuous"), (MultiDiscrete((2, 3)), "consist of several choices")],
)
@pytest.mark.parametrize("agent", ["acer", "acper+sil"])
def test_other_actions_than_one_discrete_choice_are_refused(agent, actions, words):
    config = resolve("key-door-treasure", "authors", {"agent": agent})
    name = agent.partition("+")[0]
    with pytest.raises(UsageError, match=f"agent: '{name}' needs one discrete action per step; actions here {words}$"):
        agents.build(config, Spec((4,), actions, None))


def test_a_network_without_action_values_is_refused(monkeypatch):
    monkeypatch.setitem(actor_critic._factories, "mine", actor_critic.Network)
    config, random, spec = NetworkConfig(kind="mine", hidden=(4,)), np.random.default_rng(0), Spec((4,), Discrete(2), 9)
    with pytest.raises(UsageError, match=r"^network.kind: 'mine' is not allowed; this agent needs action values; "):
        actor_critic.create(spec, config, random, action_values=True)
    assert actor_critic.create(spec, config, random) is not None


@pytest.mark.parametrize("agent", ["acer", "acper"])
@pytest.mark.parametrize(("name", "allowed"), [("learning_starts", "less than"), ("batch_size", "at most")])
def test_a_buffer_too_small_for_what_is_sampled_from_it_is_refused(agent, name, allowed):
    changes = {"agent": agent, f"{agent}.buffer_size": 12, f"{agent}.learning_starts": 0, f"{agent}.batch_size": 12}
    validate(resolve("key-door-treasure", "authors", changes))
    too_many = {**changes, f"{agent}.{name}": 12 if name == "learning_starts" else 13}
    with pytest.raises(UsageError, match=rf"{agent}\.{name}: \d+ .*: {allowed} {agent}\.buffer_size = 12$"):
        validate(resolve("key-door-treasure", "authors", too_many))
