"""What holds in the end, and what is refused."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from self_imitation import config as configuration
from self_imitation.config import PRESETS, TrainConfig, flatten, override, resolve
from self_imitation.environments import registry as catalogue
from self_imitation.errors import UsageError
from self_imitation.storage.config_file import from_json, to_json
from self_imitation.validation import RULES, refuse_unread, validate


def test_authors_preset_is_the_default_and_has_the_settings_of_the_authors_grid_world_runs():
    config = resolve("key-door-treasure", "authors")
    assert TrainConfig().preset == "authors"
    assert (config.num_envs, config.num_steps) == (16, 5)
    assert (config.a2c.gamma, config.a2c.ent_coef, config.a2c.vf_coef) == (0.95, 0.03, 0.5)
    assert (config.sil.gamma, config.sil.ent_coef) == (0.99, 0.01)
    assert (config.sil.updates, config.sil.batch_size, config.sil.buffer_size) == (4, 512, 100_000)
    assert (config.sil.priority_exponent, config.sil.importance_exponent) == (0.6, 0.4)
    assert (config.sil.max_advantage, config.sil.vf_coef, config.sil.average) == (1.0, 0.005, "imitated")
    assert (config.sil.min_imitated, config.sil.max_neg_log_prob, config.sil.keep) == (64, 5.0, "positive")
    assert (config.network.hidden, config.network.shared) == ((64, 64), False)
    assert config.time_limit == "terminal"
    assert dataclasses.astuple(config.optimiser) == ("rmsprop", 7e-4, "constant", 0.99, 1e-5, 0.5)


def test_paper_preset_is_its_equations_and_its_commented_table():
    config = resolve("apple-key-door-treasure", "paper")
    assert (config.sil.max_advantage, config.sil.vf_coef, config.sil.ent_coef) == (None, 0.01, 0.0)
    assert (config.sil.average, config.sil.max_neg_log_prob, config.sil.keep) == ("batch", None, "all")
    assert (config.network.hidden, config.network.shared, config.sil.buffer_size) == ((64,), True, 1000)
    assert (config.sil.priority_exponent, config.sil.importance_exponent) == (0.6, 0.4)
    assert config.time_limit == "bootstrap"


def test_environment_under_preset_under_user(monkeypatch):
    defaults = {"sil.max_advantage": 3.0, "num_envs": 7, "num_steps": 3}
    entry = catalogue.Entry("probe", "", defaults, preset_defaults={"authors": {"num_steps": 9}})
    monkeypatch.setattr(catalogue, "ENTRIES", {"probe": entry})
    config = resolve("probe", "authors", {"num_steps": 11})
    assert config.num_envs == 7, "the environment's default over the general one"
    assert config.sil.max_advantage == PRESETS["authors"]["sil.max_advantage"], "the preset over the environment's"
    assert resolve("probe", "authors").rollout == 9, "what the preset means for this environment"
    assert config.num_steps == 11, "the user's over all"


def test_every_setting_has_a_rule_and_a_text():
    """A setting without a meaning on the help page, or that takes any value, is a defect."""
    free = {"env", "agent"}  # checked against the catalogue and the agents
    assert set(RULES) == set(flatten(TrainConfig())) - free
    source = Path(configuration.__file__).read_text()
    for name in flatten(TrainConfig()):
        assert re.search(rf'^    {name.split(".")[-1]}: .*=.*\n    """', source, re.MULTILINE), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", -5),
        ("steps", 1.5),
        ("steps", True),
        ("seeds", 0),
        ("seed", -1),
        ("seed", 2**32),
        ("num_envs", 0),
        ("rollout", -1),
        ("log_every", 0),
        ("checkpoint_seconds", -1.0),
        ("checkpoint_seconds", float("nan")),
        ("checkpoints_kept", 0),
        ("network.hidden", ()),
        ("network.hidden", (64, 0)),
        ("optimiser.learning_rate", 0.0),
        ("optimiser.learning_rate", float("inf")),
        ("a2c.gamma", 1.01),
        ("sil.updates", 0),
        ("sil.batch_size", 0),
        ("sil.max_advantage", 0.0),
        ("sil.average", "median"),
        ("sil.keep", "some"),
        ("sil.max_pending_steps", 0),
        ("sil.importance_exponent", -0.1),
        ("sil.importance_exponent", 1.1),
        ("sil.priority_exponent", 5.0),
        ("exp.scale", -1.0),
        ("time_limit", "never"),
        ("preset", "mine"),
        ("out", ""),
    ],
)
def test_bad_value_is_named_with_field_value_and_what_is_allowed(name, value):
    config = override(resolve("key-door-treasure", "authors"), {name: value})
    with pytest.raises(UsageError) as error:
        validate(config)
    message = str(error.value)
    assert message.startswith(f"{name}: {value!r} is not allowed; allowed: ")
    assert "\n" not in message


def test_batch_larger_than_the_memory_is_refused():
    with pytest.raises(UsageError, match=r"sil\.batch: 513 is not allowed; at most sil\.capacity = 512"):
        validate(resolve("key-door-treasure", "authors", {"sil.batch_size": 513, "sil.buffer_size": 512}))


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(UsageError, match="env: 'key-dor-treasure' is unknown; did you mean 'key-door-treasure'"):
        resolve("key-dor-treasure", "authors")
    with pytest.raises(UsageError, match=r"agent: 'a2c\+sill' is unknown; did you mean 'a2c\+sil'"):
        validate(TrainConfig(agent="a2c+sill"))
    with pytest.raises(UsageError, match=r"setting: 'sil\.update' is unknown; did you mean 'sil\.updates'"):
        resolve("key-door-treasure", "authors", {"sil.update": 3})


def test_agent_names_are_the_same_in_any_order_but_not_twice_the_same_part():
    assert validate(TrainConfig(agent="a2c+exp+sil")).agent == "a2c+sil+exp"
    for agent in ("a2c+sil+sil", "sil", "", "a2c+"):
        with pytest.raises(UsageError, match="agent: "):
            validate(TrainConfig(agent=agent))


def test_a_setting_that_the_agent_would_not_read_is_refused():
    defaults = resolve("key-door-treasure", "authors", {"agent": "a2c"})
    with pytest.raises(UsageError, match=r"sil\.updates: 5 is not allowed; agent 'a2c' has no part 'sil'"):
        refuse_unread(override(defaults, {"sil.updates": 5}), defaults)
    refuse_unread(override(defaults, {"a2c.gamma": 0.5}), defaults)


def test_a_setting_that_adam_does_not_read_is_refused():
    defaults = resolve("key-door-treasure", "authors", {"agent": "ppo"})
    with pytest.raises(UsageError, match=r"optimiser.decay: 0.5 is not allowed; Adam does not read it"):
        refuse_unread(override(defaults, {"optimiser.decay": 0.5}), defaults)
    refuse_unread(override(defaults, {"optimiser.decay": 0.5, "optimiser.kind": "rmsprop"}), defaults)


def test_config_survives_json():
    config = validate(resolve("key-door-treasure", "paper", {"out": "x", "sil.max_pending_steps": 7, "network.hidden": (3, 4)}))
    assert from_json(json.loads(json.dumps(to_json(config))), "here") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(version=99), "version: 99 is not allowed; this release reads version 2"),
        (lambda data: data.pop("version"), "not the config of a run"),
        (lambda data: data.pop("steps"), "settings missing: steps"),
        (lambda data: data["sil"].update(magic=1), r"settings unknown: sil\.magic"),
        (lambda data: data.update(steps=-1), "steps: -1 is not allowed"),
    ],
)
def test_config_of_another_kind_is_refused(change, message):
    data = to_json(resolve("key-door-treasure", "authors"))
    change(data)
    with pytest.raises(UsageError, match=message):
        from_json(data, "config.json")


def test_steps_round_up_to_whole_iterations():
    config = TrainConfig(steps=81, envs=16, rollout=5)
    assert (config.steps_per_iteration, config.iterations) == (80, 2)
