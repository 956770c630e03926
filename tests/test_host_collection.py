"""Acting on the host: every transition is one that an action made, whatever engine runs the environments."""

from collections import deque
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from host_probes import FAULT_STEP
from self_imitation.columns import shapes
from self_imitation.host_collection import HostCollector, Part

from self_imitation import collection
from self_imitation.config import override, resolve
from self_imitation.environments.gymnasium import make as engines
from self_imitation.environments.gymnasium.vector import EnvPoolVector, HostVector
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.errors import FaultyEnvironmentError

FIELDS = (
    "observation",
    "action",
    "reward",
    "terminated",
    "truncated",
    "next_observation",
    "episode_return",
    "episode_length",
)
MODES = list(AutoresetMode)


def config_of(env, engine="gymnasium"):
    return override(resolve(env, "authors"), {"engine": engine})


def probe(name):
    return f"gym:host_probes:{name}-v0"


SPEC = engines.inspect(config_of(probe("Counter"))).spec


def sync_vector(env, count, mode=AutoresetMode.SAME_STEP, copy=False):
    makers = [partial(engines.make_one, env)] * count
    return HostVector(SyncVectorEnv(makers, copy=copy, autoreset_mode=mode), engines.inspect(config_of(env)))


def transitions(seed, steps):
    """Those of `Counter`, worked out without it."""
    episode, time, total = 0, 0, 0.0
    for _ in range(steps):
        over = time + 1 == 2 + (seed + episode) % 3
        total += 100 * episode + time + 1
        yield {
            "observation": [seed, episode, time],
            "reward": 100 * episode + time + 1,
            "terminated": over and episode % 3 in (0, 2),
            "truncated": over and episode % 3 in (1, 2),
            "next_observation": [seed, episode, time + 1],
            "episode_return": total,
            "episode_length": time + 1,
        }
        episode, time, total = (episode + 1, 0, 0.0) if over else (episode, time + 1, total)


def assert_counts(rollout, seeds, before=0):
    """The rollout is what `Counter` does after so many steps in each of the environments [K, N]."""
    steps = rollout.reward.shape[0]
    for place, seed in np.ndenumerate(seeds):
        wanted = list(transitions(int(seed), before + steps + 1))[before:]
        for field in wanted[0]:
            expected = [step[field] for step in wanted[:steps]]
            np.testing.assert_array_equal(getattr(rollout, field)[:, *place], expected, err_msg=f"{field} of {seed}")
        np.testing.assert_array_equal(rollout.last_observation[place], wanted[steps]["observation"])


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("mode", MODES)
def test_no_transition_is_made_up_and_none_is_lost(mode, count, copy):
    """Widths and modes change nothing; one that ends does not touch its neighbours."""
    seeds = np.arange(count)[None]
    collector = HostCollector([Part(slice(0, count), sync_vector(probe("Counter"), count, mode, copy))], SPEC, 1, 30, 1)
    collector.begin(seeds)
    assert_counts(collector.collect(zeros, 0), seeds)


def zeros(part, time, observation):
    return np.zeros(observation.shape[:2], np.int32)


def by_observation(part, time, observation):
    """A policy that is a fixed function of what it sees."""
    return (observation.sum(-1) % 2).astype(np.int32)


def counting(columns, seeds=2, steps=7, delay=1, env="Counter"):
    spaces = engines.inspect(config_of(probe(env)))
    parts = [Part(part, sync_vector(probe(env), seeds * (part.stop - part.start))) for part in columns]
    return HostCollector(parts, spaces.spec, seeds, steps, delay)


NUMBERS = np.array([[10, 11, 12], [20, 21, 22]])


def test_rollouts_are_time_seeds_environments():
    collector = counting([slice(0, 3)])
    collector.begin(NUMBERS)
    rollout = collector.collect(by_observation, 0)
    expected = shapes(collector.spec, (7, 2, 3))
    for name in (*FIELDS, "last_observation"):
        found, wanted = getattr(rollout, name), getattr(expected, name)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), name
    assert_counts(rollout, NUMBERS)


def test_rollouts_follow_on_each_other():
    """Episodes run on over several rollouts, and so do their returns and lengths."""
    collector = counting([slice(0, 3)], steps=2)
    collector.begin(NUMBERS)
    for number in range(8):
        assert_counts(collector.collect(zeros, 0), NUMBERS, before=2 * number)


def test_two_parts_give_the_same_transitions_as_one():
    whole, parted = counting([slice(0, 3)]), counting([slice(0, 2), slice(2, 3)])
    asked = []

    def act(part, time, observation):
        asked.append((part, time, observation.shape))
        return by_observation(part, time, observation)

    for collector in (whole, parted):
        collector.begin(NUMBERS)
    for _ in range(3):
        one, two = whole.collect(by_observation, 0), parted.collect(act, 0)
        for name in (*FIELDS, "last_observation"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    shapes = [(0, (2, 2, 3)), (1, (2, 1, 3))]
    assert asked == [(part, time, shape) for _ in range(3) for time in range(7) for part, shape in shapes]


def test_the_policy_sees_what_is_stored_beside_its_action():
    collector, seen = counting([slice(0, 3)]), []
    collector.begin(NUMBERS)

    def act(part, time, observation):
        seen.append(observation.copy())
        return by_observation(part, time, observation)

    rollout = collector.collect(act, 0)
    np.testing.assert_array_equal(rollout.observation, np.stack(seen))
    np.testing.assert_array_equal(rollout.action, np.stack(seen).sum(-1) % 2)


def test_one_part_steps_while_the_policy_acts_for_the_other():
    """Each part gets its action before the other one's answer is waited for."""
    calls = []

    class Watched:
        def __init__(self, number, vector):
            self.number, self.vector = number, vector

        def __getattr__(self, name):
            if name in ("send", "receive"):
                calls.append((name, self.number))
            return getattr(self.vector, name)

    collector = counting([slice(0, 2), slice(2, 3)], steps=2)
    collector.parts = [Part(part.columns, Watched(i, part.vector)) for i, part in enumerate(collector.parts)]
    collector.begin(NUMBERS)
    collector.collect(zeros, 0)
    assert calls == [
        *[("send", 0), ("send", 1)],
        *[("receive", 0), ("send", 0), ("receive", 1), ("send", 1)],
        *[("receive", 0), ("receive", 1)],
    ]


@pytest.mark.parametrize("columns", [[slice(0, 3)], [slice(0, 2), slice(2, 3)]])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "it raised ZeroDivisionError: the ball left the field"),
        ("RaisesInOne", "it raised ZeroDivisionError: the ball left the field"),
        ("NotANumber", r"its observation had nan at place \[1\]"),
        ("InfiniteReward", "its reward was inf"),
        ("WrongShape", r"its observation has shape \(2,\), not \(3,\)"),
    ],
)
def test_a_fault_names_the_step_at_which_it_came(columns, name, message):
    """Step 8 of each of three environments, after the 100 steps that the seed had made before."""
    collector = counting(columns, steps=5, env=name)
    collector.begin(NUMBERS)
    collector.collect(zeros, 100)
    with pytest.raises(FaultyEnvironmentError, match=rf"^{message}, at step {100 + 3 * FAULT_STEP}$"):
        collector.collect(zeros, 115)


def test_a_number_that_is_none_in_the_last_state_of_an_episode_is_not_passed_over():
    """No policy acts in that state, but a value is asked for it."""
    collector = counting([slice(0, 3)], steps=5, env="NotANumberAtItsEnd")
    collector.begin(NUMBERS)
    with pytest.raises(FaultyEnvironmentError, match=r"^its observation had nan at place \[1\], at step 9$"):
        collector.collect(zeros, 0)


def test_a_fault_at_the_reset_within_a_rollout_names_its_step():
    collector = counting([slice(0, 3)], steps=7, env="RaisesAtThirdReset")
    collector.begin(NUMBERS)
    with pytest.raises(
        FaultyEnvironmentError, match=r"^it raised ConnectionError: the game server is away, at step 18$"
    ):
        collector.collect(zeros, 0)


class Table:
    """A distribution with one action, looked up."""

    def __init__(self, action):
        self.action = action

    def sample(self, key):
        return self.action


def shortest_way():
    """A shortest way to the treasure, as actions: what comes first in order of length."""
    maze = gymnasium.make("self_imitation/KeyDoorTreasure-v0").unwrapped
    seen, waiting = set(), deque([[]])
    while True:
        way = waiting.popleft()
        for action in range(4):
            maze.reset()
            for move in [*way, action]:
                observation, _, terminated, _, _ = maze.step(move)
            if terminated:
                return [*way, action]
            if tuple(observation) not in seen:
                seen.add(tuple(observation))
                waiting.append([*way, action])


def test_the_same_rollout_as_on_the_device():
    """Key-Door-Treasure on both sides: 26 steps to the treasure, or at a loss until step 50."""
    way, environment = shortest_way(), KeyDoorTreasure(False)
    table = np.full(environment.spec.observation_levels, 1)
    maze = gymnasium.make("self_imitation/KeyDoorTreasure-v0")
    observation, _ = maze.reset()
    for action in way:
        table[tuple(observation.astype(int))] = action
        observation, *_ = maze.step(action)
    lost = np.random.default_rng(3).integers(4, size=table.shape)
    for policy, steps, length in ((table, 60, 26), (lost, 110, 50)):

        def on_device(_, observation, policy=policy):
            return Table(jnp.asarray(policy)[tuple(jnp.moveaxis(observation.astype(int), -1, 0))]), None

        def on_host(part, time, observation, policy=policy):
            return policy[tuple(np.moveaxis(observation.astype(int), -1, 0))].astype(np.int32)

        begun = collection.begin(environment, 2, jax.random.key(0))
        _, expected = collection.collect_on_device(environment, on_device, None, begun, steps, jax.random.key(1))
        env = "gym:self_imitation/KeyDoorTreasure-v0"
        vector = sync_vector(env, 2)
        collector = HostCollector([Part(slice(0, 2), vector)], vector.spaces.spec, 1, steps, 1)
        collector.begin(np.array([[0, 1]]))
        rollout = collector.collect(on_host, 0)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(rollout, name)[:, 0], np.asarray(getattr(expected, name)), name)
        np.testing.assert_array_equal(rollout.last_observation[0], np.asarray(expected.last_observation))
        assert np.argmax(rollout.terminated | rollout.truncated, axis=0).tolist() == [[length - 1] * 2]
        assert rollout.terminated.any() == (length == 26)


def pool(env, count):
    config = config_of(env, "envpool")
    return engines.make_vector(config, engines.inspect(config), list(range(count)))


def balancing(part, time, observation):
    """A controller that keeps the pole up."""
    return (observation @ np.array([0.1, 0.5, 1.0, 1.0]) > 0).astype(np.int32)


@pytest.mark.parametrize("count", [1, 3, 16])
def test_envpool_makes_no_transition_up(count):
    """Each one is a step of the cart's physics, or the end of it; after an end comes a first state."""
    vector = pool("gym:CartPole-v1", count)
    assert isinstance(vector, EnvPoolVector)
    elapsed, step, place = [], vector._step, vector.env._state_keys.index("elapsed_step")
    clocks, receive = [], vector.env._recv
    vector.env._recv = lambda: clocks.append((answer := receive())[place].copy()) or answer
    vector._step = lambda: (step(), elapsed.append(clocks[-1]))[0]  # what a reset receives is no step
    collector = HostCollector([Part(slice(0, count), vector)], vector.spaces.spec, 1, 40, 1)
    collector.begin(np.zeros((1, count), int))
    rollout = collector.collect(by_position, 0)
    physics = gymnasium.make("CartPole-v1").unwrapped
    physics.reset()
    for time, place in np.ndindex(40, count):
        physics.state, physics.steps_beyond_terminated = rollout.observation[time, 0, place].astype(float), None
        expected, _, terminated, _, _ = physics.step(int(rollout.action[time, 0, place]))
        np.testing.assert_allclose(rollout.next_observation[time, 0, place], expected, rtol=1e-4, atol=1e-5)
        assert rollout.terminated[time, 0, place] == terminated
    ended = rollout.terminated[:, 0]
    assert ended.sum() >= count
    begun = np.concatenate([rollout.observation[1:, 0], rollout.last_observation])[ended]
    assert (np.abs(begun) <= 0.05).all(), "a first state"
    assert len(np.unique(begun, axis=0)) == len(begun), "each another one"
    onwards = rollout.next_observation[:-1, 0][~ended[:-1]]
    np.testing.assert_array_equal(rollout.observation[1:, 0][~ended[:-1]], onwards)
    np.testing.assert_array_equal(np.stack(elapsed), rollout.episode_length[:, 0], "steps that EnvPool counts")
    np.testing.assert_array_equal(rollout.episode_return, rollout.episode_length, "each step pays 1")


def by_position(part, time, observation):
    """To the right on one half, so that episodes end at different times."""
    return (observation[..., 2] > -0.01).astype(np.int32) * (observation[..., 0] > -0.02)


def test_envpool_tells_the_time_limit_from_a_fall():
    vector = pool("gym:CartPole-v1", 2)
    collector = HostCollector([Part(slice(0, 2), vector)], vector.spaces.spec, 1, 505, 1)
    collector.begin(np.zeros((1, 2), int))
    rollout = collector.collect(balancing, 0)
    assert not rollout.terminated.any()
    assert np.argwhere(rollout.truncated).tolist() == [[499, 0, 0], [499, 0, 1]]
    assert (rollout.episode_length[499:501, 0] == [[500], [1]]).all()
    assert (np.abs(rollout.observation[500]) <= 0.05).all()
    place_and_angle = rollout.next_observation[498:500, 0][..., [0, 2]]
    np.testing.assert_allclose(
        place_and_angle[1], place_and_angle[0], atol=0.02, err_msg="where it was, not a new start"
    )


def test_envpool_hopper_begins_anew_where_it_fell():
    vector = pool("mujoco:Hopper", 3)
    collector = HostCollector([Part(slice(0, 3), vector)], vector.spaces.spec, 1, 150, 1)
    collector.begin(np.zeros((1, 3), int))
    rollout = collector.collect(lambda part, time, seen: np.full((1, 3, 3), 2.0, np.float32) * [[[1], [-1], [0]]], 0)
    assert (rollout.action[:, 0, 0] == 2).all(), "stored as the policy chose it"
    first = np.concatenate([rollout.observation[1:], rollout.last_observation[None]])[rollout.terminated]
    assert len(first) >= 6
    np.testing.assert_allclose(first[:, 0], 1.25, atol=0.0051, err_msg="the height at which every episode begins")
    height, angle = rollout.next_observation[..., 0], rollout.next_observation[..., 1]
    healthy = (height > 0.7) & (np.abs(angle) < 0.2)
    np.testing.assert_array_equal(rollout.terminated, ~healthy, "it is over when it falls, and then only")
