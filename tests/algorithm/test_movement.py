"""How far the learner and self-imitation each move the policy."""

import jax.numpy as jnp
import numpy as np
import pytest
from tabular import make_rollout

from self_imitation.algorithm import movement
from self_imitation.networks.distributions import Categorical


def two_actions(params, observation):
    """The logit of the first of two actions is the parameter times the observation."""
    first = observation[:, 0] * params
    return Categorical(jnp.stack([first, jnp.zeros_like(first)], axis=1)), first


def rollout_of(observation, valid=None):
    observation = np.asarray(observation, np.float32)[:, None, None]
    return make_rollout(observation, np.zeros(observation.shape[:2]), observation[0], valid=valid)


def kl(one, other):
    p, q = (1 / (1 + np.exp(-logit)) for logit in (one, other))
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


def test_movement_by_hand():
    """From 0 to 3 by the learner, from 3 to 4 by self-imitation, seen at the observations 1 and -0.5."""
    moved = movement.measure(
        two_actions, rollout_of([1.0, -0.5]), *[tuple(map(jnp.float32, s)) for s in ((0, 3), (3, 4))]
    )
    assert float(moved["policy_kl"]) == pytest.approx((kl(0, 3) + kl(0, -1.5)) / 2, rel=1e-5)
    assert float(moved["sil_kl"]) == pytest.approx((kl(3, 4) + kl(-1.5, -2)) / 2, rel=1e-4)
    assert float(moved["sil_step_share"]) == pytest.approx(1 / 4)


def test_reset_steps_do_not_count():
    steps = (jnp.float32(0), jnp.float32(3)), (jnp.float32(3), jnp.float32(3))
    masked = movement.measure(two_actions, rollout_of([1.0, 1e3], valid=np.array([[True], [False]])), *steps)
    assert float(masked["policy_kl"]) == pytest.approx(kl(0, 3), rel=1e-5)
    assert float(masked["sil_kl"]) == float(masked["sil_step_share"]) == 0.0


def test_nothing_moved_is_zero_and_not_nan():
    same = jnp.float32(2), jnp.float32(2)
    moved = movement.measure(two_actions, rollout_of([1.0, 2.0]), same, same)
    assert {float(value) for value in moved.values()} == {0.0}


def test_policies_are_compared_at_a_few_observations_of_a_long_rollout():
    seen = []

    def recorded(params, observation):
        seen.append(len(observation))
        return two_actions(params, observation)

    same = jnp.float32(2), jnp.float32(2)
    movement.measure(recorded, rollout_of(np.ones(5000)), same, same)
    assert max(seen) <= 2 * movement.OBSERVATIONS
