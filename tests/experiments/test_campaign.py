"""Training the runs of an experiment."""

import shutil

import pytest

from self_imitation.cli.main import main
from self_imitation.config import override
from self_imitation.errors import UsageError
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Settings, Variant
from self_imitation.experiments.systems import Systems
from self_imitation.training.loop import Silent


def test_reproduce_trains_reports_and_does_not_train_again(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(Systems, "variants", {"a2c": Variant("a2c")})
    arguments = ["reproduce", "systems", "--steps", "160", "--runs", str(tmp_path / "runs")]
    assert main([*arguments, "--seeds", "1", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert out.count("| the paper's agents | a2c |") == 1
    names = {"README.md", "curves.csv", "figure.png", "table.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    before = (tmp_path / "out" / "curves.csv").read_text()
    assert main([*arguments, "--seeds", "1"]) == 0
    report = tmp_path / "runs" / "report"
    assert (report / "curves.csv").read_text() == before, "finished runs are not trained again"
    assert "step 160" not in capsys.readouterr().out
    assert main([*arguments, "--seeds", "2"]) == 2
    assert "a2c' has seeds = 1, not 2" in capsys.readouterr().err


def test_stopped_runs_are_resumed_and_runs_with_other_settings_refused(tmp_path):
    wanted = campaign.config("key-door-treasure", "a2c", Settings(steps=160, seeds=1), tmp_path / "run")
    assert not campaign.train([wanted], Silent(), lambda: True)
    assert campaign.train([wanted], Silent(), lambda: False)
    assert campaign.load(wanted).metrics()[-1]["step"] == 160
    table = tmp_path / "run" / "metrics.csv"
    before = table.read_text()
    table.write_text(before.replace("\n0,", "\n7,"))
    with pytest.raises(UsageError, match=r"the metrics of .*run' have no row of seed 0"):
        campaign.load(wanted)
    table.write_text(before)
    with pytest.raises(UsageError, match=r"run' has a2c\.gamma = 0\.95, not 0\.9"):
        campaign.train([override(wanted, {"a2c.gamma": 0.9})], Silent(), lambda: False)


def test_a_run_whose_network_was_chosen_when_it_began_is_the_one_that_was_wanted(tmp_path):
    wanted = campaign.config("gym:CartPole-v1", "a2c", Settings(steps=80, seeds=1), tmp_path / "run")
    assert wanted.network.hidden is None
    assert campaign.train([wanted], Silent(), lambda: False)
    assert campaign.load(wanted).config.network.hidden == (64, 64)
    with pytest.raises(UsageError, match=r"run' has network\.hidden = \(64, 64\), not \(8,\)"):
        campaign.load(override(wanted, {"network.hidden": (8,)}))


def test_a_finished_run_needs_no_checkpoint_to_be_skipped(tmp_path):
    """Its metrics and its summary are enough, so that results can be kept without their checkpoints."""
    wanted = campaign.config("key-door-treasure", "a2c", Settings(steps=160, seeds=1), tmp_path / "run")
    assert campaign.train([wanted], Silent(), lambda: False)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert campaign.train([wanted], Silent(), lambda: False)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_variants_of_an_agent_are_told_apart_by_their_settings(tmp_path):
    variants = {"a2c": Variant("a2c"), "a2c, gamma 0.5": Variant("a2c", {"a2c.gamma": 0.5})}
    settings = Settings(steps=80, seeds=1)
    for name, variant in variants.items():
        wanted = campaign.config(
            "key-door-treasure", variant.agent, settings, tmp_path / campaign.file_name(name), variant.changes
        )
        assert campaign.train([wanted], Silent(), lambda: False)
        assert campaign.variant_of(campaign.load(wanted), variants) == name
    assert (tmp_path / "a2c_gamma-0.5").is_dir()
