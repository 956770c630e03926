"""Key-Door-Treasure against a second implementation in plain Python, in every state that can be reached."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from key_door_treasure_twin import LIMIT, first_place, move, observed, return_of, search

from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.types import Discrete

both_mazes = pytest.mark.parametrize("apples", [False, True], ids=["plain", "apples"])


@both_mazes
def test_every_action_in_every_state(apples):
    environment = KeyDoorTreasure(apples)
    places = [place for place in search(apples) if place.treasure]
    pairs = [(place, action) for place in places for action in range(4)]
    observations = jnp.array([observed(place) for place, _ in pairs])
    states = jax.vmap(lambda seen: environment.state_of(seen, jnp.int32(3)))(observations)
    step = jax.jit(jax.vmap(environment.step))(states, jnp.array([action for _, action in pairs]))
    expected = [move(place, action) for place, action in pairs]
    np.testing.assert_array_equal(step.observation, [observed(place) for place, _, _ in expected])
    np.testing.assert_array_equal(step.reward, [reward for _, reward, _ in expected])
    np.testing.assert_array_equal(step.terminated, [found for _, _, found in expected])
    assert not step.truncated.any()
    np.testing.assert_array_equal(jax.vmap(environment.observe)(step.state), step.observation)
    assert (np.asarray(step.state.time) == 4).all()


@both_mazes
def test_the_first_state(apples):
    environment = KeyDoorTreasure(apples)
    state = environment.reset(jax.random.key(0))
    assert environment.observe(state).tolist() == observed(first_place(apples))
    assert int(state.time) == 0


@both_mazes
def test_observing_loses_only_the_time(apples):
    environment = KeyDoorTreasure(apples)
    state = environment.reset(jax.random.key(0))
    back = environment.state_of(environment.observe(state), state.time)
    jax.tree.map(np.testing.assert_array_equal, back, state)


@both_mazes
def test_the_spec(apples):
    spec = KeyDoorTreasure(apples).spec
    assert spec.observation_shape == (7 if apples else 5,)
    assert spec.observation_levels == (13, 13, *(2,) * (5 if apples else 3))
    assert (spec.actions, spec.max_episode_steps) == (Discrete(4), LIMIT)


@pytest.mark.parametrize(("apples", "best"), [(False, 7.0), (True, 9.0)])
def test_the_treasure_can_be_reached_in_time_for_the_best_return(apples, best):
    ways = [way for place, way in search(apples).items() if not place.treasure]
    assert max(return_of(way, apples) for way in ways if len(way) <= LIMIT) == best


@pytest.mark.parametrize("found", [False, True])
def test_the_last_step_is_a_time_limit_unless_it_finds_the_treasure(found):
    environment = KeyDoorTreasure()
    way = next(way for place, way in search(False).items() if not place.treasure)
    place = first_place(False)
    for action in way[:-1]:
        place, _, _ = move(place, action)
    state = environment.state_of(jnp.array(observed(place)), jnp.int32(LIMIT - 1))
    step = environment.step(state, jnp.int32(way[-1] if found else (way[-1] + 2) % 4))
    assert (bool(step.terminated), bool(step.truncated)) == (found, not found)
