"""Running statistics against NumPy's, and who sees what: the networks normalised numbers, the memory raw ones."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import begin, probe_config, shown, trainer
from numpy.testing import assert_allclose, assert_array_equal
from probes import ChosenReward, OnlyTruncates, RandomStart, TwoSteps

from self_imitation.training import agents
from self_imitation.algorithm.iteration import iteration as algorithm
from self_imitation.algorithm import self_imitation as imitation
from self_imitation.replay import buffer as episodic_memory
from self_imitation.config import SelfImitationConfig, resolve
from self_imitation.networks.distributions import Categorical
from self_imitation.replay.buffer import Batch
from self_imitation.algorithm.normalisation import Moments, Normaliser, NormaliserState
from self_imitation.types import Discrete, TrainState, Rollout, Spec

# Moments.


def test_moments_by_hand():
    moments = Moments.create(()).update(jnp.array([1.0, 3.0]))
    assert (float(moments.mean), float(moments.variance), float(moments.count)) == (2.0, 1.0, 2.0)
    moments = moments.update(jnp.array([5.0, 5.0, 5.0, 5.0]))
    # of 1, 3, 5, 5, 5, 5: the mean is 24 / 6 = 4 and the variance 110 / 6 - 16 = 7 / 3
    assert float(moments.mean) == pytest.approx(4.0)
    assert float(moments.variance) == pytest.approx(7 / 3)
    assert float(moments.count) == 6.0


def test_before_anything_is_taken_in_nothing_is_changed_and_nothing_of_that_is_left_after():
    moments = Moments.create((2,))
    assert (moments.mean.tolist(), moments.variance.tolist(), float(moments.count)) == ([0.0, 0.0], [1.0, 1.0], 0.0)
    moments = moments.update(jnp.array([[7.0, -3.0]]))
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([7.0, -3.0], [0.0, 0.0])


@settings(deadline=None, derandomize=True, max_examples=20)
@given(sizes=st.lists(st.sampled_from([1, 2, 5, 40]), min_size=1, max_size=8), seed=st.integers(0, 2**32 - 1))
def test_batches_of_any_sizes_give_the_moments_of_all_together(sizes, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal([0.0, -5.0, 3.0], [1.0, 0.1, 20.0], (size, 3)).astype(np.float32) for size in sizes]
    moments = Moments.create((3,))
    for batch in batches:
        moments = moments.update(jnp.asarray(batch))
    together = np.concatenate(batches).astype(np.float64)
    assert float(moments.count) == len(together)
    assert_allclose(moments.mean, together.mean(axis=0), rtol=1e-5, atol=1e-5)
    assert_allclose(moments.variance, together.var(axis=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("offset", "of_mean", "of_variance"), [(0.0, 1e-6, 1e-5), (1000.0, 1e-3, 1e-3)])
def test_two_thousand_batches_lose_nothing(offset, of_mean, of_variance):
    """Deviations near 1: the mean is right to 1e-6, and to 1e-3 where it lies at 1000, for there a float32 is exact to
    3e-5 alone and each batch rounds anew. The variance is as good.

    The mean of squares less the square of the mean would give 0.8 instead of 1.3 at 1000: near a million, a float32 is
    exact to 0.06 alone.
    """
    rng = np.random.default_rng(0)
    drift = np.linspace(-1, 1, 2000)[:, None]  # the early batches differ from the late ones, and both count
    samples = (offset + drift + rng.normal(size=(2000, 80))).astype(np.float32)
    take_all = jax.jit(lambda batches: jax.lax.scan(lambda m, b: (m.update(b), None), Moments.create(()), batches)[0])
    moments = take_all(jnp.asarray(samples))
    exact = samples.astype(np.float64)
    assert float(moments.count) == 160_000
    assert abs(float(moments.mean) - exact.mean()) < of_mean
    assert float(moments.variance) == pytest.approx(exact.var(), rel=of_variance)


# The normaliser.

SPEC = Spec(observation_shape=(2,), actions=Discrete(2), max_episode_steps=None)
BOTH = Normaliser(observations=True, rewards=True, clip=10.0, discount=0.5, spec=SPEC, environments=3)


def scales_of(mean=(1.0, -2.0), variance=(4.0, 0.25), spread=9.0):
    """Statistics by hand; the rewards' sums have a mean too, which must not matter."""
    count = jnp.float32(10.0)
    return NormaliserState(
        Moments(jnp.array(mean), jnp.array(variance), count),
        Moments(jnp.float32(100.0), jnp.float32(spread), count),
        jnp.zeros(3),
    )


def random_rollout(rng, steps=6, end_rate=0.3):
    reward = rng.normal(0.5, 3.0, size=(steps, 3)).astype(np.float32)
    observation, next_observation = rng.normal(2.0, 5.0, size=(2, steps, 3, 2)).astype(np.float32)
    ended = rng.random((steps, 3)) < end_rate
    truncated = rng.random((steps, 3)) < 0.5
    columns = {
        "observation": observation,
        "action": rng.integers(2, size=(steps, 3)).astype(np.int32),
        "reward": reward,
        "terminated": ended & ~truncated,
        "truncated": ended & truncated,
        "next_observation": next_observation,
        "last_observation": rng.normal(2.0, 5.0, size=(3, 2)).astype(np.float32),
        "episode_return": reward,
        "episode_length": np.ones((steps, 3), np.int32),
    }
    return Rollout(**{name: jnp.asarray(column) for name, column in columns.items()})


def test_observations_by_hand():
    # (3 - 1) / 2 = 1 and (-2.25 + 2) / 0.5 = -0.5; far off they are cut at 10
    seen = BOTH.observation(scales_of(), jnp.array([[3.0, -2.25], [1000.0, -1000.0], [-20.0, 2.9]]))
    assert_allclose(seen, [[1.0, -0.5], [10.0, -10.0], [-10.0, 9.8]], rtol=1e-5)


def test_how_far_an_observation_counts_is_a_setting():
    narrow = dataclasses.replace(BOTH, clip=0.25)
    assert narrow.observation(scales_of(), jnp.array([[3.0, -2.25]])).tolist() == [[0.25, -0.25]]


def test_an_observation_that_never_changed_is_zero_and_not_infinite():
    held = jnp.full((6, 3, 2), 7.0)
    rollout = dataclasses.replace(random_rollout(np.random.default_rng(0)), observation=held)
    scales = BOTH.update(BOTH.create(), rollout)
    assert not BOTH.observation(scales, held).any()
    assert_array_equal(BOTH.observation(scales, held + 1), np.full_like(held, 10.0))  # when it does change, it counts


def test_rewards_by_hand():
    """Divided by 3 and cut at 10, and never shifted: a reward of 0 stays 0."""
    seen = BOTH.reward(scales_of(), jnp.array([[6.0, 0.0, -3.0], [1e6, -1e6, 29.7]]))
    assert_allclose(seen, [[2.0, 0.0, -1.0], [10.0, -10.0, 9.9]], rtol=1e-5)


def test_returns_are_divided_and_not_cut():
    """A return of 1e6 is the sum of many rewards, none of which need be large."""
    assert_allclose(BOTH.returns(scales_of(), jnp.array([6.0, 0.0, -1e6])), [2.0, 0.0, -1e6 / 3], rtol=1e-5)


def test_the_scale_of_rewards_is_that_of_their_discounted_sums_over_all_rollouts():
    """A loop in NumPy: one running sum for each environment, from 0 in each episode, over four rollouts."""
    rng = np.random.default_rng(1)
    scales, totals, running = BOTH.create(), [], np.zeros(3)
    for _ in range(4):
        rollout = random_rollout(rng)
        scales = BOTH.update(scales, rollout)
        reward, ended = np.asarray(rollout.reward, np.float64), np.asarray(rollout.ended)
        for t in range(6):
            running = 0.5 * running + reward[t]
            totals.append(running)
            running = np.where(ended[t], 0.0, running)
        assert_allclose(scales.sums.mean, np.mean(totals), rtol=1e-5)
        assert_allclose(scales.sums.variance, np.var(totals), rtol=1e-5)
        assert_allclose(scales.running, running, rtol=1e-5, atol=1e-6)
        assert_allclose(BOTH.reward(scales, rollout.reward), reward / np.std(totals), rtol=1e-5)
    assert float(scales.sums.count) == 4 * 6 * 3


def test_the_discount_of_the_sums_is_a_setting():
    rollout = random_rollout(np.random.default_rng(2))
    undiscounted = dataclasses.replace(BOTH, discount=0.0)
    scales = undiscounted.update(undiscounted.create(), rollout)
    assert_allclose(scales.sums.variance, np.var(rollout.reward), rtol=1e-5)


def test_statistics_of_observations_are_of_all_that_was_acted_on():
    rng = np.random.default_rng(3)
    scales, seen = BOTH.create(), []
    for _ in range(3):
        rollout = random_rollout(rng)
        scales = BOTH.update(scales, rollout)
        seen.append(np.asarray(rollout.observation, np.float64).reshape(-1, 2))
    together = np.concatenate(seen)
    assert_allclose(scales.observation.mean, together.mean(axis=0), rtol=1e-5)
    assert_allclose(scales.observation.variance, together.var(axis=0), rtol=1e-5)
    normal = BOTH.observation(scales, jnp.asarray(together, jnp.float32))
    assert_allclose(normal.mean(axis=0), [0.0, 0.0], atol=1e-5)
    assert_allclose(normal.std(axis=0), [1.0, 1.0], rtol=1e-4)


def test_the_improvement_sees_observations_and_rewards_normalised_and_the_rest_as_it_is():
    rollout, scales = random_rollout(np.random.default_rng(4)), scales_of()
    seen = BOTH.rollout(scales, rollout)
    for name in ("observation", "next_observation", "last_observation"):
        expected = (np.asarray(getattr(rollout, name)) - [1.0, -2.0]) / [2.0, 0.5]
        assert_allclose(getattr(seen, name), np.clip(expected, -10, 10), rtol=1e-4, atol=1e-5)
    assert_allclose(seen.reward, np.clip(rollout.reward / 3, -10, 10), rtol=1e-5)
    for name in ("action", "terminated", "truncated", "episode_return", "episode_length"):
        assert_array_equal(getattr(seen, name), getattr(rollout, name))


def batch_of(observation, returns):
    count = len(returns)
    return Batch(
        slot=jnp.arange(count),
        observation=jnp.asarray(observation),
        action=jnp.zeros(count, jnp.int32),
        returns=jnp.asarray(returns),
        weight=jnp.full(count, 0.5),
    )


def test_self_imitation_sees_observations_and_returns_normalised_and_the_rest_as_it_is():
    batch = batch_of([[3.0, -2.25], [1000.0, -2.0]], [6.0, 900.0])
    seen = BOTH.batch(scales_of(), batch)
    assert_allclose(seen.observation, [[1.0, -0.5], [10.0, 0.0]], rtol=1e-5)
    assert_allclose(seen.returns, [2.0, 300.0], rtol=1e-5)
    for name in ("slot", "action", "weight"):
        assert_array_equal(getattr(seen, name), getattr(batch, name))


def test_what_is_not_to_be_normalised_is_left_as_it_is():
    rollout, batch = random_rollout(np.random.default_rng(5)), batch_of([[3.0, 900.0]], [1e6])
    only_rewards, only_observations = (
        dataclasses.replace(BOTH, observations=False),
        dataclasses.replace(BOTH, rewards=False),
    )
    scales = only_rewards.update(only_rewards.create(), rollout)
    assert scales.observation is None
    assert only_rewards.rollout(scales, rollout).observation is rollout.observation
    assert only_rewards.batch(scales, batch).observation is batch.observation
    assert (only_rewards.rollout(scales, rollout).reward != rollout.reward).all()
    assert (only_rewards.batch(scales, batch).returns != batch.returns).all()

    scales = only_observations.update(only_observations.create(), rollout)
    assert scales.sums is None
    assert only_observations.rollout(scales, rollout).reward is rollout.reward
    assert only_observations.batch(scales, batch).returns is batch.returns
    assert (only_observations.rollout(scales, rollout).next_observation != rollout.next_observation).all()
    assert (only_observations.batch(scales, batch).observation != batch.observation).all()


def test_an_actor_critic_of_raw_observations():
    def double(params, observation):
        return Categorical(observation * params), 2 * observation[:, 0]

    distribution, value = BOTH.seeing(double, scales_of())(jnp.float32(5.0), jnp.array([[3.0, -2.25]]))
    assert_allclose(value, [2.0], rtol=1e-5)
    assert_allclose(distribution.logits, [[5.0, -2.5]], rtol=1e-5)


# In Algorithm 1.


def normalising_config(agent="ppo+sil", **overrides):
    both = {"normalise.observations": True, "normalise.rewards": True}
    return probe_config(agent=agent, sil__discount=0.9, sil__keep="all", **both, **overrides)


def test_the_settings_say_what_is_normalised():
    def normaliser(environment=None, **overrides):
        return agents.build(probe_config(**overrides), environment=environment or RandomStart()).normaliser

    assert normaliser() is None
    on = {"normalise__observations": True}
    assert normaliser(**on) == Normaliser(True, False, 10.0, 0.5, RandomStart.spec, 8)
    on["normalise__rewards"] = True
    expected = Normaliser(True, True, 3.0, 0.7, RandomStart.spec, 8)
    assert normaliser(agent="ppo", normalise__clip=3.0, ppo__discount=0.7, a2c__discount=0.6, **on) == expected
    assert normaliser(agent="a2c", normalise__clip=3.0, ppo__discount=0.6, a2c__discount=0.7, **on) == expected


@pytest.mark.parametrize("kind", ["image", "categories"])
def test_pixels_and_categories_are_never_shifted(kind):
    class Other(TwoSteps):
        spec = dataclasses.replace(TwoSteps.spec, observation_kind=kind)

    config = normalising_config()
    assert not agents.build(config, environment=Other()).normaliser.observations
    config = probe_config(normalise__observations=True)
    assert agents.build(config, environment=Other()).normaliser is None


def test_ppo_normalises_where_the_environment_has_no_settings_of_its_own():
    for env, expected in (("gym:CartPole-v1", True), ("mujoco:Hopper", True), ("key-door-treasure", False)):
        config = resolve(env, "authors", {"agent": "ppo+sil"})
        assert (config.normalise.observations, config.normalise.rewards) == (expected, expected)
        assert config.normalise.clip == 10.0


class Recorder:
    """Stands in for the improvement: learns nothing and writes down what it was given."""

    def improve(self, actor_critic, optimiser, train_state, rollout, bonus, key):
        return train_state, {
            "reward": rollout.reward.max(),
            "mean": rollout.observation.mean(),
            "deviation": rollout.observation.std(),
            "last": rollout.last_observation.mean(),
        }


def test_a_rollout_counts_before_anything_is_learnt_from_it_and_the_memory_stays_raw():
    """TwoSteps shows 0 and 1 in turn and pays 1 at every second step: mean and deviation are 1/2, the discounted sums
    are 0 and 1, and their deviation is 1/2. So 0 is seen as -1 and the reward as 2. Stored are 0, 1, 0.9 and 1.
    """
    config = normalising_config()
    agent = dataclasses.replace(agents.build(config, environment=TwoSteps()), improvement=Recorder())
    iteration = jax.jit(partial(algorithm.iteration, agent))
    state = begin(config, agent)
    for turn in range(1, 4):
        state, rollout, metrics = iteration(state)
        assert set(np.unique(rollout.observation)) == set(np.unique(rollout.reward)) == {0.0, 1.0}
        seen = [float(metrics[name]) for name in ("reward", "mean", "deviation", "last")]
        assert_allclose(seen, [2.0, 0.0, 1.0, -1.0], atol=1e-5)
        assert float(state.scales.observation.count) == float(state.scales.sums.count) == turn * 32
    assert state.memory.size == 96
    assert set(np.unique(state.memory.observation[:96])) == {0.0, 1.0}
    assert_allclose(np.unique(state.memory.returns[:96]), [0.9, 1.0], rtol=1e-6)
    assert set(np.unique(state.memory.recent.observation)) == set(np.unique(state.memory.recent.reward)) == {0.0, 1.0}


def test_the_memory_is_raw_after_learning_with_ppo():
    """The whole agent, nothing replaced, with rewards of a size that the normalised ones never have."""

    class Rich(OnlyTruncates):
        def step(self, state, action):
            step = super().step(state, action)
            return dataclasses.replace(step, reward=1000 * step.reward)

        def _show(self, time):
            return 50.0 + time * jnp.ones(1)

    config = normalising_config()
    agent = agents.build(config, environment=Rich(4))
    learn = jax.jit(partial(algorithm.learn, agent))
    state = begin(config, agent)
    for _ in range(2):
        state, rollout = jax.jit(partial(algorithm.collect, agent))(state)
        assert set(np.unique(rollout.observation)) == {50.0, 51.0, 52.0, 53.0}
        state, metrics = learn(state, rollout)
    assert all(np.isfinite(float(value)) for value in metrics.values())
    assert state.memory.size == 64
    stored = state.memory.returns[:64].reshape(-1, 4)
    assert_allclose(stored, np.tile([3439.0, 2710.0, 1900.0, 1000.0], (16, 1)), rtol=1e-6)
    stored = state.memory.observation[:64, 0].reshape(-1, 4)
    assert_array_equal(stored, np.tile([50.0, 51.0, 52.0, 53.0], (16, 1)))
    # at most 10 each: the value's errors are those of normalised rewards
    assert float(metrics["value_loss"]) < 0.5 * 20**2


def test_acting_goes_by_normalised_observations():
    """The only observation is 0. Where the mean is -1 it is seen as 1, and where the mean is 1 as -1."""

    def by_sign(params, observation):
        return Categorical(jnp.concatenate([0 * observation, 50 * observation], axis=1)), observation[:, 0]

    config = probe_config(normalise__observations=True)
    agent = dataclasses.replace(agents.build(config, environment=ChosenReward()), actor_critic=by_sign)
    state = begin(config, agent)
    one = jnp.ones(1)
    for mean, action in ((-one, 1), (one, 0)):
        scales = NormaliserState(Moments(mean, one, jnp.float32(1.0)), None, jnp.zeros(8))
        _, rollout = algorithm.collect(agent, dataclasses.replace(state, scales=scales))
        assert (rollout.action == action).all()
        assert not rollout.observation.any()  # as it is, raw


CONFIG = SelfImitationConfig(updates=1, batch=64, capacity=64, learning_starts=0, vf_coef=1.0, importance_exponent=0.0)


run_remember = jax.jit(episodic_memory.remember, static_argnums=2)
run_imitate = jax.jit(imitation.imitate, static_argnums=(0, 1, 5, 6))


def memory_of(returns):
    """One-step episodes in the state [3, -2.25] by the first action, each of these returns three times."""
    rollout = dataclasses.replace(
        random_rollout(np.random.default_rng(0), steps=len(returns)),
        observation=jnp.tile(jnp.array([3.0, -2.25]), (len(returns), 3, 1)),
        action=jnp.zeros((len(returns), 3), jnp.int32),
        reward=jnp.tile(jnp.array(returns)[:, None], (1, 3)),
        terminated=jnp.ones((len(returns), 3), bool),
    )
    memory = run_remember(episodic_memory.create(rollout, CONFIG, room=1), rollout, CONFIG)
    assert int(memory.size) == 3 * len(returns)
    return memory


def linear(params, observation):
    """The value is a number that does not depend on the state; the policy is in proportion to what is seen."""
    return Categorical(observation * params["factor"]), jnp.zeros(len(observation)) + params["value"]


def imitated(memory, normalise, value=1.0):
    params = {"factor": jnp.zeros(()), "value": jnp.float32(value)}
    optimiser = optax.sgd(1.0)
    train_state = TrainState(params, optimiser.init(params))
    return run_imitate(linear, optimiser, train_state, memory, jax.random.key(0), CONFIG, normalise)


def test_an_old_return_is_scaled_by_the_statistics_of_now():
    """A return of 6 stands for 2 while sums deviate by 3, for 0.5 once they deviate by 12. With V = 1 it is imitated
    first and no longer then: had it been stored as 2, it would go on being imitated.
    """
    memory = memory_of([6.0] * 4)
    train_state, after, metrics = imitated(memory, partial(BOTH.batch, scales_of(spread=9.0)))
    assert float(metrics["sil_imitated"]) == 1.0
    assert float(metrics["sil_advantage"]) == pytest.approx(2.0 - 1.0, rel=1e-5)
    assert float(train_state.params["value"]) == pytest.approx(1.0 + (2.0 - 1.0), rel=1e-5)
    assert_array_equal(after.returns, memory.returns)
    assert_array_equal(after.observation, memory.observation)
    # the state is seen as [1, -0.5], the first action was taken: A (onehot(0) - 1/2) times what is seen is 0.75
    assert float(train_state.params["factor"]) == pytest.approx((2.0 - 1.0) * (0.5 * 1.0 - 0.5 * -0.5), rel=1e-5)

    train_state, _, metrics = imitated(after, partial(BOTH.batch, scales_of(spread=144.0)))
    assert float(metrics["sil_imitated"]) == 0.0
    assert (float(train_state.params["value"]), float(train_state.params["factor"])) == (1.0, 0.0)
    _, _, metrics = imitated(after, lambda batch: batch)
    assert float(metrics["sil_advantage"]) == pytest.approx(6.0 - 1.0, rel=1e-5)


def test_priorities_are_in_units_of_normalised_returns():
    memory = memory_of([6.0] * 4)
    _, after, _ = imitated(memory, partial(BOTH.batch, scales_of(spread=4.0)))
    drawn = np.asarray(after.tree.sums[after.tree.first_leaf :][:12])
    assert set(np.round(drawn, 4)) <= {1.0, np.float32(round(2.0**0.6, 4))}
    assert drawn.max() == pytest.approx((6.0 / 2 - 1) ** 0.6, rel=1e-4)


def test_self_imitation_in_the_algorithm_goes_by_the_statistics_of_now():
    """Returns of 0.9 and 1 by sums that deviate by 1/2: they beat a value of 0 by 1.8 and 2, in the mean by 1.9."""
    config = normalising_config(sil__start_after=0, sil__updates=1, sil__clip=None, sil__bias_correction=0.0)
    agent = dataclasses.replace(
        agents.build(config, environment=TwoSteps()),
        improvement=Recorder(),
        actor_critic=lambda params, observation: (
            Categorical(jnp.zeros((len(observation), 2))),
            jnp.zeros(len(observation)),
        ),
    )
    _, _, metrics = jax.jit(partial(algorithm.iteration, agent))(begin(config, agent))
    assert float(metrics["sil_advantage"]) == pytest.approx(1.9, abs=0.03)


def test_rewards_of_any_size_are_learnt_from_alike():
    """Without a scale the value's error of 1000 would take up the whole gradient."""

    class Rich(ChosenReward):
        def step(self, state, action):
            step = super().step(state, action)
            return dataclasses.replace(step, reward=1000 * step.reward)

    config = normalising_config(agent="ppo")
    agent = agents.build(config, environment=Rich())
    state = trainer(agent)(begin(config, agent), 60)
    value, probability = shown(agent, state, [[0]])
    assert probability[0] > 0.95
    # the value in the environment's own units
    scale = float(jnp.sqrt(state.scales.sums.variance))
    assert value[0] * scale == pytest.approx(1000 * (2 * probability[0] - 1), rel=0.15)
