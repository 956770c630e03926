"""The A2C loss and update: by hand, against NumPy, and the value of a time limit."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from tabular import state_rollout, tabular, updated_tables, with_reset_step

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.a2c import A2C, A2CConfig, a2c_loss
from self_imitation.algorithm.components import Exploration
from self_imitation.settings import OptimiserConfig
from self_imitation.types import TrainState

CONFIG = A2CConfig(gamma=0.5, ent_coef=0.1, vf_coef=0.5)
NO_ENTROPY = dataclasses.replace(CONFIG, ent_coef=0.0)
update = partial(updated_tables, A2C)


def test_loss_by_hand():
    log_prob, entropy = jnp.array([-1.0, -2.0]), jnp.array([0.5, 0.25])
    value, target = jnp.array([1.0, 3.0]), jnp.array([3.0, 2.0])
    loss, metrics = a2c_loss(log_prob, entropy, value, target, CONFIG)
    # Eq. 5: (1 * 2 + 2 * -1) / 2 = 0, and the mean entropy 0.375; Eq. 6: (0.5 * 4 + 0.5 * 1) / 2 = 1.25
    # Eq. 4: 0 - 0.1 * 0.375 + 0.5 * 1.25 = 0.5875
    assert float(metrics["policy_loss"]) == pytest.approx(0.0)
    assert float(metrics["entropy"]) == pytest.approx(0.375)
    assert float(metrics["value_loss"]) == pytest.approx(1.25)
    assert float(loss) == float(metrics["loss"]) == pytest.approx(0.5875)


def test_gradient_by_hand():
    # log-probability: - advantage / 2; entropy: - alpha / 2; value: beta (V - target) / 2; target: none
    arguments = (jnp.array([-1.0, -2.0]), jnp.array([0.5, 0.25]), jnp.array([1.0, 3.0]), jnp.array([3.0, 2.0]))
    gradient = jax.grad(lambda *a: a2c_loss(*a, CONFIG)[0], argnums=(0, 1, 2, 3))(*arguments)
    expected = ([-1.0, 0.5], [-0.05, -0.05], [-0.5, 0.25], [0.0, 0.0])
    np.testing.assert_allclose(np.stack(gradient), expected, rtol=1e-6)


def test_bonus_advantage_changes_the_policy_gradient_alone():
    arguments = (jnp.array([-1.0, -2.0]), jnp.array([0.5, 0.25]), jnp.array([1.0, 3.0]), jnp.array([3.0, 2.0]))
    bonus = jnp.array([4.0, 6.0])
    gradient = jax.grad(lambda *a: a2c_loss(*a, CONFIG, bonus)[0], argnums=(0, 1, 2))(*arguments)
    # advantages 2 + 4 and -1 + 6; the rest as without the bonus
    np.testing.assert_allclose(np.stack(gradient), ([-3.0, -2.5], [-0.05, -0.05], [-0.5, 0.25]), rtol=1e-6)


def test_loss_and_gradient_match_a_numpy_twin_and_its_finite_differences():
    rng = np.random.default_rng(0)
    log_prob, entropy, value, target = -rng.exponential(size=9), rng.random(9), *rng.normal(size=(2, 9))
    config = A2CConfig(ent_coef=0.03, vf_coef=0.7)

    def twin(log_prob, entropy, value, advantage=target - value):
        policy = -sum(p * a for p, a in zip(log_prob, advantage, strict=True))
        errors = sum(0.5 * (v - t) ** 2 for v, t in zip(value, target, strict=True))
        return (policy - 0.03 * sum(entropy) + 0.7 * errors) / 9

    with jax.enable_x64(True):
        arguments = [jnp.asarray(x) for x in (log_prob, entropy, value, target)]
        loss_and_gradient = jax.jit(jax.value_and_grad(lambda *a: a2c_loss(*a, config)[0], argnums=(0, 1, 2)))
        loss, gradient = loss_and_gradient(*arguments)
        assert loss.dtype == jnp.float64
    assert float(loss) == pytest.approx(twin(log_prob, entropy, value))
    for which in range(3):
        for i in range(9):
            above, below = ([x.copy() for x in (log_prob, entropy, value)] for _ in range(2))
            above[which][i] += 1e-5
            below[which][i] -= 1e-5
            difference = (twin(*above) - twin(*below)) / 2e-5
            assert float(gradient[which][i]) == pytest.approx(difference, abs=1e-8)


@pytest.mark.parametrize("place", range(4))
def test_column_vectors_are_refused(place):
    """(B, 1) minus (B,) would broadcast to (B, B)."""
    arguments = [jnp.zeros(3)] * 4
    arguments[place] = jnp.zeros((3, 1))
    with pytest.raises(TypeCheckError):
        a2c_loss(*arguments, CONFIG)


# One environment, two steps: from state 0 to state 1, where the episode ends in state 2; the next begins in state 3.
ENDING = {"state": [[0], [1]], "next_state": [[1], [2]], "last_state": [3], "reward": [[1.0], [2.0]]}
VALUES = [1.0, 2.0, 8.0, 100.0]
AT_END = [[False], [True]]


def value_step(targets):
    """d/dV of 0.5 * mean(0.5 (V - target)^2) is (V - target) / 4 for each of two steps."""
    return [VALUES[0] + (targets[0] - VALUES[0]) / 4, VALUES[1] + (targets[1] - VALUES[1]) / 4, *VALUES[2:]]


@pytest.mark.parametrize(
    ("end", "bootstrap", "targets"),
    [
        # 2 + 0 = 2; 1 + 2/2 = 2
        ({"terminated": AT_END}, True, (2.0, 2.0)),
        ({"terminated": AT_END}, False, (2.0, 2.0)),
        # truncated in state 2, worth 8: 2 + 8/2 = 6; 1 + 6/2 = 4
        ({"truncated": AT_END}, True, (4.0, 6.0)),
        ({"truncated": AT_END}, False, (2.0, 2.0)),
        ({"terminated": AT_END, "truncated": AT_END}, True, (2.0, 2.0)),
        # no end: the next observation is state 3, worth 100: 2 + 100/2 = 52; 1 + 52/2 = 27
        ({}, True, (27.0, 52.0)),
        ({}, False, (27.0, 52.0)),
    ],
    ids=[
        "terminal, bootstrap",
        "terminal",
        "time limit, bootstrap",
        "time limit as terminal",
        "terminal at the time limit",
        "unfinished, bootstrap",
        "unfinished",
    ],
)
def test_bootstrap_at_the_end_of_a_rollout(end, bootstrap, targets):
    params, metrics = update(CONFIG, state_rollout(**ENDING, **end), VALUES, bootstrap=bootstrap)
    np.testing.assert_allclose(params["value"], value_step(targets), rtol=1e-6)
    # policy: - log(1/2) * advantage, over two steps
    advantages = np.array(targets) - VALUES[:2]
    assert metrics["policy_loss"] == pytest.approx(np.log(2) * advantages.mean(), rel=1e-5)


# State 1 is truncated in state 2 (worth 8); the next episode goes from state 3 on to state 0.
TRUNCATED_INSIDE = {
    "state": [[0], [1], [3]],
    "next_state": [[1], [2], [0]],
    "last_state": [0],
    "reward": [[1.0], [2.0], [4.0]],
    "truncated": [[False], [True], [False]],
}


@pytest.mark.parametrize(
    ("bootstrap", "targets"),
    [
        (True, (4.0, 6.0, 4.5)),  # from the last: 4 + 1/2 = 4.5; 2 + 8/2 = 6; 1 + 6/2 = 4
        (False, (2.0, 2.0, 4.5)),
    ],
)
def test_time_limit_inside_a_rollout_bootstraps_from_the_state_reached_and_not_from_the_next_episode(
    bootstrap, targets
):
    params, _ = update(CONFIG, state_rollout(**TRUNCATED_INSIDE), VALUES, bootstrap=bootstrap)
    steps = [(target - VALUES[state]) / 6 for target, state in zip(targets, (0, 1, 3), strict=True)]
    expected = [1.0 + steps[0], 2.0 + steps[1], 8.0, 100.0 + steps[2]]
    np.testing.assert_allclose(params["value"], expected, rtol=1e-6)


def test_reset_steps_change_nothing():
    rollout = state_rollout(**TRUNCATED_INSIDE, action=[[1], [0], [1]])
    expected, expected_metrics = update(CONFIG, rollout, VALUES, bootstrap=True)
    params, metrics = update(CONFIG, with_reset_step(rollout, after=1), VALUES, bootstrap=True)
    assert metrics == pytest.approx(expected_metrics, rel=1e-5)
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-6)


def test_bonus_reward_is_added_to_the_reward():
    rollout = state_rollout(**ENDING, terminated=AT_END)
    # (2 + 4) = 6; (1 + 2) + 6/2 = 6
    params, _ = update(NO_ENTROPY, rollout, VALUES, reward=[[2.0], [4.0]], advantage=[[0.0], [0.0]])
    np.testing.assert_allclose(params["value"], value_step((6.0, 6.0)), rtol=1e-6)


def test_bonus_advantage_moves_the_policy_and_not_the_value():
    rollout = state_rollout(**ENDING, terminated=AT_END)
    params, _ = update(NO_ENTROPY, rollout, VALUES, reward=[[0.0], [0.0]], advantage=[[3.0], [-5.0]])
    np.testing.assert_allclose(params["value"], value_step((2.0, 2.0)), rtol=1e-6)
    # advantages 1 + 3 and 0 - 5; action 0 was taken: A (onehot(0) - 1/2) / 2
    np.testing.assert_allclose(params["logits"][:2], [[1.0, -1.0], [-1.25, 1.25]], rtol=1e-6)


def test_environments_do_not_mix():
    """Two environments, one step each; only the second has an advantage."""
    rollout = state_rollout(
        [[0, 1]], [[1.0, 2.0]], [2, 3], next_state=[[2, 3]], terminated=[[True, False]], action=[[1, 0]]
    )
    # targets: 1 (terminal) and 2 + 100/2 = 52; advantages 0 and 50
    params, _ = update(NO_ENTROPY, rollout, VALUES)
    np.testing.assert_allclose(params["value"], [1.0, 2.0 + 50 / 4, 8.0, 100.0], rtol=1e-6)
    # logits: 50 / 2 * (onehot(0) - 1/2) in state 1, nothing elsewhere
    np.testing.assert_allclose(params["logits"], [[0, 0], [12.5, -12.5], [0, 0], [0, 0]], atol=1e-5)


def test_entropy_bonus_flattens_the_policy():
    logits = np.array([[2.0, 0.0]] * 4)
    rollout = state_rollout([[0]], [[0.0]], [1], next_state=[[1]], terminated=[[True]])
    params, _ = update(CONFIG, rollout, np.zeros(4), logits)
    # dH/dlogit_k = - p_k (log p_k + H), times alpha = 0.1
    p = np.exp([2.0, 0.0]) / np.exp([2.0, 0.0]).sum()
    expected = np.array([2.0, 0.0]) - 0.1 * p * (np.log(p) - np.sum(p * np.log(p)))
    np.testing.assert_allclose(params["logits"][0], expected, rtol=1e-5)
    np.testing.assert_array_equal(params["logits"][1:], logits[1:])


def test_several_updates_with_the_shipped_optimiser_match_numpy():
    """Tables, four random rollouts, gradient clipping and RMSProp: parameters after each update in float64."""
    rng = np.random.default_rng(0)
    shape = steps, num_envs = 3, 2
    config = A2CConfig(gamma=0.9, ent_coef=0.05, vf_coef=0.5)
    optimiser = optimisers.create(OptimiserConfig(learning_rate=0.1), gradient_steps=1)
    logits, value = rng.normal(size=(4, 2)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    params = {"logits": jnp.asarray(logits), "value": jnp.asarray(value)}
    train_state = TrainState(params, optimiser.init(params))
    one_update = jax.jit(partial(A2C(config, True).update, tabular, optimiser))
    logits, value = logits.astype(np.float64), value.astype(np.float64)
    squares = [np.ones((4, 2)), np.ones(4)]

    for _ in range(4):
        state, next_state = rng.integers(4, size=(2, *shape))
        last, action = rng.integers(4, size=num_envs), rng.integers(2, size=shape)
        reward = (3 * rng.normal(size=shape)).astype(np.float32)
        truncated = rng.random(shape) < 0.3
        terminated = (rng.random(shape) < 0.3) & ~truncated
        ends = {"terminated": terminated, "truncated": truncated}
        rollout = state_rollout(state, reward, last, next_state, action=action, **ends)
        _, train_state, _ = one_update(None, train_state, rollout, Exploration(), jax.random.key(0))

        following, target = value[last], np.zeros(shape)
        for t in reversed(range(steps)):
            for n in range(num_envs):
                at_end = value[next_state[t, n]] if truncated[t, n] else 0.0
                ended = truncated[t, n] or terminated[t, n]
                target[t, n] = reward[t, n] + 0.9 * (at_end if ended else following[n])
            following = target[t]
        gradient = [np.zeros((4, 2)), np.zeros(4)]
        for s, a, goal in zip(state.flat, action.flat, target.flat, strict=True):
            p = np.exp(logits[s]) / np.exp(logits[s]).sum()
            gradient[0][s] += -(goal - value[s]) * (np.eye(2)[a] - p) / target.size
            gradient[0][s] += 0.05 * p * (np.log(p) - np.sum(p * np.log(p))) / target.size
            gradient[1][s] += 0.5 * (value[s] - goal) / target.size
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient))
        gradient = [g * min(1.0, 0.5 / norm) for g in gradient]
        squares = [0.99 * s + 0.01 * g**2 for s, g in zip(squares, gradient, strict=True)]
        logits = logits - 0.1 * gradient[0] / np.sqrt(squares[0] + 1e-5)
        value = value - 0.1 * gradient[1] / np.sqrt(squares[1] + 1e-5)
        np.testing.assert_allclose(train_state.params["logits"], logits, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(train_state.params["value"], value, rtol=1e-4, atol=1e-6)
