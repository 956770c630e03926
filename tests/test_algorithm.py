"""Algorithm 1 as a whole: acting, the order of its verbs, and what agents learn where the answer is known."""

import dataclasses
from functools import cache, partial
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learning import NoImprovement, begin, learnt, probe_config, shown, trainer
from probes import ChosenNumber, ChosenReward, ConstantReward, ObservedReward, OnlyTruncates, RandomStart, TwoSteps

from self_imitation.training import agents
from self_imitation.algorithm.iteration import iteration as algorithm
from self_imitation import collection
from self_imitation.config import resolve
from self_imitation.networks.distributions import Categorical, DiagonalGaussian
from self_imitation.types import Continuous, TrainState, Spec

# Acting.


def leaning(params, observation):
    """Two actions; `params` is the second one's logit."""
    return Categorical(
        jnp.stack([jnp.zeros(len(observation)), jnp.full(len(observation), params)], axis=1)
    ), observation[:, 0]


@cache
def collector(environment, steps):
    return jax.jit(partial(collection.collect_on_device, environment, leaning, steps=steps))


def acted(environment, steps, environments=4, rollouts=1, lean=0.0):
    """Consecutive rollouts, and where the environments stand after them."""
    key, *keys = jax.random.split(jax.random.key(0), rollouts + 1)
    acting = collection.begin(environment, environments, key)
    collected = []
    for key in keys:
        acting, rollout = collector(environment, steps)(params=jnp.float32(lean), acting=acting, key=key)
        collected.append(rollout)
    return collected, acting


def test_steps_chain_and_an_end_is_followed_by_a_new_start():
    """Episodes of three steps that begin at random in [0, 1) and go up by 1: everything can be told from the start."""
    rollouts, acting = acted(RandomStart(), steps=7, rollouts=3)
    observation, next_observation, ended, length = (
        np.concatenate([getattr(rollout, name) for rollout in rollouts])
        for name in ("observation", "next_observation", "ended", "episode_length")
    )
    assert observation.shape == next_observation.shape == (21, 4, 1)
    time = np.arange(21) % 3
    np.testing.assert_array_equal(ended, np.tile((time == 2)[:, None], 4))
    np.testing.assert_array_equal(length, np.tile((time + 1)[:, None], 4))
    np.testing.assert_array_equal(np.floor(observation[..., 0]), np.tile(time[:, None], 4))
    np.testing.assert_array_equal(next_observation, observation + 1)
    goes_on = ~ended[:-1]
    np.testing.assert_array_equal(observation[1:][goes_on], next_observation[:-1][goes_on])
    for earlier, later in pairwise(rollouts):
        np.testing.assert_array_equal(earlier.last_observation, later.observation[0])
    np.testing.assert_array_equal(rollouts[-1].last_observation, acting.observation)
    starts = observation[time == 0]
    assert len(np.unique(starts)) == starts.size == 28  # each episode of each environment has a start of its own


def test_what_is_seen_after_an_end_on_the_last_step_is_the_next_start():
    (rollout,), _ = acted(RandomStart(), steps=3)
    assert rollout.ended[-1].all()
    assert (rollout.last_observation < 1).all()
    assert (rollout.next_observation[-1] > 2).all()


def test_returns_and_lengths_of_episodes_add_up_and_start_anew():
    rollouts, acting = acted(OnlyTruncates(3), steps=4, rollouts=2)
    returns = np.concatenate([rollout.episode_return for rollout in rollouts])
    lengths = np.concatenate([rollout.episode_length for rollout in rollouts])
    expected = np.tile(np.array([1, 2, 3, 1, 2, 3, 1, 2])[:, None], 4)
    np.testing.assert_array_equal(returns, expected)
    np.testing.assert_array_equal(lengths, expected)
    np.testing.assert_array_equal(acting.episode_return, np.full(4, 2.0))
    truncated = np.concatenate([rollout.truncated for rollout in rollouts])
    np.testing.assert_array_equal(truncated, expected == 3)
    assert not np.concatenate([rollout.terminated for rollout in rollouts]).any()


def test_the_policy_chooses_the_actions():
    environment = ChosenReward()
    (first, second), _ = acted(environment, steps=50, environments=16, rollouts=2)
    assert first.action.mean() == pytest.approx(0.5, abs=0.1)
    np.testing.assert_array_equal(first.reward, 2.0 * first.action - 1)
    assert (first.action != second.action).any()  # another key, other actions
    assert (first.action[:, :1] != first.action).any(axis=0)[1:].all()  # and so in each environment
    (rollout,), _ = acted(environment, steps=50, environments=16, lean=np.log(3.0))
    assert rollout.action.mean() == pytest.approx(0.75, abs=0.08)
    (rollout,), _ = acted(environment, steps=50, environments=16, lean=50.0)
    assert (rollout.action == 1).all()


# Learning, where the values are known.


def test_a2c_learns_a_constant_value():
    value, _ = learnt(ConstantReward(), [[0]])
    np.testing.assert_allclose(value, [1.0], atol=0.02)


def test_a2c_learns_how_the_value_depends_on_the_observation():
    value, _ = learnt(ObservedReward(), [[-1], [1]])
    np.testing.assert_allclose(value, [-1.0, 1.0], atol=0.02)


def test_a2c_discounts_the_value_over_two_steps():
    value, _ = learnt(TwoSteps(), [[0], [1]])
    np.testing.assert_allclose(value, [0.5, 1.0], atol=0.02)


def test_a2c_learns_the_action_that_pays_and_with_self_imitation_much_sooner():
    config = probe_config()
    agent = agents.build(config, environment=ChosenReward())
    train = trainer(agent)
    state = train(begin(config, agent), 100)
    _, soon = shown(agent, state, [[0]])
    value, later = shown(agent, train(state, 800), [[0]])
    assert later[0] > 0.97
    np.testing.assert_allclose(value, 2 * later - 1, atol=0.05)
    _, with_imitation = learnt(ChosenReward(), [[0]], iterations=100, agent="a2c+sil")
    assert with_imitation[0] > 0.9 > 0.8 > soon[0]


def test_a_time_limit_that_is_a_cut_leaves_the_value_of_going_on_for_ever():
    value, _ = learnt(OnlyTruncates(3), [[0]], time_limit="bootstrap")
    np.testing.assert_allclose(value, [1 / (1 - 0.5)], atol=0.02)


def test_a_time_limit_that_is_an_end_leaves_a_finite_sum():
    """With 3, 2 and 1 steps to go: 1 + 1/2 + 1/4, 1 + 1/2 and 1."""
    value, _ = learnt(OnlyTruncates(3, clock=True), np.eye(4)[:3], time_limit="terminal")
    np.testing.assert_allclose(value, [1.75, 1.5, 1.0], atol=0.02)


def test_self_imitation_alone_moves_the_value_to_the_best_return():
    """The action that costs 1 is never imitated and pulls no value down: V goes to 1, whatever the policy does.

    Until V is there, the policy moves towards the action that pays; then nothing is left to imitate.
    """
    config = probe_config(agent="a2c+sil", sil__value_weight=0.5)
    agent = dataclasses.replace(agents.build(config, environment=ChosenReward()), improvement=NoImprovement())
    value, probability = shown(agent, trainer(agent)(begin(config, agent), 450), [[0]])
    np.testing.assert_allclose(value, [1.0], atol=0.02)
    assert probability[0] > 0.6


# The order of the verbs.

NAMES = ("a2c", "a2c+exp", "a2c+sil", "a2c+sil+exp", "ppo", "ppo+sil+exp")


@pytest.fixture(scope="module", params=NAMES)
def maze_agent(request):
    """A small agent in the maze, and its compiled iteration."""
    config = resolve(
        "key-door-treasure",
        "paper",
        {"agent": request.param, "num_envs": 4, "num_steps": 60, "network.hidden": (8,), "sil.batch_size": 32},
    )
    agent = agents.build(config)
    return request.param, config, agent, jax.jit(partial(algorithm.iteration, agent))


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


def test_each_agent_runs_and_has_the_parts_that_its_name_says(maze_agent):
    name, config, agent, iteration = maze_agent
    start = begin(config, agent)
    state, rollout, metrics = iteration(start)
    assert rollout.reward.shape == (60, 4)
    assert all(np.isfinite(float(value)) for value in metrics.values())
    assert {"loss", "policy_loss", "value_loss", "entropy"} <= set(metrics)
    assert ("bonus" in metrics) == (agent.exploration is not None) == ("exp" in name)
    assert ("sil_loss" in metrics) == (state.memory is not None) == (agent.imitation is not None) == ("sil" in name)
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (start.train_state, state.train_state)), strict=True))
    if "sil" in name:
        # By step 50 every first episode is over; all of its steps are in the memory, and nothing of the next.
        finished = int(jnp.sum(jnp.where(rollout.ended, rollout.episode_length, 0)))
        assert metrics["memory_size"] == state.memory.size == finished >= 4
    if "exp" in name:
        assert state.exploration.sum() == 60 * 4


def test_a_seed_is_a_run(maze_agent):
    """The same seed twice gives the same bits, from the first parameters to the last iteration; another does not."""
    _, config, agent, iteration = maze_agent

    def run(seed):
        state = begin(config, agent, seed)
        for _ in range(3):
            state, rollout, metrics = iteration(state)
        return state, rollout, metrics

    first = run(3)
    assert_same(first, run(3))
    assert (first[1].action != run(4)[1].action).any()


def test_no_random_number_is_used_twice(maze_agent):
    """The policy is still nearly even, so that three of four actions of the next rollout are others."""
    name, config, agent, iteration = maze_agent
    start = begin(config, agent)
    second, first_rollout, _ = iteration(start)
    _, second_rollout, _ = iteration(second)
    assert (first_rollout.action != second_rollout.action).mean() > 0.5
    if "sil" in name:
        collected, _ = jax.jit(partial(algorithm.collect, agent))(start)
        assert collected.key != second.key  # drawing from the memory took numbers too


class KeyKeeper:
    """Learns nothing and gives back the key that it was given, as numbers."""

    def improve(self, actor_critic, optimiser, train_state, rollout, bonus, key):
        first, second = jax.random.key_data(key).astype(jnp.float32)
        return train_state, {"first": first, "second": second}


def test_improving_takes_random_numbers_of_its_own():
    config = probe_config()
    agent = dataclasses.replace(agents.build(config, environment=TwoSteps()), improvement=KeyKeeper())
    state, rollout = algorithm.collect(agent, begin(config, agent))
    after, given = algorithm.improve(agent, state, rollout, None)
    keys = [jax.random.key_data(key).astype(jnp.float32) for key in (state.key, after.key)]
    assert len({*(tuple(key.tolist()) for key in keys), (float(given["first"]), float(given["second"]))}) == 3


class Marked:
    """Stands in for exploration and improvement: the bonus is 0 in the first iteration, 100 in the second, and so on;
    improving adds the bonus to the value of every state, and writes down what it was given.
    """

    def create(self):
        return jnp.float32(0)

    def bonus(self, state, rollout):
        return state + 100, jnp.full_like(rollout.reward, state)

    def improve(self, actor_critic, optimiser, train_state, rollout, bonus, key):
        params = eqx.tree_at(lambda p: p.value_head.bias, train_state.params, replace_fn=lambda b: b + bonus.mean())
        return TrainState(params, train_state.optimiser_state), {
            "bonus_given": bonus.mean(),
            "reward_given": rollout.reward.mean(),
        }


def test_improvement_sees_the_bonus_and_imitation_the_improved_value_and_the_latest_episodes():
    """TwoSteps pays 1 at every second step: returns are 1 and the discount, and values start near 0."""
    config = probe_config(agent="a2c+sil", sil__start_after=0, sil__discount=0.9)
    marked = Marked()
    agent = dataclasses.replace(agents.build(config, environment=TwoSteps()), improvement=marked, exploration=marked)
    iteration = jax.jit(partial(algorithm.iteration, agent))

    first, _, metrics = iteration(begin(config, agent))
    assert (metrics["bonus_given"], metrics["bonus"], metrics["reward_given"]) == (0.0, 0.0, 0.5)
    assert first.memory.size == metrics["memory_size"] == 32  # 8 environments, 2 episodes each
    assert metrics["sil_imitated"] > 0  # remembered and imitated in one iteration

    second, _, metrics = iteration(first)
    assert (metrics["bonus_given"], metrics["bonus"], metrics["reward_given"]) == (100.0, 100.0, 0.5)
    assert second.memory.size == 64
    np.testing.assert_allclose(np.unique(second.memory.returns[:64]), [0.9, 1.0], rtol=1e-6)
    assert metrics["sil_imitated"] == 0  # no return beats the value any more
    improved = eqx.tree_at(lambda p: p.value_head.bias, first.train_state.params, replace_fn=lambda b: b + 100)
    assert_same(second.train_state.params, improved)


def test_agents_names_in_any_order():
    config = probe_config(agent="exp+sil+a2c")
    agent = agents.build(config, environment=ChosenReward())
    assert agent.imitation is not None
    assert agent.exploration is not None


def test_the_time_limit_setting_reaches_the_on_policy_returns():
    for time_limit in ("bootstrap", "terminal"):
        agent = agents.build(probe_config(time_limit=time_limit), environment=OnlyTruncates(2))
        assert agent.improvement.bootstrap_time_limits == (time_limit == "bootstrap")


def test_an_environment_gets_numbers_within_its_bounds_and_the_rollout_keeps_what_was_chosen():
    class Bounded(ChosenNumber):
        spec = Spec((1,), Continuous((-0.5,), (0.25,)), 1)

        def step(self, state, action):
            """Pays what it got."""
            return dataclasses.replace(super().step(state, action), reward=action[0])

    def wide(_, observation):
        return DiagonalGaussian(jnp.zeros((len(observation), 1)), jnp.zeros(1)), jnp.zeros(len(observation))

    environment = Bounded()
    begun = collection.begin(environment, 64, jax.random.key(0))
    _, rollout = collection.collect_on_device(environment, wide, None, begun, 4, jax.random.key(1))
    assert rollout.action.min() < -1
    assert rollout.action.max() > 1
    np.testing.assert_allclose(rollout.reward, np.clip(rollout.action[..., 0], -0.5, 0.25))
