"""Training on environments that a Python program passes, and with keyword arguments and wrappers."""

import gymnasium
import numpy as np
import pytest

import self_imitation
from self_imitation.config import resolve, validate
from self_imitation.errors import UsageError
from self_imitation.training import backends

SMALL = {"num_envs": 2, "network.hidden": (4,), "log_every": 20}


class Corridor(gymnasium.Env):
    """Ends after `length` steps, and pays for action 1."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=3):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.step_number += 1
        return np.zeros(2, np.float32), float(action), self.step_number >= self.length, False, {}


def test_a_class_is_trained_on_and_passed_again_to_go_on(tmp_path):
    options = {"agent": "a2c", "steps": 2e1, "seeds": 1, "settings": SMALL}
    run = self_imitation.train(Corridor, out=tmp_path / "run", env_kwargs={"length": 4}, **options)
    assert run.config.env == f"python:{__name__}.Corridor"
    assert (run.config.env_kwargs, run.config.steps) == ({"length": 4}, 20)
    assert (run.evaluate(3).lengths == 4).all()

    needed = "is made by Python code, which has to be passed from Python: train.*, load.* or resume"
    loaded = self_imitation.load(run.path)
    assert len(loaded.metrics()) == 1
    with pytest.raises(UsageError, match=needed):
        loaded.policy()
    with pytest.raises(UsageError, match=needed):
        self_imitation.resume(run.path, 40)
    again = self_imitation.resume(run.path, 40, env=lambda length: Corridor(length))
    assert again.metrics()[-1]["step"] == 40
    assert (self_imitation.load(run.path, env=Corridor).evaluate(3).lengths == 4).all()


def test_what_makes_the_environment_is_for_runs_that_need_it(tmp_path):
    options = {"agent": "a2c", "steps": 20, "seeds": 1, "out": tmp_path / "run"}
    run = self_imitation.train(gymnasium.make("CartPole-v1", max_episode_steps=6), **options, settings=SMALL)
    assert (run.config.env, run.config.engine) == ("gym:CartPole-v1", "gymnasium")
    assert (self_imitation.load(run.path).evaluate(3).lengths <= 6).all()
    with pytest.raises(UsageError, match=r"^env: .*Corridor'> is not allowed; allowed: what makes gym:CartPole-v1, if"):
        self_imitation.load(run.path, env=Corridor)


def test_keyword_arguments_and_wrappers_select_gymnasium():
    plain = resolve("gym:CartPole-v1", "authors")
    changed = resolve("gym:CartPole-v1", "authors", {"env.sutton_barto_reward": True})
    wrapped = resolve("mujoco:Hopper", "authors", {"wrappers": ("gymnasium.wrappers:FlattenObservation",)})
    assert backends.create(plain).engine == "envpool"
    assert backends.create(changed).engine == backends.create(wrapped).engine == "gymnasium"
    with pytest.raises(UsageError, match=r"^engine: 'envpool' is not allowed; allowed for gym:CartPole-v1: auto, gymn"):
        backends.create(resolve("gym:CartPole-v1", "authors", {"env.x": 1, "engine": "envpool"}))


@pytest.mark.parametrize("env", ["key-door-treasure", "atari:Pong"])
def test_other_environments_take_neither(env):
    for settings in ({"env.size": 3}, {"wrappers": ("gymnasium.wrappers:FlattenObservation",)}):
        with pytest.raises(UsageError, match=f"is not allowed; {env} takes neither keyword arguments nor wrappers"):
            validate(resolve(env, "authors", settings))


@pytest.mark.parametrize("value", [np.zeros(2), float("nan"), print])
def test_keyword_arguments_must_fit_into_a_config(value):
    with pytest.raises(UsageError, match=r"^env_kwargs: .* is not allowed; allowed: numbers, text, booleans, lists"):
        self_imitation.train("gym:CartPole-v1", env_kwargs={"x": value})
