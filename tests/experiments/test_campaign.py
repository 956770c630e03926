"""Training the runs of an experiment, in turn and in parallel."""

import pytest

from self_imitation.cli.main import main
from self_imitation.cli.train import read_config
from self_imitation.config import override
from self_imitation.errors import UsageError
from self_imitation.experiments import campaign, exploration, grid_worlds, mujoco
from self_imitation.experiments.campaign import Settings
from self_imitation.training import devices
from self_imitation.training.loop import Silent


class Recorder(Silent):
    def __init__(self):
        self.messages = []

    def message(self, text):
        self.messages.append(text)


def config(out, **changes):
    return campaign.config("key-door-treasure", "a2c", Settings(steps=160, seeds=1), out, changes)


def test_the_flags_of_a_run_give_the_same_run(tmp_path):
    for wanted in mujoco.configs(mujoco.DEFAULTS, tmp_path):
        assert read_config([wanted.env, *campaign._flags(wanted)]) == wanted


def test_reproduce_trains_reports_and_does_not_train_again(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(exploration, "AGENTS", ("a2c",))
    monkeypatch.setattr(grid_worlds, "BEST_RETURN", {"key-door-treasure": 7.0})
    monkeypatch.setattr(exploration, "BEST_RETURN", {"key-door-treasure": 7.0})
    arguments = ["reproduce", "exploration", "--steps", "160", "--runs", str(tmp_path / "runs")]
    assert main([*arguments, "--seeds", "1", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert out.count("| key-door-treasure | a2c |") == 1
    names = {"README.md", "curves.csv", "figure.png", "table.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    before = (tmp_path / "out" / "curves.csv").read_text()
    assert main([*arguments, "--seeds", "1"]) == 0
    report = tmp_path / "runs" / "report"
    assert (report / "curves.csv").read_text() == before, "finished runs are not trained again"
    assert "step 160" not in capsys.readouterr().out
    assert main([*arguments, "--seeds", "2"]) == 2
    assert "key-door-treasure_a2c' has seeds = 1, not 2" in capsys.readouterr().err


def test_parallel_training_starts_processes_and_finds_finished_runs(tmp_path):
    """A real process; the second call starts none."""
    wanted, recorder = config(tmp_path / "run"), Recorder()
    assert campaign.train_in_parallel([wanted], 2, recorder, lambda: False)
    assert recorder.messages == [f"{wanted.out}: started", f"{wanted.out}: finished"]
    assert (tmp_path / "run" / "summary.json").exists()
    assert campaign.train_in_parallel([wanted], 2, recorder, lambda: False)
    assert len(recorder.messages) == 2
    with pytest.raises(UsageError, match=r"run' has a2c\.gamma = 0\.95, not 0\.9"):
        campaign.train_in_parallel([override(wanted, {"a2c.gamma": 0.9})], 1, Silent(), lambda: False)


def test_a_failed_run_is_named_with_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign.sys, "executable", "false")
    with pytest.raises(UsageError, match=r"failed; see .*run\.log"):
        campaign.train_in_parallel([config(tmp_path / "run")], 1, Silent(), lambda: False)
    assert (tmp_path / "run.log").exists()


def test_parallel_runs_share_the_memory_of_a_gpu_unless_the_user_divides_it(monkeypatch):
    for name in devices.MEMORY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--ours")
    alone, among_four = devices.subprocess_environment(1), devices.subprocess_environment(4)
    assert "XLA_FLAGS" not in alone
    assert not set(alone) & set(devices.MEMORY_VARIABLES)
    assert among_four == {**alone, "XLA_CLIENT_MEM_FRACTION": "0.225"}
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert "XLA_CLIENT_MEM_FRACTION" not in devices.subprocess_environment(4)
