"""Environments by name, their default settings, and a user's own."""

import numpy as np
import pytest
from helpers import small_run
from probes import ChosenReward, OnlyTruncates

import self_imitation
from self_imitation.config import override, resolve
from self_imitation.environments import registry
from self_imitation.environments.registry import register_environment
from self_imitation.errors import UsageError

TASKS = ("Hopper", "Walker2d", "HalfCheetah", "Swimmer", "Ant", "Humanoid")


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def test_a_users_pure_jax_environment_trains_and_evaluates(tmp_path):
    register_environment("chosen-reward", ChosenReward, "pays for action 1", {"num_steps": 4})
    settings = {"agent": "a2c+sil", "steps": 6400, "optimiser.learning_rate": 0.01, "seeds": 1}
    run = small_run(tmp_path / "run", "chosen-reward", **settings)
    assert run.config.num_steps == 4
    assert run.config.engine == "jax"
    first, last = run.metrics()[0], run.metrics()[-1]
    assert last["return_mean"] > 0.8 > first["return_mean"]
    evaluation = self_imitation.load(run.path).evaluate(20, greedy=True)
    assert (evaluation.returns == 1).all()
    assert run.policy().act(np.zeros(1), greedy=True) == 1
    with pytest.raises(UsageError, match="env: 'chosen-reward' can't be rendered; register it with a render_id"):
        run.play()


def test_a_users_environment_gets_the_defaults_for_user_environments():
    register_environment("mine", lambda: OnlyTruncates(3), defaults={"sil.updates": 9, "normalise.rewards": False})
    config = resolve("mine", "authors")
    assert (config.sil.keep, config.time_limit, config.sil.updates) == ("informative", "bootstrap", 9)
    assert config.sil.truncated_returns == "continued"
    assert (config.normalise.observations, config.normalise.rewards) == (True, False)


def test_ppo_has_other_defaults_for_user_environments_than_for_mujoco():
    """The paper's table is of MuJoCo tasks; where rewards are sparse, exploration and imitation need more weight."""
    register_environment("mine", lambda: OnlyTruncates(3), defaults={"sil.loss_coef": 0.3})
    found = {}
    for env in ("gym:CartPole-v1", "hopper-distance", "mine", "mujoco:Hopper"):
        config = resolve(env, "authors", {"agent": "ppo+sil"})
        found[env] = config.components["ppo"].ent_coef, config.sil.loss_coef
    assert found["gym:CartPole-v1"] == found["hopper-distance"] == (0.01, 1.0)
    assert found["mine"] == (0.01, 0.3), "what was registered with it has precedence"
    assert found["mujoco:Hopper"] == (0.0, 0.1)


def test_names_are_registered_once():
    with pytest.raises(UsageError, match="name: 'key-door-treasure' is already registered"):
        register_environment("key-door-treasure", ChosenReward)


@pytest.mark.parametrize("name", ["gym", "gym:", "mujoco:Dog", "gymnasium:CartPole-v1", "key-door"])
def test_unknown_environments_are_refused_with_a_suggestion(name):
    with pytest.raises(UsageError, match=f"env: '{name}' is unknown; did you mean"):
        registry.find(name)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("Pong", "atari:Pong"),
        ("montezuma_revenge", "atari:MontezumaRevenge"),
        ("hopper", "mujoco:Hopper"),
        ("walker2d", "mujoco:Walker2d"),
        ("cartpole", "gym:CartPole-v1"),
        ("CartPol-v1", "gym:CartPole-v1"),
        ("gymnasium:CartPole-v1", "gym:CartPole-v1"),
        ("my_module:MyEnv-v0", "gym:my_module:MyEnv-v0"),
    ],
)
def test_names_without_their_prefix_are_understood(name, suggestion):
    with pytest.raises(UsageError, match=f"^env: '{name}' is unknown; did you mean '{suggestion}'\\? Known: apple"):
        registry.find(name)


@pytest.mark.parametrize("name", ["xyzzy", "MyEnv", "python:"])
def test_nothing_is_suggested_for_a_name_that_is_near_to_none(name):
    with pytest.raises(
        UsageError, match=f"^env: '{name}' is unknown; known: apple-key-door-treasure, atari:GAME, gym:ID"
    ):
        registry.find(name)


@pytest.mark.parametrize("gym_id", ["CartPole-v1", "Hopper-v5", "MiniGrid-Empty-5x5-v0", "phys2d/CartPole-v1"])
def test_a_gymnasium_id_needs_no_prefix(gym_id):
    assert registry.find(gym_id) == registry.find(f"gym:{gym_id}")


def test_any_gymnasium_id_is_an_environment():
    entry = registry.find("gym:my_package:MyEnv-v0")
    assert entry.gym_id == "my_package:MyEnv-v0"
    config = resolve("gym:CartPole-v1", "authors")
    assert (config.sil.keep, config.time_limit) == ("informative", "bootstrap")
    assert config.sil.truncated_returns == "continued"
    assert (config.normalise.observations, config.normalise.rewards) == (True, True)


def test_the_papers_six_mujoco_tasks():
    entries = [entry for name, entry in registry.entries().items() if name.startswith("mujoco:")]
    assert [(entry.name, entry.gym_id) for entry in entries] == [(f"mujoco:{task}", f"{task}-v5") for task in TASKS]
    for entry in entries:
        assert entry.search == {
            "optimiser.learning_rate": (3e-4, 1e-4, 5e-5, 3e-5),
            "sil.vf_coef": (0.005, 0.025),
            "sil.priority_exponent": (0.6, 1.0),
        }
        override(resolve(entry.name, "paper"), {name: values[0] for name, values in entry.search.items()})


def test_the_papers_mujoco_settings():
    config = resolve("mujoco:Ant", "authors", {"agent": "ppo+sil"})
    ppo = config.components["ppo"]
    assert (config.num_envs, config.num_steps, ppo.update_epochs, ppo.num_minibatches) == (1, 2048, 10, 32)
    assert (ppo.clip_coef, ppo.gae_lambda, ppo.gamma, config.optimiser.kind) == (0.2, 0.95, 0.99, "adam")
    assert (config.sil.updates, config.sil.batch_size, config.sil.loss_coef, config.sil.buffer_size) == (
        *(10, 512, 0.1),
        50_000,
    )
    assert (config.sil.importance_exponent, config.sil.ent_coef) == (0.1, 0.0)
    assert (config.normalise.observations, config.normalise.rewards, config.normalise.clip) == (True, True, 10.0)
    assert (config.network.hidden, config.network.shared) == ((64, 64), False)
    assert config.time_limit == "terminal"
    assert resolve("mujoco:Ant", "paper", {"agent": "ppo+sil"}).time_limit == "bootstrap"


def test_the_papers_atari_settings():
    config = resolve("atari:Pong", "authors")
    assert (config.steps, config.seeds, config.num_envs, config.num_steps) == (50_000_000, 1, 16, 5)
    assert (config.rewards, config.network.hidden, config.network.shared) == ("sign", (512,), True)
    assert (config.sil.buffer_size, config.sil.importance_exponent, config.sil.priority_exponent) == (100_000, 0.1, 0.6)
