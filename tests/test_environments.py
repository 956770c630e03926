"""Key-Door-Treasure against a second implementation in plain Python, in every state."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from key_door_treasure_twin import LEFT, LIMIT, UP, move, observed, return_of, search

from self_imitation.environments import on_device
from self_imitation.environments import registry as catalogue
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.errors import UsageError
from self_imitation.types import Discrete

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
