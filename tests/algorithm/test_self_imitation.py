"""The self-imitation loss, as in the paper and in the authors' code, and the loop of updates on the replay buffer."""

import dataclasses
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import TypeCheckError
from learning import AUTHORS, PAPER
from tabular import state_rollout, tabular

from self_imitation.algorithm.degree import Degree
from self_imitation.algorithm.self_imitation import batch_loss, imitate, self_imitation_loss
from self_imitation.config import resolve
from self_imitation.networks.distributions import Categorical, DiagonalGaussian
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import Batch
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import TrainState

# The second action did worse than expected and the fourth exactly as expected: only the first and the third are
# imitated, with R - V of 0.5 and 3.
LOG_PROB = np.array([-2.0, -1.0, -7.0, -1.0], np.float32)
ENTROPY = np.array([0.5, 0.25, 1.0, 0.75], np.float32)
VALUE = np.array([1.0, 2.0, 0.0, 5.0], np.float32)
RETURNS = np.array([1.5, 1.0, 3.0, 5.0], np.float32)
WEIGHT = np.array([1.0, 1.0, 0.5, 1.0], np.float32)
EXAMPLE = (LOG_PROB, ENTROPY, VALUE, RETURNS, WEIGHT)

loss_and_gradient = jax.jit(
    jax.value_and_grad(self_imitation_loss, argnums=(0, 1, 2), has_aux=True), static_argnames="config"
)


def loss_of(config, *arguments):
    (loss, (advantage, metrics)), _ = loss_and_gradient(*(arguments or EXAMPLE), config=config)
    return float(loss), np.asarray(advantage), {name: float(value) for name, value in metrics.items()}


def gradient_of(config, *arguments):
    """With respect to log-probability, entropy and value."""
    return [np.asarray(part) for part in loss_and_gradient(*(arguments or EXAMPLE), config=config)[1]]


both = pytest.mark.parametrize("config", [AUTHORS, PAPER], ids=["authors", "paper"])


def test_presets_are_the_settings_tested_here():
    assert resolve("key-door-treasure", "authors").sil == AUTHORS
    assert dataclasses.replace(resolve("key-door-treasure", "paper").sil, buffer_size=PAPER.buffer_size) == PAPER


def test_loss_of_the_paper_by_hand():
    loss, advantage, metrics = loss_of(PAPER)
    # Eq. 2: 1 * 2 * 0.5 + 0.5 * 7 * 3 = 11.5, over 4 samples 2.875
    # Eq. 3: 1 * 0.5 * 0.5^2 + 0.5 * 0.5 * 3^2 = 2.375, over 4 samples 0.59375
    # Eq. 1: 2.875 + 0.01 * 0.59375 = 2.8809375
    assert metrics["sil_policy_loss"] == pytest.approx(2.875)
    assert metrics["sil_value_loss"] == pytest.approx(0.59375)
    assert loss == metrics["sil_loss"] == pytest.approx(2.8809375)
    assert advantage.tolist() == [0.5, 0.0, 3.0, 0.0]


def test_loss_of_the_authors_by_hand():
    loss, advantage, metrics = loss_of(AUTHORS)
    # policy: 1 * 2 * 0.5 + 0.5 * min(7, 5) * min(3, 1) = 3.5, over max(2, 64)
    # value: 1 * 0.5 * 0.5^2 + 0.5 * (1 * 3 - 0.5 * 1^2) = 1.375, over 64
    # entropy: 1 * 0.5 + 0.5 * 1 = 1, over 64
    # (3.5 + 0.005 * 1.375 - 0.01 * 1) / 64
    assert metrics["sil_policy_loss"] == pytest.approx(3.5 / 64)
    assert metrics["sil_value_loss"] == pytest.approx(1.375 / 64)
    assert loss == metrics["sil_loss"] == pytest.approx((3.5 + 0.005 * 1.375 - 0.01) / 64)
    assert advantage.tolist() == [0.5, 0.0, 1.0, 0.0]


def test_gradient_of_the_paper_by_hand():
    log_prob, entropy, value = gradient_of(PAPER)
    np.testing.assert_allclose(log_prob, [-0.5 / 4, 0.0, -0.5 * 3 / 4, 0.0], rtol=1e-6)  # - w (R - V)+ / 4
    np.testing.assert_array_equal(entropy, np.zeros(4))
    np.testing.assert_allclose(value, [-0.01 * 0.5 / 4, 0.0, -0.01 * 0.5 * 3 / 4, 0.0], rtol=1e-6)


def test_gradient_of_the_authors_by_hand():
    log_prob, entropy, value = gradient_of(AUTHORS)
    np.testing.assert_allclose(log_prob, [-0.5 / 64, 0.0, -0.5 * 1 / 64, 0.0], rtol=1e-6)
    np.testing.assert_allclose(entropy, [-0.01 / 64, 0.0, -0.01 * 0.5 / 64, 0.0], rtol=1e-6)
    # the error is 3, but its gradient is clipped at 1
    np.testing.assert_allclose(value, [-0.005 * 0.5 / 64, 0.0, -0.005 * 0.5 * 1 / 64, 0.0], rtol=1e-6)


@both
def test_nothing_is_learnt_where_the_return_did_not_beat_the_value(config):
    arguments = (LOG_PROB, ENTROPY, RETURNS + np.array([0.0, 0.1, 5.0, 1e-3], np.float32), RETURNS, WEIGHT)
    loss, advantage, metrics = loss_of(config, *arguments)
    assert loss == 0.0
    assert not advantage.any()
    assert metrics["sil_imitated"] == 0.0
    for part in gradient_of(config, *arguments):
        np.testing.assert_array_equal(part, np.zeros(4))


@both
def test_policy_loss_has_no_gradient_with_respect_to_the_value(config):
    _, _, value = gradient_of(dataclasses.replace(config, vf_coef=0.0))
    np.testing.assert_array_equal(value, np.zeros(4))


def test_metrics_are_means_over_the_filled_entries():
    _, _, metrics = loss_of(PAPER)
    assert metrics["sil_imitated"] == 2 / 4
    assert metrics["sil_advantage"] == pytest.approx((0.5 + 3) / 4)
    _, _, metrics = loss_of(PAPER, LOG_PROB, ENTROPY, VALUE, RETURNS, np.array([0.0, 1.0, 0.5, 1.0], np.float32))
    assert metrics["sil_imitated"] == pytest.approx(1 / 3)
    assert metrics["sil_advantage"] == pytest.approx(3 / 3)


@pytest.mark.parametrize(("imitated", "divisor"), [(0, 64), (1, 64), (64, 64), (65, 65), (100, 100)])
def test_authors_divide_by_the_number_imitated_but_at_least_64(imitated, divisor):
    batch = 100
    ones = np.ones(batch, np.float32)
    returns = np.where(np.arange(batch) < imitated, 0.5, -1.0).astype(np.float32)
    _, _, metrics = loss_of(AUTHORS, -ones, ones, 0 * ones, returns, ones)
    assert metrics["sil_policy_loss"] == pytest.approx(0.5 * imitated / divisor)
    _, _, metrics = loss_of(PAPER, -ones, ones, 0 * ones, returns, ones)
    assert metrics["sil_policy_loss"] == pytest.approx(0.5 * imitated / batch)


@both
def test_loss_coefficient_scales_the_whole_loss_and_not_the_advantage(config):
    tenth = dataclasses.replace(config, loss_coef=0.1)
    assert loss_of(tenth)[0] == pytest.approx(0.1 * loss_of(config)[0])
    np.testing.assert_array_equal(loss_of(tenth)[1], loss_of(config)[1])


def test_cap_on_the_log_probability_changes_the_reported_loss_and_not_the_gradient():
    """A rare good action, of probability e^-20, is learnt from as much with the cap as without it."""
    logits = np.array([[0.0, -20.0], [0.0, -1.0]], np.float32)

    @partial(jax.jit, static_argnames="config")
    @partial(jax.value_and_grad, has_aux=True)
    def loss(logits, config):
        policy, ones = Categorical(logits), jnp.ones(2)
        log_prob = policy.log_prob(jnp.array([1, 1]))
        return self_imitation_loss(log_prob, policy.entropy(), 0 * ones, ones, ones, config)

    (_, (_, capped)), gradient = loss(logits, config=dataclasses.replace(PAPER, max_neg_log_prob=5.0))
    (_, (_, uncapped)), uncapped_gradient = loss(logits, config=PAPER)
    second = np.log1p(np.exp(1.0))  # -log pi of the second, below the cap
    assert float(capped["sil_policy_loss"]) == pytest.approx((5.0 + second) / 2, rel=1e-5)
    assert float(uncapped["sil_policy_loss"]) == pytest.approx((20.0 + second) / 2, rel=1e-5)
    np.testing.assert_allclose(gradient, uncapped_gradient, rtol=1e-6)
    # d(-log pi(1))/d logits = pi - onehot(1) = (1, -1) up to 2e-9, over 2 samples
    np.testing.assert_allclose(gradient[0], [0.5, -0.5], rtol=1e-6)


def test_capped_loss_is_exact_however_unlikely_the_action():
    config = SelfImitationConfig(max_neg_log_prob=5.0, vf_coef=0.0)
    one = np.ones(1, np.float32)
    assert loss_of(config, -1e9 * one, one, 0 * one, one, one)[0] == 5.0


@pytest.mark.parametrize("garbage", [0.0, -1e30, 3e38])
@both
def test_empty_entries_of_a_batch_count_for_nothing(config, garbage):
    fillers = [np.full(3, number, np.float32) for number in (garbage, garbage, -3e38, garbage, 0.0)]
    arguments = [np.concatenate(pair) for pair in zip(EXAMPLE, fillers, strict=True)]
    loss, advantage, metrics = loss_of(config, *arguments)
    expected_loss, expected_advantage, expected_metrics = loss_of(config)
    assert loss == pytest.approx(expected_loss)
    assert metrics == pytest.approx(expected_metrics)
    np.testing.assert_array_equal(advantage, [*expected_advantage, 0.0, 0.0, 0.0])
    for part, expected in zip(gradient_of(config, *arguments), gradient_of(config), strict=True):
        np.testing.assert_allclose(part, [*expected, 0.0, 0.0, 0.0], rtol=1e-6)


@both
def test_loss_of_an_empty_batch_is_zero(config):
    loss, _, metrics = loss_of(config, LOG_PROB, ENTROPY, VALUE, RETURNS, np.zeros(4, np.float32))
    assert loss == 0.0
    assert set(metrics.values()) == {0.0}


def test_impossible_action_that_is_not_imitated_gives_no_nan():
    config = SelfImitationConfig(max_neg_log_prob=5.0)
    ones = np.ones(2, np.float32)
    arguments = (np.array([-1.0, -np.inf], np.float32), ones, ones, np.array([2.0, 0.0], np.float32), ones)
    # only the first is imitated: (1 * 1 + 0.01 * 1/2) / 2
    assert loss_of(config, *arguments)[0] == pytest.approx(0.5025)
    assert all(np.isfinite(part).all() for part in gradient_of(config, *arguments))


@pytest.mark.parametrize("place", range(5))
def test_column_vectors_are_refused(place):
    """(B, 1) minus (B,) would broadcast to (B, B): every action imitated in every state."""
    arguments = [jnp.asarray(column) for column in EXAMPLE]
    arguments[place] = arguments[place][:, None]
    with pytest.raises(TypeCheckError):
        self_imitation_loss(*arguments, PAPER)


def twin(log_prob, entropy, value, returns, weight, config, frozen_value):
    """The loss in NumPy, one sample after the other. The advantage of the policy loss is that of `frozen_value`."""
    total, imitated, filled = 0.0, 0, 0
    for i in range(len(weight)):
        if weight[i] == 0:
            continue
        filled += 1
        if returns[i] <= frozen_value[i]:
            continue
        imitated += 1
        advantage = returns[i] - frozen_value[i]
        error = returns[i] - value[i]
        half_square = 0.5 * error**2
        if config.max_advantage is not None:
            advantage = min(advantage, config.max_advantage)
            if error > config.max_advantage:  # straight on beyond the clip, with its slope
                half_square = 0.5 * config.max_advantage**2 + config.max_advantage * (error - config.max_advantage)
        policy = -log_prob[i] * advantage
        total += weight[i] * (policy + config.vf_coef * half_square - config.ent_coef * entropy[i])
    divisor = max(filled, 1) if config.average == "batch" else max(imitated, config.min_imitated)
    return config.loss_coef * total / divisor


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "config",
    [
        PAPER,
        SelfImitationConfig(max_advantage=0.3, vf_coef=0.7, ent_coef=0.2, average="imitated", min_imitated=3),
        SelfImitationConfig(loss_coef=0.1, vf_coef=2.0, ent_coef=0.5, average="imitated", min_imitated=64),
    ],
    ids=["paper", "clipped", "scaled"],
)
def test_loss_and_gradient_match_a_numpy_twin_and_its_finite_differences(config, seed):
    rng = np.random.default_rng(seed)
    batch = 12
    log_prob, entropy = -rng.exponential(3, batch), rng.random(batch)
    value, returns = rng.normal(size=(2, batch))
    weight = rng.random(batch) * (rng.random(batch) < 0.8)

    with jax.enable_x64(True):
        (loss, _), gradient = loss_and_gradient(log_prob, entropy, value, returns, weight, config=config)
        assert loss.dtype == jnp.float64
    frozen = partial(twin, returns=returns, weight=weight, config=config, frozen_value=value)
    assert float(loss) == pytest.approx(frozen(log_prob, entropy, value), rel=1e-9)
    inputs = [log_prob, entropy, value]
    for which in range(3):
        for i in range(batch):
            above, below = ([x.copy() for x in inputs] for _ in range(2))
            above[which][i] += 1e-5
            below[which][i] -= 1e-5
            difference = (frozen(*above) - frozen(*below)) / 2e-5
            assert float(gradient[which][i]) == pytest.approx(difference, rel=1e-5, abs=1e-8)


# With a temperature alpha: lower-bound soft Q-learning (section 4)

SOFT = dataclasses.replace(PAPER, temperature=0.5)


def test_loss_with_a_temperature_by_hand():
    """Gaps R - alpha log pi - V of 0.5 + 1, -1 + 0.5, 3 + 3.5 and 0 + 0.5: all but the second are imitated."""
    loss, advantage, metrics = loss_of(SOFT)
    assert advantage.tolist() == [1.5, 0.0, 6.5, 0.5]
    # policy: 1 * 2 * 1.5 + 0.5 * 7 * 6.5 + 1 * 1 * 0.5 = 26.25, over 4 samples 6.5625
    # value: (1 * 1.5^2 + 0.5 * 6.5^2 + 1 * 0.5^2) / 2 = 11.8125, over 4 samples 2.953125
    assert metrics["sil_policy_loss"] == pytest.approx(6.5625)
    assert metrics["sil_value_loss"] == pytest.approx(2.953125)
    assert loss == pytest.approx(0.5 * 6.5625 + 2.953125)
    assert metrics["sil_imitated"] == 0.75


@pytest.mark.parametrize("alpha", [1.0, 0.01])
def test_gradient_with_a_temperature_is_that_of_lower_bound_soft_q_learning(alpha):
    """Of 1/2 |(R - Q)+|^2 with Q = V + alpha log pi, without the clipping and averaging of the authors."""
    rng, batch = np.random.default_rng(7), 40
    params = {"logits": rng.normal(0, 2, (STATES, ACTIONS)), "value": rng.normal(size=STATES)}
    state, action = rng.integers(STATES, size=batch), rng.integers(ACTIONS, size=batch)
    returns, weight = rng.normal(size=batch), rng.random(batch)
    config = dataclasses.replace(PAPER, temperature=alpha)

    def soft_q_loss(params):
        log_pi = params["logits"] - jax.nn.logsumexp(params["logits"], axis=-1, keepdims=True)
        gap = jnp.maximum(returns - (params["value"][state] + alpha * log_pi[state, action]), 0.0)
        return jnp.sum(weight * 0.5 * gap**2) / batch

    with jax.enable_x64(True):
        sampled = Batch(
            slot=jnp.arange(batch, dtype=jnp.int32),
            observation=jnp.eye(STATES)[state],
            action=jnp.asarray(action.astype(np.int32)),
            returns=jnp.asarray(returns),
            weight=jnp.asarray(weight),
        )
        params = jax.tree.map(jnp.asarray, params)
        found, (_, metrics) = jax.jit(jax.grad(batch_loss, has_aux=True), static_argnums=(1, 3))(
            params, tabular, sampled, config
        )
        expected = jax.jit(jax.grad(soft_q_loss))(params)
    assert 0.2 < float(metrics["sil_imitated"]) < 0.95
    for name in expected:
        assert expected[name].dtype == jnp.float64
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("alpha", "policy", "value"),
    [(1.0, 5.0, 3.125), (0.1, 1.4, 0.245), (0.01, 1.04, 0.1352), (1e-4, 1.0004, 0.12510002), (0.0, 1.0, 0.125)],
)
def test_each_term_tends_to_that_of_self_imitation_as_the_temperature_falls(alpha, policy, value):
    """One sample with -log pi = 2 and R - V = 1/2: 2 (1/2 + 2 alpha) and 1/2 (1/2 + 2 alpha)^2."""
    first = [column[:1] for column in EXAMPLE]
    _, _, metrics = loss_of(dataclasses.replace(PAPER, temperature=alpha), *first)
    assert metrics["sil_policy_loss"] == pytest.approx(policy, rel=1e-6)
    assert metrics["sil_value_loss"] == pytest.approx(value, rel=1e-6)


def test_masked_action_is_not_imitated_with_a_temperature():
    """R - alpha log pi would be infinite."""
    ones = np.ones(2, np.float32)
    arguments = (np.array([-1.0, -np.inf], np.float32), ones, ones, np.array([2.0, 5.0], np.float32), ones)
    loss, advantage, metrics = loss_of(SOFT, *arguments)
    # only the first counts: gap 2 + 0.5 - 1 = 1.5, and 0.5 * 1 * 1.5 + 1.5^2 / 2
    assert advantage.tolist() == [1.5, 0.0]
    assert loss == pytest.approx(0.75 + 1.125)
    assert metrics["sil_imitated"] == 1.0
    assert all(np.isfinite(part).all() for part in gradient_of(SOFT, *arguments))


# Continuous actions. One sample: mean 1/2, standard deviation 2, action 2, so that it lies 0.75 deviations away.


@partial(jax.jit, static_argnames="config")
@partial(jax.grad, argnums=(0, 1, 2))
def gaussian_gradient(mean, log_std, value, action, returns, config):
    policy = DiagonalGaussian(mean, log_std)
    weight = jnp.ones(len(action))
    return self_imitation_loss(policy.log_prob(action), policy.entropy(), value, returns, weight, config)[0]


def of_one_action(config, returns):
    """Gradients with respect to the mean, the log standard deviation and the value, which is 1."""
    columns = ([[0.5]], np.log([2.0]), [1.0], [[2.0]], [returns])
    return map(np.asarray, gaussian_gradient(*(np.array(c, np.float32) for c in columns), config=config))


def test_gradient_of_the_paper_with_gaussian_actions_by_hand():
    """R = 3 beats V = 1 by 2: the mean moves towards the action, the deviation towards its distance."""
    mean, log_std, value = of_one_action(PAPER, 3.0)
    np.testing.assert_allclose(mean, [[-2 * 1.5 / 2**2]], rtol=1e-6)  # - (R - V)+ (a - mean) / std^2
    np.testing.assert_allclose(log_std, [-2 * (0.75**2 - 1)], rtol=1e-6)  # - (R - V)+ (deviations^2 - 1)
    np.testing.assert_allclose(value, [-0.01 * 2], rtol=1e-6)


def test_gradient_of_the_authors_with_gaussian_actions_by_hand():
    """The advantage is clipped to 1, 64 divides, and the entropy bonus raises the log standard deviation."""
    mean, log_std, value = of_one_action(AUTHORS, 3.0)
    np.testing.assert_allclose(mean, [[-1.5 / 2**2 / 64]], rtol=1e-6)
    np.testing.assert_allclose(log_std, [(-(0.75**2 - 1) - 0.01) / 64], rtol=1e-6)
    np.testing.assert_allclose(value, [-0.005 / 64], rtol=1e-6)


def test_far_actions_widen_the_gaussian_and_near_ones_narrow_it():
    # two dimensions: 3 deviations of 2 away, and 1/2 deviation of 0.5
    columns = ([[1.0, -1.0]], np.log([2, 0.5]), [1.0], [[7.0, -1.25]], [2.0])
    mean, log_std, _ = gaussian_gradient(*(np.array(c, np.float32) for c in columns), config=PAPER)
    np.testing.assert_allclose(mean, [[-3 / 2, 0.5 / 0.5]], rtol=1e-5)
    np.testing.assert_allclose(log_std, [-(3**2 - 1), -(0.5**2 - 1)], rtol=1e-5)


@pytest.mark.parametrize("returns", [1.0, 0.5, -100.0])
@both
def test_gaussian_actions_that_did_not_beat_the_value_are_not_learnt_from(config, returns):
    for part in of_one_action(config, returns):
        assert not part.any()


# The loop of updates, on buffers of one-step episodes, for which return and reward are the same.

STATES, ACTIONS, LONGEST = 8, 3, 200
SMALL = SelfImitationConfig(updates=3, batch_size=64, buffer_size=256, importance_exponent=0.0, vf_coef=1.0)
ADAM = optax.adam(0.1)


def begin(optimiser, value=0.0):
    params = {"logits": jnp.zeros((STATES, ACTIONS)), "value": jnp.full(STATES, value)}
    return TrainState(params, optimiser.init(params))


def filled_buffer(state, action, reward):
    """Episodes of one step each: in this state, by this action, with this reward."""

    def padded(numbers, dtype):
        return np.pad(np.asarray(numbers, dtype), (0, LONGEST - len(numbers)))[:, None]

    finished = np.arange(LONGEST)[:, None] < len(state)  # the padding is one more episode, not finished
    columns = {"action": padded(action, np.int32), "terminated": finished}
    rollout = state_rollout(padded(state, int), padded(reward, np.float32), [0], states=STATES, **columns)
    buffer = run_insert(replay.create(rollout, SMALL, max_pending_steps=LONGEST + 1), rollout, SMALL)
    assert int(buffer.size) == len(state)
    return buffer


run_insert = jax.jit(replay.insert, static_argnums=2)
run_imitate = jax.jit(partial(imitate, tabular), static_argnames=("optimiser", "config"))


def imitated(optimiser, train_state, buffer, key=0, config=SMALL, degree=None):
    return run_imitate(
        optimiser=optimiser,
        train_state=train_state,
        buffer=buffer,
        key=jax.random.key(key),
        config=config,
        degree=degree,
    )


def leaves(buffer):
    first = buffer.tree.first_leaf
    return np.asarray(buffer.tree.sums)[first : first + int(buffer.size)]


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("steps", [0, 20, 100])
def test_nothing_changes_until_the_buffer_holds_more_than_learning_starts(steps):
    train_state = begin(ADAM)
    buffer = filled_buffer([0] * steps, [1] * steps, [2.0] * steps)
    after, buffer_after, metrics = imitated(ADAM, train_state, buffer)
    assert_same(after, train_state)
    assert_same(buffer_after, buffer)
    assert all(float(value) == 0.0 for value in metrics.values())


def test_one_step_more_than_learning_starts_is_enough_for_m_gradient_steps():
    after, _, metrics = imitated(ADAM, begin(ADAM), filled_buffer([0] * 101, [1] * 101, [2.0] * 101))
    assert int(after.optimiser_state[0].count) == 3
    assert float(metrics["sil_imitated"]) == 1.0
    # Adam's first steps are of the size of its learning rate
    assert after.params["value"][0] == pytest.approx(0.1 * 3, rel=0.05)
    np.testing.assert_array_equal(after.params["value"][1:], np.zeros(STATES - 1))


def test_each_update_continues_from_the_one_before():
    """All items are equal, so every batch is the same and three gradient steps can be worked out."""
    optimiser = optax.sgd(0.5)
    after, buffer, metrics = imitated(optimiser, begin(optimiser), filled_buffer([0] * 150, [2] * 150, [3.0] * 150))

    logits, value, advantages = np.zeros(3), 0.0, []
    for _ in range(3):
        probabilities = np.exp(logits) / np.exp(logits).sum()
        advantages.append(3.0 - value)
        logits = logits + 0.5 * advantages[-1] * (np.array([0.0, 0.0, 1.0]) - probabilities)
        value = value + 0.5 * advantages[-1]
    np.testing.assert_allclose(after.params["logits"][0], logits, rtol=1e-5)
    np.testing.assert_allclose(after.params["value"][0], value, rtol=1e-5)
    assert float(metrics["sil_advantage"]) == pytest.approx(np.mean(advantages), rel=1e-5)
    # A sampled item has the advantage of the last update that sampled it, as it was before that update: 3, 1.5 or 0.75.
    expected = np.array([1.0, *advantages]) ** 0.6  # 1 for those that were never sampled
    nearest = np.abs(leaves(buffer)[:, None] - expected).argmin(axis=1)
    np.testing.assert_allclose(leaves(buffer), expected[nearest], rtol=1e-5)
    assert set(nearest.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("max_advantage", [1.5, None])
def test_priorities_become_the_clipped_advantage_before_the_update(max_advantage):
    rng = np.random.default_rng(0)
    state, action = rng.integers(STATES, size=LONGEST), rng.integers(ACTIONS, size=LONGEST)
    reward = rng.normal(1.0, 2.0, size=LONGEST).astype(np.float32)
    optimiser = optax.sgd(10.0)  # so long a step that priorities by the new network would be far off
    config = dataclasses.replace(SMALL, updates=1, batch_size=LONGEST, max_advantage=max_advantage)
    buffer = filled_buffer(state, action, reward)
    after, buffer, _ = imitated(optimiser, begin(optimiser, value=0.25), buffer, key=3, config=config)

    advantage = np.clip(reward - 0.25, 0.0, max_advantage)
    expected = np.maximum(advantage, 1e-6) ** 0.6
    priority = leaves(buffer)
    untouched = priority == 1.0  # the priority of an item that was never sampled
    np.testing.assert_allclose(priority[~untouched], expected[~untouched], rtol=1e-5)
    assert 100 < (~untouched).sum() < 150  # about 1 - 1/e of 200
    assert np.abs(np.asarray(after.params["value"]) - 0.25).max() > 0.5


def test_the_good_action_is_learnt_and_the_bad_one_is_not():
    """In state 0 action 1 paid 1; in state 1 action 2 cost 1: with V = 0 the first is imitated, the second is not."""
    buffer = filled_buffer([0, 1] * 60, [1, 2] * 60, [1.0, -1.0] * 60)
    train_state = begin(ADAM)
    probabilities = [1 / 3]
    for key in range(6):
        train_state, buffer, _ = imitated(ADAM, train_state, buffer, key)
        probabilities.append(float(jax.nn.softmax(train_state.params["logits"][0])[1]))
    assert all(later > earlier for earlier, later in pairwise(probabilities))
    assert probabilities[-1] > 0.8
    np.testing.assert_array_equal(train_state.params["logits"][1], np.zeros(3))
    assert train_state.params["value"][1] == 0.0


def test_values_in_a_column_from_a_users_actor_critic_are_refused():
    def column(params, observation):
        distribution, value = tabular(params, observation)
        return distribution, value[:, None]

    buffer = filled_buffer([0] * 101, [1] * 101, [2.0] * 101)
    with pytest.raises(TypeCheckError):
        imitate(column, ADAM, begin(ADAM), buffer, jax.random.key(0), SMALL)


# A number of updates that is only known while the program runs


def degree_of(updates, loss_coef=1.0):
    return Degree(jnp.asarray(updates, jnp.int32), jnp.asarray(loss_coef, jnp.float32))


def test_a_degree_of_m_is_m_updates():
    """All items are equal, so that every batch is the same."""
    optimiser, buffer = optax.adam(0.1), filled_buffer([0] * 150, [2] * 150, [3.0] * 150)
    expected, _, expected_metrics = imitated(optimiser, begin(optimiser), buffer)
    found, _, metrics = imitated(optimiser, begin(optimiser), buffer, degree=degree_of(SMALL.updates))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for name in expected_metrics:
        assert float(metrics[name]) == pytest.approx(float(expected_metrics[name]), rel=1e-5)
    for updates in (1, 8):
        after, _, _ = imitated(optimiser, begin(optimiser), buffer, degree=degree_of(updates))
        assert int(after.optimiser_state[0].count) == updates


def test_a_degree_of_zero_changes_neither_parameters_nor_priorities():
    train_state, buffer = begin(ADAM), filled_buffer([0] * 150, [2] * 150, [3.0] * 150)
    after, buffer_after, metrics = imitated(ADAM, train_state, buffer, degree=degree_of(0))
    assert_same(after, train_state)
    assert_same(buffer_after, buffer)
    assert all(float(value) == 0.0 for value in metrics.values())


def test_with_a_degree_nothing_changes_until_the_buffer_holds_more_than_learning_starts():
    train_state, buffer = begin(ADAM), filled_buffer([0] * 100, [2] * 100, [3.0] * 100)
    after, buffer_after, _ = imitated(ADAM, train_state, buffer, degree=degree_of(3))
    assert_same(after, train_state)
    assert_same(buffer_after, buffer)


def test_the_coefficient_of_a_degree_replaces_that_of_the_settings():
    optimiser, buffer = optax.sgd(0.5), filled_buffer([0] * 150, [2] * 150, [3.0] * 150)
    after, _, metrics = imitated(optimiser, begin(optimiser), buffer, degree=degree_of(1, loss_coef=0.25))
    # the value goes 0.5 * 0.25 of the way from 0 to 3, the logits by 0.5 * 0.25 * 3 (onehot - 1/3)
    np.testing.assert_allclose(after.params["value"][0], 0.375, rtol=1e-5)
    np.testing.assert_allclose(after.params["logits"][0], [-0.125, -0.125, 0.25], rtol=1e-5)
    assert float(metrics["sil_advantage"]) == 3.0


def test_seeds_with_different_degrees_are_as_each_alone():
    rng = np.random.default_rng(2)
    columns = rng.integers(STATES, size=150), rng.integers(ACTIONS, size=150), rng.normal(1, 2, 150)
    buffer, keys, degrees = filled_buffer(*columns), jax.random.split(jax.random.key(5), 3), (1, 4, 0)

    def one(key, degree):
        return imitate(tabular, ADAM, begin(ADAM), buffer, key, SMALL, degree=degree)

    together = jax.jit(jax.vmap(one))(keys, jax.vmap(degree_of)(jnp.array(degrees)))
    assert together[0].optimiser_state[0].count.tolist() == list(degrees)
    alone = jax.jit(one)
    for seed, updates in enumerate(degrees):
        expected = alone(keys[seed], degree_of(updates))
        for mine, own in zip(jax.tree.leaves(together), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(mine[seed], own, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(*(leaves(jax.tree.map(lambda x, s=s: x[s], together[1])) for s in (0, 1)))
