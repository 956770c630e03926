"""The PPO loss and its epochs: by hand, against NumPy, and what agents learn where the answer is known."""

import dataclasses
import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from learning import begin, learnt, probe_config, shown, trainer
from probes import ChosenNumber, ChosenReward, OnlyTruncates, TwoSteps

from self_imitation import agents
from self_imitation.config import PPOConfig, resolve
from self_imitation.distributions import Categorical
from self_imitation.improvement.ppo import PPO, ppo_loss
from self_imitation.types import Learner, Rollout

# The loss. Only what a test is about has a weight.

CONFIG = PPOConfig(discount=0.5, trace_decay=0.5, clip=0.2, value_clip=None, entropy_weight=0.0, value_weight=0.0)

# Advantages 3 and -1 have the mean 1 and the standard deviation 2: normalised they are 1 and -1.
RATIO = np.array([1.1, 1.5, 0.5, 1.1, 1.5, 0.5])
ADVANTAGE = jnp.array([3.0, 3.0, 3.0, -1.0, -1.0, -1.0])


def of_ratios(config=CONFIG, ratio=RATIO, advantage=ADVANTAGE):
    """Loss, metrics and the gradient of the log-probability, where each probability was 1/4."""
    old = jnp.full(len(ratio), np.log(0.25), jnp.float32)
    zeros = jnp.zeros(len(ratio))

    def loss(log_prob):
        return ppo_loss(log_prob, zeros, zeros, old, zeros, advantage, config)

    log_prob = old + jnp.log(jnp.asarray(ratio, jnp.float32))
    (total, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(log_prob)
    return float(total), {name: float(value) for name, value in metrics.items()}, np.asarray(gradient)


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
    """A good and a bad action, of which the other one's ratio is 1: its own part is -1 or 1."""
    good, bad = expected
    assert of_ratios(ratio=[ratio, 1.0], advantage=jnp.array([3.0, -1.0]))[0] == pytest.approx((good + 1) / 2, rel=1e-5)
    assert of_ratios(ratio=[1.0, ratio], advantage=jnp.array([3.0, -1.0]))[0] == pytest.approx((bad - 1) / 2, rel=1e-5)


def test_the_gradient_is_zero_where_the_ratio_went_too_far_the_right_way():
    _, _, gradient = of_ratios()
    # d ratio / d log pi is the ratio: - A ratio / 6, and 0 for a good action beyond 1.2 or a bad one below 0.8
    np.testing.assert_allclose(gradient, np.array([-1.1, 0.0, -0.5, 1.1, 1.5, 0.0]) / 6, rtol=1e-5)


def test_how_far_a_ratio_counts_is_a_setting():
    _, metrics, gradient = of_ratios(dataclasses.replace(CONFIG, clip=0.7))
    np.testing.assert_allclose(gradient, np.array([-1.1, -1.5, -0.5, 1.1, 1.5, 0.5]) / 6, rtol=1e-5)
    assert metrics["clipped"] == 0.0


def test_how_far_the_policy_went_is_reported():
    _, metrics, _ = of_ratios()
    assert metrics["clipped"] == pytest.approx(4 / 6)
    # r - 1 - log r, in the mean: estimates the divergence and is never below 0
    assert metrics["kl"] == pytest.approx(np.mean(RATIO - 1 - np.log(RATIO)), rel=1e-4)
    _, metrics, _ = of_ratios(ratio=np.ones(6))
    assert (metrics["clipped"], metrics["kl"]) == (0.0, 0.0)


def test_advantages_are_normalised_over_the_batch():
    """Neither their scale nor what they have in common changes the policy's part of the loss."""
    _, metrics, gradient = of_ratios()
    for changed in (10 * ADVANTAGE, ADVANTAGE + 100, 0.01 * ADVANTAGE - 3):
        _, other, other_gradient = of_ratios(advantage=changed)
        assert other["policy_loss"] == pytest.approx(metrics["policy_loss"], rel=1e-3)
        np.testing.assert_allclose(other_gradient, gradient, rtol=1e-3)


def test_equal_advantages_move_no_policy_and_cost_no_nan():
    loss, _, gradient = of_ratios(advantage=jnp.full(6, 2.0))
    assert loss == 0.0
    np.testing.assert_array_equal(gradient, np.zeros(6))


# Four values that were 1, with advantages of 2, so that their target is 3. One moved a little; one far towards the
# target; one far away from it; and one past it.
MOVED = jnp.array([1.1, 2.0, 0.0, 6.0])


def of_values(config):
    """Value loss and the gradient of the value; equal advantages have no policy loss."""
    ones, zeros = jnp.ones(4), jnp.zeros(4)

    def loss(value):
        return ppo_loss(zeros, zeros, value, zeros, ones, 2 * ones, config)

    (total, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(MOVED)
    return float(total), float(metrics["value_loss"]), np.asarray(gradient)


def test_value_loss_by_hand_without_a_clip():
    loss, value_loss, gradient = of_values(dataclasses.replace(CONFIG, value_weight=0.5))
    # (1.9^2 + 1^2 + 3^2 + 3^2) / 4 / 2 = 2.82625
    assert value_loss == pytest.approx(2.82625, rel=1e-6)
    assert loss == pytest.approx(0.5 * 2.82625, rel=1e-6)
    np.testing.assert_allclose(gradient, 0.5 * np.array([-1.9, -1.0, -3.0, 3.0]) / 4, rtol=1e-6)


def test_value_loss_by_hand_with_a_clip():
    """The larger error counts: of the value, or of the value held within 0.2 of what it was."""
    loss, value_loss, gradient = of_values(dataclasses.replace(CONFIG, value_weight=0.5, value_clip=0.2))
    # within 0.2: 1.9^2; held at 1.2: 1.8^2 instead of 1; held at 0.8: 3^2, not 2.2^2; held at 1.2: 3^2, not 1.8^2
    # (3.61 + 3.24 + 9 + 9) / 4 / 2 = 3.10625
    assert value_loss == pytest.approx(3.10625, rel=1e-6)
    assert loss == pytest.approx(0.5 * 3.10625, rel=1e-6)
    # the second went far enough for now
    np.testing.assert_allclose(gradient, 0.5 * np.array([-1.9, 0.0, -3.0, 3.0]) / 4, rtol=1e-5)


def test_the_values_target_is_the_old_value_with_the_advantage_as_it_is():
    """Not normalised, and not of the value of now."""
    config = dataclasses.replace(CONFIG, value_weight=1.0)
    zeros, old, advantage = jnp.zeros(2), jnp.array([5.0, 1.0]), jnp.array([3.0, -1.0])
    for value, expected in (([8.0, 0.0], 0.0), ([8.0, 2.0], 0.5 * 2**2 / 2)):
        loss, _ = ppo_loss(zeros, zeros, jnp.array(value), zeros, old, advantage, config)
        assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_the_entropy_is_rewarded():
    config = dataclasses.replace(CONFIG, entropy_weight=0.1)
    zeros, entropy = jnp.zeros(2), jnp.array([0.5, 0.25])

    def loss(entropy):
        return ppo_loss(zeros, entropy, zeros, zeros, zeros, zeros, config)

    (total, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(entropy)
    assert float(total) == pytest.approx(-0.1 * 0.375)
    assert float(metrics["entropy"]) == 0.375
    np.testing.assert_allclose(gradient, [-0.05, -0.05], rtol=1e-6)


def twin(log_prob, entropy, value, old_log_prob, old_value, advantage, config):
    """Loss and its gradients of log-probability, entropy and value, one sample after the other."""
    count = len(advantage)
    mean = sum(advantage) / count
    deviation = np.sqrt(sum((a - mean) ** 2 for a in advantage) / count)
    loss, gradient = 0.0, np.zeros((3, count))
    for i in range(count):
        good = (advantage[i] - mean) / (deviation + 1e-8)
        ratio = np.exp(log_prob[i] - old_log_prob[i])
        too_far = ratio > 1 + config.clip if good > 0 else ratio < 1 - config.clip
        if too_far:
            loss -= good * (1 + config.clip if good > 0 else 1 - config.clip)
        else:
            loss -= good * ratio
            gradient[0, i] = -good * ratio
        loss -= config.entropy_weight * entropy[i]
        gradient[1, i] = -config.entropy_weight
        target, counted, slope = old_value[i] + advantage[i], value[i], 1.0
        if config.value_clip is not None and abs(value[i] - old_value[i]) > config.value_clip:
            held = old_value[i] + np.sign(value[i] - old_value[i]) * config.value_clip
            if abs(held - target) > abs(value[i] - target):
                counted, slope = held, 0.0
        loss += config.value_weight * 0.5 * (counted - target) ** 2
        gradient[2, i] = config.value_weight * (counted - target) * slope
    return loss / count, gradient / count


@settings(deadline=None, derandomize=True, max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    clip=st.sampled_from([0.05, 0.2, 0.9]),
    value_clip=st.sampled_from([None, 0.1, 0.5, 3.0]),
    entropy_weight=st.sampled_from([0.0, 0.3]),
)
def test_loss_and_gradient_equal_a_twin(seed, clip, value_clip, entropy_weight):
    rng = np.random.default_rng(seed)
    old_log_prob, entropy = -rng.exponential(size=9), rng.random(9)
    log_prob = old_log_prob + rng.normal(0, 0.5, 9)
    old_value, advantage = rng.normal(size=(2, 9))
    value = old_value + rng.normal(size=9)
    config = PPOConfig(clip=clip, value_clip=value_clip, entropy_weight=entropy_weight, value_weight=0.7)
    columns = (log_prob, entropy, value, old_log_prob, old_value, advantage)
    with jax.enable_x64(True):
        arguments = [jnp.asarray(x) for x in columns]
        (loss, _), gradient = jax.value_and_grad(ppo_loss, argnums=(0, 1, 2), has_aux=True)(*arguments, config)
        assert loss.dtype == jnp.float64
    expected, expected_gradient = twin(*columns, config)
    assert float(loss) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(np.stack(gradient), expected_gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("place", range(6))
def test_a_column_among_the_rows_is_refused(place):
    arguments = [jnp.zeros(3)] * 6
    arguments[place] = jnp.zeros((3, 1))
    with pytest.raises(TypeCheckError):
        ppo_loss(*arguments, CONFIG)
    with pytest.raises(ValueError, match="shapes must be the same"):
        inspect.unwrap(ppo_loss)(*arguments, CONFIG)  # as it is outside of the tests


# The epochs, with tables for actor and critic: each state has a row of its own, so that what is learnt in one changes
# no other.


def tabular(params, observation):
    return Categorical(observation @ params["logits"]), observation @ params["value"]


def rollout_of(
    observation, successor, last_observation, reward, terminated=None, truncated=None, action=None, states=4
):
    reward = jnp.array(reward)
    nowhere = jnp.zeros(reward.shape, bool)
    return Rollout(
        observation=jax.nn.one_hot(jnp.array(observation), states),
        action=jnp.zeros(reward.shape, jnp.int32) if action is None else jnp.asarray(action, jnp.int32),
        reward=reward,
        terminated=nowhere if terminated is None else jnp.array(terminated),
        truncated=nowhere if truncated is None else jnp.array(truncated),
        successor=jax.nn.one_hot(jnp.array(successor), states),
        last_observation=jax.nn.one_hot(jnp.array(last_observation), states),
        episode_return=reward,
        episode_length=jnp.ones(reward.shape, jnp.int32),
    )


@cache
def improver(config, bootstrap):
    return jax.jit(partial(PPO(config, bootstrap).improve, tabular, optax.sgd(1.0)))


def improved(rollout, config, value, logits=None, bootstrap=False, bonus=None, key=0):
    """Parameters after epochs of plain gradient steps of length 1, from equal probabilities if nothing else is said."""
    logits = jnp.zeros((len(value), 2)) if logits is None else jnp.asarray(logits)
    params = {"logits": logits, "value": jnp.asarray(value, jnp.float32)}
    learner = Learner(params, optax.sgd(1.0).init(params))
    learner, metrics = improver(config, bootstrap)(learner, rollout, bonus, jax.random.key(key))
    return learner.params, {name: float(metric) for name, metric in metrics.items()}


ONCE = dataclasses.replace(CONFIG, epochs=1, minibatches=1, value_weight=0.5)


def test_the_first_step_is_the_policy_gradient_with_normalised_advantages():
    """One epoch of one minibatch: nothing has moved yet, every ratio is 1, and no clip is near."""
    rollout = rollout_of(
        observation=[[0, 1], [2, 3]],
        successor=[[0, 0], [0, 0]],
        last_observation=[0, 0],
        reward=[[4.0, 1.0], [0.0, 7.0]],
        terminated=[[True, True], [True, True]],
        action=[[0, 1], [1, 1]],
    )
    value = np.array([1.0, 2.0, 3.0, 4.0])
    params, metrics = improved(rollout, dataclasses.replace(ONCE, clip=0.001, value_clip=0.001), value)
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


def one_state_each(steps, environments):
    """Every step in a state of its own, each an episode with the reward 1."""
    states = np.arange(steps * environments).reshape(steps, environments)
    return rollout_of(
        observation=states,
        successor=states,
        last_observation=states[0],
        reward=np.ones((steps, environments)),
        terminated=np.ones((steps, environments), bool),
        states=states.size,
    )


def times_used(steps, environments, minibatches, epochs, key=0):
    """How often the value of each sample's state took a step towards 1, from 0.

    With minibatches of B samples each step covers 0.5 / B of the way: after k steps, 1 - (1 - 0.5 / B)^k.
    """
    count = steps * environments
    config = dataclasses.replace(ONCE, minibatches=minibatches, epochs=epochs)
    params, _ = improved(one_state_each(steps, environments), config, np.zeros(count), key=key)
    used = np.log1p(-np.asarray(params["value"], np.float64)) / np.log1p(-0.5 / (count // minibatches))
    np.testing.assert_allclose(used, used.round(), atol=1e-3)
    return used.round().astype(int)


@pytest.mark.parametrize(("minibatches", "epochs"), [(1, 1), (3, 1), (4, 5), (12, 2)])
def test_every_sample_is_used_once_in_each_epoch(minibatches, epochs):
    assert times_used(4, 3, minibatches, epochs).tolist() == [epochs] * 12


def test_what_does_not_fill_a_minibatch_sits_out_for_an_epoch():
    used = times_used(5, 2, minibatches=3, epochs=1)  # 10 = 3 * 3 + 1
    assert sorted(used.tolist()) == [0] + [1] * 9
    used = times_used(5, 2, minibatches=4, epochs=1)  # 10 = 4 * 2 + 2
    assert sorted(used.tolist()) == [0] * 2 + [1] * 8


def test_each_epoch_and_each_key_has_an_order_of_its_own():
    left_out = [int(np.argmin(times_used(5, 2, minibatches=3, epochs=1, key=key))) for key in range(8)]
    assert len(set(left_out)) > 2  # ten samples: eight keys agree to this degree once in a thousand
    assert left_out[3] == int(np.argmin(times_used(5, 2, minibatches=3, epochs=1, key=3)))
    used = times_used(5, 2, minibatches=3, epochs=20)
    assert used.sum() == 20 * 9
    assert (used < 20).sum() > 2  # not always the same one sits out


def test_minibatches_are_mixed_from_all_steps_and_environments():
    """Two minibatches of two: the advantages within each are normalised, so that a policy tells who was with whom.

    Actions 0 earned 0, 0, 1 and 1. Two of the same kind together have no advantage at all; a good one and a bad one
    have 1 and -1. Over some keys both happen; minibatches in the order of the rollout would give the first alone.
    """
    rollout = rollout_of([[0, 1], [2, 3]], [[0, 0], [0, 0]], [0, 0], [[0.0, 0.0], [1.0, 1.0]], np.ones((2, 2), bool))
    config = dataclasses.replace(ONCE, minibatches=2, value_weight=0.0)
    kinds = set()
    for key in range(8):
        params, _ = improved(rollout, config, np.zeros(4), key=key)
        # the gradient of action 0's logit is A (1 - 1/2) / 2
        kinds.add(tuple(np.round(4 * np.asarray(params["logits"])[:, 0], 3).tolist()))
    assert kinds == {(0.0, 0.0, 0.0, 0.0), (-1.0, -1.0, 1.0, 1.0)}


# One environment, two steps: from state 0 to state 1, where the episode ends in state 2; the next begins in state 3.
ENDING = {"observation": [[0], [1]], "successor": [[1], [2]], "last_observation": [3], "reward": [[1.0], [2.0]]}
VALUES = [1.0, 2.0, 8.0, 100.0]


@pytest.mark.parametrize(
    ("end", "bootstrap", "advantages"),
    [
        # 2 + 0 - 2 = 0; 1 + 2/2 - 1 + 0/4 = 1
        ({"terminated": [[False], [True]]}, True, (1.0, 0.0)),
        ({"terminated": [[False], [True]]}, False, (1.0, 0.0)),
        # cut off in state 2, worth 8: 2 + 8/2 - 2 = 4; 1 + 2/2 - 1 + 4/4 = 2
        ({"truncated": [[False], [True]]}, True, (2.0, 4.0)),
        # the same as an end
        ({"truncated": [[False], [True]]}, False, (1.0, 0.0)),
        # both at once: an end
        ({"terminated": [[False], [True]], "truncated": [[False], [True]]}, True, (1.0, 0.0)),
        # no end: what is seen next is state 3, worth 100: 2 + 100/2 - 2 = 50; 1 + 2/2 - 1 + 50/4 = 13.5
        ({}, True, (13.5, 50.0)),
        ({}, False, (13.5, 50.0)),
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
def test_what_the_end_of_a_rollout_is_worth(end, bootstrap, advantages):
    params, _ = improved(rollout_of(**ENDING, **end), ONCE, VALUES, bootstrap=bootstrap)
    # each value moves by 0.5 A / 2
    expected = [VALUES[0] + advantages[0] / 4, VALUES[1] + advantages[1] / 4, *VALUES[2:]]
    np.testing.assert_allclose(params["value"], expected, rtol=1e-6)


def test_the_bonus_is_added_to_the_reward():
    rollout = rollout_of(**ENDING, terminated=[[False], [True]])
    params, _ = improved(rollout, ONCE, VALUES, bonus=jnp.array([[2.0], [4.0]]))
    # (2 + 4) - 2 = 4; (1 + 2) + 2/2 - 1 + 4/4 = 4
    np.testing.assert_allclose(params["value"], [1.0 + 4 / 4, 2.0 + 4 / 4, 8.0, 100.0], rtol=1e-6)


def random_rollout(rng, steps, environments):
    """Everything that a rollout in four states can hold; and the same as NumPy's arrays."""
    shape = (steps, environments)
    state, successor = rng.integers(4, size=(2, *shape))
    last, action = rng.integers(4, size=environments), rng.integers(2, size=shape)
    reward = (2 * rng.normal(size=shape)).astype(np.float32)
    truncated = rng.random(shape) < 0.3
    terminated = (rng.random(shape) < 0.3) & ~truncated
    columns = (state, successor, last, reward, terminated, truncated, action)
    return rollout_of(*columns), columns


def advantages_of(columns, value, discount, decay):
    state, successor, last, reward, terminated, truncated, _ = columns
    steps, environments = reward.shape
    advantage = np.zeros(reward.shape)
    for n in range(environments):
        later, following = 0.0, value[last[n]]
        for t in reversed(range(steps)):
            if terminated[t, n] or truncated[t, n]:
                later, following = 0.0, value[successor[t, n]] if truncated[t, n] else 0.0
            later = reward[t, n] + discount * following - value[state[t, n]] + discount * decay * later
            advantage[t, n], following = later, value[state[t, n]]
    return advantage.reshape(-1)


@pytest.mark.parametrize("value_clip", [None, 0.3])
def test_several_epochs_equal_numpy(value_clip):
    """One minibatch, so that the order does not matter: advantages, old probabilities and old values stay as they were
    before the first step, while probabilities and values move, in float64.
    """
    rng = np.random.default_rng(0)
    config = PPOConfig(0.9, 0.8, 4, 1, clip=0.1, value_clip=value_clip, entropy_weight=0.05, value_weight=0.5)
    rollout, columns = random_rollout(rng, 5, 3)
    state, action = columns[0].reshape(-1), columns[-1].reshape(-1)
    start_logits, start_value = rng.normal(size=(4, 2)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    params, metrics = improved(rollout, config, start_value, start_logits, bootstrap=True)

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


# Learning, where the values are known.


def test_ppo_learns_the_action_that_pays():
    config = probe_config(agent="ppo")
    agent = agents.build(config, environment=ChosenReward())
    train = trainer(agent)
    start = begin(config, agent)
    _, first = shown(agent, start, [[0]])
    value, probability = shown(agent, train(start, 60), [[0]])
    assert first[0] == pytest.approx(0.5, abs=0.02)
    assert probability[0] > 0.97
    np.testing.assert_allclose(value, 2 * probability - 1, atol=0.1)


def test_ppo_learns_the_number_that_pays_best():
    config = probe_config(agent="ppo", ppo__entropy_weight=0.0)
    agent = agents.build(config, environment=ChosenNumber())
    state = trainer(agent)(begin(config, agent), 50)
    distribution, _ = agent.actor_critic(state.learner.params, jnp.zeros((1, 1)))
    assert float(distribution.mean[0, 0]) == pytest.approx(2.0, abs=0.1)
    assert float(distribution.log_std[0]) < -1.0


def test_ppo_discounts_the_value_over_two_steps():
    value, _ = learnt(TwoSteps(), [[0], [1]], iterations=150, agent="ppo")
    np.testing.assert_allclose(value, [0.5, 1.0], atol=0.02)


def test_ppo_values_a_time_limit_as_the_settings_say():
    """As a cut, 1 / (1 - 1/2); as an end, with 3, 2 and 1 steps to go, 1 + 1/2 + 1/4, 1 + 1/2 and 1."""
    value, _ = learnt(OnlyTruncates(3), [[0]], iterations=150, agent="ppo", time_limit="bootstrap")
    np.testing.assert_allclose(value, [2.0], atol=0.02)
    value, _ = learnt(OnlyTruncates(3, clock=True), np.eye(4)[:3], iterations=150, agent="ppo", time_limit="terminal")
    np.testing.assert_allclose(value, [1.75, 1.5, 1.0], atol=0.02)


def test_the_settings_reach_ppo():
    overrides = {"agent": "ppo+sil", "ppo.clip": 0.3, "time_limit": "bootstrap"}
    config = resolve("key-door-treasure", "authors", overrides)
    improvement = agents.build(config, environment=ChosenReward()).improvement
    assert isinstance(improvement, PPO)
    assert (improvement.config, improvement.bootstrap_time_limits) == (config.ppo, True)
    assert improvement.config.clip == 0.3
