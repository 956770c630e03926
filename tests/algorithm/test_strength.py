"""The size of self-imitation's steps: by hand, in closed loop, and in training."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from learning import SIL, begin, build, compiled_iteration
from probes import HiddenDoor

from self_imitation.algorithm import strength
from self_imitation.algorithm.strength import FASTEST, Strength


def adapt(state, learner, imitation, ratio=0.1):
    return strength.adapt(state, jnp.float32(learner), jnp.float32(imitation), ratio)


def test_updates_are_scaled_as_a_whole():
    half = dataclasses.replace(strength.init(), step_size=jnp.float32(0.5))
    before, after = {"a": jnp.array([1.0, 2.0])}, {"a": jnp.array([3.0, 0.0])}
    np.testing.assert_allclose(strength.scale(half, before, after)["a"], [2.0, 1.0])
    np.testing.assert_allclose(strength.scale(strength.init(), before, after)["a"], after["a"])


@pytest.mark.parametrize(
    ("learner", "imitation", "factor"),
    [
        (1.0, 0.1, 1.0),
        (1.0, 0.1 * math.exp(-0.1), math.exp(0.05)),
        (1.0, 0.1 * math.exp(0.1), math.exp(-0.05)),
        (1.0, 1e-6, math.exp(FASTEST)),
        (0.0, 1.0, math.exp(-FASTEST)),
    ],
)
def test_steps_follow_the_root_of_the_ratio_and_change_slowly(learner, imitation, factor):
    assert float(adapt(strength.init(), learner, imitation).step_size) == pytest.approx(factor, rel=1e-5)


def test_nothing_changes_before_there_is_something_to_imitate():
    state = adapt(strength.init(), 1.0, 0.0)
    assert [float(x) for x in (state.step_size, state.learner_kl, state.imitation_kl)] == [1, 0, 0]


def test_divergences_are_running_means():
    state = adapt(adapt(strength.init(), 1.0, 0.1), 2.0, 0.3)
    assert float(state.learner_kl) == pytest.approx(0.9 * 1 + 0.1 * 2)
    assert float(state.imitation_kl) == pytest.approx(0.9 * 0.1 + 0.1 * 0.3)


@pytest.mark.parametrize("natural", [1e-4, 0.01, 3.0])
def test_where_the_divergence_is_quadratic_in_the_step_the_ratio_is_reached(natural):
    state = strength.init()
    for _ in range(200):
        state = adapt(state, 0.02, natural * float(state.step_size) ** 2)
    assert natural * float(state.step_size) ** 2 / 0.02 == pytest.approx(0.1, rel=0.05)


def test_step_sizes_have_limits():
    state = Strength(jnp.float32(strength.LARGEST), jnp.float32(1.0), jnp.float32(1e-9))
    assert float(adapt(state, 1.0, 1e-9).step_size) == strength.LARGEST
    state = Strength(jnp.float32(strength.SMALLEST), jnp.float32(1e-9), jnp.float32(1.0))
    assert float(adapt(state, 1e-9, 1.0).step_size) == pytest.approx(strength.SMALLEST)


def test_a_run_without_a_ratio_has_no_state():
    environment = HiddenDoor()
    assert begin(environment, build(environment, "a2c+sil")).agent.strength is None


def test_training_keeps_the_ratio():
    environment = HiddenDoor()  # chance leaves something to imitate for ever
    agent = build(environment, "a2c+sil", sil=dataclasses.replace(SIL, kl_ratio=0.2))
    training, step, moved = begin(environment, agent), compiled_iteration(environment, agent), []
    for _ in range(150):
        training, _, metrics = step(training)
        moved.append((float(metrics["policy_kl"]), float(metrics["sil_kl"]), float(metrics["sil_step_size"])))
    policy, imitation, sizes = np.array(moved[-60:]).T
    assert imitation.mean() / policy.mean() == pytest.approx(0.2, rel=0.5)
    assert sizes[-1] != 1.0
