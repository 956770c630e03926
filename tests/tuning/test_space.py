"""Search spaces: how they are written, checked and drawn from."""

import itertools

import numpy as np
import pytest

from self_imitation.config import resolve
from self_imitation.errors import UsageError
from self_imitation.tuning import defaults
from self_imitation.tuning import space as spaces
from self_imitation.tuning.space import Choices, Range


@pytest.fixture
def config():
    return resolve("key-door-treasure", "authors", {"agent": "a2c+sil"})


def build(config, *words):
    return spaces.build(config, spaces.read_words(words, "search"))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("sil.updates=1,2,4", Choices((1, 2, 4))),
        ("sil.updates=4", Choices((4,))),
        ("sil.updates=1e1,10,2", Choices((10, 2))),
        ("sil.average=batch,imitated", Choices(("batch", "imitated"))),
        ("sil.max-advantage=None,1", Choices((None, 1))),
        ("normalise.observations=True,false", Choices((True, False))),
        ("network.hidden=64,32 16", Choices(((64,), (32, 16)))),
        ("--num-envs=8,16", Choices((8, 16))),
        ("optimiser.learning-rate=1e-4..1e-2:log", Range(1e-4, 1e-2, log=True, whole=False)),
        ("a2c.gamma=0.9..1", Range(0.9, 1.0, log=False, whole=False)),
        ("sil.updates=1..8", Range(1, 8, log=False, whole=True)),
        ("sil.batch-size=16..512:log", Range(16, 512, log=True, whole=True)),
    ],
)
def test_values_have_the_types_of_their_settings(config, word, expected):
    (found,) = build(config, word).values()
    assert found == expected
    assert repr(found) == repr(expected), "1 is not 1.0"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sil.updates", r"search: 'sil\.updates' is not allowed; allowed: NAME=VALUES"),
        ("sil.updates=", "allowed: NAME=VALUES"),
        ("sil.update=1", r"setting: 'sil\.update' is unknown; did you mean 'sil\.updates'\?"),
        ("ppo.clip-coef=0.1", r"ppo\.clip_coef has no effect with agent 'a2c\+sil'"),
        ("sil.updates=0,1", r"sil\.updates: 0 is not allowed; allowed: an integer >= 1"),
        ("sil.updates=1.5,2", r"sil\.updates: 1\.5 is not allowed"),
        ("sil.updates=0..4", r"sil\.updates: 0 is not allowed"),
        ("sil.updates=8..4", r"search: sil\.updates: '8\.\.4' is not allowed; allowed: a range whose first number is"),
        ("sil.loss-coef=0..1:log", "allowed with :log: a range above 0"),
        ("sil.loss-coef=0..1:cubic", r"allowed: values such as 1,2,4, or a range such as 1e-4\.\.1e-2"),
        ("sil.loss-coef=a..b", "allowed: values such as"),
        ("sil.average=a..b", "allowed: values such as"),
        ("network.hidden=8..64", r"network\.hidden: 8\.0 is not allowed; allowed: one or more integers"),
        ("log-every=100,200", "search: 'log_every' is not a hyperparameter; allowed: num_envs"),
        ("nothing.toml", r"no such file: 'nothing\.toml'"),
    ],
)
def test_a_mistake_is_one_clear_line(config, word, message):
    with pytest.raises(UsageError, match=message) as caught:
        build(config, word)
    assert "\n" not in str(caught.value)


def test_a_space_can_be_read_from_a_file(config, tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(
        '[search]\n"optimiser.learning-rate" = "1e-4..1e-2:log"\nnum_envs = [8, 16]\n'
        '[search.sil]\nupdates = [1, 2]\naverage = "batch,imitated"\n[search.network]\nhidden = [[64, 64], [8]]\n'
    )
    found = build(config, str(path), "sil.updates=4")
    assert {name: str(dimension) for name, dimension in found.items()} == {
        "optimiser.learning_rate": "0.0001..0.01:log",
        "num_envs": "8,16",
        "sil.updates": "4",
        "sil.average": "batch,imitated",
        "network.hidden": "64 64,8",
    }


@pytest.mark.parametrize("text", ["a =", "[other]\n", "search = 1\n", "[search]\n[other]\n", "[search]\n"])
def test_a_file_without_a_space_is_refused(config, tmp_path, text):
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"space\.toml|no setting was named"):
        build(config, str(path))


def test_draws_are_inside_the_space_and_the_same_for_the_same_seed(config):
    space = build(config, "optimiser.learning-rate=1e-4..1e-2:log", "sil.updates=1..3", "sil.average=batch,imitated")
    drawn = list(itertools.islice(spaces.draws(space, 3), 200))
    assert drawn == list(itertools.islice(spaces.draws(space, 3), 200))
    assert {own["sil.updates"] for own in drawn} == {1, 2, 3}
    assert {own["sil.average"] for own in drawn} == {"batch", "imitated"}
    rates = np.array([own["optimiser.learning_rate"] for own in drawn])
    assert rates.min() >= 1e-4
    assert rates.max() <= 1e-2
    assert 0.4 < np.mean(rates < 1e-3) < 0.6, "half of them are below the geometric mean"
    assert all(float(f"{rate:.3g}") == rate for rate in rates)


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["sil.updates=1,2,4", "sil.keep=all,positive"], 6), (["sil.updates=1..4"], 4), (["a2c.gamma=0.9..1"], np.inf)],
)
def test_combinations_are_counted(config, words, expected):
    assert spaces.size(build(config, *words)) == expected


def test_values_that_do_not_go_together_are_left_out(config):
    space = build(config, "sil.optimiser=shared,own", "sil.learning-rate=None,1e-3")
    spaces.require_possible(config, space, 0)
    with pytest.raises(UsageError, match=r"sil\.learning_rate: 0\.001 is not allowed; it has no effect"):
        spaces.apply(config, {"sil.optimiser": "shared", "sil.learning_rate": 1e-3})


def test_a_space_without_any_allowed_combination_is_refused(config):
    space = build(config, "sil.optimiser=shared", "sil.learning-rate=1e-3,1e-4")
    with pytest.raises(UsageError, match=r"no combination of these values is allowed: sil\.learning_rate"):
        spaces.require_possible(config, space, 0)


def default_space(env, agent, preset="authors"):
    config = resolve(env, preset, {"agent": agent})
    space = spaces.build(config, defaults.space(config, preset))
    spaces.require_possible(config, space, 0)
    return {name: str(dimension) for name, dimension in space.items()}


def test_the_paper_says_what_to_search_on_mujoco():
    rates = {"optimiser.learning_rate": "0.0003,0.0001,5e-05,3e-05"}
    assert default_space("mujoco:Hopper", "ppo") == rates
    exponents = {"sil.priority_exponent": "0.6,1.0"}
    assert default_space("mujoco:Hopper", "ppo+sil") == {**rates, "sil.vf_coef": "0.005,0.025", **exponents}
    assert default_space("mujoco:Hopper", "ppo+sil", "paper") == {**rates, "sil.vf_coef": "0.01,0.05", **exponents}


@pytest.mark.parametrize(
    "agent", ["a2c", "a2c+sil", "ppo+sil", "vtrace", "acer", "acper+sil", "a2c+sil+exp", "a2c+rnd"]
)
def test_every_agent_has_a_space(agent):
    space = default_space("key-door-treasure", agent)
    assert "optimiser.learning_rate" in space
    assert ("sil.updates" in space) == ("sil" in agent)
    assert ("exp.scale" in space) == ("exp" in agent)
    assert ("rnd.coef" in space) == ("rnd" in agent)
