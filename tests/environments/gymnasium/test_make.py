"""One copy of an environment by its id."""

import sys

import gymnasium
import pytest
from gymnasium_probes import FAULTS_WHEN_MADE

from self_imitation.environments.gymnasium.make import EnvSource, make_env
from self_imitation.errors import UsageError


@pytest.mark.parametrize(
    ("gym_id", "message"),
    [
        *((f"gymnasium_probes:{name}-v0", message) for name, message in FAULTS_WHEN_MADE.items()),
        ("Nope-v0", "can't be created; Environment `Nope` doesn't exist"),
        ("CartPole-v99", "can't be created; Environment version `v99` for environment `CartPole` doesn't exist"),
        ("no_such_package:X-v0", "can't be created; No module named 'no_such_package'"),
        ("not an id", "can't be created; "),
        ("ALE/Nope-v5", "can't be created; "),
        ("gymnasium_probes:TextObservation-v0", "has observation space Text("),
        ("gymnasium_probes:WholeActions-v0", "has action space Box(0, 5, (2,), int64); supported: "),
    ],
)
def test_what_cannot_be_created_is_explained_in_one_line(gym_id, message):
    with pytest.raises(UsageError) as refused:
        make_env(gym_id)
    sentence = str(refused.value)
    assert sentence.startswith(f"env: '{gym_id}' {message}"), sentence
    assert "\n" not in sentence
    assert ("for Atari games use atari:GAME" in sentence) == gym_id.startswith("ALE/")


def test_without_mujoco_the_command_that_installs_it_is_named(monkeypatch):
    def lacking(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("MuJoCo is not installed, run `pip install ...`")

    monkeypatch.setattr(gymnasium, "make", lacking)
    with pytest.raises(
        UsageError, match=r"'Hopper-v5' needs .* not installed: pip install 'self-imitation\[mujoco\]'$"
    ):
        make_env("Hopper-v5")
    with pytest.raises(UsageError, match=r"'CartPole-v1' needs .* not installed: MuJoCo is not installed"):
        make_env("CartPole-v1")


@pytest.mark.parametrize(
    ("gym_id", "expected"), [("Hopper-v5", True), ("Reacher-v4", True), ("CartPole-v1", False), ("x:Y-v0", False)]
)
def test_mujoco_ids(gym_id, expected):
    assert EnvSource(gym_id).is_mujoco == expected


def test_a_module_in_the_working_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "mine_in_cwd.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('MineInCwd-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert make_env("mine_in_cwd:MineInCwd-v0").spaces.spec.max_episode_steps is None


def test_the_time_limit_is_the_registered_one():
    assert make_env("gymnasium_probes:Limited-v0").spaces.spec.max_episode_steps == 4
    assert make_env("gymnasium_probes:Counter-v0").spaces.spec.max_episode_steps is None
    assert make_env("CartPole-v1").spaces.spec.max_episode_steps == 500


def test_keyword_arguments_reach_the_environment():
    assert make_env("self_imitation/KeyDoorTreasure-v0", apples=True).observation_space.shape == (7,)
