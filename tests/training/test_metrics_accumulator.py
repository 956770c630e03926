"""What is counted between two rows of metrics, against NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from self_imitation.training.metrics import ALL_FINITE, LATEST, accumulate, clear, create
from self_imitation.types import Rollout

NAMES = ("loss", "entropy")


def rollout_of(ended, returns, length=None):
    """A rollout [T, N] in which only ends, returns and lengths matter."""
    ended, returns = np.asarray(ended, bool), np.asarray(returns, np.float32)
    zeros = jnp.zeros(ended.shape)
    return Rollout(
        observation=zeros,
        action=zeros,
        reward=zeros,
        terminated=jnp.asarray(ended),
        truncated=jnp.zeros(ended.shape, bool),
        valid=None,
        next_observation=None,
        last_observation=zeros[0],
        episode_return=jnp.asarray(returns),
        episode_length=jnp.asarray(np.ones(ended.shape, np.int32) if length is None else length),
        extras={},
    )


def metrics_of(loss=1.0, entropy=2.0):
    return {"loss": jnp.float32(loss), "entropy": jnp.float32(entropy)}


add = jax.jit(accumulate)


def test_only_finished_episodes_count():
    found = add(
        create(NAMES), rollout_of([[0, 1], [1, 0]], [[1, 20], [300, 4000]], np.int32([[1, 2], [3, 4]])), metrics_of()
    )
    assert (int(found.episodes), float(found.return_sum), float(found.length_sum)) == (2, 320, 5)
    assert float(found.return_best) == 300


def test_the_best_return_may_be_negative():
    found = add(create(NAMES), rollout_of([[1, 1]], [[-7, -5]]), metrics_of())
    assert float(found.return_best) == -5


def test_without_an_end_there_is_no_best_return():
    assert float(add(create(NAMES), rollout_of([[0, 0]], [[5, 5]]), metrics_of()).return_best) == -math.inf


def test_metrics_are_summed_over_iterations():
    found = create(NAMES)
    for loss in (1.0, 2.0, 4.0):
        found = add(found, rollout_of([[0]], [[0]]), metrics_of(loss))
    assert (int(found.iterations), float(found.sums["loss"]), float(found.sums["entropy"])) == (3, 7, 6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_iteration_with_a_non_finite_metric_is_kept(bad):
    found = create(NAMES)
    assert int(found.first_bad) == ALL_FINITE
    for loss in (1.0, 1.0, bad, 1.0, bad):
        found = add(found, rollout_of([[0]], [[0]]), metrics_of(entropy=loss))
    assert int(found.first_bad) == 2


def latest(accumulator):
    count = int(accumulator.latest.count)
    return sorted(np.asarray(accumulator.latest.returns)[:count].tolist())


@pytest.mark.parametrize("ends", [(3, 4), (60, 70, 1), (99, 1, 1), (100, 30), (150,), (250, 120), (7, 250, 5)])
def test_the_latest_100_returns_are_kept(ends):
    """Also where more than 100 episodes end in one rollout."""
    found, number, expected = create(NAMES), 0, []
    for count in ends:
        returns = np.arange(number, number + 256).reshape(128, 2)
        ended = np.arange(256).reshape(128, 2) < count
        found = add(found, rollout_of(ended, returns), metrics_of())
        expected += returns[ended].tolist()
        number += 1000
    assert latest(found) == sorted(expected[-LATEST:])


def test_a_new_row_clears_all_but_the_latest_returns():
    found = clear(add(create(NAMES), rollout_of([[1, 1]], [[3, 5]]), metrics_of(math.nan)))
    assert (int(found.iterations), int(found.episodes), int(found.first_bad)) == (0, 0, ALL_FINITE)
    assert not any(float(total) for total in found.sums.values())
    assert latest(found) == [3, 5]
