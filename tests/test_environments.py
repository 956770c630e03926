"""Key-Door-Treasure against a second implementation in plain Python, in every state; and as Gymnasium environments."""

from functools import cache, partial
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import self_imitation
from self_imitation import collection
from self_imitation.distributions import Categorical
from self_imitation.environments import catalogue, on_device
from self_imitation.environments.gymnasium_maze import KeyDoorTreasureEnv
from self_imitation.environments.key_door_treasure import KeyDoorTreasure
from self_imitation.errors import UsageError
from self_imitation.types import Discrete

# The twin: four rooms of 5 x 5 cells with walls between them, two openings and a door.

ROOMS = [(top, left) for top in (1, 7) for left in (1, 7)]
FLOOR = {(top + i, left + j) for top, left in ROOMS for i in range(5) for j in range(5)} | {(6, 2), (9, 6), (6, 11)}
START, KEY, DOOR, TREASURE, APPLES = (8, 2), (11, 11), (6, 11), (1, 7), ((2, 4), (4, 2))
UP, RIGHT, DOWN, LEFT = range(4)
LIMIT = 50


class Place(NamedTuple):
    """A state without its clock: where the agent is, and what is still where it was."""

    cell: tuple[int, int]
    key: bool
    door: bool
    treasure: bool
    apples: tuple[bool, ...]


def first_place(apples):
    return Place(START, True, True, True, (True, True) if apples else ())


def move(place, action):
    """The next place, the reward, and whether the treasure was found."""
    row, column = place.cell
    cell = {UP: (row - 1, column), RIGHT: (row, column + 1), DOWN: (row + 1, column), LEFT: (row, column - 1)}[action]
    if cell not in FLOOR or (cell == DOOR and place.key):
        cell = place.cell
    reward = 0.0
    key, door, treasure, apples = place.key, place.door, place.treasure, list(place.apples)
    if cell == KEY and key:
        key, reward = False, reward + 1.0
    if cell == DOOR and door and not key:
        door, reward = False, reward + 2.0
    if cell == TREASURE and treasure and not door:
        treasure, reward = False, reward + 4.0
    for i, there in enumerate(apples):
        if there and cell == APPLES[i]:
            apples[i], reward = False, reward + 1.0
    return Place(cell, key, door, treasure, tuple(apples)), reward, not treasure


def observed(place):
    row, column = place.cell
    return [float(number) for number in (column, row, place.key, place.door, place.treasure, *place.apples)]


@cache
def search(apples):
    """Every place that can be reached, however long it takes: fewest steps to it, and one such way."""
    ways = {first_place(apples): ()}
    frontier = [first_place(apples)]
    while frontier:
        found = []
        for place in frontier:
            if not place.treasure:
                continue  # the episode is over
            for action in range(4):
                following, _, _ = move(place, action)
                if following not in ways:
                    ways[following] = (*ways[place], action)
                    found.append(following)
        frontier = found
    return ways


def return_of(actions, apples):
    place, total = first_place(apples), 0.0
    for action in actions:
        place, reward, _ = move(place, action)
        total += reward
    return total


both_mazes = pytest.mark.parametrize("apples", [False, True], ids=["plain", "apples"])


@both_mazes
def test_number_of_reachable_states(apples):
    """States without the clock, the ends included.

    77 cells lie this side of the door. With the key there: all but its own cell, 76; with the key taken: 77; with the
    door open: 103 less that of the treasure, 102; and the one in which the treasure is taken: 256. With apples, each
    of these with each apple there or eaten, less the states in which the agent stands on an apple that is there:
    (4 * 76 - 4) + (4 * 77 - 4) + (4 * 102 - 4) + 4 = 1012.
    """
    assert len(search(apples)) == (1012 if apples else 256)
    assert len({tuple(observed(place)) for place in search(apples)}) == len(search(apples))


@both_mazes
def test_best_return_within_the_time_limit(apples):
    """What was taken says what was earned, so the search over places covers every way of 50 steps or fewer."""
    in_time = {place: way for place, way in search(apples).items() if len(way) <= LIMIT}
    returns = {place: return_of(way, apples) for place, way in in_time.items()}
    best = max(returns.values())
    fewest = min(len(in_time[place]) for place, total in returns.items() if total == best)
    assert (best, fewest) == ((9.0, 42) if apples else (7.0, 26))


@cache
def device_steps(apples, time):
    """All reachable places that are no ends x all actions, on the device, at this time of the episode."""
    environment = KeyDoorTreasure(apples)
    places = [place for place in search(apples) if place.treasure]
    observations = jnp.array([observed(place) for place in places])

    def step(observation, action):
        state = environment.state_of(observation, jnp.int32(time))
        return environment.observe(state), environment.step(state, action)

    over_actions = jax.vmap(step, (None, 0))
    seen, steps = jax.jit(jax.vmap(over_actions, (0, None)))(observations, jnp.arange(4))
    np.testing.assert_array_equal(seen[:, 0], observations)  # `state_of` undoes `observe`
    return places, jax.tree.map(np.asarray, steps)


@both_mazes
def test_every_action_in_every_reachable_state(apples):
    places, steps = device_steps(apples, time=7)
    moves = [[move(place, action) for action in range(4)] for place in places]
    np.testing.assert_array_equal(steps.observation, [[observed(p) for p, _, _ in row] for row in moves])
    np.testing.assert_array_equal(steps.reward, [[reward for _, reward, _ in row] for row in moves])
    np.testing.assert_array_equal(steps.terminated, [[end for _, _, end in row] for row in moves])
    assert not steps.truncated.any()
    assert (steps.state.time == 8).all()
    assert steps.observation.dtype == steps.reward.dtype == np.float32


@both_mazes
def test_the_fiftieth_step_cuts_the_episode_unless_it_finds_the_treasure(apples):
    _, steps = device_steps(apples, time=LIMIT - 1)
    assert steps.terminated.any()
    np.testing.assert_array_equal(steps.truncated, ~steps.terminated)
    _, steps = device_steps(apples, time=LIMIT - 2)
    assert not steps.truncated.any()


@both_mazes
def test_the_start_and_what_is_seen_of_it(apples):
    environment = KeyDoorTreasure(apples)
    for seed in range(2):
        state = environment.reset(jax.random.key(seed))
        observation = environment.observe(state)
        assert observation.dtype == jnp.float32
        assert state.time == 0
        # column 2, row 8, and everything is there
        assert observation.tolist() == [2.0, 8.0, 1.0, 1.0, 1.0, *([1.0, 1.0] if apples else [])]
    spec = environment.spec
    assert (spec.observation_shape, spec.actions, spec.max_episode_steps) == ((7 if apples else 5,), Discrete(4), 50)
    assert spec.observation_levels == (13, 13, *[2] * (5 if apples else 3))


def test_the_door_needs_the_key_and_the_treasure_the_open_door():
    environment = KeyDoorTreasure()

    def step(*observation_and_action):
        *observation, action = observation_and_action
        return environment.step(
            environment.state_of(jnp.array(observation, jnp.float32), jnp.int32(0)), jnp.int32(action)
        )

    below_door = (11, 7)  # column, row
    shut = step(*below_door, 1, 1, 1, UP)
    assert (shut.observation.tolist(), shut.reward) == ([11, 7, 1, 1, 1], 0)
    opened = step(*below_door, 0, 1, 1, UP)
    assert (opened.observation.tolist(), opened.reward) == ([11, 6, 0, 0, 1], 2)
    again = step(*below_door, 0, 0, 1, UP)
    assert (again.observation.tolist(), again.reward) == ([11, 6, 0, 0, 1], 0)
    beside_treasure = (8, 1)
    found = step(*beside_treasure, 0, 0, 1, LEFT)
    assert (found.observation.tolist(), found.reward, bool(found.terminated)) == ([7, 1, 0, 0, 0], 4, True)
    not_yet = step(*beside_treasure, 0, 1, 1, LEFT)
    assert (not_yet.reward, bool(not_yet.terminated)) == (0, False)


def test_environments_by_name():
    assert on_device.make("key-door-treasure").spec == KeyDoorTreasure().spec
    assert on_device.make("apple-key-door-treasure").spec == KeyDoorTreasure(apples=True).spec
    assert {"key-door-treasure", "apple-key-door-treasure"} <= set(catalogue.ENTRIES)
    with pytest.raises(UsageError, match="did you mean 'key-door-treasure'"):
        on_device.make("key-door-tresure")


# As Gymnasium environments.

IDS = {False: "self_imitation/KeyDoorTreasure-v0", True: "self_imitation/AppleKeyDoorTreasure-v0"}


@both_mazes
@pytest.mark.filterwarnings("error")
def test_gymnasium_finds_nothing_to_complain_about(apples):
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


def test_what_was_handed_out_does_not_change_later():
    environment = gymnasium.make(IDS[False])
    first, _ = environment.reset()
    kept = first.copy()
    first[:] = -1  # and a caller who writes into it changes nothing
    second, *_ = environment.step(RIGHT)
    environment.step(RIGHT)
    assert second.tolist() == [3, 8, 1, 1, 1]
    second[:] = -1
    assert environment.step(LEFT)[0].tolist() == [3, 8, 1, 1, 1]
    assert environment.reset()[0].tolist() == kept.tolist()


def towards_the_key(params, observation):
    """Right and down twice as often as up and left, so that walks find something."""
    logits = jnp.log(jnp.array([1.0, 2.0, 2.0, 1.0]))
    return Categorical(jnp.tile(logits, (observation.shape[0], 1))), jnp.zeros(observation.shape[0])


@both_mazes
def test_random_walks_are_the_same_on_the_device_in_gymnasium_and_in_the_twin(apples):
    """Eight environments for 160 steps, so three time limits each, with the actions that were drawn on the device."""
    environment = KeyDoorTreasure(apples)
    acting = collection.begin(environment, 8, jax.random.key(0))
    collect = jax.jit(partial(collection.collect_on_device, environment, towards_the_key, None, steps=160))
    _, rollout = collect(acting, key=jax.random.key(1))
    rollout = {name: np.asarray(value) for name, value in vars(rollout).items()}
    copy = gymnasium.make(IDS[apples])
    rewarded = 0
    for n in range(8):
        place, time, _ = first_place(apples), 0, copy.reset()
        for t in range(160):
            assert rollout["observation"][t, n].tolist() == observed(place)
            action = int(rollout["action"][t, n])
            place, reward, terminated = move(place, action)
            time += 1
            truncated = time == LIMIT and not terminated
            rewarded += reward > 0
            expected = (observed(place), reward, terminated, truncated)
            assert (
                tuple(rollout[name][t, n].tolist() for name in ("successor", "reward", "terminated", "truncated"))
                == expected
            )
            observation, *rest = copy.step(np.int64(action))
            assert (observation.tolist(), *rest) == (*expected, {})
            if terminated or truncated:
                place, time, _ = first_place(apples), 0, copy.reset()
    assert (rollout["truncated"].sum(axis=0) >= 1).all()
    assert rewarded > 0


@both_mazes
def test_the_shortest_way_to_the_treasure_in_gymnasium(apples):
    """With 24 (8) steps against a wall before it, the treasure is found on step 50: an end, not a cut."""
    best = 9.0 if apples else 7.0
    way = min((way for way in search(apples).values() if return_of(way, apples) == best), key=len)
    for waste in (0, LIMIT - len(way)):
        environment = gymnasium.make(IDS[apples])
        environment.reset()
        total = 0.0
        # one step left, as many as are left against the wall there, and one step back
        actions = (LEFT, *[LEFT] * (waste - 2), RIGHT, *way) if waste else way
        for count, action in enumerate(actions, start=1):
            _, reward, terminated, truncated, _ = environment.step(action)
            total += reward
            assert (terminated, truncated) == (count == len(actions), False)
        assert total == best
    # one step later it is too late
    environment.reset()
    for action in (LEFT, *[LEFT] * (waste - 1), RIGHT, *way[:-1]):
        _, _, terminated, truncated, _ = environment.step(action)
    assert (terminated, truncated) == (False, True)


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
    for action in min(
        (way for place, way in search(True).items() if not place.treasure and not any(place.apples)), key=len
    ):
        environment.step(action)
    assert set(environment.render()) == {"#", ".", "@", "\n"}


@both_mazes
def test_rendering_as_pixels(apples):
    environment = gymnasium.make(IDS[apples], render_mode="rgb_array")
    environment.reset()
    before = environment.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[0] == before.shape[1]
    assert before.shape[0] % 13 == 0
    assert before.shape[2] == 3
    environment.step(UP)
    after = environment.render()
    size = before.shape[0] // 13

    def tile(image, row, column):
        return image[row * size : (row + 1) * size, column * size : (column + 1) * size]

    changed = {
        (row, column)
        for row in range(13)
        for column in range(13)
        if (tile(before, row, column) != tile(after, row, column)).any()
    }
    assert changed == {(8, 2), (7, 2)}
    np.testing.assert_array_equal(tile(before, 8, 2), tile(after, 7, 2))  # the agent
    looks = {tile(before, *cell).tobytes() for cell in (START, KEY, DOOR, TREASURE, (0, 0), (1, 1))}
    assert len(looks) == 6
    assert (tile(before, *APPLES[0]) != tile(before, 1, 1)).any() == apples


def test_no_render_mode_gives_no_picture():
    environment = gymnasium.make(IDS[False]).unwrapped
    environment.reset()
    assert environment.render() is None


def test_an_unknown_render_mode_is_refused():
    with pytest.raises(UsageError, match="render_mode: 'braille'"):
        KeyDoorTreasureEnv(render_mode="braille")


def test_before_the_first_reset_there_is_nothing_to_step_or_show():
    for environment in (gymnasium.make(IDS[False], render_mode="ansi"), KeyDoorTreasureEnv(render_mode="ansi")):
        with pytest.raises(gymnasium.error.ResetNeeded):
            environment.step(UP)
        with pytest.raises(gymnasium.error.ResetNeeded):
            environment.render()


@pytest.mark.parametrize("action", [-1, 4, np.int64(-4)])
def test_an_action_that_is_none_is_refused_and_takes_no_time(action):
    environment = gymnasium.make(IDS[False])
    environment.reset()
    for _ in range(LIMIT - 1):
        with pytest.raises(UsageError, match=rf"action: {int(action)} is not allowed; allowed: 0 to 3"):
            environment.step(action)
        environment.step(UP)
    observation, _, _, truncated, _ = environment.step(LEFT)
    assert truncated
    # up through the opening at column 2 to the upper wall, and one step left
    assert observation.tolist() == [1, 1, 1, 1, 1]
