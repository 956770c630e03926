"""Delayed rewards: paid at every so many steps of an episode and at its end, nothing lost and nothing twice."""

import itertools

import numpy as np
import pytest
from helpers import SMALL
from hypothesis import given
from hypothesis import strategies as st
from self_imitation.host_collection import Collecting, HostCollector, Part
from self_imitation.validation import validate

from self_imitation.config import override, resolve
from self_imitation.environments.gymnasium import make as engines
from self_imitation.environments.gymnasium.delayed_reward import Payments
from self_imitation.errors import UsageError
from self_imitation.training.loop import Silent
from self_imitation.training.run import start


def in_a_loop(rewards, delay):
    """The independent twin: one episode, step by step."""
    out, owed = [], 0.0
    for number, reward in enumerate(rewards, start=1):
        owed += reward
        due = number % delay == 0 or number == len(rewards)
        out.append(owed if due else 0.0)
        owed = 0.0 if due else owed
    return out


@given(st.data())
def test_payments_of_many_environments_run_on_over_rollouts(data):
    """Each environment like the loop, wherever rollouts and episodes begin and end."""
    steps, delay = data.draw(st.integers(1, 40)), data.draw(st.integers(2, 9))
    draw = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    reward = draw.integers(-50, 50, (steps, 2, 3)).astype(float)
    ended = draw.random((steps, 2, 3)) < 0.15
    cuts = sorted(data.draw(st.sets(st.integers(1, steps - 1)))) if steps > 1 else []
    payments = Payments((2, 3), delay)
    pieces = zip(np.split(reward, cuts), np.split(ended, cuts), strict=True)
    wages = np.concatenate([payments.pay_all(*piece) for piece in pieces])
    for place in np.ndindex(2, 3):
        bounds = [0, *(np.flatnonzero(ended[:, *place]) + 1), steps]
        for begin, end in itertools.pairwise(bounds):
            whole = in_a_loop(reward[begin:end, *place].tolist(), delay)
            if end == steps and begin < end and not ended[-1, *place]:
                whole[-1] = whole[-1] if (end - begin) % delay == 0 else 0.0  # not at its end yet: still owed
            assert wages[begin:end, *place].tolist() == whole
    unpaid = reward.sum(0) - wages.sum(0)
    np.testing.assert_array_equal(payments.owed, unpaid, "what is not paid is owed, to the last penny")


def counting(delay, steps=5):
    config = override(resolve("gym:host_probes:Counter-v0", "authors"), {"engine": "gymnasium"})
    spaces = engines.inspect(config)
    vector = engines.make_vector(config, spaces, [0, 1])
    collector = HostCollector([Part(slice(0, 2), vector)], spaces.spec, 1, steps, delay)
    collector.begin(np.array([[0, 1]]))
    return collector


def test_rollouts_have_delayed_rewards_and_the_episodes_own_returns():
    """Of the probe's seed 0: 1, 2 | 101, 102, 103 | 201 ...; of seed 1: 1, 2, 3 | 101, 102, 103, 104 | 201 ..."""
    plain, delayed = counting(1), counting(3)
    for _ in range(4):
        one, other = (c.collect(lambda *step: np.zeros((1, 2), np.int32), 0) for c in (plain, delayed))
        ended = one.terminated | one.truncated
        np.testing.assert_array_equal(one.episode_return[ended], other.episode_return[ended])
        np.testing.assert_array_equal(one.episode_length, other.episode_length)
        np.testing.assert_array_equal(one.observation, other.observation)
    again = counting(3)
    wages = again.collect(lambda *step: np.zeros((1, 2), np.int32), 0).reward[:, 0].T.tolist()
    assert wages == [[0.0, 3.0, 0.0, 0.0, 306.0], [0.0, 0.0, 6.0, 0.0, 0.0]]
    later = again.collect(lambda *step: np.zeros((1, 2), np.int32), 0).reward[:, 0].T.tolist()
    assert later[1][:2] == [306.0, 104.0], "what the first rollout left unpaid"


def test_a_reward_that_is_not_finite_is_told_when_it_is_earned_not_when_it_is_paid():
    """The eighth step of the probe earns infinity; with a delay of 20 it would be paid at the end of the episode."""
    from self_imitation.errors import FaultyEnvironmentError

    config = override(resolve("gym:host_probes:InfiniteReward-v0", "authors"), {"engine": "gymnasium"})
    spaces = engines.inspect(config)
    vector = engines.make_vector(config, spaces, [0, 1])
    collector = HostCollector([Part(slice(0, 2), vector)], spaces.spec, 1, 4, delay=20)
    collector.begin(np.array([[0, 1]]))
    collector.collect(lambda *step: np.zeros((1, 2), np.int32), 0)
    with pytest.raises(FaultyEnvironmentError, match=r"^its reward was inf, at step 16$"):
        collector.collect(lambda *step: np.zeros((1, 2), np.int32), 8)


def test_a_run_with_a_delay_learns_from_delayed_rewards_and_tells_whole_returns(tmp_path, monkeypatch):
    """The pole pays 1 a step: with a delay of 7, 0 or 7 and at the end the rest; the returns are the lengths."""
    seen = []
    columns = Collecting.columns

    def noted(collecting):
        seen.append(columns(collecting))
        return seen[-1]

    monkeypatch.setattr(Collecting, "columns", noted)
    settings = {"agent": "a2c+sil", "steps": 800, **SMALL, "lanes": 1, "delay": 7, "out": str(tmp_path / "run")}
    run, _ = start(validate(resolve("gym:CartPole-v1", "authors", settings)), Silent())
    ended = np.concatenate([rollout.terminated | rollout.truncated for rollout in seen])
    reward = np.concatenate([rollout.reward for rollout in seen])
    length = np.concatenate([rollout.episode_length for rollout in seen])
    np.testing.assert_array_equal(reward, np.where(length % 7 == 0, 7, np.where(ended, length % 7, 0)))
    assert all(row["return_mean"] == pytest.approx(row["length_mean"]) for row in run.metrics())
    assert run.config.delay == 7


def test_environments_on_the_device_take_no_delay():
    for settings, name in (({"delay": 20}, "delay: 20"), ({"engine": "gymnasium"}, "engine: 'gymnasium'")):
        with pytest.raises(UsageError, match=f"{name} is not allowed; key-door-treasure runs on the device; allowed: "):
            validate(resolve("key-door-treasure", "authors", settings))
