"""The settings of a run: which default applies, and what is refused."""

import dataclasses
import hashlib
import json
from functools import cache

import docstring_parser
import pytest

from self_imitation import registry
from self_imitation.config import MAY_CHANGE, PRESETS, TrainConfig, override, refuse_unused, resolve, validate
from self_imitation.environments import registry as environments
from self_imitation.errors import UsageError
from self_imitation.settings import flatten
from self_imitation.storage.config_file import ADDED, fingerprint, from_json, to_json
from self_imitation.training import agents
from self_imitation.types import Discrete, Spec


def test_authors_preset_is_the_default_and_has_the_settings_of_the_authors_grid_world_runs():
    config = resolve("key-door-treasure", "authors")
    assert TrainConfig().preset == "authors"
    assert (config.num_envs, config.num_steps) == (16, 5)
    assert dataclasses.asdict(config.components["a2c"]) == {"gamma": 0.95, "ent_coef": 0.03, "vf_coef": 0.5}
    assert (config.sil.gamma, config.sil.ent_coef) == (0.99, 0.01)
    assert (config.sil.updates, config.sil.batch_size, config.sil.buffer_size) == (4, 512, 100_000)
    assert (config.sil.priority_exponent, config.sil.importance_exponent) == (0.6, 0.4)
    assert (config.sil.max_advantage, config.sil.vf_coef, config.sil.average) == (1.0, 0.005, "imitated")
    assert (config.sil.min_imitated, config.sil.max_neg_log_prob, config.sil.keep) == (64, 5.0, "positive")
    assert (config.network.hidden, config.network.shared) == ((64, 64), False)
    assert config.time_limit == "terminal"
    assert dataclasses.astuple(config.optimiser) == ("rmsprop", 7e-4, "constant", 0.99, 1e-5, 0.5)


def test_paper_preset_follows_its_equations_and_its_commented_table():
    config = resolve("apple-key-door-treasure", "paper")
    assert (config.sil.max_advantage, config.sil.vf_coef, config.sil.ent_coef) == (None, 0.01, 0.0)
    assert (config.sil.average, config.sil.max_neg_log_prob, config.sil.keep) == ("batch", None, "all")
    assert (config.network.hidden, config.network.shared, config.sil.buffer_size) == ((64,), True, 1000)
    assert (config.sil.priority_exponent, config.sil.importance_exponent) == (0.6, 0.4)
    assert config.time_limit == "bootstrap"


def test_the_user_overrides_the_preset_which_overrides_the_environment(monkeypatch):
    defaults = {"sil.max_advantage": 3.0, "num_envs": 7, "num_steps": 3}
    components = {"ppo": {"num_envs": 5, "ppo.gamma": 0.5}}
    presets = {"authors": {"num_steps": 9}}
    entry = environments.Entry("probe", "", defaults, components, presets)
    monkeypatch.setattr(environments, "_entries", {"probe": entry})
    config = resolve("probe", "authors", {"num_steps": 11})
    assert config.num_envs == 7, "the environment's default over the general one"
    assert config.sil.max_advantage == PRESETS["authors"]["sil.max_advantage"], "the preset over the environment's"
    assert resolve("probe", "authors").num_steps == 9, "the preset's own value for this environment"
    assert config.num_steps == 11, "the user's over all"
    ppo = resolve("probe", "authors", {"agent": "ppo"})
    assert (ppo.num_envs, ppo.components["ppo"].gamma) == (5, 0.5), "the environment's default for this learner"
    assert ppo.optimiser.kind == "adam", "the learner's default over the general one"


def test_only_the_agents_own_components_have_settings():
    config = resolve("key-door-treasure", "authors", {"agent": "ppo+rnd+sil", "rnd.coef": 3.0})
    assert config.agent == "ppo+sil+rnd"
    assert list(config.components) == ["ppo", "rnd"]
    assert config.components["rnd"].coef == 3.0
    with pytest.raises(UsageError, match=r"^a2c\.gamma has no effect with agent 'ppo'$"):
        resolve("key-door-treasure", "authors", {"agent": "ppo", "a2c.gamma": 0.5})


@pytest.mark.parametrize(
    ("settings", "gamma"),
    [
        ({}, 0.99),
        ({"ppo.gamma": 0.999}, 0.999),
        ({"ppo.gamma": 0.999, "sil.gamma": 0.9}, 0.9),
    ],
)
def test_self_imitation_uses_the_discount_of_the_learner_unless_it_is_set(settings, gamma):
    config = resolve("mujoco:Hopper", "authors", {"agent": "ppo+sil", **settings})
    assert agents.build(config, Spec((3,), Discrete(2), 100)).self_imitation.gamma == gamma


def test_a_learning_rate_of_its_own_needs_an_optimiser_of_its_own():
    own = {"sil.optimiser": "own", "sil.learning_rate": 1e-4}
    assert validate(resolve("mujoco:Hopper", "authors", {"agent": "ppo+sil", **own})).sil.learning_rate == 1e-4
    with pytest.raises(UsageError, match=r"^sil\.learning_rate: 0\.0001 is not allowed; it has no effect with"):
        validate(resolve("mujoco:Hopper", "authors", {"agent": "ppo+sil", "sil.learning_rate": 1e-4}))


@cache
def docstrings(kind: type) -> dict[str, str | None]:
    """Of a dataclass and of those that it extends."""
    parsed = (docstring_parser.parse_from_object(one).params for one in reversed(kind.__mro__[:-1]))
    return {param.arg_name: param.description for params in parsed for param in params}


@pytest.mark.parametrize("agent", ["a2c+sil+exp", "ppo+rnd", "vtrace", "acper"])
def test_every_setting_has_a_rule_and_a_docstring(agent):
    config = resolve("key-door-treasure", "authors", {"agent": agent})
    free = {"env", "agent", "kind"}  # checked against the registries
    groups = [config, config.network, config.optimiser, config.normalise, config.sil, *config.components.values()]
    for group in groups:
        for field in (field for field in dataclasses.fields(group) if field.compare):
            if not isinstance(getattr(group, field.name), dict) and not dataclasses.is_dataclass(
                getattr(group, field.name)
            ):
                assert docstrings(type(group)).get(field.name), f"{field.name} has no docstring"
                assert "allowed" in field.metadata or field.name in free, f"{field.name} has no rule"


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
        ("num_steps", -1),
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
def test_a_bad_value_is_named_with_its_setting_and_what_is_allowed(name, value):
    config = override(resolve("key-door-treasure", "authors", {"agent": "a2c+sil+exp"}), {name: value})
    with pytest.raises(UsageError) as error:
        validate(config)
    message = str(error.value)
    assert message.startswith(f"{name}: {value!r} is not allowed; allowed: ")
    assert "\n" not in message


def test_a_batch_larger_than_the_replay_buffer_is_refused():
    with pytest.raises(UsageError, match=r"sil\.batch_size: 513 .* allowed: at most sil\.buffer_size = 512"):
        validate(resolve("key-door-treasure", "authors", {"sil.batch_size": 513, "sil.buffer_size": 512}))


def test_unknown_names_are_refused_with_the_nearest_known_one():
    with pytest.raises(UsageError, match="env: 'key-dor-treasure' is unknown; did you mean 'key-door-treasure'"):
        resolve("key-dor-treasure", "authors")
    with pytest.raises(UsageError, match=r"agent: 'a2c\+sill' is unknown; did you mean 'a2c\+sil'"):
        resolve("key-door-treasure", "authors", {"agent": "a2c+sill"})
    with pytest.raises(UsageError, match=r"setting: 'sil\.update' is unknown; did you mean 'sil\.updates'"):
        resolve("key-door-treasure", "authors", {"sil.update": 3})


def test_the_parts_of_an_agents_name_have_no_order_and_no_duplicates():
    assert str(registry.parse_agent("a2c+exp+sil")) == "a2c+sil+exp"
    for agent in ("a2c+sil+sil", "sil", "", "a2c+", "a2c+ppo"):
        with pytest.raises(UsageError, match="agent: "):
            registry.parse_agent(agent)


def test_a_setting_without_effect_is_refused():
    defaults = resolve("key-door-treasure", "authors", {"agent": "a2c"})
    with pytest.raises(UsageError, match=r"^sil\.updates has no effect with agent 'a2c'$"):
        refuse_unused(override(defaults, {"sil.updates": 5}), defaults)
    refuse_unused(override(defaults, {"a2c.gamma": 0.5}), defaults)
    defaults = resolve("key-door-treasure", "authors", {"agent": "ppo"})
    with pytest.raises(UsageError, match=r"optimiser\.decay: 0\.5 .* no effect with optimiser\.kind = adam"):
        refuse_unused(override(defaults, {"optimiser.decay": 0.5}), defaults)
    refuse_unused(override(defaults, {"optimiser.decay": 0.5, "optimiser.kind": "rmsprop"}), defaults)


@pytest.mark.parametrize(
    ("change", "other", "value", "effective"),
    [
        ({"sil.n_steps": 3}, "sil.bound", "monte-carlo", "n-step"),
        ({"sil.updates": 8}, "sil.updates_schedule", "bandit", "linear"),
        ({"sil.bandit_window": 10}, "sil.updates_schedule", "constant", "bandit"),
        ({"sil.bandit_window": 10}, "sil.updates_schedule", "linear", "bandit"),
        ({"simhash.renew_steps": 10}, "simhash.hash", "static", "learned"),
        ({"acer.segment_steps": 10}, "acer.replay_ratio", 0, 2),
    ],
)
def test_settings_of_something_that_is_not_used_are_refused(change, other, value, effective):
    agent = {"sil": "a2c+sil", "simhash": "a2c+simhash", "acer": "acer"}[other.partition(".")[0]]
    defaults = resolve("key-door-treasure", "authors", {"agent": agent})
    (name, number), *_ = change.items()
    with pytest.raises(UsageError) as error:
        refuse_unused(override(defaults, {**change, other: value}), defaults)
    assert str(error.value) == f"{name}: {number} is not allowed; it has no effect with {other} = {value}"
    refuse_unused(validate(override(defaults, {**change, other: effective})), defaults)


@pytest.mark.parametrize("preset", ["authors", "paper"])
def test_a_value_coefficient_is_refused_with_a_temperature(preset):
    defaults = resolve("key-door-treasure", preset)
    refuse_unused(override(defaults, {"sil.temperature": 0.1}), defaults)
    with pytest.raises(UsageError) as error:
        refuse_unused(override(defaults, {"sil.temperature": 0.1, "sil.vf_coef": 0.5}), defaults)
    assert str(error.value) == "sil.vf_coef: 0.5 is not allowed; it has no effect with sil.temperature above 0"


def test_importance_weights_of_uniform_sampling_are_refused():
    defaults = resolve("key-door-treasure", "authors", {"agent": "acer"})
    changed = override(defaults, {"acer.importance_exponent": 0.3})
    with pytest.raises(UsageError, match=r"it has no effect with acer\.priority_exponent = 0$"):
        refuse_unused(changed, defaults)
    refuse_unused(override(changed, {"acer.priority_exponent": 0.6}), defaults)


@pytest.mark.parametrize("agent", ["a2c+sil", "ppo+rnd", "acper+sil"])
def test_config_survives_json(agent):
    changes = {"agent": agent, "out": "x", "network.hidden": (3, 4)}
    config = validate(resolve("key-door-treasure", "paper", changes))
    assert from_json(json.loads(json.dumps(to_json(config))), "here") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(version=99), "version: 99 is not allowed; this release reads version"),
        (lambda data: data.pop("version"), "not the config of a run"),
        (lambda data: data.pop("steps"), "settings missing: steps"),
        (lambda data: data["sil"].update(magic=1), r"settings unknown: sil\.magic"),
        (lambda data: data.update(steps=-1), "steps: -1 is not allowed"),
        (lambda data: data.update(agent="a3c"), "agent: 'a3c' is unknown"),
    ],
)
def test_a_foreign_config_file_is_refused(change, message):
    data = to_json(resolve("key-door-treasure", "authors"))
    change(data)
    with pytest.raises(UsageError, match=message):
        from_json(data, "config.json")


OTHER_DEFAULTS = {"sil.truncated_returns": "as-is", "sil.value": "shared"}
"""Of settings whose default is another one now than what runs from before did."""


def test_a_run_from_before_a_setting_was_added_goes_on_as_before():
    """It can be read, and its checkpoints are still its own."""
    config = validate(override(resolve("gym:CartPole-v1", "authors", {"agent": "a2c+sil"}), OTHER_DEFAULTS))
    data = to_json(config)
    for name in ADDED:
        part, _, own = name.rpartition(".")
        del (data[part] if part else data)[own]
    assert from_json(data, "here") == config
    names = {name: value for name, value in flatten(config).items() if name not in (*MAY_CHANGE, *ADDED)}
    assert fingerprint(config) == hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()
    assert fingerprint(override(config, {"sil.temperature": 0.1})) != fingerprint(config)


def test_steps_round_up_to_whole_iterations():
    config = TrainConfig(steps=81, num_envs=16, num_steps=5)
    assert (config.steps_per_iteration, config.iterations, config.total_steps) == (80, 2, 160)


def test_settings_that_may_change_exist():
    assert set(MAY_CHANGE) <= set(flatten(TrainConfig()))


def test_soft_q_learning_needs_the_value_of_the_policy():
    config = override(resolve("gym:CartPole-v1", "authors", {"agent": "a2c+sil"}), {"sil.temperature": 0.1})
    with pytest.raises(UsageError, match=r"sil.temperature: 0.1 .* needs sil.value = shared"):
        validate(config)
    assert validate(override(config, {"sil.value": "shared"})).sil.temperature == 0.1


@pytest.mark.parametrize(("value", "name"), [("own", "sil.vf_coef"), ("shared", "sil.value_learning_rate")])
def test_settings_of_the_other_value_have_no_effect(value, name):
    defaults = override(resolve("gym:CartPole-v1", "authors", {"agent": "a2c+sil"}), {"sil.value": value})
    with pytest.raises(UsageError, match=f"{name}: .* no effect with sil.value = {value}"):
        refuse_unused(override(defaults, {name: 0.5}), defaults)
