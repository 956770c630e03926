"""Results directories: from runs to small tables, and back."""

import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from experiments.small import SMALL, small, write_runs

from self_imitation.errors import UsageError
from self_imitation.experiments import collect, results
from self_imitation.experiments import definition as definitions
from self_imitation.experiments.results import BEST, Curve

LONG = SMALL.replace("steps = 160", "steps = 4096").replace("return_mean", "return_latest")


@pytest.fixture
def found(tmp_path):
    definition = small(LONG)
    return collect.collect(definition, write_runs(definition, tmp_path / "runs"), definition)


def test_scores_are_the_measure_at_the_end_and_the_best_episode(found):
    assert [(s.task, s.agent, s.seed, s.steps, s.final, s.best) for s in found.scores] == [
        ("Maze", "a2c", 0, 4096, 0, 0),
        ("Maze", "a2c", 1, 4096, 1, 4096),
        ("Maze", "a2c+exp", 0, 4096, 100, 0),
        ("Maze", "a2c+exp", 1, 4096, 101, 4096),
    ]
    curve = found.curve("Maze", "a2c+exp")
    assert curve.values.tolist() == [[99, 100], [100, 101]]
    assert (curve.steps.tolist(), curve.seconds.tolist()) == ([2048, 4096], [2.048, 4.096])


def test_a_directory_is_read_as_it_was_written(found, tmp_path):
    results.write(found, tmp_path / "out")
    copy = results.read(tmp_path / "out")
    assert copy.definition == found.definition
    assert copy.scores == found.scores
    assert copy.provenance == found.provenance
    for own, other in zip(copy.curves, found.curves, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(vars(own).values(), vars(other).values(), strict=True))


def test_provenance_says_how_long_each_run_was_and_was_planned(tmp_path):
    planned = small(LONG)
    short = definitions.resized(planned, scale=0.5)
    found = collect.collect(short, write_runs(short, tmp_path, steps=(1024, 2048)), planned)
    run = found.provenance["runs"][0]
    assert run.keys() >= results.RUN_KEYS
    assert (run["steps"], run["planned_steps"], run["seeds"], run["first_seed"]) == (2048, 4096, 2, 0)
    assert found.shortened() == {("Maze", "a2c"): (2048, 4096), ("Maze", "a2c+exp"): (2048, 4096)}
    assert (run["machine"], found.provenance["machines"]) == ("a machine", ["a machine"])
    assert found.provenance["wall_seconds"] == 4.0
    assert found.provenance["commit"] is None, "it was not recorded when these runs were trained"


def test_what_was_not_run_is_known(tmp_path):
    definition = small(LONG)
    write_runs(definition, tmp_path)
    shutil.rmtree(tmp_path / "Maze_a2c")
    found = collect.collect(definition, tmp_path, definition)
    assert found.not_run() == [("Maze", "a2c")]
    assert len(found.finals("Maze", "a2c")) == 0
    with pytest.raises(UsageError, match="has no run of this experiment; train without --report-only"):
        collect.collect(definition, tmp_path / "nowhere", definition)


def test_seeds_that_were_added_are_joined(tmp_path):
    definition = small(LONG)
    write_runs(definition, tmp_path)
    write_runs(definitions.resized(definition, seed=2, seeds=3), tmp_path)
    found = collect.collect(definition, tmp_path, definition)
    assert found.finals("Maze", "a2c+exp").tolist() == [100, 101, 102, 103, 104]
    assert found.curve("Maze", "a2c").seeds == (0, 1, 2, 3, 4)
    assert [(run["first_seed"], run["seeds"]) for run in found.provenance["runs"][:2]] == [(0, 2), (2, 3)]


def test_long_curves_are_thinned_and_keep_their_end(tmp_path):
    definition = small(LONG)
    write_runs(definition, tmp_path, steps=range(10, 4510, 10))
    curve = collect.collect(definition, tmp_path, definition).curve("Maze", "a2c")
    assert len(curve.steps) == 150
    assert curve.steps[-1] == 4500
    assert set(np.diff(curve.steps)) == {30}


def test_the_best_episode_of_each_window_is_kept():
    steps = np.arange(20, 220, 20)
    values = np.array([[1.0], [3], [2], [math.nan], [0], [5], [1], [1], [1], [4]])
    curve = collect._windows(Curve("t", "a", BEST, (0,), steps, steps / 10, values), 100)
    assert curve.steps.tolist() == [100, 200]
    assert curve.values.tolist() == [[3], [5]]
    assert curve.seconds.tolist() == [10, 20]


def test_best_episodes_are_collected_where_the_experiment_asks_for_them(tmp_path):
    definition = small(LONG.replace("seeds = 2", "seeds = 2\nbest_every = 4096"))
    found = collect.collect(definition, write_runs(definition, tmp_path), definition)
    assert found.curve("Maze", "a2c", BEST).values.tolist() == [[0, 4096]]


def test_a_run_that_was_killed_before_its_first_row_counts_as_not_run(tmp_path):
    definition = small(LONG)
    write_runs(definition, tmp_path)
    (tmp_path / "Maze_a2c" / "metrics.csv").unlink()
    assert collect.collect(definition, tmp_path, definition).not_run() == [("Maze", "a2c")]


@pytest.mark.parametrize("summary", ["", "null", "{}", '{"machines": 5}', '{"machines": [1]}'])
def test_a_machine_that_is_not_named_is_said_to_be_unnamed(tmp_path, summary):
    definition = small(LONG)
    write_runs(definition, tmp_path)
    (tmp_path / "Maze_a2c" / "summary.json").write_text(summary)
    found = collect.collect(definition, tmp_path, definition).provenance
    assert found["machines"] == ["an unnamed machine", "a machine"]
    assert found["runs"][0]["machine"] is None


def test_metrics_without_the_needed_column_are_named(tmp_path):
    definition = small(LONG)
    write_runs(definition, tmp_path)
    table = tmp_path / "Maze_a2c" / "metrics.csv"
    table.write_text(table.read_text().replace("return_latest", "other"))
    with pytest.raises(UsageError, match=r"metrics of .*Maze_a2c' have no column 'return_latest'"):
        collect.collect(definition, tmp_path, definition)


def test_a_seed_without_rows_is_named_and_rows_of_other_seeds_are_ignored(tmp_path):
    definition = small(LONG)
    write_runs(definition, tmp_path)
    table = tmp_path / "Maze_a2c" / "metrics.csv"
    before = table.read_text()
    table.write_text(before + before.splitlines()[-1].replace("1,", "7,", 1) + "\n")
    assert [s.seed for s in collect.collect(definition, tmp_path, definition).scores] == [0, 1, 0, 1]
    table.write_text(before.replace("\n0,", "\n7,"))
    with pytest.raises(UsageError, match=r"the metrics of .*Maze_a2c' have no row of seed 0"):
        collect.collect(definition, tmp_path, definition)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("experiment.toml", None, "is not a results directory (no experiment.toml)"),
        ("scores.csv", None, "scores.csv' can't be read: No such file"),
        ("scores.csv", "task,agent\n", "scores.csv' is damaged: no column 'best'"),
        ("scores.csv", "task,agent,seed,steps,final,best\na,b,x,1,1,1\n", "is damaged: line 2, column 'seed': 'x'"),
        ("curves.csv", "task,agent,measure,step,seconds,seed_0\na,b,c,1,1,?\n", "line 2, column 'seed_0': '?'"),
        ("provenance.json", "{", "provenance.json' is damaged: not readable JSON"),
        ("provenance.json", "{}", "provenance.json' is damaged: no list of runs"),
    ],
)
def test_damaged_results_are_one_clear_line(found, tmp_path, file, text, message):
    results.write(found, tmp_path)
    (tmp_path / file).unlink()
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(UsageError) as raised:
        results.read(tmp_path)
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["grid-worlds", "hard-exploration", "sparse", "systems"])
def test_committed_results_can_be_read(name):
    found = results.read(Path(__file__).parents[2] / "results" / name)
    assert found.definition.name == name
    assert found.scores
    assert {(curve.task, curve.agent) for curve in found.curves} <= set(found.cases())


def test_an_unknown_score_is_an_empty_cell(found, tmp_path):
    unknown = dataclasses.replace(found.scores[0], final=math.nan)
    results.write(dataclasses.replace(found, scores=[unknown]), tmp_path)
    assert (tmp_path / "scores.csv").read_text().splitlines()[1] == "Maze,a2c,0,4096,,0"
    assert math.isnan(results.read(tmp_path).scores[0].final)


def test_cases_that_were_not_run_again_are_kept(found, tmp_path):
    definition = found.definition
    later = write_runs(definition, tmp_path / "later", final=lambda place, seed: 7.0)
    shutil.rmtree(later / "Maze_a2c")
    joined = results.joined(found, collect.collect(definition, later, definition))
    assert joined.finals("Maze", "a2c").tolist() == [0, 1], "kept"
    assert joined.finals("Maze", "a2c+exp").tolist() == [7, 7], "run again"
    assert [(run["agent"], run["seconds"]) for run in joined.provenance["runs"]] == [("a2c", 4.1), ("a2c+exp", 4.1)]
    assert joined.provenance["wall_seconds"] == 8.2
    assert [curve.agent for curve in joined.curves] == ["a2c", "a2c+exp"]


def test_cases_that_are_trained_in_another_way_now_are_not_kept(found, tmp_path):
    other = small(LONG.replace('"network.hidden" = [8]', '"network.hidden" = [9]'))
    later = write_runs(other, tmp_path / "later")
    shutil.rmtree(later / "Maze_a2c")
    joined = results.joined(found, collect.collect(other, later, other))
    assert joined.not_run() == [("Maze", "a2c")]
    assert {score.agent for score in joined.scores} == {"a2c+exp"}


def test_areas_are_means_of_the_curves_up_to_a_step():
    values = np.array([[math.nan, 0.0], [2.0, 0.0], [4.0, 6.0]])
    curve = Curve("Maze", "a2c", "return_latest", (0, 1), np.array([10, 20, 30]), np.full(3, math.nan), values)
    found = results.Results(small(LONG), [], [curve], {"runs": []})
    assert found.areas("Maze", "a2c").tolist() == [(2 + 2 + 4) / 3, 2.0], "an unknown point takes the first value"
    assert found.areas("Maze", "a2c", until=20).tolist() == [2.0, 0.0]
    assert found.areas("Maze", "a2c+exp").tolist() == []
