"""Settings that change when a run is resumed."""

import json

import pytest
from helpers import Recorder, rows, small_config, small_run

import self_imitation
from self_imitation.cli.main import main
from self_imitation.config import override
from self_imitation.errors import UsageError
from self_imitation.settings import Change
from self_imitation.storage.config_file import fingerprint, from_json, to_json
from self_imitation.training import changes
from self_imitation.training.run import continue_run
from self_imitation.types import Discrete, Spec

SPEC = Spec((5,), Discrete(4), 50)


@pytest.fixture
def config(tmp_path):
    return small_config(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("agent", "a2c", "it says which run this is"),
        ("env", "gym:CartPole-v1", "it says which run this is"),
        ("seeds", 3, "it says which run this is"),
        ("env.size", 3, "it says which run this is"),
        ("num_envs", 3, "the arrays in the checkpoints depend on it"),
        ("network.hidden", (9,), "the arrays in the checkpoints depend on it"),
        ("preset", "paper", "it only sets the defaults of a new run"),
        ("engine", "gymnasium", "the state of the environments in the checkpoints depends on it"),
    ],
)
def test_what_makes_it_this_run_can_not_change(config, name, value, reason):
    with pytest.raises(UsageError, match=f"is not allowed; the run has .*: {reason}"):
        changes.apply(config, {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sil.buffer_size", 400),
        ("sil.optimiser", "own"),
        ("sil.updates_schedule", "linear"),
        ("record", True),
    ],
)
def test_a_setting_that_needs_other_arrays_is_refused(config, name, value):
    changed = changes.apply(config, {"sil.updates": 3, name: value})
    with pytest.raises(UsageError, match=f"^{name}: {value!r} is not allowed; the run has .*: the arrays in the"):
        changes.require_same_arrays(config, changed, SPEC)


def test_bad_values_and_settings_without_effect_are_refused(config):
    with pytest.raises(UsageError, match=r"^sil\.updates: 0 is not allowed; allowed: an integer >= 1"):
        changes.apply(config, {"sil.updates": 0})
    with pytest.raises(UsageError, match=r"^sil\.n_steps: 3 is not allowed; it has no effect with sil\.bound"):
        changes.apply(config, {"sil.n_steps": 3})
    with pytest.raises(UsageError, match=r"^setting: 'sil\.update' is unknown"):
        changes.apply(config, {"sil.update": 3})


def test_checkpoints_of_all_parts_of_a_run_belong_to_it(config):
    first = changes.begin_at(changes.apply(config, {"sil.updates": 3, "a2c.gamma": 0.9}), 80)
    second = changes.begin_at(changes.apply(first, {"sil.updates": 5, "workers": 1}), 160)
    assert [str(change) for change in second.changes] == [
        "sil.updates 4 -> 3",
        "a2c.gamma 0.95 -> 0.9",
        "sil.updates 3 -> 5",
    ]
    assert [change.step for change in second.changes] == [80, 80, 160]
    assert (
        fingerprint(second) == fingerprint(first) == fingerprint(config) != fingerprint(override(first, {"delay": 2}))
    )
    read = from_json(json.loads(json.dumps(to_json(second))), "here")
    assert (read, read.changes) == (second, second.changes)


def test_a_change_begins_where_the_run_continues(config):
    """After a damaged checkpoint, that may be before the step at which the setting was changed."""
    changed = changes.begin_at(changes.apply(config, {"sil.updates": 3}), 160)
    assert changes.begin_at(changed, 80).changes == (Change(80, "sil.updates", 4, 3),)
    assert changes.begin_at(changed, 240).changes == changed.changes


@pytest.mark.parametrize("damage", [3, {}, [3], [{"step": 1}], [vars(Change(-1, "x", 1, 2))]])
def test_damaged_changes_are_refused(config, damage):
    with pytest.raises(UsageError, match=r"^here: changes: .* is not allowed; allowed: a list of tables with after,"):
        from_json({**to_json(config), "changes": damage}, "here")


def test_a_run_goes_on_with_other_settings_also_from_a_checkpoint_before_the_change(tmp_path, capsys):
    run = small_run(tmp_path / "run", agent="a2c", steps=80, seeds=1, log_every=40)
    recorder = Recorder()
    continue_run(run.path, 160, [recorder], settings={"optimiser.learning_rate": 1e-3, "log_every": 20})
    assert recorder.notes == ["changed log_every 40 -> 20", "changed optimiser.learning_rate 0.0007 -> 0.001"]
    found, trained = self_imitation.load(run.path), rows(run.path)
    assert (found.config.optimiser.learning_rate, found.config.changes[0].step) == (1e-3, 80)
    assert found.policy().act([0, 0, 1, 1, 1]) in range(4)
    assert [row["step"] for row in trained] == ["40", "80", "100", "120", "140", "160"]

    (run.path / "checkpoints" / "160" / "meta.json").write_text("damaged")
    again = self_imitation.resume(run.path)
    assert again.config.changes == found.config.changes
    assert rows(run.path) == trained, "with the same settings from the same step"


def test_on_the_command_line_the_settings_of_a_run_are_flags(tmp_path, capsys):
    path = str(small_run(tmp_path / "run", agent="a2c", steps=20, seeds=1, log_every=20).path)
    with pytest.raises(SystemExit):
        main(["resume", path, "--help"])
    page = capsys.readouterr().out
    assert "--a2c.gamma FLOAT" in page
    assert "--sil." not in page
    assert main(["resume", path, "--steps", "4e1", "--a2c.gamma", "0.5"]) == 0
    assert "(note: changed a2c.gamma 0.95 -> 0.5)" in capsys.readouterr().out
    for flags, message in {
        "--num-envs 3": "num_envs: 3 is not allowed; the run has 4: the arrays in the checkpoints depend on it",
        "--env.size 3": "env_kwargs: {'size': 3} is not allowed; the run has {}: it says which run this is",
        "--sil.updates 3": "sil.updates has no effect with agent 'a2c'",
        "--ppo.gamma 0.3": "ppo.gamma has no effect with agent 'a2c'",
        "--a2c.gama 0.3": "unknown options: --a2c.gama, 0.3; did you mean --a2c.gamma?",
    }.items():
        assert main(["resume", path, *flags.split()]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
