"""From Gymnasium's spaces to what the train_state sees and back."""

import contextlib

import numpy as np
import pytest
from gymnasium import spaces
from host_probes import ACTIONS, SIGHTS, UNSUPPORTED

from self_imitation.training import agents
from self_imitation.config import CountConfig, override, resolve
from self_imitation.environments.gymnasium import make as engines
from self_imitation.environments.gymnasium.spaces import describe
from self_imitation.errors import UsageError
from self_imitation.exploration.counts import CountBonus
from self_imitation.types import Continuous, Discrete, MultiDiscrete

TWO = spaces.Discrete(2)


def seen(space):
    return describe(space, TWO, None, "it").spec


def config_of(env, **settings):
    return override(resolve(env, "authors", settings), {"engine": "gymnasium"})


@pytest.mark.parametrize(
    ("name", "kind", "shape", "levels"),
    [
        ("Double", "numbers", (6,), None),
        ("Single", "numbers", (4,), None),
        ("Scalar", "numbers", (1,), None),
        ("Whole", "numbers", (2,), (4, 7)),
        ("Negative", "numbers", (2,), None),
        ("Discrete", "categories", (1,), (5,)),
        ("MultiDiscrete", "categories", (4,), (3, 2, 2, 4)),
        ("MultiBinary", "categories", (4,), (2, 2, 2, 2)),
        ("HWC", "image", (40, 37, 3), None),
        ("CHW", "image", (36, 38, 4), None),
        ("HW", "image", (36, 40, 1), None),
        ("Bytes", "numbers", (20,), (256,) * 20),
    ],
)
def test_what_the_learner_makes_of_each_observation_space(name, kind, shape, levels):
    spec = seen(SIGHTS[name])
    assert (spec.observation_kind, spec.observation_shape, spec.observation_levels) == (kind, shape, levels)


def test_numbers_become_single_precision():
    space = describe(SIGHTS["Double"], TWO, None, "it")
    raw = np.arange(12).reshape(2, 2, 3) + 0.1
    given = space.observation(raw)
    assert given.dtype == np.float32
    np.testing.assert_array_equal(given, raw.reshape(2, 6).astype(np.float32))
    assert describe(SIGHTS["Scalar"], TWO, None, "it").observation(np.array([1.5, 2.5])).tolist() == [[1.5], [2.5]]


def test_whole_numbers_keep_their_values_and_categories_count_from_0():
    assert describe(SIGHTS["Negative"], TWO, None, "it").observation([[-3, 2]]).tolist() == [[-3.0, 2.0]]
    from_three = describe(SIGHTS["Discrete"], TWO, None, "it").observation(np.array([3, 7, 5]))
    assert from_three.dtype == np.int32
    assert from_three.tolist() == [[0], [4], [2]]
    several = describe(SIGHTS["MultiDiscrete"], TWO, None, "it").observation([[[1, 1], [-1, 10]], [[3, 0], [-2, 7]]])
    assert several.tolist() == [[0, 1, 1, 3], [2, 0, 0, 0]]
    assert describe(SIGHTS["MultiBinary"], TWO, None, "it").observation([[[0, 1], [1, 0]]]).tolist() == [[0, 1, 1, 0]]


@pytest.mark.parametrize("name", ["HWC", "CHW", "HW"])
def test_images_stay_bytes_and_have_their_channels_last(name):
    space = describe(SIGHTS[name], TWO, None, "it")
    raw = np.stack([SIGHTS[name].sample() for _ in range(2)])
    given = space.observation(raw)
    assert (given.dtype, given.shape) == (np.uint8, (2, *space.spec.observation_shape))
    place = (1, 30, 20, 0)
    assert given[place] == raw[{"HWC": place, "CHW": (1, 0, 30, 20), "HW": (1, 30, 20)}[name]]


def test_an_image_as_deep_as_it_is_high_stays_as_it_is():
    """Nothing tells its channels from its rows, so they are where most images have them: last."""
    cube = spaces.Box(0, 255, (36, 36, 36), np.uint8)
    raw = cube.sample()[None]
    np.testing.assert_array_equal(describe(cube, TWO, None, "it").observation(raw), raw)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((36, 36), "image"), ((36, 35), "numbers"), ((3, 36, 36), "image"), ((36, 36, 3), "image"), ((40,), "numbers")],
)
def test_bytes_are_an_image_from_the_size_that_convolutions_need(shape, kind):
    assert seen(spaces.Box(0, 255, shape, np.uint8)).observation_kind == kind
    assert seen(spaces.Box(0, 255, shape, np.float32)).observation_kind == "numbers", "only bytes are pixels"


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("Discrete", Discrete(3)),
        ("MultiDiscrete", MultiDiscrete((2, 3, 4, 2))),
        ("MultiBinary", MultiDiscrete((2, 2, 2, 2))),
        ("Box", Continuous((-1, -2, 0, -0.5, 10, -np.inf), (1, 2, 3, 0.5, 11, np.inf))),
    ],
)
def test_what_the_learner_makes_of_each_action_space(name, actions):
    assert describe(SIGHTS["Single"], ACTIONS[name], 7, "it").spec.actions == actions
    assert describe(SIGHTS["Single"], ACTIONS[name], 7, "it").spec.max_episode_steps == 7


def test_the_environment_gets_actions_of_its_own_shape_and_type():
    def told(name, chosen):
        space = ACTIONS[name]
        actions = describe(SIGHTS["Single"], space, None, "it").action(np.array(chosen))
        assert actions.dtype == space.dtype
        assert all(space.contains(action) for action in actions)
        return actions.tolist()

    assert told("Discrete", [0, 2]) == [-1, 1]
    assert told("MultiDiscrete", [[1, 2, 0, 1]]) == [[[1, 7], [-1, 1]]]
    assert told("MultiBinary", [[1, 0, 0, 1]]) == [[[1, 0], [0, 1]]]
    assert told("Box", [[0.5, -9, 9, 0.25, 0, -1e6]]) == [[[0.5, -2, 3], [0.25, 10, -1e6]]]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_no_agent_can_take_is_refused_in_one_sentence(name):
    config = config_of(f"gym:host_probes:{name}-v0")
    allowed = "Box, Discrete, MultiDiscrete or MultiBinary"
    if "action_space" in UNSUPPORTED[name]:
        allowed = "Discrete, MultiDiscrete, MultiBinary or a Box of floating-point numbers"
    with pytest.raises(UsageError) as refused:
        engines.inspect(config)
    sentence = str(refused.value)
    what = "actions" if "action_space" in UNSUPPORTED[name] else "observations"
    space = next(iter(UNSUPPORTED[name].values()))
    assert sentence.startswith(f"env: 'gym:host_probes:{name}-v0' has {what} {space}; allowed: {allowed}")
    assert "\n" not in sentence


def countable(space):
    """How many states; None where that is refused."""
    with contextlib.suppress(UsageError):
        return CountBonus(seen(space), CountConfig()).create().shape[0]


def test_few_enough_whole_numbers_from_0_can_be_counted():
    assert countable(spaces.Box(0, 4, (2, 2), np.uint8)) == 5**4
    assert countable(spaces.Box(0, 9, (7,), np.int32)) == 10**7, "as many as there may be"
    assert countable(spaces.Box(0, 9, (8,), np.int32)) is None
    assert countable(spaces.Box(0, 2**40, (1,), np.int64)) is None
    assert countable(spaces.Box(0, 9, (64,), np.int64)) is None, "more than a 64-bit number can tell"
    assert countable(spaces.Box(1, 9, (1,), np.int32)) is None, "they don't start at 0"
    assert countable(spaces.Box(0, 9, (1,), np.float32)) is None, "they are not whole"
    assert countable(spaces.Discrete(6, start=2)) == 6
    assert countable(spaces.MultiDiscrete([2, 3])) == 6
    assert countable(spaces.MultiBinary(3)) == 8
    assert countable(spaces.MultiBinary(40)) is None, "a network can tell them apart, but nobody can count them"
    assert seen(spaces.MultiBinary(40)).observation_levels == (2,) * 40


def test_counting_takes_frozen_lake_and_refuses_a_pole():
    agent = agents.build(config_of("gym:FrozenLake-v1", agent="a2c+exp"))
    assert agent.exploration.create().shape == (16,)
    with pytest.raises(
        UsageError, match="agent: 'exp' counts states; this environment's observations can't be counted"
    ):
        agents.build(config_of("gym:CartPole-v1", agent="a2c+exp"))
    whole = agents.build(config_of("gym:host_probes:SightsWhole-v0", agent="ppo+sil+exp"))
    assert whole.exploration.create().shape == (4 * 7,)


def test_the_time_limit_is_the_one_that_the_environment_was_registered_with():
    assert engines.inspect(config_of("gym:host_probes:Limited-v0")).spec.max_episode_steps == 4
    assert engines.inspect(config_of("gym:host_probes:Counter-v0")).spec.max_episode_steps is None
    pool = override(config_of("gym:CartPole-v1"), {"engine": "envpool"})
    assert engines.inspect(pool).spec.max_episode_steps == 500
