"""`sil tune` before it starts anything."""

import importlib.util

import pytest

from self_imitation.cli.main import main


def tune(capsys, *flags):
    code = main(["tune", "key-door-treasure", *flags])
    return code, *capsys.readouterr()


def test_a_dry_run_says_what_would_be_searched(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, _ = tune(capsys, "--search", "sil.updates=1,2", "--steps", "4000", "--trials", "9", "--dry-run")
    assert code == 0
    assert out.splitlines() == [
        "a2c+sil on key-door-treasure: 2 trials of 4,000 steps, 2 seeds from 1000, each",
        "  sil.updates: 1,2",
        "in runs/tune/key-door-treasure_a2c+sil",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--trials", "0"], "sil: trials: 0 is not allowed; allowed: an integer >= 1"),
        (["--search", "sil.update=1"], "sil: setting: 'sil.update' is unknown; did you mean 'sil.updates'?"),
        (["--search", "sil.updates=9..1"], "sil: search: sil.updates: '9..1' is not allowed; allowed: a range whose"),
        (["--search", "steps=100,200"], "sil: 'steps' can't be set or searched; allowed: hyperparameters"),
        (["--settings", "seeds=8"], "sil: 'seeds' can't be set or searched"),
        (["--settings", "sil.updates"], "sil: settings: 'sil.updates' is not allowed; allowed: NAME=VALUE"),
        (["--settings", "sil.updates=2", "--search", "sil.updates=1,2"], "'sil.updates' is searched as well"),
        (["--settings", "sil.updates=0"], "sil: sil.updates: 0 is not allowed"),
        (["--agent", "a2c", "--search", "sil.updates=1,2"], "no combination of these values is allowed: sil.updates"),
        (["--agent", "a3c"], "sil: agent: 'a3c' is unknown"),
        (["--algorithm", "grid"], "sil: --algorithm: 'grid' is not allowed; allowed: 'random', 'asha', 'optuna'"),
        (["--steps", "100", "--grace-period", "200"], "sil: grace_period: 200 is not allowed; allowed: at most the"),
        (["--name", "../x"], "sil: name: '../x' is not allowed; allowed: a name, or None"),
        (["--storage", "s3://bucket"], "sil: storage: 's3://bucket' is not allowed; allowed for sil tune: a directory"),
        (["--address", "ray://host:1"], "sil: address: 'ray://host:1' is not allowed; allowed for sil tune: HOST:PORT"),
    ],
)
def test_a_mistake_is_one_clear_line(capsys, flags, message):
    code, _, err = tune(capsys, *flags, "--dry-run")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_a_missing_ray_is_named_with_the_command_that_installs_it(capsys):
    code, _, err = tune(capsys)
    assert code == 2
    assert "sil tune needs the package ray: pip install 'self-imitation[ray]'" in err
