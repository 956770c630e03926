"""Which runs share a curve, what curves are called, and their values."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

from self_imitation.config import resolve
from self_imitation.report.compared_runs import MAX_POINTS, ComparedRun, curves_of


def run(name="run", env="key-door-treasure", rows=None, preset="authors", **settings):
    """With return 10 * seed + step / 100 at steps 100 and 200."""
    config = resolve(env, preset, {"agent": "a2c+sil", "seeds": 2, **settings})
    if rows is None:
        rows = [row(seed, step, 10 * seed + step / 100) for step in (100, 200) for seed in config.seed_numbers]
    return ComparedRun(name, config, rows)


def row(seed, step, value, **others):
    return {"seed": float(seed), "step": float(step), "return_mean": value, **others}


def labels(*runs):
    return [curve.label for curve in curves_of(runs, "return_mean")]


def test_runs_that_differ_in_their_seeds_are_one_curve():
    (curve,) = curves_of([run(seed=0), run(seed=2, log_every=7, out="elsewhere", checkpoints_kept=9)], "return_mean")
    assert (curve.label, curve.seeds) == ("a2c+sil", (0, 1, 2, 3))
    np.testing.assert_array_equal(curve.steps, [100, 200])
    np.testing.assert_array_equal(curve.returns, [[1, 11, 21, 31], [2, 12, 22, 32]])


def test_runs_with_a_seed_in_common_stay_apart_and_are_named():
    assert labels(run("first"), run("second", seed=1)) == ["a2c+sil, first", "a2c+sil, second"]


def test_labels_have_the_settings_that_differ_and_are_no_defaults():
    runs = [
        run(),
        run(**{"sil.updates": 8}),
        run(**{"sil.updates": 8, "network.hidden": (32, 16), "optimiser.learning_rate": 1e-4}),
        run(agent="a2c", num_envs=4),
        run(env="apple-key-door-treasure", num_envs=4),
    ]
    assert labels(*runs) == [
        "a2c+sil",
        "a2c+sil, sil.updates=8",
        "a2c+sil, network.hidden=32 16, optimiser.learning_rate=0.0001, sil.updates=8",
        "a2c",
        "a2c+sil",
    ]


def test_a_preset_is_named_without_what_it_implies():
    names = ["a2c+sil, preset=authors", "a2c+sil, preset=paper"]
    assert labels(run(), run(preset="paper")) == names


def test_keyword_arguments_of_the_environment_and_presets_from_files_are_named():
    plain = run()
    slippery = plain._replace(config=dataclasses.replace(plain.config, env_kwargs={"slippery": True}))
    mine = plain._replace(config=dataclasses.replace(plain.config, preset="mine.toml"))
    assert labels(plain, slippery) == ["a2c+sil", "a2c+sil, env.slippery=True"]
    assert labels(plain, mine) == ["a2c+sil, preset=authors", "a2c+sil, preset=mine.toml"]


def test_other_numbers_of_steps_are_other_experiments():
    assert labels(run(steps=100), run(steps=200, seed=2)) == ["a2c+sil, steps=100", "a2c+sil, steps=200"]


def test_a_pooled_curve_ends_where_its_shortest_run_ends():
    longer = [row(seed, step, step) for step in (100, 200, 300) for seed in (2, 3)]
    (curve,) = curves_of([run(), run(seed=2, rows=longer)], "return_mean")
    np.testing.assert_array_equal(curve.steps, [100, 200])
    np.testing.assert_array_equal(curve.returns[-1], [2, 12, 200, 200])


@pytest.mark.parametrize(("x", "expected"), [("episodes", [2, 4, 6, 8]), ("seconds", [1, 2])])
def test_another_axis_interpolates_between_the_rows_of_each_seed(x, expected):
    """Seed 0 finishes 4 episodes per row and seed 1 finishes 6; both columns start where the first seed has a row."""
    rows = [
        row(seed, 100 * n, 10.0 * n, episodes=per_row * n, seconds=1.0 * n)
        for n in (1, 2)
        for seed, per_row in ((0, 2.0), (1, 4.0))
    ]
    rows += [row(0, 300, 30.0, episodes=6.0, seconds=3.0), row(0, 400, 40.0, episodes=8.0, seconds=4.0)]
    (curve,) = curves_of([run(rows=rows)], "return_mean", x)
    np.testing.assert_array_equal(curve.steps, expected)
    if x == "episodes":
        np.testing.assert_array_equal(curve.returns, [[10, math.nan], [20, 10], [30, 15], [40, 20]])


def test_smoothing_is_the_mean_of_the_latest_known_rows():
    values = [1.0, math.nan, 3.0, 8.0]
    rows = [row(0, step, value) for step, value in enumerate(values)]
    (curve,) = curves_of([run(seeds=1, rows=rows)], "return_mean", smooth=2)
    np.testing.assert_allclose(curve.returns[:, 0], [1.0, 1.5, 2.0, 5.5])


def test_long_curves_are_thinned_out():
    rows = [row(0, step, float(step)) for step in range(3000)]
    (curve,) = curves_of([run(seeds=1, rows=rows)], "return_mean")
    assert len(curve.steps) == MAX_POINTS
    np.testing.assert_allclose(curve.returns[:, 0], curve.steps)


def test_damaged_rows_are_sorted_or_left_out():
    """Rows out of order, without a place on the axis, and numbers whose sums are infinite."""
    rows = [row(0, 20, 1.7e308), row(0, 10, 1.7e308), row(0, math.nan, 3.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (curve,) = curves_of([run(seeds=1, rows=rows)], "return_mean", smooth=2)
        assert curves_of([run(seeds=1, rows=rows[2:])], "return_mean") == []
    np.testing.assert_array_equal(curve.steps, [10, 20])
