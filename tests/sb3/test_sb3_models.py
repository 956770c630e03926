"""Which models, policies and settings the callback works with, and what it says where it does not."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from self_imitation.errors import UsageError
from self_imitation.sb3 import SelfImitation

pytestmark = pytest.mark.extras

SMALL = {"keep": "all", "buffer_size": 200, "batch_size": 16, "learning_starts": 8}


class Pictures(gymnasium.Env):
    """Each picture has the step of the episode as its brightness; beside it, a number. Three steps; the last pays 1."""

    def __init__(self, beside: bool = False):
        picture = spaces.Box(0, 255, (40, 36, 3), np.uint8)
        speed = spaces.Box(-1, 100, (2,), np.float32)
        self.observation_space = spaces.Dict(picture=picture, speed=speed) if beside else picture
        self.action_space = spaces.Discrete(2)
        self.beside = beside

    def _observe(self):
        picture = np.full((40, 36, 3), self.time, np.uint8)
        picture[0] = 200  # the top row
        return {"picture": picture, "speed": np.full(2, self.time, np.float32)} if self.beside else picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        return self._observe(), float(self.time == 3), self.time == 3, False, {}


def learns(model, callback, steps=64):
    """Whether self-imitation changes the policy, with finite metrics."""
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(steps, callback=callback)
    metrics = {name: value for name, value in model.logger.name_to_value.items() if name.startswith("sil/")}
    assert set(metrics) == {
        f"sil/{name}" for name in ("buffer_size", "loss", "policy_loss", "value_loss", "advantage", "imitated")
    }
    assert all(np.isfinite(value) for value in metrics.values())
    return any(not th.equal(old, new) for old, new in zip(before, model.policy.parameters(), strict=True))


@pytest.mark.parametrize("share", [True, False], ids=["shared features", "separate features"])
def test_pictures_are_stored_as_bytes_with_channels_first(share):
    env = make_vec_env(Pictures, n_envs=2)
    model = A2C("CnnPolicy", env, policy_kwargs={"share_features_extractor": share}, seed=0, device="cpu")
    callback = SelfImitation(**SMALL)
    assert learns(model, callback, 40)
    pictures = callback.memory.to_arrays()["observation"]
    assert pictures.dtype == np.uint8
    assert pictures.shape[1:] == (3, 40, 36)
    np.testing.assert_array_equal(pictures[:, 0, 1, 0], np.tile([0, 1, 2], len(pictures) // 3))
    assert (pictures[:, :, 0] == 200).all()


@pytest.mark.parametrize("keys", [None, ["speed"]], ids=["raw", "numbers normalised"])
def test_dictionaries_of_pictures_and_numbers_are_stored_raw(keys):
    env = make_vec_env(lambda: Pictures(beside=True), n_envs=2)
    env = VecNormalize(env, norm_obs_keys=keys) if keys else env
    callback = SelfImitation(**SMALL)
    assert learns(A2C("MultiInputPolicy", env, seed=0, device="cpu"), callback, 40)
    arrays = callback.memory.to_arrays()
    assert arrays["observation.picture"].shape[1:] == (3, 40, 36)
    np.testing.assert_array_equal(arrays["observation.picture"][:, 0, 1, 0], arrays["observation.speed"][:, 0])
    np.testing.assert_allclose(arrays["returns"][2::3], 1.0)


@pytest.mark.parametrize("squash", [False, True])
def test_state_dependent_exploration_works(squash):
    env = make_vec_env("Pendulum-v1", n_envs=2, wrapper_class=lambda env: gymnasium.wrappers.TimeLimit(env, 5))
    policy = {"squash_output": squash}
    assert learns(
        PPO("MlpPolicy", env, n_steps=8, batch_size=16, use_sde=True, policy_kwargs=policy), SelfImitation(**SMALL)
    )


def test_linear_schedules_and_presets_work_together():
    env = make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=4)
    model = A2C("MlpPolicy", env, learning_rate=lambda remaining: 1e-3 * remaining, seed=0, device="cpu")
    callback = SelfImitation("paper", buffer_size=200, batch_size=16, learning_starts=8)
    assert learns(model, callback, 600)
    assert (callback.config.keep, callback.config.max_advantage, callback.config.vf_coef) == ("all", None, 0.01)
    assert callback.config.gamma == 0.99  # the model's


def trained(seed):
    model = A2C("MlpPolicy", make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=4), seed=seed, device="cpu")
    model.learn(400, callback=SelfImitation(**SMALL))
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


def test_a_seed_determines_the_result():
    first = trained(0)
    assert th.equal(first, trained(0))
    assert not th.equal(first, trained(1))


class Recurrent(OnPolicyAlgorithm):
    """Any other algorithm."""

    policy_aliases = A2C.policy_aliases


@pytest.mark.parametrize(
    "make",
    [
        lambda: DQN("MlpPolicy", "CartPole-v1"),
        lambda: SAC("MlpPolicy", "Pendulum-v1"),
        lambda: Recurrent("MlpPolicy", "CartPole-v1", 1e-3, 5, 0.99, 1.0, 0.0, 0.5, 0.5, False, -1),
    ],
    ids=["DQN", "SAC", "another on-policy algorithm"],
)
def test_other_algorithms_are_refused(make):
    model = make()
    with pytest.raises(UsageError, match=f"^model: {type(model).__name__} is not supported; .* A2C and PPO$"):
        model.learn(100, callback=SelfImitation())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_sise": 3}, "setting: 'batch_sise' is unknown; did you mean 'batch_size'"),
        ({"batch_size": 0}, "batch_size: 0 is not allowed; allowed: an integer >= 1"),
        ({"batch_size": 10, "buffer_size": 5}, "batch_size: 10 is not allowed; allowed: at most"),
        ({"learning_rate": 1e-3}, "learning_rate: 0.001 is not allowed; it has no effect with sil.optimiser = shared"),
        ({"temperature": 0.1}, "temperature: 0.1 is not allowed; .* only `sil train` does"),
        ({"preset": "authers"}, "preset: 'authers' is unknown; did you mean 'authors'"),
    ],
)
def test_bad_settings_are_explained_at_once(settings, message):
    with pytest.raises(UsageError, match=message):
        SelfImitation(**settings)


def test_nothing_to_imitate_is_a_warning():
    env = make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=2)
    model = A2C("MlpPolicy", env, device="cpu")
    with pytest.warns(UserWarning, match="nothing to imitate, since 0 steps .* keep = 'informative'"):
        model.learn(40, callback=SelfImitation())
    assert model.logger.name_to_value["sil/buffer_size"] == 0


def test_a_missing_package_is_named_with_its_extra():
    code = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "import self_imitation.sb3\n"
        "assert 'torch' not in sys.modules and 'jax' not in sys.modules\n"
        "from self_imitation.sb3 import SelfImitation"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: SelfImitation needs the package stable_baselines3: pip install 'self-imitation[sb3]'"
    )
