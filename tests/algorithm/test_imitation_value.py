"""Self-imitation's own value: by hand, and what it changes for the value of the policy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import TypeCheckError
from learning import SIL, begin, build, compiled_iteration, policy_and_value, trainer
from probes import HiddenDoor
from tabular import SGD, state_rollout, tabular

from self_imitation.algorithm import imitation_value
from self_imitation.algorithm.self_imitation import imitate
from self_imitation.replay import buffer as replay
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import TrainState

CONFIG = SelfImitationConfig(
    gamma=0.5, value="own", updates=1, batch_size=8, buffer_size=64, learning_starts=0, priority_exponent=0.0
)
OWN = dataclasses.replace(SIL, value="own")
"""As the authors' code, with a value of its own."""


def stored(returns, config=CONFIG):
    """A buffer with one-step episodes: the i-th ends in state i with that return."""
    count = len(returns)
    rollout = state_rollout(np.arange(count)[:, None], np.array(returns)[:, None], [0], states=count)
    rollout = dataclasses.replace(rollout, terminated=jnp.ones((count, 1), bool))
    return replay.insert(replay.create(rollout, config, 1), rollout, config)


def table(params, observation):
    return observation @ params


def fit(buffer, params, config=CONFIG, optimiser=SGD, **options):
    params = jnp.asarray(np.asarray(params, np.float32))
    train_state = TrainState(params, optimiser.init(params))
    return imitation_value.fit_value(table, optimiser, train_state, buffer, jax.random.key(0), config, **options)


def test_both_signs_of_the_error_count():
    value, returns = jnp.array([1.0, 1.0, 9.0]), jnp.array([3.0, 0.0, 5.0])
    filled = jnp.array([True, True, False])
    assert imitation_value.value_loss(value, returns, filled) == pytest.approx((0.5 * 2**2 + 0.5 * 1**2) / 2)
    gradient = jax.grad(imitation_value.value_loss)(value, returns, filled)
    np.testing.assert_allclose(gradient, [(1 - 3) / 2, (1 - 0) / 2, 0])


def test_one_update_is_a_gradient_step_on_the_mean_of_the_batch():
    """One state with return 2: the value moves by the error of a plain step of length 1."""
    after, metrics = fit(stored([2.0]), [0.5])
    np.testing.assert_allclose(after.params, [2.0], atol=1e-6)
    assert metrics["sil_value_loss"] == pytest.approx(0.5 * 1.5**2)


def test_it_becomes_the_mean_of_the_stored_returns():
    """Two episodes in the same state, with returns 0 and 4, sampled equally often."""
    config = dataclasses.replace(CONFIG, updates=400, batch_size=32)
    rollout = state_rollout([[0], [0]], [[0.0], [4.0]], [0], states=1)
    rollout = dataclasses.replace(rollout, terminated=jnp.ones((2, 1), bool))
    filled = dataclasses.replace(config, batch_size=64)
    buffer = replay.create(rollout, filled, 1)
    for _ in range(32):
        buffer = replay.insert(buffer, rollout, filled)
    after, _ = fit(buffer, [0.0], filled, optax.sgd(0.02))
    assert float(after.params[0]) == pytest.approx(2.0, abs=0.25)


def test_returns_are_normalised_like_the_values():
    after, _ = fit(stored([2.0]), [0.0], normalise=lambda batch: dataclasses.replace(batch, returns=batch.returns / 10))
    np.testing.assert_allclose(after.params, [0.2], atol=1e-6)


def test_nothing_is_learnt_from_too_few_steps():
    config = dataclasses.replace(CONFIG, learning_starts=5)
    after, _ = fit(stored([2.0, 3.0], config), [0.0, 0.0], config, optax.adam(1.0))
    assert after.params.tolist() == [0.0, 0.0]
    assert int(after.optimiser_state[0].count) == 0


def test_values_in_a_column_are_refused():
    def column(params, observation):
        return table(params, observation)[:, None]

    train_state = TrainState(jnp.zeros(1), SGD.init(jnp.zeros(1)))
    with pytest.raises(TypeCheckError):
        imitation_value.fit_value(column, SGD, train_state, stored([2.0]), jax.random.key(0), CONFIG)


def run_imitate(baseline, config=CONFIG):
    """One update on a state with return 2, whose value in the table is 0."""
    params = {"logits": jnp.zeros((1, 2)), "value": jnp.zeros(1)}
    return imitate(
        tabular,
        SGD,
        TrainState(params, SGD.init(params)),
        stored([2.0]),
        jax.random.key(0),
        dataclasses.replace(config, vf_coef=0.5, importance_exponent=0.0),
        baseline=baseline,
    )


def test_returns_are_compared_with_it_and_the_value_of_the_policy_stays():
    after, _, metrics = run_imitate(lambda observation: jnp.full(observation.shape[0], 0.5))
    assert after.params["value"].tolist() == [0.0]
    assert metrics["sil_advantage"] == pytest.approx(1.5)
    advantage, probability = 1.5, 0.5
    np.testing.assert_allclose(after.params["logits"][0, 0], advantage * (1 - probability), rtol=1e-6)
    after, _, _ = run_imitate(None)
    assert after.params["value"][0] > 0, "the shared value learns"


def test_nothing_is_imitated_where_it_is_above_the_return():
    after, _, metrics = run_imitate(lambda observation: jnp.full(observation.shape[0], 2.5))
    assert metrics["sil_imitated"] == 0
    assert after.params["logits"].tolist() == [[0.0, 0.0]]


def test_the_n_step_bound_continues_with_it():
    """Rewards 0 and 1, two steps apart: from the first state, 0 + gamma * baseline of the second."""
    config = dataclasses.replace(CONFIG, bound="n-step", n_steps=1, batch_size=1, buffer_size=8)
    rollout = state_rollout([[0], [1]], [[0.0], [1.0]], [0], states=2, terminated=[[False], [True]])
    buffer = replay.create(rollout, config, 2, extras=("steps_left",))
    buffer = replay.insert(buffer, rollout, config)
    params = {"logits": jnp.zeros((2, 2)), "value": jnp.zeros(2)}
    advantages = set()
    for seed in range(8):  # one of the two steps is sampled
        _, _, metrics = imitate(
            tabular,
            SGD,
            TrainState(params, SGD.init(params)),
            buffer,
            jax.random.key(seed),
            config,
            baseline=lambda observation: observation @ jnp.array([0.0, 0.6]),
        )
        advantages.add(round(float(metrics["sil_advantage"]), 4))
    assert advantages == {0.5 * 0.6, 1 - 0.6}


def trained(sil, iterations=400):
    environment = HiddenDoor()
    agent = build(environment, "a2c+sil", sil=sil)
    training = trainer(environment, agent)(begin(environment, agent), iterations)
    return agent, training, float(policy_and_value(agent, training, [[0]])[1][0])


def test_chance_inflates_a_shared_value_but_not_that_of_the_policy():
    """Behind a door chosen at random the mean return is 1/2; the best stored one is 1."""
    stronger = {"vf_coef": 0.5, "updates": 4}
    _, _, shared = trained(dataclasses.replace(SIL, **stronger))
    agent, training, policys = trained(dataclasses.replace(OWN, **stronger))
    own = agent.actor_critic(training.agent.imitation_value.params, jnp.zeros((1, 1)))[1]
    assert shared > 0.7
    assert policys == pytest.approx(0.5, abs=0.1)
    assert 0.9 < float(own[0]) < 1.1, "only episodes with a reward are stored"


def test_what_is_learnt_on_policy_does_not_depend_on_its_parameters():
    """It enters through the filter alone: with a coefficient of 0, training is the same from any initial value."""
    environment = HiddenDoor()
    agent = build(environment, "a2c+sil", sil=dataclasses.replace(OWN, loss_coef=0.0))
    step = compiled_iteration(environment, agent)
    one = begin(environment, agent)
    value = one.agent.imitation_value
    other = dataclasses.replace(
        one,
        agent=dataclasses.replace(
            one.agent,
            imitation_value=dataclasses.replace(value, params=jax.tree.map(lambda x: x + 1, value.params)),
        ),
    )
    for _ in range(3):
        one, other = step(one)[0], step(other)[0]
    same = jax.tree.map(lambda a, b: bool((a == b).all()), one.agent.train.params, other.agent.train.params)
    assert all(jax.tree.leaves(same))
    assert not math.isclose(float(policy_and_value(agent, one, [[0]])[1][0]), 0.0)
