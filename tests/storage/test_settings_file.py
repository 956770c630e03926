"""Files with settings: TOML, presets, and the config.json of a run."""

import json
import tomllib

import pytest

from self_imitation.cli.main import main
from self_imitation.cli.train import read_config
from self_imitation.config import resolve, validate
from self_imitation.errors import UsageError
from self_imitation.settings import flatten
from self_imitation.storage.config_file import from_json, to_json
from self_imitation.storage.settings_file import read, read_preset, write_preset

CONFIG = """
env = "gym:FrozenLake-v1"
agent = "a2c+sil"
steps = 2e6
log-every = 500
optimiser.learning-rate = 1e-3
wrappers = ["gymnasium.wrappers:FlattenObservation"]

[env_kwargs]
is_slippery = false
map_name = "8x8"

[sil]
updates = 8
max_advantage = "None"

[network]
hidden = [32, 16]
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    with open(name, "w") as file:
        file.write(text)
    return name


def test_a_toml_file_has_the_settings_of_a_run():
    config = read_config(["--config", write("mine.toml", CONFIG)])
    assert (config.env, config.steps, config.log_every) == ("gym:FrozenLake-v1", 2_000_000, 500)
    assert (config.optimiser.learning_rate, config.sil.updates, config.sil.max_advantage) == (1e-3, 8, None)
    assert config.network.hidden == (32, 16)
    assert config.env_kwargs == {"is_slippery": False, "map_name": "8x8"}
    assert config.wrappers == ("gymnasium.wrappers:FlattenObservation",)
    assert config.sil.keep == "informative", "the environment's default"


def test_flags_override_the_file():
    flags = ["--sil.updates", "2", "--env.map_name", "4x4", "--wrapper", "gymnasium.wrappers:TimeAwareObservation"]
    config = read_config(["--config", write("mine.toml", CONFIG), *flags])
    assert (config.sil.updates, config.sil.max_advantage) == (2, None)
    assert config.env_kwargs == {"is_slippery": False, "map_name": "4x4"}
    assert config.wrappers == ("gymnasium.wrappers:TimeAwareObservation",)
    assert read_config(["gym:Taxi-v4", "--config", "mine.toml", "--agent", "a2c+sil+rnd"]).agent == "a2c+sil+rnd"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sil.update = 3", "mine.toml: setting: 'sil.update' is unknown; did you mean 'sil.updates'?"),
        ("stepz = 3", "mine.toml: setting: 'stepz' is unknown; did you mean 'steps'?"),
        ("steps = 1.5", "mine.toml: steps: 1.5 is not allowed; allowed: an integer >= 1"),
        ("ppo.gamma = 0.5", "mine.toml: ppo.gamma has no effect with agent 'a2c+sil'"),
        ("env = 3", "mine.toml: env: 3 is not allowed; allowed: a name"),
        ("sil = 3", "mine.toml: setting: 'sil' is unknown"),
        ("sil.updates = {a = 3}", "mine.toml: sil.updates: {'a': 3} is not allowed"),
        ("steps =", "mine.toml: not valid TOML"),
        ('preset = "other.toml"', "no such file: 'other.toml'"),
        ('preset = "mine"', "preset: 'mine' is unknown"),
        ("env_kwargs.x = 2020-01-01", "mine.toml: env_kwargs: {'x': datetime.date(2020, 1, 1)} is not allowed"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(capsys, text, message):
    assert main(["train", "--config", write("mine.toml", text)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_files_that_can_not_be_read_are_named(tmp_path, capsys):
    write("bytes.toml", "")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    write("other.json", "{}")
    for name, message in {
        "none.toml": "no such file: 'none.toml'",
        "bytes.toml": "'bytes.toml' can't be read: not text",
        "other.json": "other.json is not the config of a run",
        "none.json": "config: 'none.json' can't be read: No such file or directory",
    }.items():
        assert main(["train", "--config", name]) == 2
        assert message in capsys.readouterr().err


def test_the_config_of_a_run_starts_another_one_like_it():
    settings = {"agent": "ppo+sil", "sil.updates": 7, "out": "there", "network.hidden": (3,), "engine": "envpool"}
    config = validate(resolve("gym:CartPole-v1", "paper", settings))
    write("config.json", json.dumps(to_json(config)))
    again = read_config(["--config", "config.json", "--seed", "9"])
    assert again.out is None
    differing = {name for name, value in flatten(again).items() if flatten(config)[name] != value}
    assert differing == {"out", "seed"}


def test_what_the_config_of_a_run_says_about_another_agent_or_environment_is_left_out():
    config = validate(resolve("gym:CartPole-v1", "authors", {"agent": "ppo+sil", "engine": "envpool"}))
    write("config.json", json.dumps(to_json(config)))
    other = read_config(["key-door-treasure", "--config", "config.json", "--agent", "a2c"])
    assert (other.env, other.agent, other.engine) == ("key-door-treasure", "a2c", "auto")
    assert other.optimiser.kind == "adam", "the run's"


PRESET = """
preset = "paper"
agent = "ppo+sil"
num_envs = 2

[ppo]
gamma = 0.5
[sil]
keep = "positive"
"""


def test_a_preset_is_over_the_environment_and_under_the_flags():
    name = write("mine.toml", PRESET)
    config = read_config(["mujoco:Hopper", "--preset", name])
    assert (config.agent, config.preset) == ("ppo+sil", "mine.toml")
    assert (config.num_envs, config.components["ppo"].gamma, config.sil.keep) == (2, 0.5, "positive")
    assert (config.time_limit, config.sil.vf_coef) == ("bootstrap", 0.01), "of the preset paper, which it extends"
    assert config.num_steps == 2048, "the environment's"
    assert read_config(["mujoco:Hopper", "--preset", name, "--ppo.gamma", "0.9"]).components["ppo"].gamma == 0.9
    assert read_config(["--preset", name, "--agent", "ppo"]).agent == "ppo"
    with pytest.raises(UsageError, match=r"^mine\.toml: ppo\.gamma has no effect with agent 'a2c'$"):
        read_config(["--preset", name, "--agent", "a2c"])


def test_a_file_of_settings_may_name_a_preset_beside_it(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    write("folder/preset.toml", PRESET)
    write("folder/config.toml", 'preset = "preset.toml"\nppo.gamma = 0.25')
    config = read_config(["--config", "folder/config.toml"])
    assert (config.agent, config.num_envs, config.components["ppo"].gamma) == ("ppo+sil", 2, 0.25)


def test_a_run_with_a_preset_from_a_file_is_read_without_the_file(tmp_path):
    config = read_config(["--preset", write("mine.toml", PRESET)])
    (tmp_path / "mine.toml").unlink()
    assert from_json(json.loads(json.dumps(to_json(config))), "here") == config
    write("config.json", json.dumps(to_json(config)))
    assert read_config(["--config", "config.json"]).preset == "mine.toml"


@pytest.mark.parametrize("name", ["env", "steps", "seeds", "seed", "out", "engine", "delay", "wrappers"])
def test_a_preset_has_hyperparameters_only(name):
    with pytest.raises(UsageError, match=f"^mine.toml: '{name}' does not belong to a preset; allowed: agent, num_envs"):
        read_preset(write("mine.toml", f'{name} = "x"'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sil.update = 3", r"^mine\.toml: setting: 'sil\.update' is unknown; did you mean 'sil\.updates'"),
        ('preset = "mine"', r"^mine\.toml: preset: 'mine' is not allowed; allowed: authors, paper$"),
        ("agent = 3", r"^mine\.toml: agent: 3 is not allowed"),
        ('sil.updates = "x"', r"^mine\.toml: sil\.updates: 'x' is not allowed; allowed: an integer"),
        ("env.size = 3", r"^mine\.toml: 'env\.size' does not belong to a preset"),
    ],
)
def test_a_mistake_in_a_preset_is_named(text, message):
    with pytest.raises(UsageError, match=message):
        resolve("key-door-treasure", read_preset(write("mine.toml", text)))


def test_a_preset_that_is_written_is_read_again(tmp_path):
    settings = {"num_steps": 7, "sil.max_advantage": None, "network.hidden": (3, 4), "optimiser.learning_rate": 1e-4}
    comments = ["Best of 8,", "found by hand"]
    write_preset(tmp_path / "best.toml", "ppo+sil", "gym:CartPole-v1", settings, comments, preset="paper")
    found = read_preset("best.toml")
    assert (found.name, found.base, found.agent, found.settings) == ("best.toml", "paper", "ppo+sil", settings)
    lines = (tmp_path / "best.toml").read_text().splitlines()
    assert lines[0] == "# A preset for ppo+sil on gym:CartPole-v1: sil train gym:CartPole-v1 --preset best.toml"
    assert lines[1:3] == ["# Best of 8,", "# found by hand"]
    assert tomllib.loads((tmp_path / "best.toml").read_text())["optimiser"] == {"learning_rate": 1e-4}


def test_names_may_have_dashes_and_tables_any_form():
    one = read(write("one.toml", "sil.batch-size = 3\nnum-envs = 2"))
    other = read(write("other.toml", "num_envs = 2\n[sil]\nbatch_size = 3"))
    assert one == other == {"sil.batch_size": 3, "num_envs": 2}
