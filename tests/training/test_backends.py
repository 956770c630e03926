"""Which engine steps an environment, and what is refused."""

import gymnasium
import numpy as np
import pytest
from helpers import Recorder, small_config

from self_imitation.config import override, resolve
from self_imitation.environments import atari
from self_imitation.environments.registry import find
from self_imitation.environments.xla import ale, envpool
from self_imitation.errors import UsageError
from self_imitation.training import backends
from self_imitation.training.run import start


def resolved(env, engine="auto"):
    return backends.resolve_engine(find(env), engine)


@pytest.fixture
def no_envpool(monkeypatch):
    monkeypatch.setattr(envpool, "available", lambda: False)


@pytest.mark.parametrize(
    ("env", "engines"),
    [
        ("key-door-treasure", ("jax",)),
        ("mujoco:Hopper", ("envpool", "gymnasium", "processes")),
        ("gym:CartPole-v1", ("envpool", "gymnasium", "processes")),
        ("gym:Hopper-v5", ("envpool", "gymnasium", "processes")),
        ("gym:MiniGrid-DoorKey-8x8-v0", ("envpool", "gymnasium", "processes")),
        ("hopper-distance", ("envpool", "gymnasium", "processes")),
        ("atari:Pong", ("envpool", "ale")),
        ("gym:gymnasium_probes:Counter-v0", ("gymnasium", "processes")),
    ],
)
def test_auto_is_the_first_of_the_engines(env, engines):
    assert backends.engines(find(env)) == engines
    assert resolved(env) == engines[0]
    assert all(resolved(env, engine) == engine for engine in engines)


@pytest.mark.parametrize(
    ("env", "engine", "allowed"),
    [
        ("key-door-treasure", "gymnasium", "allowed for key-door-treasure: auto, jax"),
        ("gym:gymnasium_probes:Counter-v0", "envpool", "allowed for gym:gymnasium_probes:Counter-v0: auto, gymnasium,"),
        ("atari:Pong", "processes", "allowed for atari:Pong: auto, envpool, ale"),
        ("mujoco:Hopper", "jax", "allowed for mujoco:Hopper: auto, envpool, gymnasium, processes"),
    ],
)
def test_other_engines_are_refused(env, engine, allowed):
    with pytest.raises(UsageError, match=f"engine: '{engine}' is not allowed; {allowed}"):
        resolved(env, engine)


@pytest.fixture
def registered():
    """A user's environments: one has a name that EnvPool knows too."""
    for name in ("MyOwn-v0", "Pendulum-v0"):
        gymnasium.register(name, "gymnasium_probes:ThreeSteps")
    yield
    for name in ("MyOwn-v0", "Pendulum-v0"):
        gymnasium.registry.pop(name)


def test_a_users_environment_is_never_replaced_by_envpools(registered, monkeypatch):
    monkeypatch.setattr(envpool, "has", lambda envpool_id: envpool_id == "Pendulum-v0")
    assert backends.engines(find("gym:Pendulum-v0")) == ("gymnasium", "processes", "envpool")
    assert resolved("gym:Pendulum-v0") == "gymnasium"
    assert resolved("gym:Pendulum-v0", "envpool") == "envpool", "only if asked for"
    assert resolved("gym:MyOwn-v0") == "gymnasium"


def test_a_standard_id_that_was_registered_anew_is_the_users():
    standard = gymnasium.registry.pop("CartPole-v1")
    try:
        gymnasium.register("CartPole-v1", "gymnasium_probes:ThreeSteps")
        assert resolved("gym:CartPole-v1") == "gymnasium"
    finally:
        gymnasium.registry["CartPole-v1"] = standard
    assert resolved("gym:CartPole-v1") == "envpool"


def test_ids_that_only_envpool_has():
    assert backends.engines(find("gym:CheetahRun-v1")) == ("envpool",)


def test_without_envpool_the_python_backend_steps(no_envpool):
    assert resolved("mujoco:Hopper") == "gymnasium"
    assert resolved("gym:CartPole-v1") == "gymnasium"
    assert resolved("atari:Pong") == "ale"


def test_without_envpool_asking_for_it_names_the_command_that_installs_it(no_envpool):
    with pytest.raises(UsageError, match=r"engine: 'envpool' is not allowed; .* pip install 'self-imitation\[fast\]'"):
        resolved("mujoco:Hopper", "envpool")


def test_without_any_emulator_the_package_is_named(no_envpool, monkeypatch):
    monkeypatch.setattr(ale, "available", lambda: False)
    with pytest.raises(UsageError, match=r"^env: Atari games need a package: pip install 'self-imitation\[atari\]'$"):
        resolved("atari:Pong")


@pytest.mark.parametrize(
    ("env", "says_so"), [("mujoco:Hopper", True), ("atari:Pong", True), ("gym:CartPole-v1", False)]
)
def test_a_slower_engine_is_noted(no_envpool, env, says_so):
    assert ("slower" in backends.fallback(find(env), "gymnasium")) == says_so


def test_with_envpool_there_is_nothing_to_note():
    assert backends.fallback(find("mujoco:Hopper"), "envpool") == ""
    assert backends.fallback(find("mujoco:Hopper"), "gymnasium") == "", "the user's choice"


def test_the_first_line_of_a_run_has_the_note(no_envpool, tmp_path):
    recorder = Recorder()
    settings = {"agent": "a2c", "num_envs": 1, "num_steps": 5, "steps": 5, "seeds": 1}
    run, _ = start(small_config(tmp_path / "run", "mujoco:Hopper", **settings), [recorder])
    assert recorder.notes == ["EnvPool is not available here (pip install 'self-imitation[fast]', Linux only): slower"]
    assert run.config.engine == "gymnasium"


def test_too_many_emulators_are_refused():
    assert atari.MAX_EMULATORS == 1024
    config = override(resolve("atari:Pong", "authors"), {"seeds": 3, "num_envs": 512})
    with pytest.raises(UsageError, match="num_envs: 512 is not allowed; 3 seeds x 512 = 1536 emulators; allowed: at"):
        backends.create(config)
    assert backends.create(override(config, {"seeds": 2})).num_envs == 1024


def test_all_engines_of_a_game_have_the_same_spec():
    config = resolve("atari:Pong", "authors")
    specs = [backends.create(override(config, {"engine": engine})).spec for engine in ("envpool", "ale")]
    assert specs[0].observation_shape == specs[1].observation_shape == (84, 84, 4)
    assert specs[0].actions == specs[1].actions
    assert specs[0].stack == specs[1].stack == 4
    assert specs[0].max_episode_steps == specs[1].max_episode_steps == 27_000


@pytest.mark.parametrize("env", ["mujoco:Hopper", "mujoco:Humanoid", "gym:CartPole-v1", "gym:FrozenLake-v1"])
def test_both_engines_have_the_same_spec(env):
    config = override(resolve(env, "authors"), {"num_envs": 1, "seeds": 1})
    pool, python = (backends.create(override(config, {"engine": name})).spec for name in ("envpool", "gymnasium"))
    assert pool.observation_shape == python.observation_shape
    assert pool.observation_kind == python.observation_kind
    assert pool.max_episode_steps == python.max_episode_steps
    assert type(pool.actions) is type(python.actions)
    for name in ("low", "high", "count"):
        if hasattr(python.actions, name):
            np.testing.assert_allclose(getattr(pool.actions, name), getattr(python.actions, name), rtol=1e-6)


def test_pure_jax_environments_have_no_gymnasium_spaces():
    backend = backends.create(resolve("key-door-treasure", "authors"))
    assert backend.spaces is None
    assert backend.notes == ()
    assert backend.in_program


def test_parts_of_observations_that_are_ignored_are_noted():
    config = override(resolve("gym:gymnasium_probes:SampledNested-v0", "authors"), {"num_envs": 1, "seeds": 1})
    assert backends.create(config).notes == ("observation 'goal.1.hint' is text and is ignored",)
