"""N copies of an environment: every transition is the result of an action, in this process and in workers."""

import multiprocessing
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import gymnasium_probes
import jax
import numpy as np
import pytest
from gymnasium_probes import ACTION_SPACES, FAULT_STEP, FAULTS_AT_RESET, FAULTS_WHILE_TRAINING, SPACES, sample

from self_imitation.environments.gymnasium.spaces import describe
from self_imitation.environments.gymnasium.vector import make_vector
from self_imitation.errors import FaultyEnvironmentError, Interrupted, UsageError


def probe(name, count, in_processes=False):
    return make_vector(f"gymnasium_probes:{name}-v0", count, in_processes)


def walk(vector, seeds, steps, action=None):
    """Pairs of the observation acted on and the step's result."""
    observation = vector.reset(seeds)
    for _ in range(steps):
        result = vector.step(np.zeros(len(seeds), np.int32) if action is None else action)
        yield observation, result
        observation = result.observation


def transitions(seed, steps):
    """Those of `Counter`, computed without it."""
    episode, time = 0, 0
    for _ in range(steps):
        over = time + 1 == 2 + (seed + episode) % 3
        ends = over and episode % 3 in (0, 2), over and episode % 3 in (1, 2)
        yield [seed, episode, time], [seed, episode, time + 1], 100 * episode + time + 1, *ends
        episode, time = (episode + 1, 0) if over else (episode, time + 1)


def assert_counts(vector, seeds, steps=30):
    walked = list(walk(vector, seeds, steps))
    for row, seed in enumerate(seeds):
        found = [
            (seen[row].tolist(), result[0][row].tolist(), *(float(field[row]) for field in result[1:4]))
            for seen, result in walked
        ]
        assert found == list(transitions(seed, steps))


def test_two_episodes_by_hand():
    """Seed 0: two steps that end by termination, three by truncation, the first step of a third episode."""
    found = [
        (*map(int, seen[0]), *map(int, result.next_observation[0]), *(float(field[0]) for field in result[1:4]))
        for seen, result in walk(probe("Counter", 1), [0], 6)
    ]
    assert found == [
        (0, 0, 0, 0, 0, 1, 1.0, False, False),
        (0, 0, 1, 0, 0, 2, 2.0, True, False),
        (0, 1, 0, 0, 1, 1, 101.0, False, False),
        (0, 1, 1, 0, 1, 2, 102.0, False, False),
        (0, 1, 2, 0, 1, 3, 103.0, False, True),
        (0, 2, 0, 0, 2, 1, 201.0, False, False),
    ]


@pytest.mark.parametrize("count", [1, 3, 16])
def test_no_transition_is_invented_or_lost(count):
    assert_counts(probe("Counter", count), list(range(count)))


def test_results_have_float64_rewards_and_float32_numbers():
    vector = probe("Counter", 3)
    (_, result), *_ = walk(vector, [0, 1, 2], 1)
    assert vector.num_envs == 3
    assert (result.reward.dtype, result.reward.shape) == (np.float64, (3,))
    assert (result.terminated.dtype, result.truncated.dtype, result.observation.dtype) == (bool, bool, np.float32)


def test_workers_take_the_same_steps():
    vector = probe("Counter", 2, in_processes=True)
    try:
        assert_counts(vector, [4, 5])
    finally:
        vector.close()
    assert multiprocessing.active_children() == []


def test_workers_flatten_nested_observations_too():
    here, workers = probe("SampledNested", 2), probe("SampledNested", 2, in_processes=True)
    try:
        assert workers.spaces.spec == here.spaces.spec
        assert workers.spaces.notes == here.spaces.notes == ("observation 'goal.1.hint' is text and is ignored",)
        for one, other in zip(walk(here, [3, 4], 7), walk(workers, [3, 4], 7), strict=True):
            jax.tree.map(np.testing.assert_array_equal, one, other)
    finally:
        workers.close()


@pytest.mark.parametrize(
    ("name", "length", "terminated", "truncated"),
    [("ThreeSteps", 3, True, False), ("Limited", 4, False, True), ("LimitedAtItsEnd", 3, True, True)],
)
def test_termination_time_limit_and_both_at_once(name, length, terminated, truncated):
    for time, (seen, result) in enumerate(walk(probe(name, 2), [7, 8], 13)):
        last = time % length == length - 1
        assert result.terminated.tolist() == [last and terminated] * 2
        assert result.truncated.tolist() == [last and truncated] * 2
        assert seen[:, 2].tolist() == [time % length] * 2
        assert result.next_observation[:, 2].tolist() == [time % length + 1] * 2
        assert seen[:, 0].tolist() == result.next_observation[:, 0].tolist() == [7, 8]


@pytest.mark.parametrize("name", SPACES)
def test_every_kind_of_observation_arrives_unchanged(name):
    """Nothing that was returned is overwritten later."""
    vector = probe(f"Sampled{name}", 2)
    described = describe(SPACES[name], vector.spaces.action_space, None, name)
    for time, (seen, result) in enumerate(list(walk(vector, [3, 4], 5))):
        episode, step = divmod(time, 3)
        for row, seed in enumerate((3, 4)):
            for found, at in ((seen, step), (result.next_observation, step + 1)):
                raw = jax.tree.map(lambda leaf: np.asarray(leaf)[None], sample(SPACES[name], seed, episode, at))
                wanted = described.observation(raw)
                jax.tree.map(lambda a, b, row=row: np.testing.assert_array_equal(a[row], b[0]), found, wanted)


def test_the_last_observation_survives_a_reset_into_the_same_array():
    results = [result for _, result in walk(probe("SameArray", 1), [7], 3)]
    assert results[-1].next_observation.tolist() == [[7, 0, 3]]
    assert results[-1].observation.tolist() == [[7, 1, 0]]


CHOSEN = {
    "Discrete": lambda draw: draw.integers(3, size=3),
    "MultiDiscrete": lambda draw: draw.integers([2, 3, 4, 2], size=(3, 4)),
    "MultiBinary": lambda draw: draw.integers(2, size=(3, 4)),
    "Box": lambda draw: draw.normal(scale=3, size=(3, 6)).astype(np.float32),
}


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_actions_reach_the_right_environment(name):
    """Clipped and shifted into its own space; the probe refuses all others."""
    vector, draw = probe(f"Echo{name}", 3), np.random.default_rng(0)
    vector.reset([5, 6, 7])
    for _ in range(6):
        chosen = CHOSEN[name](draw)
        echoed = vector.step(chosen).next_observation
        if name == "Box":
            wanted = np.clip(chosen, [-1, -2, 0, -0.5, 10, -np.inf], [1, 2, 3, 0.5, 11, np.inf])
        else:
            wanted = chosen + np.array({"Discrete": -1, "MultiDiscrete": [0, 5, -1, 0], "MultiBinary": 0}[name])
        np.testing.assert_array_equal(echoed[:, 2:], wanted.reshape(3, -1).astype(np.float32))
        assert echoed[:, 0].tolist() == [5, 6, 7]


def test_seeds_decide_everything():
    first, same, other = (
        list(walk(make_vector("CartPole-v1", 2, False), seeds, 40)) for seeds in ([1, 2],) * 2 + ([3, 4],)
    )
    for (seen, _), (again, _) in zip(first, same, strict=True):
        np.testing.assert_array_equal(seen, again)
    assert not np.array_equal(first[0][0], other[0][0])
    assert not np.array_equal(first[0][0][0], first[0][0][1]), "each copy has its own"


@pytest.mark.parametrize("name", FAULTS_WHILE_TRAINING)
def test_faults_are_one_sentence(name):
    vector = probe(name, 3)
    vector.reset([20, 21, 22])
    for _ in range(FAULT_STEP - 1):
        vector.step(np.zeros(3, np.int32))
    with pytest.raises(FaultyEnvironmentError) as fault:
        vector.step(np.zeros(3, np.int32))
    assert str(fault.value).startswith(FAULTS_WHILE_TRAINING[name])
    assert "\n" not in str(fault.value)


class Weird(BaseException):
    """Neither an error nor an exit."""


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StopIteration("x"), "raised StopIteration: x"),
        (GeneratorExit("x"), "raised GeneratorExit: x"),
        (Weird("x"), "raised Weird: x"),
        (MuteError(), "raised MuteError"),
        (ValueError("x" * 10_000), f"raised ValueError: {'x' * 300}"),
    ],
)
def test_whatever_is_raised_is_reported(error, message, monkeypatch):
    def fail(*_):
        raise error

    vector = probe("ThreeSteps", 1)
    vector.reset([0])
    monkeypatch.setattr(gymnasium_probes.ThreeSteps, "reward", fail)
    with pytest.raises(FaultyEnvironmentError) as fault:
        vector.step(np.zeros(1, np.int32))
    assert str(fault.value) == message


def test_a_keyboard_interrupt_without_ctrl_c_is_the_environments_own(monkeypatch):
    """In a thread, or while Ctrl-C is handled: nobody pressed it. Otherwise somebody may have."""
    vector = probe("ThreeSteps", 1)
    vector.reset([0])
    monkeypatch.setattr(gymnasium_probes.ThreeSteps, "reward", interrupt)
    with ThreadPoolExecutor(1) as thread, pytest.raises(FaultyEnvironmentError, match=r"^raised KeyboardInterrupt$"):
        thread.submit(vector.step, np.zeros(1, np.int32)).result()
    with pytest.raises(KeyboardInterrupt):
        vector.step(np.zeros(1, np.int32))
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with pytest.raises(FaultyEnvironmentError, match=r"^raised KeyboardInterrupt$"):
            vector.step(np.zeros(1, np.int32))
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("failure", [ValueError("no"), SystemExit(3)])
def test_a_fault_in_close_is_returned(failure, monkeypatch):
    def close(_):
        raise failure

    vector = probe("Counter", 2)
    monkeypatch.setattr(gymnasium_probes.Counter, "close", close)
    assert vector.close() == f"close() raised {type(failure).__name__}: {failure}"


def test_an_interrupted_environment_makes_no_further_step():
    vector = probe("Counter", 3)
    vector.reset([0, 1, 2])
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 2  # once for all copies, then before the step of each

    vector.interrupt_when(stop)
    with pytest.raises(Interrupted):
        vector.step(np.zeros(3, np.int32))
    assert [env.unwrapped.life for env in vector.env.envs] == [1, 0, 0]


@pytest.mark.parametrize("name", FAULTS_AT_RESET)
def test_faults_at_the_first_reset(name):
    with pytest.raises(FaultyEnvironmentError) as fault:
        probe(name, 2).reset([0, 1])
    assert str(fault.value).startswith(FAULTS_AT_RESET[name])


def test_a_fault_in_one_copy_and_at_a_later_reset():
    vector = probe("RaisesInOne", 3)
    with pytest.raises(FaultyEnvironmentError, match=r"^raised ZeroDivisionError: the ball left the field$"):
        list(walk(vector, [20, 21, 22], FAULT_STEP))
    steps = walk(probe("RaisesAtThirdReset", 1), [0], 9)
    assert len([next(steps) for _ in range(5)]) == 5
    with pytest.raises(FaultyEnvironmentError, match=r"^raised ConnectionError: the game server is away$"):
        next(steps)


def test_nan_in_the_last_observation_of_an_episode_is_found():
    """No policy acts on it, but its value is needed."""
    with pytest.raises(FaultyEnvironmentError, match=r"^observation is nan at index \[1\]$"):
        list(walk(probe("NotANumberAtItsEnd", 2), [0, 1], 3))


def test_numbers_that_are_not_finite_are_named_by_their_part(monkeypatch):
    vector = probe("SampledNested", 2)
    bad = {"goal": (np.array([0, 0, 0, np.inf], np.float32), {"x": np.zeros(2, np.int32)}), "pace": 3}
    monkeypatch.setattr(gymnasium_probes.Sampled, "observe", lambda _: bad)
    with pytest.raises(FaultyEnvironmentError, match=r"^observation 'goal\.0' is inf at index \[3\]$"):
        vector.reset([0, 1])


def test_numbers_beyond_float32_are_not_finite(monkeypatch):
    vector = probe("SampledDouble", 1)
    monkeypatch.setattr(gymnasium_probes.Sampled, "observe", lambda _: np.full((2, 3), 1e300))
    wanted = r"^observation is 1e\+300 at index \[0, 0\], beyond the range of float32$"
    with pytest.raises(FaultyEnvironmentError, match=wanted):
        vector.reset([0])


@pytest.mark.parametrize(
    ("name", "message"), [("Raises", FAULTS_WHILE_TRAINING["Raises"]), ("Dies", "its process ended")]
)
def test_faults_in_workers(name, message):
    vector = probe(name, 2, in_processes=True)
    try:
        with (
            warnings.catch_warnings(record=True) as logged,
            pytest.raises(FaultyEnvironmentError, match=f"^{message}$"),
        ):
            list(walk(vector, [0, 1], FAULT_STEP))
        assert not [warning for warning in logged if "ERROR" in str(warning.message)], "no traceback from Gymnasium"
    finally:
        vector.close()
    assert multiprocessing.active_children() == [], "no worker is left"


def test_unsupported_spaces_are_refused_before_workers_start():
    for in_processes in (False, True):
        with pytest.raises(UsageError, match="has observation space Dict"):
            probe("DictOfText", 2, in_processes)
    assert multiprocessing.active_children() == []


def test_each_copy_is_built_once():
    gymnasium_probes.Counted.built = 0
    vector = probe("Counted", 3)
    list(walk(vector, [0, 1, 2], 5))
    assert gymnasium_probes.Counted.built == 3


def test_the_shortest_environment_works():
    (_, result), *_ = walk(probe("Bare", 2), [0, 1], 1)
    assert result.next_observation.tolist() == [[1.0], [1.0]]
    assert result.observation.tolist() == [[0.0], [0.0]]


def test_minigrid():
    """Its direction one-hot and its 7 x 7 x 3 view as numbers; its mission is ignored."""
    pytest.importorskip("minigrid")
    vector = make_vector("minigrid:MiniGrid-DoorKey-5x5-v0", 2, False)
    assert vector.spaces.spec.observation_shape == (4 + 147,)
    assert vector.spaces.notes == ("observation 'mission' is text and is ignored",)
    env = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    found, wanted = vector.reset([3, 4]), env.reset(seed=3)[0]
    for action in (0, 2, 1, 2, 1, 3, 2, 0, 5):
        np.testing.assert_array_equal(found[0], [*np.eye(4)[wanted["direction"]], *wanted["image"].reshape(-1)])
        found, wanted = vector.step(np.array([action, 0])).observation, env.step(action)[0]


def test_minigrid_in_workers():
    pytest.importorskip("minigrid")
    vector = make_vector("minigrid:MiniGrid-GoToObject-6x6-N2-v0", 1, True)
    try:
        assert vector.reset([0]).shape == (1, 151)
    finally:
        vector.close()


def test_flatten_observation_gives_the_same_numbers():
    flat = gymnasium.wrappers.FlattenObservation(gymnasium.make("gymnasium_probes:SampledDict-v0"))
    vector = probe("SampledDict", 1)
    assert flat.observation_space.shape == vector.spaces.spec.observation_shape
    np.testing.assert_array_equal(vector.reset([3])[0], flat.reset(seed=3)[0].astype(np.float32))
    for _ in range(2):
        wanted = flat.step(0)[0].astype(np.float32)
        np.testing.assert_array_equal(vector.step(np.zeros(1, int)).observation[0], wanted)
