"""Training the runs of an experiment."""

import pytest

from self_imitation.cli.main import main
from self_imitation.config import override
from self_imitation.errors import UsageError
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Settings
from self_imitation.experiments.grid_worlds import Exploration
from self_imitation.training.loop import Silent


def test_reproduce_trains_reports_and_does_not_train_again(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(Exploration, "agents", ("a2c",))
    monkeypatch.setattr(Exploration, "environments", ("key-door-treasure",))
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


def test_stopped_runs_are_resumed_and_runs_with_other_settings_refused(tmp_path):
    wanted = campaign.config("key-door-treasure", "a2c", Settings(steps=160, seeds=1), tmp_path / "run")
    assert not campaign.train([wanted], Silent(), lambda: True)
    assert campaign.train([wanted], Silent(), lambda: False)
    assert campaign.load(wanted).metrics()[-1]["step"] == 160
    with pytest.raises(UsageError, match=r"run' has a2c\.gamma = 0\.95, not 0\.9"):
        campaign.train([override(wanted, {"a2c.gamma": 0.9})], Silent(), lambda: False)


def test_a_run_whose_network_was_chosen_when_it_began_is_the_one_that_was_wanted(tmp_path):
    wanted = campaign.config("gym:CartPole-v1", "a2c", Settings(steps=80, seeds=1), tmp_path / "run")
    assert wanted.network.hidden is None
    assert campaign.train([wanted], Silent(), lambda: False)
    assert campaign.load(wanted).config.network.hidden == (64, 64)
    with pytest.raises(UsageError, match=r"run' has network\.hidden = \(64, 64\), not \(8,\)"):
        campaign.load(override(wanted, {"network.hidden": (8,)}))
