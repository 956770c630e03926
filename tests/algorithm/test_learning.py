"""What agents learn on probes, where the answer is known."""

import dataclasses

import jax
import numpy as np
import pytest
from learning import PAPER, NoLearning, begin, build, learnt, policy_and_value, trainer
from probes import ChosenNumber, ChosenReward, ObservedReward, OnlyTruncates

from self_imitation.algorithm.a2c import A2CConfig
from self_imitation.algorithm.ppo import PPOConfig
from self_imitation.settings import NormaliseConfig


def test_value_depends_on_the_observation():
    value, _ = learnt(ObservedReward(), [[-1], [1]], "ppo", iterations=150)
    np.testing.assert_allclose(value, [-1.0, 1.0], atol=0.03)


def test_bootstrapped_time_limit_gives_the_value_of_an_endless_task():
    value, _ = learnt(OnlyTruncates(3), [[0]], bootstrap=True)
    np.testing.assert_allclose(value, [1 / (1 - 0.5)], atol=0.02)


def test_terminal_time_limit_gives_a_finite_sum():
    """With 3, 2 and 1 steps left: 1 + 1/2 + 1/4, 1 + 1/2 and 1."""
    value, _ = learnt(OnlyTruncates(3, clock=True), np.eye(4)[:3])
    np.testing.assert_allclose(value, [1.75, 1.5, 1.0], atol=0.02)


def test_a2c_learns_the_rewarded_action_and_with_self_imitation_much_sooner():
    environment = ChosenReward()
    agent = build(environment)
    train = trainer(environment, agent)
    training = train(begin(environment, agent), 100)
    _, soon = probability(agent, training)
    value, later = probability(agent, train(training, 800))
    assert later > 0.97
    assert value == pytest.approx(2 * later - 1, abs=0.05)
    _, imitating = learnt(environment, [[0]], "a2c+sil", iterations=100)
    assert imitating[0] > 0.9 > 0.8 > soon


def probability(agent, training):
    """Value, and probability of action 1, of the only observation."""
    distribution, value = policy_and_value(agent, training, [[0]])
    return float(value[0]), float(jax.nn.softmax(distribution.logits)[0, 1])


def test_vtrace_learns_the_rewarded_action():
    value, rewarded = learnt(ChosenReward(), [[0]], "vtrace", iterations=900)
    assert rewarded[0] > 0.97
    np.testing.assert_allclose(value, 2 * rewarded - 1, atol=0.1)


@pytest.mark.parametrize("name", ["acer", "acper"])
def test_acer_learns_the_rewarded_action_and_the_value_of_each(name):
    environment = ChosenReward()
    agent = build(environment, name)
    training = trainer(environment, agent)(begin(environment, agent), 300)
    distribution, value = policy_and_value(agent, training, [[0]])
    rewarded = float(jax.nn.softmax(distribution.logits)[0, 1])
    assert rewarded > 0.97
    np.testing.assert_allclose(distribution.action_values, [[-1.0, 1.0]], atol=0.05)
    np.testing.assert_allclose(value, 2 * rewarded - 1, atol=0.05)


def test_acer_bootstraps_at_a_time_limit_where_it_is_a_cut():
    """The value of an endless task, 1 / (1 - 1/2), although stored episodes have no state after their last step."""
    value, _ = learnt(OnlyTruncates(3), [[0]], "acer", bootstrap=True, iterations=400)
    np.testing.assert_allclose(value, [2.0], atol=0.05)


def test_acer_learns_a_finite_sum_where_a_time_limit_is_terminal():
    value, _ = learnt(OnlyTruncates(3, clock=True), np.eye(4)[:3], "acer", iterations=400)
    np.testing.assert_allclose(value, [1.75, 1.5, 1.0], atol=0.05)


def gaussian(environment, agent, iterations):
    training = trainer(environment, agent)(begin(environment, agent), iterations)
    distribution, _ = policy_and_value(agent, training, [[0]])
    return float(distribution.mean[0, 0]), float(distribution.log_std[0])


def test_ppo_learns_the_best_continuous_action():
    environment = ChosenNumber()
    config = PPOConfig(gamma=0.5, num_minibatches=2, update_epochs=4)
    mean, log_std = gaussian(environment, build(environment, "ppo", ppo=config), 60)
    assert mean == pytest.approx(2.0, abs=0.1)
    assert log_std < -1.0


def test_self_imitation_alone_moves_a_gaussian_policy_to_the_best_action():
    """And makes it surer than at first. A2C+SIL without its A2C."""
    environment = ChosenNumber()
    sil = dataclasses.replace(PAPER, batch_size=64, buffer_size=1000)
    agent = build(environment, "a2c+sil", sil=sil, learner=NoLearning(A2CConfig(), False))
    mean, log_std = gaussian(environment, agent, 300)
    assert mean == pytest.approx(2.0, abs=0.1)
    assert log_std < -1.0


def test_self_imitation_alone_moves_the_value_to_the_best_return():
    """The penalised action is never imitated and never lowers the value: V goes to 1, whatever the policy does.

    Until V is there, the policy moves towards the rewarded action; then nothing is left to imitate.
    """
    environment = ChosenReward()
    sil = dataclasses.replace(PAPER, batch_size=64, buffer_size=1000, vf_coef=0.5)
    agent = build(environment, "a2c+sil", sil=sil, learner=NoLearning(A2CConfig(), False))
    value, rewarded = probability(agent, trainer(environment, agent)(begin(environment, agent), 450))
    assert value == pytest.approx(1.0, abs=0.02)
    assert rewarded > 0.6


def test_rewards_of_any_scale_are_learnt_from_alike_when_normalised():
    """Otherwise the value's error of 1000 would take up the whole gradient."""

    class Large(ChosenReward):
        def step(self, state, action):
            step = super().step(state, action)
            return dataclasses.replace(step, reward=1000 * step.reward)

    environment = Large()
    agent = build(environment, "ppo", normalise=NormaliseConfig(observations=True, rewards=True))
    training = trainer(environment, agent)(begin(environment, agent), 60)
    value, rewarded = probability(agent, training)
    assert rewarded > 0.95
    # the value in the environment's own units
    scale = float(np.sqrt(training.agent.normaliser.sums.variance))
    assert value * scale == pytest.approx(1000 * (2 * rewarded - 1), rel=0.15)
