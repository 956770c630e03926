"""Saving the callback beside the model, and going on in another process."""

import json

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import safetensors
import safetensors.numpy
import torch as th
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env

from self_imitation.errors import UsageError
from self_imitation.sb3 import SelfImitation, file

pytestmark = pytest.mark.extras

SMALL = {"keep": "all", "buffer_size": 200, "batch_size": 16, "learning_starts": 8}


def maze(num_envs=4):
    return make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=num_envs)


def a2c(env=None, **changes):
    return A2C("MlpPolicy", env or maze(), seed=0, device="cpu", **changes)


def parameters(model):
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


def same_arrays(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize(("optimiser", "value"), [("shared", "shared"), ("own", "own")])
def test_a_loaded_model_and_callback_go_on_as_the_saved_ones(tmp_path, optimiser, value):
    model, callback = a2c(), SelfImitation(**SMALL, optimiser=optimiser, value=value)
    model.learn(400, callback=callback)  # the ring is full and has wrapped around
    model.save(tmp_path / "model")
    callback.save(tmp_path / "model.sil")
    assert callback.memory.size == 200
    before, start = callback.memory.to_arrays(), parameters(model)

    continued = []
    for number in range(2):
        th.manual_seed(0)
        if number:
            model = A2C.load(tmp_path / "model", maze())
            callback = SelfImitation.load(tmp_path / "model.sil")
        else:
            model.set_env(maze())
        model.learn(0, callback=callback, reset_num_timesteps=False)
        same_arrays(callback.memory.to_arrays(), before)
        th.manual_seed(1)
        model.learn(100, callback=callback, reset_num_timesteps=False)
        continued.append((parameters(model), callback.memory.to_arrays(), callback.config))
    (first, memory, config), (second, memory_again, config_again) = continued
    assert not th.equal(first, start)
    th.testing.assert_close(first, second, atol=1e-6, rtol=0)  # PyTorch adds in another order after loading
    for name in ("observation", "action", "returns"):
        np.testing.assert_array_equal(memory[name], memory_again[name])
    np.testing.assert_allclose(memory["weight"], memory_again["weight"], atol=1e-5)
    assert config == config_again


def test_a_callback_goes_on_with_another_number_of_environments(tmp_path):
    model, callback = a2c(), SelfImitation(**SMALL)
    model.learn(400, callback=callback)
    callback.save(tmp_path / "sil")
    before = callback.memory.to_arrays()
    for again in (SelfImitation.load(tmp_path / "sil"), callback):
        other = PPO("MlpPolicy", maze(2), n_steps=16, batch_size=16, seed=0, device="cpu")
        other.learn(0, callback=again)
        same_arrays(again.memory.to_arrays(), before)
        other.learn(64, callback=again)


def test_a_callback_of_another_environment_is_refused(tmp_path):
    model, callback = a2c(), SelfImitation(**SMALL)
    model.learn(240, callback=callback)
    callback.save(tmp_path / "sil")
    other = a2c(make_vec_env("CartPole-v1"))
    for again in (SelfImitation.load(tmp_path / "sil"), callback):
        with pytest.raises(UsageError, match=r"does not fit the environment .*; observation is float32\[\d+, 5\]"):
            other.learn(0, callback=again)


def test_nothing_can_be_saved_before_training(tmp_path):
    with pytest.raises(UsageError, match="no replay buffer before training starts"):
        SelfImitation().save(tmp_path / "sil")


def metadata_of(path):
    with safetensors.safe_open(path, "numpy") as opened:
        return opened.metadata()


def test_damaged_files_are_explained(tmp_path):
    model, callback = a2c(), SelfImitation(**SMALL)
    model.learn(240, callback=callback)
    path = tmp_path / "sil"
    callback.save(path)
    content = path.read_bytes()
    arrays = safetensors.numpy.load(content)
    metadata = {file.FORMAT: "1", file.STATE: json.dumps({"settings": {"gamma": 2.0}, "counters": {}})}
    cases = {
        "is damaged: ": content[:-10],
        "is not a file that SelfImitation.save of this release wrote": safetensors.numpy.save(arrays),
        "is damaged: 'seed'": safetensors.numpy.save(arrays, metadata),
        "is damaged: not all of returns are finite": safetensors.numpy.save(
            {**arrays, "buffer.returns": arrays["buffer.returns"] * np.nan}, metadata_of(path)
        ),
    }
    for message, damaged in cases.items():
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match=message):
            SelfImitation.load(path)
    with pytest.raises(UsageError, match="can't be read: No such file"):
        SelfImitation.load(tmp_path / "absent")
