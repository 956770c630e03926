"""Keyword arguments and wrappers of Gymnasium environments."""

import pytest
from gymnasium.wrappers import FlattenObservation, TimeAwareObservation

from self_imitation.environments.gymnasium.make import EnvSource, make_env
from self_imitation.errors import UsageError


def test_wrappers_are_around_the_environment_in_their_order():
    names = ("gymnasium.wrappers:FlattenObservation", "gymnasium.wrappers:TimeAwareObservation")
    env = make_env(EnvSource("CartPole-v1", wrappers=names)).env
    assert type(env) is TimeAwareObservation
    assert type(env.env) is FlattenObservation


def test_wrappers_are_found_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_wrappers.py").write_text("import gymnasium\nclass Mine(gymnasium.Wrapper):\n    mine = True\n")
    assert make_env(EnvSource("CartPole-v1", wrappers=("my_wrappers:Mine",))).env.mine


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Mine", "wrapper: 'no_such_module:Mine' can't be imported; No module named 'no_such_module'"),
        ("gymnasium.wrappers:TimeLimi", "did you mean 'gymnasium.wrappers:TimeLimit'?"),
        ("gymnasium.wrappers:TimeLimit", "'gymnasium.wrappers:TimeLimit' can't be created; it raised TypeError: "),
        ("os:getcwd", "wrapper: 'os:getcwd' is not allowed; allowed: a subclass of gymnasium.Wrapper"),
        ("os:nothing", "wrapper: 'os:nothing' is unknown"),
    ],
)
def test_a_wrong_wrapper_is_one_clear_line(name, message):
    with pytest.raises(UsageError) as error:
        make_env(EnvSource("CartPole-v1", wrappers=(name,)))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_keyword_arguments_reach_the_environment():
    kwargs = {"map_name": "8x8", "max_episode_steps": 3}
    env = make_env(EnvSource("FrozenLake-v1", kwargs))
    assert (env.observation_space.n, env.spaces.spec.max_episode_steps) == (64, 3)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"size": 3},
            r"^env\.size: 'FrozenLake-v1' has no such keyword argument; allowed: desc, map_name,",
        ),
        ({"map_name": "9x9"}, "^env: 'FrozenLake-v1' can't be created; it raised KeyError"),
        ({"render_mode": "human"}, r"^env\.render_mode: 'human' is not allowed; it is set by the program itself"),
    ],
)
def test_a_wrong_keyword_argument_is_one_clear_line(kwargs, message):
    with pytest.raises(UsageError, match=message):
        make_env(EnvSource("FrozenLake-v1", kwargs))
