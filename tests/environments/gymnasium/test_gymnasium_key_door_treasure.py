"""Key-Door-Treasure as Gymnasium environments, against a second implementation in plain Python."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from key_door_treasure_twin import (
    APPLES,
    DOOR,
    KEY,
    LEFT,
    LIMIT,
    RIGHT,
    START,
    TREASURE,
    UP,
    first_place,
    move,
    observed,
    return_of,
    search,
)

import self_imitation
from self_imitation.environments.gymnasium.key_door_treasure import KeyDoorTreasureEnv
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.errors import UsageError

IDS = {False: "self_imitation/KeyDoorTreasure-v0", True: "self_imitation/AppleKeyDoorTreasure-v0"}
both_mazes = pytest.mark.parametrize("apples", [False, True], ids=["plain", "apples"])


@both_mazes
@pytest.mark.filterwarnings("error")
def test_gymnasiums_checker_finds_no_fault(apples):
    assert self_imitation.__version__
    for render_mode in (None, "ansi", "rgb_array"):
        check_env(gymnasium.make(IDS[apples], render_mode=render_mode).unwrapped)


@both_mazes
def test_spaces(apples):
    environment = gymnasium.make(IDS[apples])
    assert environment.action_space == gymnasium.spaces.Discrete(4)
    highest = np.array([12, 12, *[1] * (5 if apples else 3)], np.float32)
    assert environment.observation_space == gymnasium.spaces.Box(np.zeros_like(highest), highest)
    observation, info = environment.reset(seed=0)
    assert (observation.dtype, observation.tolist(), info) == (np.float32, observed(first_place(apples)), {})


def test_returned_observations_are_independent():
    environment = gymnasium.make(IDS[False])
    first, _ = environment.reset()
    kept = first.copy()
    first[:] = -1
    second, *_ = environment.step(RIGHT)
    environment.step(RIGHT)
    assert second.tolist() == [3, 8, 1, 1, 1]
    second[:] = -1
    assert environment.step(LEFT)[0].tolist() == [3, 8, 1, 1, 1]
    assert environment.reset()[0].tolist() == kept.tolist()


@both_mazes
def test_random_walks_equal_the_twin_and_the_pure_jax_environment(apples):
    """Eight walks of 160 steps, so three time limits each; right and down twice as likely, to find something."""
    environment, pure = gymnasium.make(IDS[apples]), KeyDoorTreasure(apples)
    step = jax.jit(pure.step)
    rewarded, draw = 0, np.random.default_rng(1)
    for _ in range(8):
        place, time, state = first_place(apples), 0, pure.reset(jax.random.key(0))
        environment.reset()
        for action in draw.choice(4, size=160, p=[1 / 6, 1 / 3, 1 / 3, 1 / 6]):
            place, reward, terminated = move(place, action)
            time += 1
            truncated = time == LIMIT and not terminated
            wanted = observed(place), reward, terminated, truncated
            observation, *rest = environment.step(action)
            assert (observation.tolist(), *rest) == (*wanted, {})
            pure_step = step(state, action)
            found = (pure_step.observation, pure_step.reward, pure_step.terminated, pure_step.truncated)
            assert tuple(np.asarray(field).tolist() for field in found) == wanted
            rewarded += reward > 0
            state = pure_step.state
            if terminated or truncated:
                place, time, state = first_place(apples), 0, pure.reset(jax.random.key(0))
                environment.reset()
    assert rewarded > 0


@both_mazes
def test_the_shortest_way_to_the_treasure(apples):
    """With 24 (8) steps against a wall before it, the treasure is found at step 50: a termination, no truncation."""
    best = 9.0 if apples else 7.0
    way = min((way for way in search(apples).values() if return_of(way, apples) == best), key=len)
    environment = gymnasium.make(IDS[apples])
    wasted = LIMIT - len(way)
    # One step left, then against the wall there, and one step back.
    for actions in (way, (LEFT, *[LEFT] * (wasted - 2), RIGHT, *way)):
        environment.reset()
        total = 0.0
        for count, action in enumerate(actions, start=1):
            _, reward, terminated, truncated, _ = environment.step(action)
            total += reward
            assert (terminated, truncated) == (count == len(actions), False)
        assert total == best
    environment.reset()
    for action in (LEFT, *[LEFT] * (wasted - 1), RIGHT, *way[:-1]):
        _, _, terminated, truncated, _ = environment.step(action)
    assert (terminated, truncated) == (False, True), "one step later is too late"


PICTURE = """\
#############
#.....#T....#
#...a.#.....#
#.....#.....#
#.a...#.....#
#.....#.....#
##.########D#
#.....#.....#
#.@...#.....#
#...........#
#.....#.....#
#.....#....K#
#############"""


@both_mazes
def test_rendering_as_text(apples):
    environment = gymnasium.make(IDS[apples], render_mode="ansi")
    environment.reset()
    picture = PICTURE if apples else PICTURE.replace("a", ".")
    assert environment.render() == picture
    environment.step(UP)
    moved = picture.replace("#.....#.....#\n#.@...#", "#.@...#.....#\n#.....#")
    assert moved != picture
    assert environment.render() == moved


def test_rendering_shows_what_was_taken():
    environment = gymnasium.make(IDS[True], render_mode="ansi")
    environment.reset()
    ways = (way for place, way in search(True).items() if not place.treasure and not any(place.apples))
    for action in min(ways, key=len):
        environment.step(action)
    assert set(environment.render()) == {"#", ".", "@", "\n"}


@both_mazes
def test_rendering_as_pixels(apples):
    environment = gymnasium.make(IDS[apples], render_mode="rgb_array")
    environment.reset()
    before = environment.render()
    assert (before.dtype, before.ndim, before.shape[2]) == (np.uint8, 3, 3)
    assert before.shape[0] == before.shape[1]
    assert before.shape[0] % 13 == 0
    environment.step(UP)
    after = environment.render()
    size = before.shape[0] // 13

    def tile(image, row, column):
        return image[row * size : (row + 1) * size, column * size : (column + 1) * size]

    changed = {cell for cell in np.ndindex(13, 13) if (tile(before, *cell) != tile(after, *cell)).any()}
    assert changed == {(8, 2), (7, 2)}
    np.testing.assert_array_equal(tile(before, 8, 2), tile(after, 7, 2), "the agent")
    looks = {tile(before, *cell).tobytes() for cell in (START, KEY, DOOR, TREASURE, (0, 0), (1, 1))}
    assert len(looks) == 6
    assert (tile(before, *APPLES[0]) != tile(before, 1, 1)).any() == apples


def test_render_modes():
    environment = gymnasium.make(IDS[False]).unwrapped
    environment.reset()
    assert environment.render() is None
    with pytest.raises(UsageError, match="render_mode: 'braille'"):
        KeyDoorTreasureEnv(render_mode="braille")


def test_reset_comes_first():
    for environment in (gymnasium.make(IDS[False], render_mode="ansi"), KeyDoorTreasureEnv(render_mode="ansi")):
        with pytest.raises(gymnasium.error.ResetNeeded):
            environment.step(UP)
        with pytest.raises(gymnasium.error.ResetNeeded):
            environment.render()


@pytest.mark.parametrize("action", [-1, 4, np.int64(-4)])
def test_an_unknown_action_is_refused_and_takes_no_time(action):
    environment = gymnasium.make(IDS[False])
    environment.reset()
    for _ in range(LIMIT - 1):
        with pytest.raises(UsageError, match=rf"action: {int(action)} is not allowed; allowed: 0 to 3"):
            environment.step(action)
        environment.step(UP)
    observation, _, _, truncated, _ = environment.step(LEFT)
    assert truncated
    # Up through the opening at column 2 to the upper wall, then one step left.
    assert observation.tolist() == [1, 1, 1, 1, 1]
