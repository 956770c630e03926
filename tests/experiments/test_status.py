"""How far the runs of an experiment are."""

import json
import time

import pytest
from experiments.small import small, write_runs

from self_imitation.cli.main import main
from self_imitation.errors import UsageError
from self_imitation.experiments import runs, status, train
from self_imitation.experiments.status import Board, RunStatus
from self_imitation.storage import metrics_file


def board(**changes):
    made = Board("A title", "sil reproduce my.toml", [RunStatus("one", 2, 1000), RunStatus("two", 2, 1000)])
    made.update("one", **changes)
    return made


def test_it_is_read_as_it_was_written(tmp_path):
    written = board(state="failed", error="its environment raised").publish()
    status.write(written, tmp_path)
    assert status.read(tmp_path) == written


def test_rates_and_the_time_left_are_those_of_all_runs():
    found = board(state="running", made=500, rate=50.0).publish()
    assert found.rate == 50
    assert found.seconds_left == (500 * 2 + 1000 * 2) / 50
    assert board().publish().seconds_left is None, "no rate is known"
    assert board(state="failed", made=500).publish().runs[0].left == 0


def test_progress_is_read_from_the_last_row(tmp_path):
    write_runs(small(), tmp_path)
    made = Board("", "", [RunStatus("Maze_a2c", 2, 4000)])
    made.refresh(tmp_path, ["Maze_a2c"])
    assert (made["Maze_a2c"].made, made["Maze_a2c"].rate) == (4000, 10), "not more than all of its steps"


def test_a_half_written_last_row_is_not_read(tmp_path):
    write_runs(small(), tmp_path)
    path = tmp_path / "Maze_a2c" / metrics_file.FILE
    path.write_text(path.read_text().rstrip("\n"))
    assert metrics_file.last_row(path.parent)["seed"] == 0
    path.write_text("seed,step\n")
    assert metrics_file.last_row(path.parent) is None
    assert metrics_file.last_row(tmp_path) is None


def test_finished_runs_are_done_before_anything_starts(tmp_path):
    definition = small()
    write_runs(definition, tmp_path)
    (tmp_path / "Maze_a2c" / "summary.json").write_text(json.dumps({"finished": True, "step": 160}))
    found = train.expected(train.planned(definition, runs.cases(definition), tmp_path), tmp_path)
    assert [(run.name, run.state, run.made) for run in found] == [
        ("Maze_a2c", "done", 160),
        ("Maze_a2c+exp", "waiting", 160),
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("runs"),
        lambda data: data.update(updated="now"),
        lambda data: data["runs"][0].update(state="lost"),
        lambda data: data["runs"][0].update(made="many"),
        lambda data: data.update(unknown=1),
    ],
)
def test_a_damaged_one_is_named(tmp_path, change):
    data = json.loads(status.to_bytes(board().publish()))
    change(data)
    with pytest.raises(UsageError, match="'here' is damaged: not the status of an experiment"):
        status.from_json(data, "here")


def test_the_command_shows_all_runs_and_how_to_go_on(tmp_path, capsys):
    status.write(board(state="failed", error="no such \x1b[31menvironment").publish(active=False), tmp_path)
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "failed: no such \\x1b" in out, "control characters are shown, not obeyed"
    assert "1 waiting, 0 running, 0 done, 1 failed; 0 steps/s together" in out
    assert "Continue with: sil reproduce my.toml" in out


def test_a_process_that_updates_nothing_is_taken_for_dead(tmp_path):
    found = board().publish()
    assert found.is_current()
    old = status.from_json({**json.loads(status.to_bytes(found)), "updated": time.time() - status.STALE}, "")
    assert not old.is_current()


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_a_directory_without_one_is_one_line(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["status", place]) == 2
    assert capsys.readouterr().err.startswith(f"sil: {place!r} has no status.json: not the runs of an experiment")


def test_runs_that_a_search_stopped_have_nothing_left(tmp_path, capsys):
    found = board(state="stopped", made=10)
    found.update("two", state="done", made=1000)
    assert found.publish().seconds_left == 0
    status.write(found.publish(active=False), tmp_path)
    assert main(["status", str(tmp_path)]) == 0
    assert "1 done, 0 failed, 1 stopped early; " in (shown := capsys.readouterr().out)
    assert "Complete since" in shown
