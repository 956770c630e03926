"""Snapshots of MuJoCo tasks continue exactly, to the last bit."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RescaleAction

from self_imitation.environments.gymnasium import snapshots
from self_imitation.environments.gymnasium.make import make_env
from self_imitation.environments.gymnasium.vector import StepResult, VectorEnv, make_vector

ACTIONS = {"Hopper": 3, "Walker2d": 6, "HalfCheetah": 6, "Swimmer": 2, "Ant": 8, "Humanoid": 17}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its log into the working directory."""
    monkeypatch.chdir(tmp_path)


def make(task, seeds):
    vector = make_vector(f"{task}-v5", len(seeds), in_processes=False)
    vector.reset(seeds)
    return vector


def walk(vector, actions):
    """Results of these actions: fields with time first."""
    return StepResult(*map(np.stack, zip(*[vector.step(action) for action in actions], strict=True)))


def set_elapsed_steps(vector, *elapsed):
    for env, steps in zip(vector.env.envs, elapsed, strict=True):
        snapshots._time_limit(env)._elapsed_steps = steps


def halfway(task):
    """A vector in mid-episode and further actions; the first copy is 20 steps before its time limit."""
    vector = make(task, [1, 2])
    actions = np.random.default_rng(0).normal(size=(75, 2, ACTIONS[task])).astype(np.float32)
    walk(vector, actions[:15])
    set_elapsed_steps(vector, 980, 950)
    return vector, actions[15:]


@pytest.mark.parametrize("task", ACTIONS)
def test_a_restored_snapshot_continues_exactly(task):
    """Observations, rewards and ends of the next 60 steps, over time limits, falls and resets."""
    vector, actions = halfway(task)
    assert vector.can_snapshot
    snapshot = {name: array.copy() for name, array in vector.snapshot().items()}
    expected = walk(vector, actions)
    assert (expected.terminated | expected.truncated).any(axis=0).all(), "both were reset"
    fresh = make(task, [3, 4])
    walk(fresh, actions[:7])
    fresh.restore(snapshot)
    for name, one, other in zip(StepResult._fields, expected, walk(fresh, actions), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_the_step_counter_is_restored():
    vector, fresh = make("HalfCheetah", [1, 2]), make("HalfCheetah", [3, 4])
    set_elapsed_steps(vector, 998, 10)
    fresh.restore(vector.snapshot())
    truncated = walk(fresh, np.zeros((3, 2, 6), np.float32)).truncated
    assert truncated.tolist() == [[False, False], [True, False], [False, False]]


def test_the_random_generator_is_restored():
    """Even where half of its last 64-bit word is still unused."""
    vector, fresh = make("Hopper", [1]), make("Hopper", [2])
    vector.env.envs[0].unwrapped.np_random.integers(5, dtype=np.uint32)  # uses half of a 64-bit word
    fresh.restore(vector.snapshot())
    one, other = (each.env.envs[0].unwrapped.np_random for each in (vector, fresh))
    assert one.bit_generator.state["has_uint32"] == 1
    assert one.integers(2**32, dtype=np.uint32) == other.integers(2**32, dtype=np.uint32)
    assert one.random(9).tolist() == other.random(9).tolist()


@pytest.mark.parametrize(("task", "left_out"), [("Ant", "xpos"), ("Humanoid", "xipos"), ("Hopper", "physics")])
def test_without_any_of_its_arrays_the_next_reward_differs(task, left_out):
    vector, actions = halfway(task)
    fresh = make(task, [3, 4])
    fresh.restore({**vector.snapshot(), left_out: fresh.snapshot()[left_out]})
    assert (vector.step(actions[0]).reward != fresh.step(actions[0]).reward).all()


@pytest.mark.parametrize(
    ("gym_id", "possible"), [("Hopper-v5", True), ("CartPole-v1", False), ("gymnasium_probes:Counter-v0", False)]
)
def test_only_environments_whose_whole_state_is_known(gym_id, possible):
    assert make_vector(gym_id, 1, False).can_snapshot == possible


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_not_under_an_unknown_wrapper():
    env = make_env("Hopper-v5")
    makers = [lambda: RescaleAction(env, -1.0, 1.0)]
    assert not VectorEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP), env.spaces).can_snapshot
