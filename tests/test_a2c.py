"""The A2C loss and its update: by hand, against NumPy, and what a time limit is worth."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import TypeCheckError

from self_imitation import optimisation
from self_imitation.config import A2CConfig, OptimiserConfig, resolve
from self_imitation.distributions import Categorical
from self_imitation.improvement.a2c import A2C, a2c_loss
from self_imitation.types import Learner, Rollout

CONFIG = A2CConfig(discount=0.5, entropy_weight=0.1, value_weight=0.5)
KEY = jax.random.key(0)  # every way to improve takes one; A2C has no use for it


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


@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_equal_a_twin_and_its_finite_differences(seed):
    rng = np.random.default_rng(seed)
    log_prob, entropy, value, target = -rng.exponential(size=9), rng.random(9), *rng.normal(size=(2, 9))
    config = A2CConfig(entropy_weight=0.03, value_weight=0.7)

    def twin(log_prob, entropy, value, advantage=target - value):
        policy = -sum(p * a for p, a in zip(log_prob, advantage, strict=True))
        errors = sum(0.5 * (v - t) ** 2 for v, t in zip(value, target, strict=True))
        return (policy - 0.03 * sum(entropy) + 0.7 * errors) / 9

    with jax.enable_x64(True):
        arguments = [jnp.asarray(x) for x in (log_prob, entropy, value, target)]
        loss, _ = a2c_loss(*arguments, config)
        gradient = jax.grad(lambda *a: a2c_loss(*a, config)[0], argnums=(0, 1, 2))(*arguments)
        assert loss.dtype == jnp.float64
    assert float(loss) == pytest.approx(twin(log_prob, entropy, value))
    for which in range(3):
        for i in range(9):
            above, below = ([x.copy() for x in (log_prob, entropy, value)] for _ in range(2))
            above[which][i] += 1e-5
            below[which][i] -= 1e-5
            assert float(gradient[which][i]) == pytest.approx((twin(*above) - twin(*below)) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("place", range(4))
def test_a_column_among_the_rows_is_refused(place):
    arguments = [jnp.zeros(3)] * 4
    arguments[place] = jnp.zeros((3, 1))
    with pytest.raises(TypeCheckError):
        a2c_loss(*arguments, CONFIG)


# The update, with tables for actor and critic; states are one-hot.


def tabular(params, observation):
    return Categorical(observation @ params["logits"]), observation @ params["value"]


def one_hot(*states):
    """[T, N] numbers of states to [T, N, 4]."""
    return jax.nn.one_hot(jnp.array(states), 4)


def rollout_of(observation, successor, last_observation, reward, terminated=None, truncated=None, action=None):
    reward = jnp.array(reward)
    nowhere = jnp.zeros(reward.shape, bool)
    return Rollout(
        observation=one_hot(*observation),
        action=jnp.zeros(reward.shape, jnp.int32) if action is None else jnp.asarray(action, jnp.int32),
        reward=reward,
        terminated=nowhere if terminated is None else jnp.array(terminated),
        truncated=nowhere if truncated is None else jnp.array(truncated),
        successor=one_hot(*successor),
        last_observation=one_hot(*last_observation),
        episode_return=reward,
        episode_length=jnp.ones(reward.shape, jnp.int32),
    )


def improved(rollout, value, bootstrap, bonus=None, config=CONFIG):
    """Parameters after one plain gradient step of length 1 from equal probabilities and these values."""
    params = {"logits": jnp.zeros((4, 2)), "value": jnp.array(value)}
    optimiser = optax.sgd(1.0)
    learner = Learner(params, optimiser.init(params))
    learner, metrics = A2C(config, bootstrap).improve(tabular, optimiser, learner, rollout, bonus, KEY)
    return learner.params, metrics


# One environment, two steps: from state 0 to state 1, where the episode ends in state 2; the next begins in state 3.
ENDING = {"observation": [[0], [1]], "successor": [[1], [2]], "last_observation": [3], "reward": [[1.0], [2.0]]}
VALUES = [1.0, 2.0, 8.0, 100.0]


def value_step(targets):
    """d/dV of 0.5 * mean(0.5 (V - target)^2) is (V - target) / 4 for each of two steps."""
    return [VALUES[0] + (targets[0] - VALUES[0]) / 4, VALUES[1] + (targets[1] - VALUES[1]) / 4, *VALUES[2:]]


@pytest.mark.parametrize(
    ("end", "bootstrap", "targets"),
    [
        # 2 + 0 = 2; 1 + 2/2 = 2
        ({"terminated": [[False], [True]]}, True, (2.0, 2.0)),
        ({"terminated": [[False], [True]]}, False, (2.0, 2.0)),
        # cut off in state 2, worth 8: 2 + 8/2 = 6; 1 + 6/2 = 4
        ({"truncated": [[False], [True]]}, True, (4.0, 6.0)),
        # the same as an end
        ({"truncated": [[False], [True]]}, False, (2.0, 2.0)),
        # both at once: an end
        ({"terminated": [[False], [True]], "truncated": [[False], [True]]}, True, (2.0, 2.0)),
        # no end: what is seen next is state 3, worth 100: 2 + 100/2 = 52; 1 + 52/2 = 27
        ({}, True, (27.0, 52.0)),
        ({}, False, (27.0, 52.0)),
    ],
    ids=[
        "terminal bootstrap",
        "terminal",
        "cut bootstrap",
        "cut as end",
        "terminal and cut",
        "goes on bootstrap",
        "goes on",
    ],
)
def test_what_the_end_of_a_rollout_is_worth(end, bootstrap, targets):
    params, metrics = improved(rollout_of(**ENDING, **end), VALUES, bootstrap)
    np.testing.assert_allclose(params["value"], value_step(targets), rtol=1e-6)
    # policy: - log(1/2) * advantage, over two steps
    advantages = np.array(targets) - VALUES[:2]
    assert float(metrics["policy_loss"]) == pytest.approx(np.log(2) * advantages.mean(), rel=1e-5)


def test_a_cut_in_the_middle_is_worth_its_own_state_and_not_the_one_that_follows():
    """State 1 is cut off in state 2 (worth 8); the next episode goes from state 3 on to state 0."""
    rollout = rollout_of(
        observation=[[0], [1], [3]],
        successor=[[1], [2], [0]],
        last_observation=[0],
        reward=[[1.0], [2.0], [4.0]],
        truncated=[[False], [True], [False]],
    )
    # from the last: 4 + 1/2 = 4.5; 2 + 8/2 = 6; 1 + 6/2 = 4
    params, _ = improved(rollout, VALUES, bootstrap=True)
    expected = [1.0 + (4 - 1) / 6, 2.0 + (6 - 2) / 6, 8.0, 100.0 + (4.5 - 100) / 6]
    np.testing.assert_allclose(params["value"], expected, rtol=1e-6)
    # as an end: 4.5; 2; 1 + 2/2 = 2
    params, _ = improved(rollout, VALUES, bootstrap=False)
    expected = [1.0 + (2 - 1) / 6, 2.0, 8.0, 100.0 + (4.5 - 100) / 6]
    np.testing.assert_allclose(params["value"], expected, rtol=1e-6)


def test_the_settings_say_what_a_time_limit_is():
    assert resolve("key-door-treasure", "authors").time_limit == "terminal"
    assert resolve("key-door-treasure", "paper").time_limit == "bootstrap"


def test_the_bonus_is_added_to_the_reward():
    rollout = rollout_of(**ENDING, terminated=[[False], [True]])
    # (2 + 4) = 6; (1 + 2) + 6/2 = 6
    params, _ = improved(rollout, VALUES, bootstrap=False, bonus=jnp.array([[2.0], [4.0]]))
    np.testing.assert_allclose(params["value"], value_step((6.0, 6.0)), rtol=1e-6)


def test_environments_do_not_mix():
    """Two environments, one step each; only the second action is surprised."""
    rollout = rollout_of(
        observation=[[0, 1]],
        successor=[[2, 3]],
        last_observation=[2, 3],
        reward=[[1.0, 2.0]],
        terminated=[[True, False]],
        action=[[1, 0]],
    )
    # targets: 1 (ended) and 2 + 100/2 = 52; advantages 0 and 50
    config = A2CConfig(discount=0.5, entropy_weight=0.0, value_weight=0.5)
    params, _ = improved(rollout, VALUES, bootstrap=False, config=config)
    np.testing.assert_allclose(params["value"], [1.0, 2.0 + 50 / 4, 8.0, 100.0], rtol=1e-6)
    # logits: 50 / 2 * (onehot(0) - 1/2) in state 1, nothing elsewhere
    np.testing.assert_allclose(params["logits"], [[0, 0], [12.5, -12.5], [0, 0], [0, 0]], atol=1e-5)


def test_the_entropy_term_evens_out_the_policy():
    params = {"logits": jnp.array([[2.0, 0.0]] * 4), "value": jnp.zeros(4)}
    optimiser = optax.sgd(1.0)
    rollout = rollout_of([[0]], [[1]], [1], [[0.0]], terminated=[[True]])
    learner = Learner(params, optimiser.init(params))
    learner, _ = A2C(CONFIG, False).improve(tabular, optimiser, learner, rollout, None, KEY)
    logits = learner.params["logits"]
    # dH/dlogit_k = - p_k (log p_k + H), times alpha = 0.1
    p = np.exp([2.0, 0.0]) / np.exp([2.0, 0.0]).sum()
    expected = np.array([2.0, 0.0]) - 0.1 * p * (np.log(p) - np.sum(p * np.log(p)))
    np.testing.assert_allclose(logits[0], expected, rtol=1e-5)
    np.testing.assert_array_equal(logits[1:], params["logits"][1:])


def test_several_updates_with_the_shipped_optimiser_equal_numpy():
    """Tables, four random rollouts, gradient clip and RMSProp: parameters after each update in float64."""
    rng = np.random.default_rng(0)
    steps, environments = 3, 2
    config = A2CConfig(discount=0.9, entropy_weight=0.05, value_weight=0.5)
    optimiser = optimisation.create(OptimiserConfig(learning_rate=0.1), gradient_steps=1)
    logits, value = rng.normal(size=(4, 2)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    params = {"logits": jnp.asarray(logits), "value": jnp.asarray(value)}
    learner = Learner(params, optimiser.init(params))
    improve = jax.jit(partial(A2C(config, True).improve, tabular, optimiser))
    logits, value = logits.astype(np.float64), value.astype(np.float64)
    squares = [np.ones((4, 2)), np.ones(4)]

    for _ in range(4):
        state, successor = rng.integers(4, size=(2, steps, environments))
        last, action = rng.integers(4, size=environments), rng.integers(2, size=(steps, environments))
        reward = (3 * rng.normal(size=(steps, environments))).astype(np.float32)
        truncated = rng.random((steps, environments)) < 0.3
        terminated = (rng.random((steps, environments)) < 0.3) & ~truncated
        rollout = rollout_of(state, successor, last, reward, terminated, truncated, action)
        learner, _ = improve(learner, rollout, None, KEY)

        following, target = value[last], np.zeros((steps, environments))
        for t in reversed(range(steps)):
            for n in range(environments):
                at_end = value[successor[t, n]] if truncated[t, n] else 0.0
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
        np.testing.assert_allclose(learner.params["logits"], logits, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(learner.params["value"], value, rtol=1e-4, atol=1e-6)
