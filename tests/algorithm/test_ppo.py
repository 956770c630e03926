"""The PPO loss and its epochs: by hand and against NumPy."""

import dataclasses
import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from tabular import state_rollout, updated_tables, with_reset_step

from self_imitation.algorithm.ppo import PPO, PPOConfig, ppo_loss
from self_imitation.errors import UsageError

# The loss. Each test gives a coefficient to the term that it is about, and 0 to the others.

CONFIG = PPOConfig(gamma=0.5, gae_lambda=0.5, clip_coef=0.2, value_clip=None, ent_coef=0.0, vf_coef=0.0)
update = partial(updated_tables, PPO)

# Advantages 3 and -1 have the mean 1 and the standard deviation 2: normalised they are 1 and -1.
RATIO = np.array([1.1, 1.5, 0.5, 1.1, 1.5, 0.5])
ADVANTAGE = np.array([3.0, 3.0, 3.0, -1.0, -1.0, -1.0])

loss_and_gradient = jax.jit(jax.value_and_grad(ppo_loss, argnums=(0, 1, 2), has_aux=True), static_argnames="config")


def evaluated(config, log_prob=0.0, entropy=0.0, value=0.0, old_log_prob=0.0, old_value=0.0, advantage=0.0, **others):
    """Loss, metrics, and gradients with respect to log-probability, entropy and value."""
    columns = np.broadcast_arrays(log_prob, entropy, value, old_log_prob, old_value, advantage)
    columns = [np.array(column, np.float32) for column in columns]
    (loss, metrics), gradient = loss_and_gradient(*columns, config=config, **others)
    return float(loss), {name: float(metric) for name, metric in metrics.items()}, np.stack(gradient)


def of_ratios(config=CONFIG, ratio=RATIO, advantage=ADVANTAGE):
    """Loss, metrics and the gradient with respect to log-probability, where each probability was 1/4."""
    old = np.log(0.25)
    loss, metrics, gradient = evaluated(config, old + np.log(ratio), old_log_prob=old, advantage=advantage)
    return loss, metrics, gradient[0]


def test_policy_loss_by_hand():
    """The ratio counts up to 1.2 for a good action and down to 0.8 for a bad one, and in full the other way."""
    loss, metrics, _ = of_ratios()
    # good actions: 1.1; min(1.5, 1.2) = 1.2; min(0.5, 0.8) = 0.5
    # bad actions: -1.1; min(-1.5, -1.2) = -1.5; min(-0.5, -0.8) = -0.8
    # - (1.1 + 1.2 + 0.5 - 1.1 - 1.5 - 0.8) / 6 = 0.6 / 6
    assert loss == metrics["loss"] == metrics["policy_loss"] == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "expected"), [(1.1, (-1.1, 1.1)), (1.5, (-1.2, 1.5)), (0.5, (-0.5, 0.8)), (1.0, (-1.0, 1.0))]
)
def test_each_policy_term_by_hand(ratio, expected):
    """A good and a bad action; the ratio of the other one is 1, so its own term is -1 or 1."""
    good, bad = expected
    assert of_ratios(ratio=[ratio, 1.0], advantage=[3.0, -1.0])[0] == pytest.approx((good + 1) / 2, rel=1e-5)
    assert of_ratios(ratio=[1.0, ratio], advantage=[3.0, -1.0])[0] == pytest.approx((bad - 1) / 2, rel=1e-5)


def test_gradient_is_zero_where_the_ratio_is_clipped():
    _, _, gradient = of_ratios()
    # d ratio / d log pi is the ratio: - A ratio / 6, and 0 for a good action beyond 1.2 or a bad one below 0.8
    np.testing.assert_allclose(gradient, np.array([-1.1, 0.0, -0.5, 1.1, 1.5, 0.0]) / 6, rtol=1e-5)


def test_clip_range_is_a_setting():
    _, metrics, gradient = of_ratios(dataclasses.replace(CONFIG, clip_coef=0.7))
    np.testing.assert_allclose(gradient, np.array([-1.1, -1.5, -0.5, 1.1, 1.5, 0.5]) / 6, rtol=1e-5)
    assert metrics["clipped"] == 0.0


def test_kl_and_clip_fraction_are_reported():
    _, metrics, _ = of_ratios()
    assert metrics["clipped"] == pytest.approx(4 / 6)
    # the mean of r - 1 - log r estimates the divergence and is never below 0
    assert metrics["kl"] == pytest.approx(np.mean(RATIO - 1 - np.log(RATIO)), rel=1e-4)
    _, metrics, _ = of_ratios(ratio=np.ones(6))
    assert (metrics["clipped"], metrics["kl"]) == (0.0, 0.0)


def test_advantages_are_normalised_over_the_batch():
    """Neither a scale nor a shift of all advantages changes the policy loss."""
    _, metrics, gradient = of_ratios()
    for changed in (10 * ADVANTAGE, ADVANTAGE + 100, 0.01 * ADVANTAGE - 3):
        _, other, other_gradient = of_ratios(advantage=changed)
        assert other["policy_loss"] == pytest.approx(metrics["policy_loss"], rel=1e-3)
        np.testing.assert_allclose(other_gradient, gradient, rtol=1e-3)


def test_equal_advantages_give_no_gradient_and_no_nan():
    loss, _, gradient = of_ratios(advantage=np.full(6, 2.0))
    assert loss == 0.0
    np.testing.assert_array_equal(gradient, np.zeros(6))


# Four values that were 1, with advantages of 2, so that their target is 3. One moved a little; one far towards the
# target; one far away from it; and one past it.
MOVED = [1.1, 2.0, 0.0, 6.0]


def of_values(config):
    loss, metrics, gradient = evaluated(config, value=MOVED, old_value=1.0, advantage=2.0)
    return loss, metrics["value_loss"], gradient[2]


def test_value_loss_by_hand_without_clipping():
    loss, value_loss, gradient = of_values(dataclasses.replace(CONFIG, vf_coef=0.5))
    # (1.9^2 + 1^2 + 3^2 + 3^2) / 4 / 2 = 2.82625
    assert value_loss == pytest.approx(2.82625, rel=1e-6)
    assert loss == pytest.approx(0.5 * 2.82625, rel=1e-6)
    np.testing.assert_allclose(gradient, 0.5 * np.array([-1.9, -1.0, -3.0, 3.0]) / 4, rtol=1e-6)


def test_value_loss_by_hand_with_clipping():
    """The larger error counts: of the value, or of the value clipped to within 0.2 of the old one."""
    loss, value_loss, gradient = of_values(dataclasses.replace(CONFIG, vf_coef=0.5, value_clip=0.2))
    # not clipped: 1.9^2; clipped to 1.2: 1.8^2 instead of 1; to 0.8: 3^2, not 2.2^2; to 1.2: 3^2, not 1.8^2
    # (3.61 + 3.24 + 9 + 9) / 4 / 2 = 3.10625
    assert value_loss == pytest.approx(3.10625, rel=1e-6)
    assert loss == pytest.approx(0.5 * 3.10625, rel=1e-6)
    np.testing.assert_allclose(gradient, 0.5 * np.array([-1.9, 0.0, -3.0, 3.0]) / 4, rtol=1e-5)


def test_value_target_is_the_old_value_plus_the_unnormalised_advantage():
    config = dataclasses.replace(CONFIG, vf_coef=1.0)
    for value, expected in (([8.0, 0.0], 0.0), ([8.0, 2.0], 0.5 * 2**2 / 2)):
        loss, _, _ = evaluated(config, value=value, old_value=[5.0, 1.0], advantage=[3.0, -1.0])
        assert loss == pytest.approx(expected, abs=1e-6)


def test_entropy_bonus():
    loss, metrics, gradient = evaluated(dataclasses.replace(CONFIG, ent_coef=0.1), entropy=[0.5, 0.25])
    assert loss == pytest.approx(-0.1 * 0.375)
    assert metrics["entropy"] == 0.375
    np.testing.assert_allclose(gradient[1], [-0.05, -0.05], rtol=1e-6)


def test_bonus_advantage_counts_in_the_policy_loss_and_not_in_the_value_target():
    config = dataclasses.replace(CONFIG, vf_coef=1.0)
    bonus = np.array([0.0, 8.0], np.float32)
    loss, _, gradient = evaluated(
        config, value=[8.0, 0.0], old_value=[5.0, 1.0], advantage=[3.0, -1.0], bonus_advantage=bonus
    )
    # 3 and -1 + 8 = 7 normalise to -1 and 1; the values are at their targets, 5 + 3 and 1 - 1
    assert loss == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(gradient[0], [0.5, -0.5], rtol=1e-5)
    np.testing.assert_allclose(gradient[2], [0.0, 0.0], atol=1e-6)


def twin(log_prob, entropy, value, old_log_prob, old_value, advantage, config):
    """Loss and its gradients with respect to log-probability, entropy and value, one sample after the other."""
    count = len(advantage)
    mean = sum(advantage) / count
    deviation = np.sqrt(sum((a - mean) ** 2 for a in advantage) / count)
    loss, gradient = 0.0, np.zeros((3, count))
    for i in range(count):
        good = (advantage[i] - mean) / (deviation + 1e-8)
        ratio = np.exp(log_prob[i] - old_log_prob[i])
        clipped = ratio > 1 + config.clip_coef if good > 0 else ratio < 1 - config.clip_coef
        if clipped:
            loss -= good * (1 + config.clip_coef if good > 0 else 1 - config.clip_coef)
        else:
            loss -= good * ratio
            gradient[0, i] = -good * ratio
        loss -= config.ent_coef * entropy[i]
        gradient[1, i] = -config.ent_coef
        target, counted, slope = old_value[i] + advantage[i], value[i], 1.0
        if config.value_clip is not None and abs(value[i] - old_value[i]) > config.value_clip:
            held = old_value[i] + np.sign(value[i] - old_value[i]) * config.value_clip
            if abs(held - target) > abs(value[i] - target):
                counted, slope = held, 0.0
        loss += config.vf_coef * 0.5 * (counted - target) ** 2
        gradient[2, i] = config.vf_coef * (counted - target) * slope
    return loss / count, gradient / count


CONFIGS = [
    PPOConfig(clip_coef=clip, value_clip=value_clip, ent_coef=ent_coef, vf_coef=0.7)
    for clip, value_clip, ent_coef in ((0.2, None, 0.0), (0.05, 0.1, 0.3), (0.9, 0.5, 0.3))
]


@settings(deadline=None, derandomize=True, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), config=st.sampled_from(CONFIGS))
def test_loss_and_gradient_match_a_numpy_twin(seed, config):
    rng = np.random.default_rng(seed)
    old_log_prob, entropy = -rng.exponential(size=9), rng.random(9)
    log_prob = old_log_prob + rng.normal(0, 0.5, 9)
    old_value, advantage = rng.normal(size=(2, 9))
    value = old_value + rng.normal(size=9)
    columns = (log_prob, entropy, value, old_log_prob, old_value, advantage)
    with jax.enable_x64(True):
        (loss, _), gradient = loss_and_gradient(*columns, config=config)
        assert loss.dtype == jnp.float64
    expected, expected_gradient = twin(*columns, config)
    assert float(loss) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(np.stack(gradient), expected_gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("place", range(6))
def test_column_vectors_are_refused(place):
    arguments = [jnp.zeros(3)] * 6
    arguments[place] = jnp.zeros((3, 1))
    with pytest.raises(TypeCheckError):
        ppo_loss(*arguments, CONFIG)
    with pytest.raises(ValueError, match="shapes must be the same"):
        inspect.unwrap(ppo_loss)(*arguments, CONFIG)  # as it is outside of the tests


# The epochs.

ONCE = dataclasses.replace(CONFIG, update_epochs=1, num_minibatches=1, vf_coef=0.5)


def test_first_step_is_the_policy_gradient_with_normalised_advantages():
    """One epoch of one minibatch: nothing has moved yet, every ratio is 1, and no clip is near."""
    rollout = state_rollout(
        state=[[0, 1], [2, 3]],
        reward=[[4.0, 1.0], [0.0, 7.0]],
        last_state=[0, 0],
        terminated=[[True, True], [True, True]],
        action=[[0, 1], [1, 1]],
    )
    value = np.array([1.0, 2.0, 3.0, 4.0])
    params, metrics = update(dataclasses.replace(ONCE, clip_coef=0.001, value_clip=0.001), rollout, value)
    # advantages: 4 - 1 = 3; 1 - 2 = -1; 0 - 3 = -3; 7 - 4 = 3; their mean is 1/2, their variance 28/4 - 1/4 = 6.75
    advantage = np.array([3.0, -1.0, -3.0, 3.0])
    normal = (advantage - 0.5) / np.sqrt(6.75)
    # - d/d logits of - log pi(a) A / 4 is A (onehot(a) - 1/2) / 4
    towards = np.array([[0.5, -0.5], [-0.5, 0.5], [-0.5, 0.5], [-0.5, 0.5]])
    np.testing.assert_allclose(params["logits"], normal[:, None] * towards / 4, rtol=1e-5)
    # - d/dV of 0.5 * 0.5 (V - target)^2 / 4 is 0.5 A / 4
    np.testing.assert_allclose(params["value"], value + 0.5 * advantage / 4, rtol=1e-6)
    # the mean of normalised advantages is 0
    assert metrics["policy_loss"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["value_loss"] == pytest.approx(0.5 * 28 / 4, rel=1e-6)
    assert metrics["entropy"] == pytest.approx(np.log(2), rel=1e-6)
    assert (metrics["kl"], metrics["clipped"]) == (0.0, 0.0)


def times_used(steps, num_envs, num_minibatches, update_epochs, key=0):
    """How often each sample was used.

    Every sample has a state of its own with the value 0 and the target 1. In minibatches of B samples each use covers
    0.5 / B of the way: after k uses the value is 1 - (1 - 0.5 / B)^k.
    """
    count = steps * num_envs
    states = np.arange(count).reshape(steps, num_envs)
    ended = np.ones((steps, num_envs), bool)
    rollout = state_rollout(states, np.ones((steps, num_envs)), states[0], states=count, terminated=ended)
    config = dataclasses.replace(ONCE, num_minibatches=num_minibatches, update_epochs=update_epochs)
    params, _ = update(config, rollout, np.zeros(count), key=key)
    used = np.log1p(-params["value"].astype(np.float64)) / np.log1p(-0.5 / (count // num_minibatches))
    np.testing.assert_allclose(used, used.round(), atol=1e-3)
    return used.round().astype(int)


@pytest.mark.parametrize(("num_minibatches", "update_epochs"), [(4, 5), (12, 2)])
def test_every_sample_is_used_once_in_each_epoch(num_minibatches, update_epochs):
    assert times_used(4, 3, num_minibatches, update_epochs).tolist() == [update_epochs] * 12


def test_samples_that_do_not_fill_a_minibatch_are_skipped():
    used = times_used(5, 2, num_minibatches=3, update_epochs=1)  # 10 = 3 * 3 + 1
    assert sorted(used.tolist()) == [0] + [1] * 9


def test_each_epoch_and_each_key_shuffles_anew():
    skipped = [int(np.argmin(times_used(5, 2, num_minibatches=3, update_epochs=1, key=key))) for key in range(8)]
    assert len(set(skipped)) > 2  # ten samples: eight keys agree to this degree once in a thousand
    assert skipped[3] == int(np.argmin(times_used(5, 2, num_minibatches=3, update_epochs=1, key=3)))
    used = times_used(5, 2, num_minibatches=3, update_epochs=20)
    assert used.sum() == 20 * 9
    assert (used < 20).sum() > 2


def test_minibatches_mix_steps_and_environments():
    """Two minibatches of two: advantages are normalised within each, so the policy shows which two were together.

    Actions 0 earned 0, 0, 1 and 1. Two equal ones together have no advantage; a good one and a bad one have 1 and -1.
    Over some keys both happen; minibatches in the order of the rollout would give the first alone.
    """
    rollout = state_rollout([[0, 1], [2, 3]], [[0.0, 0.0], [1.0, 1.0]], [0, 0], terminated=np.ones((2, 2), bool))
    config = dataclasses.replace(ONCE, num_minibatches=2, vf_coef=0.0)
    kinds = set()
    for key in range(8):
        params, _ = update(config, rollout, np.zeros(4), key=key)
        # the gradient of action 0's logit is A (1 - 1/2) / 2
        kinds.add(tuple(np.round(4 * params["logits"][:, 0], 3).tolist()))
    assert kinds == {(0.0, 0.0, 0.0, 0.0), (-1.0, -1.0, 1.0, 1.0)}


def test_minibatches_of_fewer_than_two_samples_are_refused():
    """The normalised advantage of a single sample is always 0."""
    PPO.check(PPOConfig(num_minibatches=4), num_envs=2, num_steps=4)
    with pytest.raises(UsageError, match=r"ppo.num_minibatches: 5.*2 envs x 4 steps"):
        PPO.check(PPOConfig(num_minibatches=5), num_envs=2, num_steps=4)


def test_gradient_steps_per_update():
    assert PPO(PPOConfig(update_epochs=3, num_minibatches=7), True).gradient_steps == 21


# One environment, two steps: from state 0 to state 1, where the episode ends in state 2; the next begins in state 3.
ENDING = {"state": [[0], [1]], "next_state": [[1], [2]], "last_state": [3], "reward": [[1.0], [2.0]]}
VALUES = [1.0, 2.0, 8.0, 100.0]
AT_END = [[False], [True]]


@pytest.mark.parametrize(
    ("end", "bootstrap", "advantages"),
    [
        # 2 + 0 - 2 = 0; 1 + 2/2 - 1 + 0/4 = 1
        ({"terminated": AT_END}, True, (1.0, 0.0)),
        ({"terminated": AT_END}, False, (1.0, 0.0)),
        # truncated in state 2, worth 8: 2 + 8/2 - 2 = 4; 1 + 2/2 - 1 + 4/4 = 2
        ({"truncated": AT_END}, True, (2.0, 4.0)),
        ({"truncated": AT_END}, False, (1.0, 0.0)),
        ({"terminated": AT_END, "truncated": AT_END}, True, (1.0, 0.0)),
        # no end: the next observation is state 3, worth 100: 2 + 100/2 - 2 = 50; 1 + 2/2 - 1 + 50/4 = 13.5
        ({}, True, (13.5, 50.0)),
        ({}, False, (13.5, 50.0)),
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
def test_bootstrap_at_the_end_of_a_rollout(end, bootstrap, advantages):
    params, _ = update(ONCE, state_rollout(**ENDING, **end), VALUES, bootstrap=bootstrap)
    # each value moves by 0.5 A / 2
    expected = [VALUES[0] + advantages[0] / 4, VALUES[1] + advantages[1] / 4, *VALUES[2:]]
    np.testing.assert_allclose(params["value"], expected, rtol=1e-6)


def test_bonus_reward_is_added_to_the_reward():
    rollout = state_rollout(**ENDING, terminated=AT_END)
    params, _ = update(ONCE, rollout, VALUES, reward=[[2.0], [4.0]], advantage=[[0.0], [0.0]])
    # (2 + 4) - 2 = 4; (1 + 2) + 2/2 - 1 + 4/4 = 4
    np.testing.assert_allclose(params["value"], [1.0 + 4 / 4, 2.0 + 4 / 4, 8.0, 100.0], rtol=1e-6)


def test_bonus_advantage_moves_the_policy_and_not_the_value():
    rollout = state_rollout(**ENDING, terminated=AT_END)
    params, _ = update(ONCE, rollout, VALUES, reward=[[0.0], [0.0]], advantage=[[0.0], [5.0]])
    # 1 and 0 + 5 normalise to -1 and 1; action 0 was taken: A (onehot(0) - 1/2) / 2
    np.testing.assert_allclose(params["logits"][:2], [[-0.25, 0.25], [0.25, -0.25]], rtol=1e-5)
    np.testing.assert_allclose(params["value"], [1.0 + 1 / 4, 2.0, 8.0, 100.0], rtol=1e-6)


def test_reset_steps_change_nothing():
    """Several epochs of one minibatch, so that the shuffle does not matter."""
    rollout = state_rollout(
        state=[[0], [1], [3]],
        next_state=[[1], [2], [0]],
        last_state=[0],
        reward=[[1.0], [2.0], [4.0]],
        truncated=[[False], [True], [False]],
        action=[[1], [0], [1]],
    )
    config = dataclasses.replace(ONCE, update_epochs=3, ent_coef=0.1, value_clip=0.2)
    expected, expected_metrics = update(config, rollout, VALUES, bootstrap=True)
    params, metrics = update(config, with_reset_step(rollout, after=1), VALUES, bootstrap=True)
    assert metrics == pytest.approx(expected_metrics, rel=1e-5, abs=1e-6)
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-5)


def random_columns(rng, shape):
    state, next_state = rng.integers(4, size=(2, *shape))
    truncated = rng.random(shape) < 0.3
    return {
        "state": state,
        "next_state": next_state,
        "last_state": rng.integers(4, size=shape[1]),
        "action": rng.integers(2, size=shape),
        "reward": (2 * rng.normal(size=shape)).astype(np.float32),
        "truncated": truncated,
        "terminated": (rng.random(shape) < 0.3) & ~truncated,
    }


def advantages_of(columns, value, gamma, gae_lambda):
    steps, num_envs = columns["reward"].shape
    advantage = np.zeros((steps, num_envs))
    for n in range(num_envs):
        later, following = 0.0, value[columns["last_state"][n]]
        for t in reversed(range(steps)):
            here = value[columns["state"][t, n]]
            if columns["terminated"][t, n] or columns["truncated"][t, n]:
                later = 0.0
                following = value[columns["next_state"][t, n]] if columns["truncated"][t, n] else 0.0
            later = columns["reward"][t, n] + gamma * following - here + gamma * gae_lambda * later
            advantage[t, n], following = later, here
    return advantage.reshape(-1)


def test_several_epochs_match_numpy():
    """One minibatch, so that the order does not matter: advantages, old probabilities and old values stay as they were
    before the first step, while probabilities and values move, in float64.
    """
    rng = np.random.default_rng(0)
    config = PPOConfig(0.9, 0.8, 4, 1, clip_coef=0.1, value_clip=0.3, ent_coef=0.05, vf_coef=0.5)
    columns = random_columns(rng, (5, 3))
    state, action = columns["state"].reshape(-1), columns["action"].reshape(-1)
    start_logits, start_value = rng.normal(size=(4, 2)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    params, metrics = update(config, state_rollout(**columns), start_value, start_logits, bootstrap=True)

    logits, value = start_logits.astype(np.float64), start_value.astype(np.float64)
    advantage = advantages_of(columns, value, 0.9, 0.8)
    before, losses, clipped = None, [], []
    for _ in range(4):
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        probs = np.exp(log_probs)
        entropy = -(probs * log_probs).sum(axis=1)
        now = log_probs[state, action], entropy[state], value[state]
        before = before or (now[0], now[2])
        loss, gradient = twin(*now, *before, advantage, config)
        losses.append(loss)
        clipped.append(np.mean(np.abs(np.exp(now[0] - before[0]) - 1) > 0.1))
        step_logits, step_value = np.zeros((4, 2)), np.zeros(4)
        for i, (s, a) in enumerate(zip(state, action, strict=True)):
            step_logits[s] += gradient[0, i] * (np.eye(2)[a] - probs[s])
            step_logits[s] -= gradient[1, i] * probs[s] * (log_probs[s] + entropy[s])
            step_value[s] += gradient[2, i]
        logits, value = logits - step_logits, value - step_value
    assert 0 < clipped[1] < 1  # the clip was reached, or this would prove little
    np.testing.assert_allclose(params["logits"], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(params["value"], value, rtol=1e-4, atol=1e-5)
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert metrics["clipped"] == pytest.approx(np.mean(clipped), rel=1e-4)
