"""Environments that break Gymnasium's interface are reported where they break it."""

import gymnasium
import gymnasium_probes
import jax
import numpy as np
import pytest
from gymnasium import spaces

from self_imitation.environments.gymnasium.checks import CheckedEnv
from self_imitation.environments.gymnasium.make import make_env
from self_imitation.errors import FaultyEnvironmentError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OutsideItsSpace", r"^observation is 99, which is not in Discrete\(5\)$"),
        ("LacksKey", r"^observation 'b' is missing from \{'a': 0\}$"),
        ("WrongShapeAtReset", r"^observation has shape \(2,\), not \(3,\)$"),
        ("ResetReturnsNoTuple", r"^reset\(\) returned array\(.*\), not \(observation, info\)$"),
    ],
)
def test_faults_at_reset(name, message):
    env = make_env(f"gymnasium_probes:{name}-v0")
    with pytest.raises(FaultyEnvironmentError, match=message):
        env.reset(seed=0)


def test_messages_name_the_part_of_a_composite_observation(monkeypatch):
    env = make_env("gymnasium_probes:SampledNested-v0")
    env.reset(seed=0)
    wrong = {"goal": (np.zeros(4, np.float32), {"x": np.zeros(3, np.int32)}), "pace": 3}
    monkeypatch.setattr(gymnasium_probes.Sampled, "observe", lambda _: wrong)
    with pytest.raises(FaultyEnvironmentError, match=r"^observation 'goal\.1\.x' has shape \(3,\), not \(2,\)$"):
        env.step(0)


def test_only_the_used_parts_are_checked(monkeypatch):
    env = make_env("gymnasium_probes:SampledNested-v0")
    strange = {"goal": (np.zeros(4, np.float32), {"x": np.zeros(2, np.int32), "hint": 7}), "pace": 3}
    monkeypatch.setattr(gymnasium_probes.Sampled, "observe", lambda _: strange)
    observation, _ = env.reset(seed=0)
    assert list(observation) == ["goal", "pace"]
    assert list(observation["goal"]) == [0, 1]
    assert list(observation["goal"][1]) == ["x"]
    assert env.observation_space.contains(observation)


def test_the_environments_own_observations_can_be_converted_too():
    """With its Tuple and its text, as a user passes them to a trained policy."""
    env = make_env("gymnasium_probes:SampledNested-v0")
    checked, _ = env.reset(seed=0)
    own = env.unwrapped.observe()
    assert isinstance(own["goal"], tuple)
    one, other = (env.spaces.observation(jax.tree.map(lambda leaf: np.array([leaf]), raw)) for raw in (checked, own))
    np.testing.assert_array_equal(one, other)


def test_composite_observations_keep_the_order_of_their_space():
    many = spaces.Tuple([spaces.Box(i, i, (1,)) for i in range(12)])

    class Many(gymnasium.Env):
        observation_space, action_space = many, spaces.Discrete(2)

        def reset(self, **_):
            return many.sample(), {}

    env = CheckedEnv(Many(), "many")
    row = {index: value[None] for index, value in env.reset()[0].items()}
    assert env.spaces.observation(row).tolist() == [[float(i) for i in range(12)]]


def test_info_is_dropped():
    env = make_env("gymnasium_probes:ChangingInfo-v0")
    assert env.reset(seed=0)[1] == {}
    assert [env.step(0)[-1] for _ in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("reward", [1, 1.5, True, np.float32(2), np.bool_(True), np.array(3.0)])
def test_any_single_number_is_a_reward(reward, monkeypatch):
    monkeypatch.setattr(gymnasium_probes.Counter, "reward", lambda *_: reward)
    env = make_env("gymnasium_probes:Counter-v0")
    env.reset(seed=0)
    assert env.step(0)[1] == reward
