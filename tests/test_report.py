"""Statistics against known numbers; pictures that show what they should."""

import math

import numpy as np
import pytest
from scipy import stats

from self_imitation.environments.jax import maze
from self_imitation.report import animation, curves, statistics
from self_imitation.training.evaluation import Episode


def test_mean_interval_covers_the_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        low, high = statistics.mean_interval(generator.normal(1.0, 2.0, 40))
        hits += low <= 1.0 <= high
    assert 0.90 <= hits / 300 <= 0.985


def test_mean_interval_of_equal_values_is_a_point_and_repeats():
    assert statistics.mean_interval([7.0, 7.0, 7.0]) == (7.0, 7.0)
    assert statistics.mean_interval([1.0, 5.0]) == statistics.mean_interval([1.0, 5.0])


@pytest.mark.parametrize(("successes", "trials"), [(0, 16), (5, 16), (13, 16), (16, 16), (1, 3)])
def test_fraction_interval_is_wilsons(successes, trials):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert statistics.fraction_interval(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-5)


def test_curve_from_rows_sorts_by_step_and_seed():
    rows = [
        {"seed": 1.0, "step": 20.0, "return_mean": 4.0},
        {"seed": 0.0, "step": 10.0, "return_mean": 1.0},
        {"seed": 1.0, "step": 10.0, "return_mean": math.nan},
        {"seed": 0.0, "step": 20.0, "return_mean": 3.0},
    ]
    curve = curves.from_rows("a2c", "maze", rows)
    np.testing.assert_array_equal(curve.steps, [10, 20])
    np.testing.assert_array_equal(curve.returns, [[1.0, math.nan], [3.0, 4.0]])


def test_a_seed_without_an_episode_since_the_last_point_lies_between_its_neighbours():
    nan = math.nan
    returns = np.array([[nan, 5.0, nan], [1.0, nan, nan], [nan, 9.0, nan], [4.0, nan, nan]])
    curve = curves.Curve("a2c", "maze", (0, 1, 2), np.array([10, 20, 40, 50]), returns)
    expected = [[nan, 5.0, nan], [1.0, 5 + 4 / 3, nan], [3.0, 9.0, nan], [4.0, 9.0, nan]]
    np.testing.assert_allclose(curves.between(curve), expected)


@pytest.mark.parametrize("returns", [[[1.0]], [[math.nan, math.nan]], [[1.0, 2.0], [math.nan, 3.0]]])
def test_curves_draw_whatever_there_is(tmp_path, returns):
    curve = curves.Curve("a2c", "maze", (0, 1), np.arange(len(returns)), np.array(returns))
    curves.draw([curve], tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_maze_as_text_shows_what_is_still_there():
    text = maze.to_text(np.array([2, 8, 1, 1, 1, 1, 0], np.float32)).splitlines()
    assert text[8][2] == "@"
    assert (text[11][11], text[6][11], text[1][7], text[2][4], text[4][2]) == ("K", "D", "T", "a", ".")
    assert sum(line.count("a") for line in text) == 1


def test_maze_as_pixels_changes_where_the_agent_moves():
    before = maze.to_pixels(np.array([2, 8, 1, 1, 1]))
    after = maze.to_pixels(np.array([3, 8, 1, 1, 1]))
    assert before.shape == (13 * 24, 13 * 24, 3)
    assert before.dtype == np.uint8
    rows, columns = np.nonzero((before != after).any(axis=2))
    assert (rows.min() // 24, rows.max() // 24) == (8, 8)
    assert (columns.min() // 24, columns.max() // 24) == (2, 3)


def test_animation_text_follows_the_way():
    observations = np.array([[2, 8, 1, 1, 1], [3, 8, 1, 1, 1], [3, 9, 1, 1, 1]], np.float32)
    episode = Episode(observations, np.array([1, 2]), np.array([0.0, 1.0]), {}, 8.0)
    assert animation.maze_text(episode).splitlines()[8][2:4] == "→↓"
    assert animation.to_text(episode).splitlines() == ["step  2: reward 1", "2 steps, return 1"]
