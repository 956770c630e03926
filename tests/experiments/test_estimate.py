"""What an experiment would train, and how long that takes."""

import pytest
from experiments.small import SMALL, small, write_runs

from self_imitation.experiments import definition as definitions
from self_imitation.experiments import estimate, runs

LONG = SMALL.replace("steps = 160", "steps = 8000")


def expected(definition, folder, gpu=False):
    return estimate.expect(definition, runs.cases(definition), folder, gpu)


def test_new_runs_are_estimated_by_the_table_of_rates(tmp_path):
    plain, counting = expected(small(LONG), tmp_path)
    assert (plain.name, plain.steps, plain.seeds, plain.state) == ("Maze_a2c", 8000, 2, "new")
    assert counting.rate == plain.rate, "that of the agent without its bonus"
    assert plain.seconds == 16_000 / plain.rate


def test_five_seeds_on_two_cores_take_as_long_as_six(tmp_path):
    five, six = (expected(definitions.resized(small(LONG), seeds=seeds), tmp_path)[0] for seeds in (5, 6))
    assert five.seconds == pytest.approx(six.seconds)


def test_unfinished_runs_are_estimated_by_their_own_rate(tmp_path):
    write_runs(small(LONG), tmp_path)
    plain, _ = expected(small(LONG), tmp_path)
    assert plain.state == "resumes at 4,096"
    assert plain.seconds == (8000 - 4096) * 2 / 10
    assert plain.source == "this run so far"


def test_finished_runs_take_no_time(tmp_path):
    write_runs(small(LONG), tmp_path)
    (tmp_path / "Maze_a2c" / "summary.json").write_text('{"finished": true, "step": 8000}')
    plain, counting = expected(small(LONG), tmp_path)
    assert (plain.state, plain.seconds) == ("finished", 0)
    lines = estimate.in_words([plain, counting]).splitlines()
    assert lines[2] == "1 of 2 runs to train, 7,808 steps of all seeds: about 13.0 min"
    assert lines[3] == "Rates were measured on: this run so far. Other machines differ."


def test_runs_whose_rate_was_never_measured_are_counted_apart(tmp_path):
    text = LONG.replace("key-door-treasure", "gym:CliffWalking-v1")
    assert "32,000 steps of all seeds: 2 runs for which no rate was measured" in estimate.in_words(
        expected(small(text), tmp_path)
    )


def test_atari_is_estimated_for_a_gpu_if_there_is_one(tmp_path):
    definition = definitions.read("montezuma")
    assert [run.rate for run in expected(definition, tmp_path)] == [None, None]
    assert all(run.seconds == 150_000_000 / run.rate for run in expected(definition, tmp_path, gpu=True))


def test_a_search_is_part_of_the_estimate(tmp_path):
    text = LONG.replace(
        'agent = "a2c+exp"', 'agent = "a2c"\nname = "a2c+exp"\n[agent.search]\n"a2c.gamma" = [0.5, 0.9]'
    )
    names = [(run.name, run.seeds) for run in expected(small(text), tmp_path)]
    assert names[1] == ("search/Maze_a2c+exp/a2c.gamma=0.5", 4)
    assert [name for name, _ in names[2:]] == ["search/Maze_a2c+exp/a2c.gamma=0.9", "Maze_a2c+exp"]
