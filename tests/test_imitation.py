"""The self-imitation loss, its two presets, and the loop of updates that draws from the memory."""

import dataclasses
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import learning
import numpy as np
import optax
import pytest
from jaxtyping import TypeCheckError
from learning import NoImprovement, probe_config, trainer
from probes import ChosenNumber

from self_imitation import agents
from self_imitation import memory as episodic_memory
from self_imitation.config import SelfImitationConfig, resolve
from self_imitation.distributions import Categorical, DiagonalGaussian
from self_imitation.imitation import imitate, self_imitation_loss
from self_imitation.types import Learner, Rollout

AUTHORS = resolve("key-door-treasure", "authors").sil
PAPER = resolve("key-door-treasure", "paper").sil

# The second action did worse than expected and the fourth exactly as expected: only the first and the third are
# imitated, with R - V of 0.5 and 3.
LOG_PROB = jnp.array([-2.0, -1.0, -7.0, -1.0])
ENTROPY = jnp.array([0.5, 0.25, 1.0, 0.75])
VALUE = jnp.array([1.0, 2.0, 0.0, 5.0])
RETURNS = jnp.array([1.5, 1.0, 3.0, 5.0])
WEIGHT = jnp.array([1.0, 1.0, 0.5, 1.0])
EXAMPLE = (LOG_PROB, ENTROPY, VALUE, RETURNS, WEIGHT)


def loss_of(config, *arguments):
    loss, (advantage, metrics) = self_imitation_loss(*(arguments or EXAMPLE), config)
    return float(loss), np.asarray(advantage), {name: float(value) for name, value in metrics.items()}


def gradient_of(config, *arguments):
    """With respect to log-probability, entropy and value."""
    gradient = jax.grad(lambda *a: self_imitation_loss(*a, config)[0], argnums=(0, 1, 2))(*(arguments or EXAMPLE))
    return [np.asarray(part) for part in gradient]


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
    # the error is 3, but pulls no harder than 1
    np.testing.assert_allclose(value, [-0.005 * 0.5 / 64, 0.0, -0.005 * 0.5 * 1 / 64, 0.0], rtol=1e-6)


def test_the_presets_set_what_the_table_of_differences_says():
    def open_questions(config):
        return {
            name: getattr(config, name)
            for name in ("clip", "average", "value_weight", "entropy_weight", "max_neg_log_prob", "keep")
        }

    assert open_questions(AUTHORS) == {
        "clip": 1.0,
        "average": "imitated",
        "value_weight": 0.005,
        "entropy_weight": 0.01,
        "max_neg_log_prob": 5.0,
        "keep": "positive",
    }
    assert open_questions(PAPER) == {
        "clip": None,
        "average": "batch",
        "value_weight": 0.01,
        "entropy_weight": 0.0,
        "max_neg_log_prob": None,
        "keep": "all",
    }
    for config in (AUTHORS, PAPER):
        assert (config.updates, config.batch, config.weight, config.start_after) == (4, 512, 1.0, 100)
        assert (config.min_imitated, config.priority_exponent, config.bias_correction) == (64, 0.6, 0.4)
    assert (AUTHORS.capacity, PAPER.capacity) == (100_000, 1000)


def test_nothing_is_learnt_where_the_return_did_not_beat_the_value():
    arguments = (LOG_PROB, ENTROPY, RETURNS + jnp.array([0.0, 0.1, 5.0, 1e-3]), RETURNS, WEIGHT)
    for config in (AUTHORS, PAPER):
        loss, advantage, metrics = loss_of(config, *arguments)
        assert loss == 0.0
        assert not advantage.any()
        assert metrics["sil_imitated"] == 0.0
        for part in gradient_of(config, *arguments):
            np.testing.assert_array_equal(part, np.zeros(4))


def test_the_policy_term_moves_no_value():
    """Without the value term, the value is a constant: the advantage passes no gradient on."""
    for config in (AUTHORS, PAPER):
        _, _, value = gradient_of(dataclasses.replace(config, value_weight=0.0))
        np.testing.assert_array_equal(value, np.zeros(4))


def test_the_number_imitated_is_reported_as_a_part_of_the_places_that_are_filled():
    _, _, metrics = loss_of(PAPER)
    assert metrics["sil_imitated"] == 2 / 4
    assert metrics["sil_advantage"] == pytest.approx((0.5 + 3) / 4)
    _, _, metrics = loss_of(PAPER, LOG_PROB, ENTROPY, VALUE, RETURNS, jnp.array([0.0, 1.0, 0.5, 1.0]))
    assert metrics["sil_imitated"] == pytest.approx(1 / 3)
    assert metrics["sil_advantage"] == pytest.approx(3 / 3)


@pytest.mark.parametrize(("imitated", "divisor"), [(0, 64), (1, 64), (63, 64), (64, 64), (65, 65), (100, 100)])
def test_the_authors_divide_by_the_number_imitated_but_at_least_64(imitated, divisor):
    batch = 100
    ones = jnp.ones(batch)
    returns = jnp.where(jnp.arange(batch) < imitated, 0.5, -1.0)
    _, _, metrics = loss_of(AUTHORS, -ones, ones, jnp.zeros(batch), returns, ones)
    assert metrics["sil_policy_loss"] == pytest.approx(0.5 * imitated / divisor)
    _, _, metrics = loss_of(PAPER, -ones, ones, jnp.zeros(batch), returns, ones)
    assert metrics["sil_policy_loss"] == pytest.approx(0.5 * imitated / batch)


def test_the_factor_of_the_whole_loss():
    for config in (AUTHORS, PAPER):
        tenth = dataclasses.replace(config, weight=0.1)
        assert loss_of(tenth)[0] == pytest.approx(0.1 * loss_of(config)[0])
        np.testing.assert_array_equal(loss_of(tenth)[1], loss_of(config)[1])


def test_the_cap_changes_what_is_reported_and_not_what_is_learnt():
    """A rare good action, of probability e^-20, is learnt from as much with the cap as without it."""
    logits = jnp.array([[0.0, -20.0], [0.0, -1.0]])

    def loss(logits, config):
        policy = Categorical(logits)
        ones = jnp.ones(2)
        log_prob = policy.log_prob(jnp.array([1, 1]))
        return self_imitation_loss(log_prob, policy.entropy(), 0 * ones, ones, ones, config)

    capped = dataclasses.replace(PAPER, max_neg_log_prob=5.0)
    (_, (_, metrics)), gradient = jax.value_and_grad(loss, has_aux=True)(logits, capped)
    (_, (_, uncapped_metrics)), uncapped_gradient = jax.value_and_grad(loss, has_aux=True)(logits, PAPER)
    second = np.log1p(np.exp(1.0))  # -log pi of the second, below the cap
    assert float(metrics["sil_policy_loss"]) == pytest.approx((5.0 + second) / 2, rel=1e-5)
    assert float(uncapped_metrics["sil_policy_loss"]) == pytest.approx((20.0 + second) / 2, rel=1e-5)
    np.testing.assert_array_equal(gradient, uncapped_gradient)
    # d(-log pi(1))/d logits = pi - onehot(1) = (1, -1) up to 2e-9, over 2 samples
    np.testing.assert_allclose(gradient[0], [0.5, -0.5], rtol=1e-6)


def test_places_that_nothing_fills_do_not_count_whatever_they_hold():
    for config in (AUTHORS, PAPER, dataclasses.replace(AUTHORS, min_imitated=1)):
        expected_loss, expected_advantage, expected_metrics = loss_of(config)
        expected_gradient = gradient_of(config)
        for garbage in (0.0, 1.0, -1e30, 3e38):
            filler = jnp.full(3, garbage)
            worse = jnp.full(3, -3e38)
            arguments = [jnp.concatenate(pair) for pair in zip(EXAMPLE, (filler, filler, worse, filler), strict=False)]
            arguments.append(jnp.concatenate([WEIGHT, jnp.zeros(3)]))
            loss, advantage, metrics = loss_of(config, *arguments)
            assert loss == pytest.approx(expected_loss)
            assert metrics == pytest.approx(expected_metrics)
            np.testing.assert_array_equal(advantage, [*expected_advantage, 0.0, 0.0, 0.0])
            for part, expected in zip(gradient_of(config, *arguments), expected_gradient, strict=True):
                np.testing.assert_allclose(part, [*expected, 0.0, 0.0, 0.0], rtol=1e-6)


def test_a_batch_with_no_place_filled_is_a_loss_of_zero():
    for config in (AUTHORS, PAPER):
        loss, _, metrics = loss_of(config, LOG_PROB, ENTROPY, VALUE, RETURNS, jnp.zeros(4))
        assert loss == 0.0
        assert set(metrics.values()) == {0.0}


@pytest.mark.parametrize("place", range(5))
def test_a_column_among_the_rows_is_refused(place):
    """(B, 1) against (B,) would become B x B: every action imitated in every state."""
    arguments = list(EXAMPLE)
    arguments[place] = arguments[place][:, None]
    with pytest.raises(TypeCheckError):
        self_imitation_loss(*arguments, PAPER)


def twin(log_prob, entropy, value, returns, weight, config, frozen_value):
    """The loss in NumPy, one sample after the other. The policy term's advantage is of `frozen_value`."""
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
        if config.clip is not None:
            advantage = min(advantage, config.clip)
            if error > config.clip:  # straight on beyond the clip, with its slope
                half_square = 0.5 * config.clip**2 + config.clip * (error - config.clip)
        policy = -log_prob[i] * advantage
        total += weight[i] * (policy + config.value_weight * half_square - config.entropy_weight * entropy[i])
    divisor = max(filled, 1) if config.average == "batch" else max(imitated, config.min_imitated)
    return config.weight * total / divisor


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "config",
    [
        AUTHORS,
        PAPER,
        SelfImitationConfig(clip=0.3, value_weight=0.7, entropy_weight=0.2, average="imitated", min_imitated=3),
        SelfImitationConfig(weight=0.1, value_weight=2.0, entropy_weight=0.5, average="imitated", min_imitated=64),
    ],
    ids=["authors", "paper", "clip 0.3", "weight 0.1"],
)
def test_loss_and_gradient_equal_a_twin_and_its_finite_differences(config, seed):
    """In float64; the cap, which changes no gradient, is left out of the loss that is compared."""
    config = dataclasses.replace(config, max_neg_log_prob=None)
    rng = np.random.default_rng(seed)
    batch = 12
    log_prob, entropy = -rng.exponential(3, batch), rng.random(batch)
    value, returns = rng.normal(size=(2, batch))
    weight = rng.random(batch) * (rng.random(batch) < 0.8)

    with jax.enable_x64(True):
        arguments = [jnp.asarray(x) for x in (log_prob, entropy, value, returns, weight)]
        loss = self_imitation_loss(*arguments, config)[0]
        gradient = gradient_of(config, *arguments)
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
            assert gradient[which][i] == pytest.approx(difference, rel=1e-5, abs=1e-8)


# Actions that are numbers. One sample: mean 1/2, deviation 2, action 2, so that it lies 0.75 deviations away.

ACTION = jnp.array([[2.0]])
MEAN, LOG_STD = jnp.array([[0.5]]), jnp.log(jnp.array([2.0]))


def gaussian_gradient(config, returns, value=1.0, action=ACTION, mean=MEAN, log_std=LOG_STD):
    """Of the mean, the logarithm of the deviation and the value."""

    def loss(mean, log_std, value):
        policy = DiagonalGaussian(mean, log_std)
        weight = jnp.ones(len(action))
        return self_imitation_loss(policy.log_prob(action), policy.entropy(), value, returns, weight, config)[0]

    returns = jnp.full(len(action), returns)
    gradient = jax.grad(loss, argnums=(0, 1, 2))(mean, log_std, jnp.full(len(action), value))
    return [np.asarray(part) for part in gradient]


def test_gradient_of_the_paper_with_gaussian_actions_by_hand():
    """R = 3 beats V = 1 by 2: the mean is drawn towards the action, the deviation towards how far that was."""
    mean, log_std, value = gaussian_gradient(PAPER, 3.0)
    np.testing.assert_allclose(mean, [[-2 * 1.5 / 2**2]], rtol=1e-6)  # - (R - V)+ (a - mean) / std^2
    np.testing.assert_allclose(log_std, [-2 * (0.75**2 - 1)], rtol=1e-6)  # - (R - V)+ (deviations^2 - 1)
    np.testing.assert_allclose(value, [-0.01 * 2], rtol=1e-6)


def test_gradient_of_the_authors_with_gaussian_actions_by_hand():
    """The advantage is cut to 1, 64 divides, and the entropy goes up by as much as the logarithm of the deviation."""
    mean, log_std, value = gaussian_gradient(AUTHORS, 3.0)
    np.testing.assert_allclose(mean, [[-1.5 / 2**2 / 64]], rtol=1e-6)
    np.testing.assert_allclose(log_std, [(-(0.75**2 - 1) - 0.01) / 64], rtol=1e-6)
    np.testing.assert_allclose(value, [-0.005 / 64], rtol=1e-6)


def test_a_far_action_widens_the_deviation_and_a_near_one_narrows_it():
    # two numbers in an action: 3 deviations of 2 away, and 1/2 deviation of 0.5
    mean, log_std, _ = gaussian_gradient(
        PAPER,
        2.0,
        action=jnp.array([[7.0, -1.25]]),
        mean=jnp.array([[1.0, -1.0]]),
        log_std=jnp.log(jnp.array([2, 0.5])),
    )
    np.testing.assert_allclose(mean, [[-3 / 2, 0.5 / 0.5]], rtol=1e-5)
    np.testing.assert_allclose(log_std, [-(3**2 - 1), -(0.5**2 - 1)], rtol=1e-5)


@pytest.mark.parametrize("returns", [1.0, 0.5, -100.0])
def test_a_gaussian_action_that_did_not_beat_the_value_is_not_learnt_from(returns):
    for config in (AUTHORS, PAPER):
        for part in gaussian_gradient(config, returns):
            assert not part.any()


def test_self_imitation_alone_moves_a_gaussian_policy_to_the_number_that_paid_best():
    """A2C+SIL without its A2C, on a probe that pays best for the number 2: acts, remembers and imitates."""
    config = probe_config(
        agent="a2c+sil", sil__keep="all", sil__clip=None, sil__average="batch", sil__entropy_weight=0.0
    )
    agent = dataclasses.replace(agents.build(config, environment=ChosenNumber()), improvement=NoImprovement())
    start = learning.begin(config, agent)
    first, last = (
        agent.actor_critic(state.learner.params, jnp.zeros((1, 1)))[0] for state in (start, trainer(agent)(start, 300))
    )
    assert (float(first.mean[0, 0]), float(first.log_std[0])) == (pytest.approx(0.0, abs=0.05), 0.0)
    assert float(last.mean[0, 0]) == pytest.approx(2.0, abs=0.1)
    assert float(last.log_std[0]) < -1.0  # and surer than at first


# The loop of updates, on memories of one-step episodes, for which return and reward are the same.

STATES, ACTIONS, LONGEST = 8, 3, 200
SMALL = SelfImitationConfig(updates=3, batch=64, capacity=256, bias_correction=0.0, value_weight=1.0)
ADAM = optax.adam(0.1)


def tabular(params, observation):
    """A user's own actor-critic: a plain function, and a dictionary of tables for one-hot observations."""
    return Categorical(observation @ params["logits"]), observation @ params["value"]


def begin(optimiser, value=0.0):
    params = {"logits": jnp.zeros((STATES, ACTIONS)), "value": jnp.full(STATES, value)}
    return Learner(params, optimiser.init(params))


def filled_memory(state, action, reward, keep="all"):
    """Episodes of one step each: in this state, by this action, with this reward."""

    def padded(numbers, dtype):
        return jnp.zeros(LONGEST, dtype).at[: len(numbers)].set(jnp.asarray(numbers, dtype))[:, None]

    finished = jnp.arange(LONGEST)[:, None] < len(state)  # the padding is one more episode, not finished
    observation = jax.nn.one_hot(padded(state, jnp.int32), STATES)
    rollout = Rollout(
        observation=observation,
        action=padded(action, jnp.int32),
        reward=padded(reward, jnp.float32),
        terminated=finished,
        truncated=jnp.zeros_like(finished),
        successor=observation,
        last_observation=observation[-1],
        episode_return=padded(reward, jnp.float32),
        episode_length=jnp.ones((LONGEST, 1), jnp.int32),
    )
    config = dataclasses.replace(SMALL, keep=keep)
    memory = run_remember(episodic_memory.create(rollout, config, room=1), rollout, config)
    assert int(memory.size) <= len(state)
    return memory


run_remember = jax.jit(episodic_memory.remember, static_argnames="config")
run_imitate = jax.jit(partial(imitate, tabular), static_argnames=("optimiser", "config"))


def leaves(memory):
    first = memory.tree.first_leaf
    return np.asarray(memory.tree.sums[first : first + int(memory.size)])


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("steps", [0, 20, 100])
def test_nothing_moves_until_the_memory_holds_more_than_start_after(steps):
    learner = begin(ADAM)
    memory = filled_memory([0] * steps, [1] * steps, [2.0] * steps)
    assert int(memory.size) == steps
    learned, remembered, metrics = run_imitate(
        optimiser=ADAM, learner=learner, memory=memory, key=jax.random.key(0), config=SMALL
    )
    assert_same(learned, learner)
    assert_same(remembered, memory)
    assert all(float(value) == 0.0 for value in metrics.values())


@pytest.mark.parametrize("updates", [1, 3])
def test_one_step_more_than_start_after_is_enough_for_m_steps_of_the_optimiser(updates):
    memory = filled_memory([0] * 101, [1] * 101, [2.0] * 101)
    learned, _, metrics = run_imitate(
        optimiser=ADAM,
        learner=begin(ADAM),
        memory=memory,
        key=jax.random.key(0),
        config=dataclasses.replace(SMALL, updates=updates),
    )
    assert int(learned.optimiser_state[0].count) == updates
    assert float(metrics["sil_imitated"]) == 1.0
    # Adam's first steps are of the size of its learning rate
    assert learned.params["value"][0] == pytest.approx(0.1 * updates, rel=0.05)
    np.testing.assert_array_equal(learned.params["value"][1:], np.zeros(STATES - 1))


def test_each_of_the_updates_begins_where_the_one_before_ended():
    """Of equal items every draw is the same batch, so that three gradient steps can be worked out."""
    optimiser = optax.sgd(0.5)
    memory = filled_memory([0] * 150, [2] * 150, [3.0] * 150)
    learned, remembered, metrics = run_imitate(
        optimiser=optimiser, learner=begin(optimiser), memory=memory, key=jax.random.key(1), config=SMALL
    )

    logits, value, advantages = np.zeros(3), 0.0, []
    for _ in range(3):
        probabilities = np.exp(logits) / np.exp(logits).sum()
        advantages.append(3.0 - value)
        logits = logits + 0.5 * advantages[-1] * (np.array([0.0, 0.0, 1.0]) - probabilities)
        value = value + 0.5 * advantages[-1]
    np.testing.assert_allclose(learned.params["logits"][0], logits, rtol=1e-5)
    np.testing.assert_allclose(learned.params["value"][0], value, rtol=1e-5)
    assert float(metrics["sil_advantage"]) == pytest.approx(np.mean(advantages), rel=1e-5)
    # A drawn item has the advantage of the last update that drew it, as it was before that update: 3, 1.5 or 0.75.
    expected = np.array([1.0, *advantages]) ** 0.6  # 1 for those that were never drawn
    nearest = np.abs(leaves(remembered)[:, None] - expected).argmin(axis=1)
    np.testing.assert_allclose(leaves(remembered), expected[nearest], rtol=1e-5)
    assert set(nearest.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("clip", [1.5, None])
def test_priorities_become_the_clipped_advantage_before_the_update(clip):
    rng = np.random.default_rng(0)
    state, action = rng.integers(STATES, size=LONGEST), rng.integers(ACTIONS, size=LONGEST)
    reward = rng.normal(1.0, 2.0, size=LONGEST).astype(np.float32)
    memory = filled_memory(state, action, reward)
    optimiser = optax.sgd(10.0)  # so long a step that priorities by the new network would be far off
    learned, remembered, _ = run_imitate(
        optimiser=optimiser,
        learner=begin(optimiser, value=0.25),
        memory=memory,
        key=jax.random.key(3),
        config=dataclasses.replace(SMALL, updates=1, batch=LONGEST, clip=clip),
    )

    advantage = np.clip(reward - 0.25, 0.0, clip)
    expected = np.maximum(advantage, 1e-6) ** 0.6
    after = leaves(remembered)
    untouched = after == 1.0  # the priority of an item that was never drawn
    np.testing.assert_allclose(after[~untouched], expected[~untouched], rtol=1e-5)
    assert 100 < (~untouched).sum() < 150  # about 1 - 1/e of 200
    assert np.abs(np.asarray(learned.params["value"]) - 0.25).max() > 0.5


def test_a_users_own_actor_critic_learns_the_good_action_and_not_the_bad_one():
    """In state 0 action 1 paid 1; in state 1 action 2 cost 1: with V = 0 the first is imitated, the second is not."""
    memory = filled_memory([0, 1] * 60, [1, 2] * 60, [1.0, -1.0] * 60)
    learner = begin(ADAM)
    probabilities = [1 / 3]
    for key in jax.random.split(jax.random.key(0), 6):
        learner, memory, _ = run_imitate(optimiser=ADAM, learner=learner, memory=memory, key=key, config=SMALL)
        probabilities.append(float(jax.nn.softmax(learner.params["logits"][0])[1]))
    assert all(later > earlier for earlier, later in pairwise(probabilities))
    assert probabilities[-1] > 0.8
    np.testing.assert_array_equal(learner.params["logits"][1], np.zeros(3))
    assert learner.params["value"][1] == 0.0


def test_values_in_a_column_from_a_users_actor_critic_are_refused():
    def column(params, observation):
        distribution, value = tabular(params, observation)
        return distribution, value[:, None]

    memory = filled_memory([0] * 101, [1] * 101, [2.0] * 101)
    with pytest.raises(TypeCheckError):
        imitate(column, ADAM, begin(ADAM), memory, jax.random.key(0), SMALL)


@pytest.mark.parametrize(("keep", "stored"), [("all", [-1.0, 0.0, 0.5, 0.0, 2.0]), ("positive", [0.5, 2.0])])
def test_the_authors_keep_only_episodes_with_a_reward_above_zero(keep, stored):
    memory = filled_memory([0, 1, 0, 1, 0], [0, 1, 2, 0, 1], [-1.0, 0.0, 0.5, 0.0, 2.0], keep)
    assert np.asarray(memory.returns[: int(memory.size)]).tolist() == stored


def test_an_impossible_action_that_is_not_imitated_costs_no_nan():
    config = SelfImitationConfig(max_neg_log_prob=5.0)
    log_prob, returns = jnp.array([-1.0, -jnp.inf]), jnp.array([2.0, 0.0])
    ones = jnp.ones(2)
    loss, _ = self_imitation_loss(log_prob, ones, ones, returns, ones, config)
    # only the first is imitated: (1 * 1 + 0.01 * 1/2) / 2
    assert loss == pytest.approx(0.5025)


def test_the_reported_cap_is_exact_however_unlikely_the_action():
    config = SelfImitationConfig(max_neg_log_prob=5.0, value_weight=0.0)
    one = jnp.ones(1)
    loss, _ = self_imitation_loss(jnp.array([-1e9]), one, 0 * one, one, one, config)
    assert loss == 5.0


def test_shapes_that_would_broadcast_are_refused_even_without_the_type_check():
    from self_imitation.shapes import require_one_shape

    with pytest.raises(ValueError, match=r"shapes must be the same: value \(3, 1\), returns \(3,\)"):
        require_one_shape(value=jnp.ones((3, 1)), returns=jnp.ones(3))
    require_one_shape(value=jnp.ones(3), returns=jnp.ones(3))
