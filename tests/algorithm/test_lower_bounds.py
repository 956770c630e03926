"""Lower bounds of the optimal value, each by hand, from the rollout to the priorities that they lead to.

One episode in the states 0, 1 and 2: rewards 1, 2 and 4, entropies -log mu(a|s) of 1, 2 and 4, the discount 1/2.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular import SGD, state_rollout, tabular

from self_imitation.algorithm import lower_bounds
from self_imitation.algorithm.normalisation import Moments, Normaliser, NormaliserState
from self_imitation.algorithm.self_imitation import imitate
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import ENTROPY_RETURN, LOG_PROB, STEPS_LEFT
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import Discrete, Spec, TrainState

PLAIN = SelfImitationConfig(gamma=0.5, buffer_size=64, batch_size=64, learning_starts=0, updates=1, priority_exponent=1)
SOFT = dataclasses.replace(PLAIN, temperature=0.5)
TWO_STEPS = dataclasses.replace(PLAIN, bound="n-step", n_steps=2)
SOFT_TWO_STEPS = dataclasses.replace(SOFT, bound="n-step", n_steps=2)

ROLLOUT = state_rollout(
    [[0], [1], [2]],
    [[1.0], [2.0], [4.0]],
    [3],
    terminated=[[False], [False], [True]],
    extras={LOG_PROB: np.array([[-1.0], [-2.0], [-4.0]], np.float32)},
)
LATER_VALUE = np.array([10.0, 20.0, 30.0], np.float32)


def stored(config, copies=1):
    buffer = replay.create(ROLLOUT, config, 10, extras=lower_bounds.replay_extras(config))
    for _ in range(copies):
        buffer = insert(buffer, ROLLOUT, PLAIN)
    return buffer


insert = jax.jit(replay.insert, static_argnums=2)


def batch_of(config):
    return replay.batch_at(stored(config), jnp.arange(3), jnp.ones(3))


@pytest.mark.parametrize(
    ("config", "extras"),
    [
        (PLAIN, set()),
        (SOFT, {LOG_PROB, ENTROPY_RETURN}),
        (TWO_STEPS, {STEPS_LEFT}),
        (SOFT_TWO_STEPS, {STEPS_LEFT, LOG_PROB, ENTROPY_RETURN}),
    ],
)
def test_only_what_the_bound_needs_is_stored(config, extras):
    assert set(lower_bounds.replay_extras(config)) == extras


def test_monte_carlo_bound_is_the_return():
    # 4; 2 + 4/2; 1 + 4/2
    assert lower_bounds.monte_carlo(batch_of(PLAIN), PLAIN).tolist() == [3.0, 4.0, 4.0]


def test_entropy_regularised_return_by_hand():
    """Entropies count from the next step on: that of the action itself is part of Q = V + alpha log pi."""
    # 4; 2 + (4 + 4/2)/2 = 5; 1 + (2 + 2/2)/2 + (4 + 4/2)/4 = 4
    assert lower_bounds.monte_carlo(batch_of(SOFT), SOFT).tolist() == [4.0, 5.0, 4.0]


def n_step(config):
    buffer, batch = stored(config), batch_of(config)
    later, exists = replay.later(buffer, batch, config.n_steps)
    return lower_bounds.n_step(batch, later, exists, jnp.asarray(LATER_VALUE), config).tolist()


def test_two_step_bound_by_hand():
    """At the end of the episode it is the Monte-Carlo return, whatever the value."""
    # 1 + 2/2 + 10/4; then 2 + 4/2 and 4
    assert n_step(TWO_STEPS) == [4.5, 4.0, 4.0]


def test_one_step_bound_by_hand():
    # 1 + 10/2, 2 + 20/2, 4
    assert n_step(dataclasses.replace(TWO_STEPS, n_steps=1)) == [6.0, 12.0, 4.0]


def test_bound_of_more_steps_than_the_episode_has_is_monte_carlo():
    assert n_step(dataclasses.replace(TWO_STEPS, n_steps=3)) == [3.0, 4.0, 4.0]


def test_two_step_bound_with_a_temperature_by_hand():
    """Entropies up to the state whose value is taken, which has its own in it."""
    # 1 + (2 + 2/2)/2 + 10/4 = 5; then as the entropy-regularised return
    assert n_step(SOFT_TWO_STEPS) == [5.0, 5.0, 4.0]


def test_one_step_bound_with_a_temperature_has_no_entropies_before_the_end():
    # 1 + 10/2, 2 + 20/2, 4
    assert n_step(dataclasses.replace(SOFT_TWO_STEPS, n_steps=1)) == [6.0, 12.0, 4.0]


def test_no_gradient_flows_through_the_value_of_the_later_state():
    buffer, batch = stored(TWO_STEPS), batch_of(TWO_STEPS)
    later, exists = replay.later(buffer, batch, 2)
    gradient = jax.grad(lambda value: lower_bounds.n_step(batch, later, exists, value, TWO_STEPS).sum())
    assert not gradient(jnp.asarray(LATER_VALUE)).any()


# In the loop of updates: what was sampled gets (R - V)+ as its priority, with R - alpha log pi in the place of R.

VALUES = np.array([0.5, 1.0, 0.25, 0.0], np.float32)
LOGITS = np.array([[np.log(3.0), 0.0], [0.0, 0.0], [np.log(7.0), 0.0], [0.0, 0.0]], np.float32)
NEG_LOG_PROB = -np.log([0.75, 0.5, 0.875])
"""Of action 0, which was taken in every state."""
NORMALISER = Normaliser(False, True, 10.0, 0.5, Spec((4,), Discrete(2), None), 1)
VARIANCE_16 = Moments(jnp.float32(0.0), jnp.float32(16.0), jnp.float32(1.0))
DIVIDE_BY_FOUR = NormaliserState(None, VARIANCE_16, jnp.zeros(1), jnp.float32(0.0))


@partial(jax.jit, static_argnames=("config", "scaled"))
def run_imitate(buffer, config, scaled):
    params = {"logits": jnp.asarray(LOGITS), "value": jnp.asarray(VALUES)}
    train_state = TrainState(params, SGD.init(params))
    normalise = partial(NORMALISER.batch, DIVIDE_BY_FOUR) if scaled else lambda batch: batch
    return imitate(tabular, SGD, train_state, buffer, jax.random.key(0), config, normalise)


def bounds_in_priorities(config, scaled):
    """The bound of each step, read off the priorities after one update on twenty copies of the episode."""
    _, buffer, metrics = run_imitate(stored(config, copies=20), config, scaled)
    assert float(metrics["sil_imitated"]) == 1.0
    priority = np.asarray(buffer.tree.sums)[buffer.tree.first_leaf :][:60].reshape(20, 3)
    bounds = []
    for column in priority.T:
        (sampled,) = set(column.tolist()) - {1.0}  # the priority of what was not sampled
        bounds.append(sampled)
    return np.array(bounds) + VALUES[:3] - config.temperature * NEG_LOG_PROB


@pytest.mark.parametrize(
    ("config", "scaled", "expected"),
    [
        (SOFT, False, [4.0, 5.0, 4.0]),
        (TWO_STEPS, False, [1 + 2 / 2 + 0.25 / 4, 4.0, 4.0]),
        # rewards are divided by 4, entropies and values are not
        (SOFT, True, [3 / 4 + (2 / 2 + 4 / 4) / 2, 4 / 4 + 4 / 2 / 2, 4 / 4]),
        (SOFT_TWO_STEPS, True, [(1 + 2 / 2) / 4 + 2 / 2 / 2 + 0.25 / 4, 4 / 4 + 4 / 2 / 2, 4 / 4]),
    ],
    ids=["soft", "n-step", "soft, scaled", "soft n-step, scaled"],
)
def test_samples_are_judged_by_the_bound_that_was_asked_for(config, scaled, expected):
    """A temperature is in the units of the values, which may be those of scaled rewards."""
    np.testing.assert_allclose(bounds_in_priorities(config, scaled), expected, rtol=1e-5)
