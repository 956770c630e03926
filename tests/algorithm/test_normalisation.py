"""Running statistics against NumPy's; networks see normalised numbers, the replay buffer holds raw ones."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from tabular import make_rollout, with_reset_step

from self_imitation.algorithm import self_imitation
from self_imitation.algorithm.normalisation import Moments, Normaliser, NormaliserState, drop_running
from self_imitation.algorithm.returns import n_step_returns
from self_imitation.networks.distributions import Categorical
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import Batch
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import Discrete, Spec, TrainState

# Moments.


@jax.jit
def add(moments, sample, valid=None):
    return moments.update(sample, valid)


def test_moments_by_hand():
    moments = add(Moments.create(()), np.array([1.0, 3.0], np.float32))
    assert (float(moments.mean), float(moments.variance), float(moments.count)) == (2.0, 1.0, 2.0)
    moments = add(moments, np.array([5.0, 5.0, 5.0, 5.0], np.float32))
    # of 1, 3, 5, 5, 5, 5: the mean is 24 / 6 = 4 and the variance 110 / 6 - 16 = 7 / 3
    assert float(moments.mean) == pytest.approx(4.0)
    assert float(moments.variance) == pytest.approx(7 / 3)
    assert float(moments.count) == 6.0


def test_initial_moments_change_nothing_and_leave_no_trace():
    moments = Moments.create((2,))
    assert (moments.mean.tolist(), moments.variance.tolist(), float(moments.count)) == ([0.0, 0.0], [1.0, 1.0], 0.0)
    moments = add(moments, np.array([[7.0, -3.0]], np.float32))
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([7.0, -3.0], [0.0, 0.0])


@settings(deadline=None, derandomize=True, max_examples=15)
@given(sizes=st.lists(st.sampled_from([1, 2, 40]), min_size=1, max_size=8), seed=st.integers(0, 2**32 - 1))
def test_batches_of_any_sizes_give_the_moments_of_all_samples(sizes, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal([0.0, -5.0, 3.0], [1.0, 0.1, 20.0], (size, 3)).astype(np.float32) for size in sizes]
    moments = Moments.create((3,))
    for batch in batches:
        moments = add(moments, batch)
    together = np.concatenate(batches).astype(np.float64)
    assert float(moments.count) == len(together)
    assert_allclose(moments.mean, together.mean(axis=0), rtol=1e-5, atol=1e-5)
    assert_allclose(moments.variance, together.var(axis=0), rtol=1e-4, atol=1e-6)


def test_masked_samples_are_ignored():
    rng = np.random.default_rng(0)
    before = add(Moments.create((2,)), rng.normal(size=(3, 2)).astype(np.float32))
    sample = rng.normal(size=(5, 2)).astype(np.float32)
    valid = np.array([True, False, True, True, False])
    sample[~valid] = 1e6
    expected = add(before, sample[valid])
    for one, other in zip(jax.tree.leaves(add(before, sample, valid)), jax.tree.leaves(expected), strict=True):
        assert_allclose(one, other, rtol=1e-5)
    nothing = add(before, sample, np.zeros(5, bool))
    for one, other in zip(jax.tree.leaves(nothing), jax.tree.leaves(before), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize(("offset", "of_mean", "of_variance"), [(0.0, 1e-6, 1e-5), (1000.0, 1e-3, 1e-3)])
def test_thousands_of_batches_lose_no_precision(offset, of_mean, of_variance):
    """Deviations near 1: the mean is right to 1e-6, and to 1e-3 where it lies at 1000, for there a float32 is exact to
    3e-5 alone and each batch rounds anew. The variance is as good.

    The mean of squares less the square of the mean would give 0.8 instead of 1.3 at 1000: near a million, a float32 is
    exact to 0.06 alone.
    """
    rng = np.random.default_rng(0)
    drift = np.linspace(-1, 1, 2000)[:, None]  # the early batches differ from the late ones, and both count
    samples = (offset + drift + rng.normal(size=(2000, 80))).astype(np.float32)
    moments = all_batches(samples)
    exact = samples.astype(np.float64)
    assert float(moments.count) == 160_000
    assert abs(float(moments.mean) - exact.mean()) < of_mean
    assert float(moments.variance) == pytest.approx(exact.var(), rel=of_variance)


@jax.jit
def all_batches(batches):
    return jax.lax.scan(lambda moments, batch: (moments.update(batch), None), Moments.create(()), batches)[0]


# The normaliser.

SPEC = Spec(observation_shape=(2,), actions=Discrete(2), max_episode_steps=None)
BOTH = Normaliser(observations=True, rewards=True, clip=10.0, gamma=0.5, spec=SPEC, num_envs=3)

update = jax.jit(lambda normaliser, state, rollout: normaliser.update(state, rollout), static_argnums=0)


def statistics(mean=(1.0, -2.0), variance=(4.0, 0.25), spread=9.0, largest=0.0):
    """Statistics by hand; the sums of rewards have a mean too, which must not matter."""
    count = jnp.float32(10.0)
    return NormaliserState(
        Moments(jnp.array(mean), jnp.array(variance), count),
        Moments(jnp.float32(100.0), jnp.float32(spread), count),
        jnp.zeros(3),
        jnp.float32(largest),
    )


def random_rollout(rng, steps=6, end_rate=0.3):
    observation, following = rng.normal(2.0, 5.0, size=(2, steps, 3, 2)).astype(np.float32)
    ended, truncated = rng.random((steps, 3)) < end_rate, rng.random((steps, 3)) < 0.5
    return make_rollout(
        observation,
        rng.normal(0.5, 3.0, size=(steps, 3)),
        rng.normal(2.0, 5.0, size=(3, 2)).astype(np.float32),
        following,
        action=rng.integers(2, size=(steps, 3)),
        terminated=ended & ~truncated,
        truncated=ended & truncated,
    )


def test_observations_by_hand():
    # (3 - 1) / 2 = 1 and (-2.25 + 2) / 0.5 = -0.5; beyond 10 they are clipped
    seen = BOTH.observation(statistics(), jnp.array([[3.0, -2.25], [1000.0, -1000.0], [-20.0, 2.9]]))
    assert_allclose(seen, [[1.0, -0.5], [10.0, -10.0], [-10.0, 9.8]], rtol=1e-5)


def test_clip_is_a_setting():
    narrow = dataclasses.replace(BOTH, clip=0.25)
    assert narrow.observation(statistics(), jnp.array([[3.0, -2.25]])).tolist() == [[0.25, -0.25]]


def test_constant_observation_is_zero_and_not_infinite():
    constant = jnp.full((6, 3, 2), 7.0)
    rollout = dataclasses.replace(random_rollout(np.random.default_rng(0)), observation=constant)
    state = update(BOTH, BOTH.init(), rollout)
    assert not BOTH.observation(state, constant).any()
    assert_array_equal(
        BOTH.observation(state, constant + 1), np.full_like(constant, 10.0)
    )  # when it changes, it counts


def test_rewards_and_returns_by_hand():
    """Divided by 3 and never shifted: a reward of 0 stays 0, and a return may be large."""
    seen = BOTH.scale_rewards(statistics(), jnp.array([[6.0, 0.0, -3.0], [1e6, -1e6, 29.7]]))
    assert_allclose(seen, [[2.0, 0.0, -1.0], [1e6 / 3, -1e6 / 3, 9.9]], rtol=1e-5)


def test_no_reward_exceeds_the_clip_and_returns_keep_the_same_units():
    """With a deviation of 3 and a reward of 60 so far, rewards are divided by 6: 60 becomes 10."""
    seen = BOTH.scale_rewards(statistics(largest=60.0), jnp.array([60.0, -60.0, 6.0, 600.0]))
    assert_allclose(seen, [10.0, -10.0, 1.0, 100.0], rtol=1e-5)


def test_the_learners_rewards_and_stored_returns_are_divided_by_the_same_number_whatever_their_size():
    state = statistics(largest=60.0)
    rollout = random_rollout(np.random.default_rng(0))
    rollout = dataclasses.replace(rollout, reward=jnp.full((6, 3), 6.0).at[0].set(60.0))
    seen = BOTH.rollout(state, rollout).reward
    assert_allclose(seen, [[10.0] * 3] + [[1.0] * 3] * 5, rtol=1e-5)
    batch = batch_of(np.zeros((2, 2), np.float32), [60.0, 6.0])
    assert_allclose(BOTH.batch(state, batch).returns, [10.0, 1.0], rtol=1e-5)


@pytest.mark.parametrize("success", [1.0, 0.05])
def test_a_perfect_value_leaves_nothing_to_imitate_where_only_the_last_of_1000_steps_pays(success):
    steps, envs, gamma = 1000, 20, 0.99
    normaliser = dataclasses.replace(BOTH, observations=False, gamma=gamma, num_envs=envs)
    reward, ended = np.zeros((steps, envs), np.float32), np.zeros((steps, envs), bool)
    ended[-1], reward[-1, : round(success * envs)] = True, 1.0
    zeros = np.zeros((steps, envs, 2), np.float32)
    rollout = make_rollout(zeros, reward, zeros[0], zeros, terminated=ended)
    state = normaliser.update(normaliser.init(), rollout)
    returns = gamma ** np.arange(steps - 1.0, -1.0, -1.0)  # raw, as the replay buffer stores them
    stored = normaliser.batch(state, batch_of(zeros[:, 0], returns.astype(np.float32))).returns
    seen = normaliser.rollout(state, rollout).reward
    perfect = n_step_returns(seen, rollout.ended, jnp.zeros_like(seen), jnp.zeros(envs), gamma)[:, 0]
    assert_allclose(stored, perfect, rtol=1e-4)
    assert float(seen.max()) <= 10.0


@pytest.mark.parametrize("gamma", [0.5, 0.0])
def test_reward_scale_is_the_deviation_of_discounted_sums_over_all_rollouts(gamma):
    """Against a loop in NumPy: one running sum for each environment, from 0 in each episode, over four rollouts."""
    normaliser = dataclasses.replace(BOTH, gamma=gamma)
    rng = np.random.default_rng(1)
    state, totals, running = normaliser.init(), [], np.zeros(3)
    for _ in range(4):
        rollout = random_rollout(rng)
        state = update(normaliser, state, rollout)
        reward, ended = np.asarray(rollout.reward, np.float64), np.asarray(rollout.ended)
        for t in range(6):
            running = gamma * running + reward[t]
            totals.append(running)
            running = np.where(ended[t], 0.0, running)
        assert_allclose(state.sums.mean, np.mean(totals), rtol=1e-5)
        assert_allclose(state.sums.variance, np.var(totals), rtol=1e-5)
        assert_allclose(state.running, running, rtol=1e-5, atol=1e-6)
        assert_allclose(normaliser.scale_rewards(state, rollout.reward), reward / np.std(totals), rtol=1e-5)
    assert float(state.sums.count) == 4 * 6 * 3


def test_observation_statistics_are_those_of_all_observations_acted_on():
    rng = np.random.default_rng(3)
    state, seen = BOTH.init(), []
    for _ in range(3):
        rollout = random_rollout(rng)
        state = update(BOTH, state, rollout)
        seen.append(np.asarray(rollout.observation, np.float64).reshape(-1, 2))
    together = np.concatenate(seen)
    assert_allclose(state.observation.mean, together.mean(axis=0), rtol=1e-5)
    assert_allclose(state.observation.variance, together.var(axis=0), rtol=1e-5)
    normal = BOTH.observation(state, jnp.asarray(together, jnp.float32))
    assert_allclose(normal.mean(axis=0), [0.0, 0.0], atol=1e-5)
    assert_allclose(normal.std(axis=0), [1.0, 1.0], rtol=1e-4)


def test_reset_steps_change_no_statistics():
    rng = np.random.default_rng(7)
    rollout = random_rollout(rng, end_rate=0.2)
    ended = np.asarray(rollout.terminated).copy()
    ended[2] = True
    rollout = dataclasses.replace(rollout, terminated=jnp.asarray(ended))
    expected = update(BOTH, BOTH.init(), rollout)
    state = update(BOTH, BOTH.init(), with_reset_step(rollout, after=2))
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_sums_of_unfinished_episodes_can_be_dropped():
    state = update(BOTH, BOTH.init(), random_rollout(np.random.default_rng(1), end_rate=0.0))
    assert state.running.all()
    dropped = drop_running(state)
    assert not dropped.running.any()
    assert_array_equal(dropped.sums.variance, state.sums.variance)


def test_the_learner_sees_normalised_observations_and_rewards_and_the_rest_unchanged():
    rollout, state = random_rollout(np.random.default_rng(4)), statistics()
    seen = BOTH.rollout(state, rollout)
    for name in ("observation", "next_observation", "last_observation"):
        expected = (np.asarray(getattr(rollout, name)) - [1.0, -2.0]) / [2.0, 0.5]
        assert_allclose(getattr(seen, name), np.clip(expected, -10, 10), rtol=1e-4, atol=1e-5)
    assert_allclose(seen.reward, rollout.reward / 3, rtol=1e-5)
    for name in ("action", "terminated", "truncated", "episode_return", "episode_length"):
        assert_array_equal(getattr(seen, name), getattr(rollout, name))
    assert BOTH.rollout(state, dataclasses.replace(rollout, next_observation=None)).next_observation is None


def batch_of(observation, returns):
    count = len(returns)
    return Batch(
        slot=jnp.arange(count),
        observation=jax.tree.map(jnp.asarray, observation),
        action=jnp.zeros(count, jnp.int32),
        returns=jnp.asarray(returns),
        weight=jnp.full(count, 0.5),
    )


def test_self_imitation_sees_normalised_observations_and_returns_and_the_rest_unchanged():
    batch = batch_of(np.array([[3.0, -2.25], [1000.0, -2.0]], np.float32), [6.0, 900.0])
    seen = BOTH.batch(statistics(), batch)
    assert_allclose(seen.observation, [[1.0, -0.5], [10.0, 0.0]], rtol=1e-5)
    assert_allclose(seen.returns, [2.0, 300.0], rtol=1e-5)
    for name in ("slot", "action", "weight"):
        assert_array_equal(getattr(seen, name), getattr(batch, name))


def test_stored_rewards_are_scaled_like_returns_and_other_extras_are_not():
    extras = {name: jnp.array([6.0, 900.0]) for name in ("reward", "log_prob", "entropy_return")}
    batch = dataclasses.replace(batch_of(np.zeros((2, 2), np.float32), [6.0, 900.0]), extras=extras)
    seen = BOTH.batch(statistics(), batch)
    assert_allclose(seen.extras["reward"], [2.0, 300.0], rtol=1e-5)
    assert seen.extras["log_prob"] is extras["log_prob"]
    assert seen.extras["entropy_return"] is extras["entropy_return"]


def test_rewards_alone_can_be_normalised():
    rollout, batch = random_rollout(np.random.default_rng(5)), batch_of(np.array([[3.0, 900.0]], np.float32), [1e6])
    only_rewards = dataclasses.replace(BOTH, observations=False)
    state = update(only_rewards, only_rewards.init(), rollout)
    assert state.observation is None
    assert only_rewards.rollout(state, rollout).observation is rollout.observation
    assert only_rewards.batch(state, batch).observation is batch.observation
    assert (only_rewards.rollout(state, rollout).reward != rollout.reward).all()
    assert (only_rewards.batch(state, batch).returns != batch.returns).all()


def test_observations_alone_can_be_normalised():
    rollout, batch = random_rollout(np.random.default_rng(5)), batch_of(np.array([[3.0, 900.0]], np.float32), [1e6])
    only_observations = dataclasses.replace(BOTH, rewards=False)
    state = update(only_observations, only_observations.init(), rollout)
    assert state.sums is None
    assert only_observations.rollout(state, rollout).reward is rollout.reward
    assert only_observations.batch(state, batch).returns is batch.returns
    assert (only_observations.rollout(state, rollout).next_observation != rollout.next_observation).all()
    assert (only_observations.batch(state, batch).observation != batch.observation).all()


def test_actor_critic_of_raw_observations():
    def double(params, observation):
        return Categorical(observation * params), 2 * observation[:, 0]

    normalised = BOTH.with_normalised_observations(double, statistics())
    distribution, value = normalised(jnp.float32(5.0), jnp.array([[3.0, -2.25]]))
    assert_allclose(value, [2.0], rtol=1e-5)
    assert_allclose(distribution.logits, [[5.0, -2.5]], rtol=1e-5)


def test_numbers_beside_an_image_are_normalised_and_the_image_is_not():
    spec = Spec((4, 4, 1), Discrete(2), None, observation_kind="image", numbers_beside_image=2)
    normaliser = dataclasses.replace(BOTH, spec=spec)
    rng = np.random.default_rng(0)
    numbers = rng.normal(3.0, 2.0, size=(6, 3, 2)).astype(np.float32)
    image = rng.integers(256, size=(6, 3, 4, 4, 1), dtype=np.uint8)
    observation = {"image": image, "numbers": numbers}
    last = jax.tree.map(lambda column: column[0], observation)
    rollout = make_rollout(observation, np.ones((6, 3)), last, observation)
    state = update(normaliser, normaliser.init(), rollout)
    assert_allclose(state.observation.mean, numbers.mean(axis=(0, 1)), rtol=1e-5)
    seen = normaliser.rollout(state, rollout)
    flat = numbers.reshape(-1, 2)
    for name in ("observation", "next_observation", "last_observation"):
        raw, shown = getattr(rollout, name), getattr(seen, name)
        assert_array_equal(shown["image"], raw["image"])
        assert_allclose(shown["numbers"], (raw["numbers"] - flat.mean(axis=0)) / flat.std(axis=0), rtol=1e-4, atol=1e-5)
    sampled = normaliser.batch(state, batch_of(last, np.ones(3, np.float32)))
    assert sampled.observation["image"].dtype == jnp.uint8
    assert_allclose(sampled.observation["numbers"], seen.last_observation["numbers"], rtol=1e-5)


# Self-imitation with statistics that move.

CONFIG = SelfImitationConfig(
    updates=1, batch_size=64, buffer_size=64, learning_starts=0, vf_coef=1.0, importance_exponent=0.0
)
OPTIMISER = optax.sgd(1.0)


def buffer_of(returns):
    """One-step episodes in the state [3, -2.25] by the first action, each of these returns three times."""
    steps = len(returns)
    observation = np.tile(np.array([3.0, -2.25], np.float32), (steps, 3, 1))
    reward = np.tile(np.array(returns)[:, None], (1, 3))
    rollout = make_rollout(observation, reward, observation[0], terminated=np.ones((steps, 3), bool))
    buffer = replay.create(rollout, CONFIG, max_pending_steps=1)
    return jax.jit(replay.insert, static_argnums=2)(buffer, rollout, CONFIG)


def linear(params, observation):
    """The value does not depend on the observation; the logits are proportional to it."""
    return Categorical(observation * params["factor"]), jnp.zeros(len(observation)) + params["value"]


@jax.jit
def imitate(buffer, state):
    params = {"factor": jnp.zeros(()), "value": jnp.float32(1.0)}
    train_state = TrainState(params, OPTIMISER.init(params))
    normalise = partial(BOTH.batch, state)
    return self_imitation.imitate(linear, OPTIMISER, train_state, buffer, jax.random.key(0), CONFIG, normalise)


def test_old_returns_are_scaled_by_the_present_statistics():
    """A return of 6 is 2 while sums deviate by 3, and 0.5 once they deviate by 12. With V = 1 it is imitated at first
    and not any more later: had it been stored as 2, it would be imitated for ever.
    """
    buffer = buffer_of([6.0] * 4)
    train_state, after, metrics = imitate(buffer, statistics(spread=9.0))
    assert float(metrics["sil_imitated"]) == 1.0
    assert float(metrics["sil_advantage"]) == pytest.approx(2.0 - 1.0, rel=1e-5)
    assert float(train_state.params["value"]) == pytest.approx(1.0 + (2.0 - 1.0), rel=1e-5)
    assert_array_equal(after.returns, buffer.returns)
    assert_array_equal(after.observation, buffer.observation)
    # the state is seen as [1, -0.5] and the first action was taken: A (onehot(0) - 1/2) times what is seen is 0.75
    assert float(train_state.params["factor"]) == pytest.approx((2.0 - 1.0) * (0.5 * 1.0 - 0.5 * -0.5), rel=1e-5)

    train_state, _, metrics = imitate(after, statistics(spread=144.0))
    assert float(metrics["sil_imitated"]) == 0.0
    assert (float(train_state.params["value"]), float(train_state.params["factor"])) == (1.0, 0.0)


def test_priorities_are_in_units_of_normalised_returns():
    _, after, _ = imitate(buffer_of([6.0] * 4), statistics(spread=4.0))
    priority = np.asarray(after.tree.sums)[after.tree.first_leaf :][:12]
    assert set(np.round(priority, 4)) <= {1.0, np.float32(round(2.0**0.6, 4))}
    assert priority.max() == pytest.approx((6.0 / 2 - 1) ** 0.6, rel=1e-4)
