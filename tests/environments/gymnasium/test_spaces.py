"""Gymnasium spaces as the learner sees them, and actions as the environment takes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import flatten
from gymnasium_probes import ACTION_SPACES, COMPOSITE_SPACES, PLAIN_SPACES, SPACES, UNSUPPORTED, sample

from self_imitation.environments.gymnasium.spaces import describe
from self_imitation.errors import UsageError
from self_imitation.types import Continuous, Discrete, MultiDiscrete

TWO = spaces.Discrete(2)


def described(space):
    return describe(space, TWO, None, "it")


def batch(space, count=3):
    """As Gymnasium's vector environments stack observations."""
    return jax.tree.map(stack, *[sample(space, seed, 0, 0) for seed in range(count)])


def stack(*rows):
    return rows if isinstance(rows[0], str) else np.stack(rows)


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
def test_spec_of_plain_spaces(name, kind, shape, levels):
    spec = described(PLAIN_SPACES[name]).spec
    assert (spec.observation_kind, spec.observation_shape, spec.observation_levels) == (kind, shape, levels)
    assert spec.numbers_beside_image == 0


def test_numbers_become_float32():
    raw = np.arange(12).reshape(2, 2, 3) + 0.1
    converted = described(PLAIN_SPACES["Double"]).observation(raw)
    assert converted.dtype == np.float32
    np.testing.assert_array_equal(converted, raw.reshape(2, 6).astype(np.float32))
    assert described(PLAIN_SPACES["Scalar"]).observation(np.array([1.5, 2.5])).tolist() == [[1.5], [2.5]]


def test_integers_keep_their_values_and_categories_start_at_0():
    assert described(PLAIN_SPACES["Negative"]).observation([[-3, 2]]).tolist() == [[-3.0, 2.0]]
    discrete = described(PLAIN_SPACES["Discrete"]).observation(np.array([3, 7, 5]))
    assert discrete.dtype == np.int32
    assert discrete.tolist() == [[0], [4], [2]]
    several = described(PLAIN_SPACES["MultiDiscrete"]).observation([[[1, 1], [-1, 10]], [[3, 0], [-2, 7]]])
    assert several.tolist() == [[0, 1, 1, 3], [2, 0, 0, 0]]
    assert described(PLAIN_SPACES["MultiBinary"]).observation([[[0, 1], [1, 0]]]).tolist() == [[0, 1, 1, 0]]


@pytest.mark.parametrize("name", ["HWC", "CHW", "HW"])
def test_images_stay_uint8_with_channels_last(name):
    space = described(PLAIN_SPACES[name])
    raw = batch(PLAIN_SPACES[name], 2)
    converted = space.observation(raw)
    assert (converted.dtype, converted.shape) == (np.uint8, (2, *space.spec.observation_shape))
    pixel = (1, 30, 20, 0)
    assert converted[pixel] == raw[{"HWC": pixel, "CHW": (1, 0, 30, 20), "HW": (1, 30, 20)}[name]]


def test_a_cube_of_bytes_has_its_channels_last():
    """Its shape does not say where the channels are; most images have them last."""
    cube = spaces.Box(0, 255, (36, 36, 36), np.uint8)
    raw = cube.sample()[None]
    np.testing.assert_array_equal(described(cube).observation(raw), raw)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((36, 36), "image"), ((36, 35), "numbers"), ((3, 36, 36), "image"), ((36, 36, 3), "image"), ((40,), "numbers")],
)
def test_bytes_are_an_image_from_the_size_that_convolutions_need(shape, kind):
    assert described(spaces.Box(0, 255, shape, np.uint8)).spec.observation_kind == kind
    assert described(spaces.Box(0, 255, shape, np.float32)).spec.observation_kind == "numbers", "only bytes are pixels"


@pytest.mark.parametrize("name", SPACES)
def test_observations_are_copies_of_the_promised_shape_and_dtype(name):
    space = described(SPACES[name])
    raw = batch(SPACES[name])
    converted, promised = space.observation(raw), space.spec.observation
    assert jax.tree.structure(converted) == jax.tree.structure(promised)
    for leaf, wanted in zip(jax.tree.leaves(converted), jax.tree.leaves(promised), strict=True):
        assert (leaf.shape, leaf.dtype) == ((3, *wanted.shape), wanted.dtype)
        given = [array for array in jax.tree.leaves(raw) if not isinstance(array, str)]
        assert not any(np.shares_memory(leaf, array) for array in given)


@pytest.mark.parametrize("name", SPACES)
def test_observations_in_a_compiled_program_are_the_same(name):
    space = described(SPACES[name])
    raw = jax.tree.map(lambda leaf: 0 if isinstance(leaf, str) else leaf, batch(SPACES[name]))
    compiled = jax.jit(lambda raw: space.observation(raw, jnp))(raw)
    jax.tree.map(np.testing.assert_array_equal, compiled, space.observation(raw))


def test_parts_of_a_dict_by_hand():
    """In the order of the space: six numbers, a category of 5 that starts at 3, four bits."""
    space = described(COMPOSITE_SPACES["Dict"])
    assert (space.spec.observation_kind, space.spec.observation_shape) == ("numbers", (6 + 5 + 4,))
    raw = {"a": np.array([4]), "b": np.arange(6.0).reshape(1, 2, 3), "c": np.array([[[1, 0], [0, 1]]])}
    assert space.observation(raw).tolist() == [[0, 1, 2, 3, 4, 5, 0, 1, 0, 0, 0, 1, 0, 0, 1]]
    assert space.notes == ()


@pytest.mark.parametrize("name", ["Dict", "Tuple"])
def test_flattening_equals_gymnasiums(name):
    space, raw = COMPOSITE_SPACES[name], batch(COMPOSITE_SPACES[name])
    wanted = [flatten(space, sample(space, seed, 0, 0)) for seed in range(3)]
    np.testing.assert_array_equal(described(space).observation(raw), np.array(wanted, np.float32))


def test_nested_parts_and_the_note_about_text():
    space = described(COMPOSITE_SPACES["Nested"])
    assert space.spec.observation_shape == (4 + 2 + 5,)
    assert space.notes == ("observation 'goal.1.hint' is text and is ignored",)
    raw = {"goal": (np.ones((1, 4)), {"x": np.array([[-3, 3]]), "hint": ("go",)}), "pace": np.array([3])}
    assert space.observation(raw).tolist() == [[1, 1, 1, 1, -3, 3, 1, 0, 0, 0, 0]]


def test_numbers_beside_an_image():
    space = described(COMPOSITE_SPACES["ImageAndNumbers"])
    spec = space.spec
    assert (spec.observation_kind, spec.observation_shape, spec.numbers_beside_image) == ("image", (36, 38, 4), 4)
    raw = batch(COMPOSITE_SPACES["ImageAndNumbers"])
    converted = space.observation(raw)
    np.testing.assert_array_equal(converted["image"], np.moveaxis(raw["camera"], 1, -1))
    np.testing.assert_array_equal(converted["numbers"], raw["speed"])


def test_an_image_alone_in_a_dict_is_an_image():
    space = described(COMPOSITE_SPACES["ImageAlone"])
    assert space.spec == described(PLAIN_SPACES["HWC"]).spec
    raw = batch(COMPOSITE_SPACES["ImageAlone"])
    np.testing.assert_array_equal(space.observation(raw), raw["camera"])


def test_two_images_share_their_channels():
    space = described(COMPOSITE_SPACES["TwoImages"])
    assert (space.spec.observation_shape, space.spec.numbers_beside_image) == ((36, 38, 3 + 4), 0)
    raw = batch(COMPOSITE_SPACES["TwoImages"])
    wanted = np.concatenate([raw["colour"], np.moveaxis(raw["depth"], 1, -1)], axis=-1)
    np.testing.assert_array_equal(space.observation(raw), wanted)
    with pytest.raises(UsageError, match=r"different sizes \(observation 'a' 40 x 37, observation 'b' 36 x 40\)"):
        described(spaces.Dict(a=PLAIN_SPACES["HWC"], b=PLAIN_SPACES["HW"]))


def test_a_single_numeric_part_is_read_like_a_plain_space():
    alone = described(spaces.Tuple([spaces.Text(5), spaces.Discrete(7, start=1)]))
    assert alone.spec == described(spaces.Discrete(7)).spec
    assert alone.observation((("a", "b"), np.array([1, 7]))).tolist() == [[0], [6]]


@pytest.mark.parametrize(("values", "width"), [(1024, 1024), (1025, 1)])
def test_categories_with_many_values_are_numbers(values, width):
    space = described(spaces.Tuple([spaces.Discrete(values), spaces.Box(0, 1, (2,))]))
    assert space.spec.observation_shape == (width + 2,)
    converted = space.observation((np.array([5]), np.zeros((1, 2))))
    assert converted[0, 5 if width > 1 else 0] == (1 if width > 1 else 5)


def test_a_single_category_with_too_many_values_is_a_number():
    huge = describe(spaces.Discrete(2**62), spaces.Discrete(2), None, "x")
    assert (huge.spec.observation_kind, huge.spec.observation_levels) == ("numbers", None)
    assert huge.observation(np.array([2**61])).tolist() == [[2.0**61]]


def test_notes_name_every_space_that_is_ignored():
    number = spaces.Box(0, 1, (2,))
    space = described(
        spaces.Dict(
            graph=spaces.Graph(number, None),
            list=spaces.Sequence(number),
            none=spaces.Box(0, 1, (0,)),
            number=number,
            text=spaces.Text(3),
        )
    )
    ignored = [("graph", "a Graph"), ("list", "a Sequence"), ("none", "empty"), ("text", "text")]
    assert space.notes == tuple(f"observation '{name}' is {kind} and is ignored" for name, kind in ignored)
    assert space.spec.observation_shape == (2,)


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("Discrete", Discrete(3)),
        ("MultiDiscrete", MultiDiscrete((2, 3, 4, 2))),
        ("MultiBinary", MultiDiscrete((2, 2, 2, 2))),
        ("Box", Continuous((-1, -2, 0, -0.5, 10, -np.inf), (1, 2, 3, 0.5, 11, np.inf))),
    ],
)
def test_spec_of_action_spaces(name, actions):
    spec = describe(PLAIN_SPACES["Single"], ACTION_SPACES[name], 7, "it").spec
    assert (spec.actions, spec.max_episode_steps) == (actions, 7)


@pytest.mark.parametrize(
    ("name", "chosen", "wanted"),
    [
        ("Discrete", [0, 2], [-1, 1]),
        ("MultiDiscrete", [[1, 2, 0, 1]], [[[1, 7], [-1, 1]]]),
        ("MultiBinary", [[1, 0, 0, 1]], [[[1, 0], [0, 1]]]),
        ("Box", [[0.5, -9, 9, 0.25, 0, -1e6]], [[[0.5, -2, 3], [0.25, 10, -1e6]]]),
    ],
)
def test_actions_are_members_of_the_action_space(name, chosen, wanted):
    space = ACTION_SPACES[name]
    actions = describe(PLAIN_SPACES["Single"], space, None, "it").action(np.array(chosen))
    assert actions.dtype == space.dtype
    assert all(space.contains(action) for action in actions)
    assert actions.tolist() == wanted


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_spaces_are_refused_in_one_sentence(name):
    given = {"observation_space": PLAIN_SPACES["Single"], "action_space": TWO, **UNSUPPORTED[name]}
    (kind,) = UNSUPPORTED[name]
    with pytest.raises(UsageError) as refused:
        describe(**given, max_episode_steps=None, name="it")
    sentence = str(refused.value)
    assert sentence.startswith(f"env: 'it' has {kind.replace('_', ' ')} {given[kind]}")
    assert "; supported: " in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("space", "levels"),
    [
        (spaces.Box(0, 4, (2, 2), np.uint8), (5,) * 4),
        (spaces.Box(0, 2**40, (1,), np.int64), None),
        (spaces.Box(1, 9, (1,), np.int32), None),
        (spaces.Box(0, 9, (1,), np.float32), None),
        (spaces.Discrete(6, start=2), (6,)),
        (spaces.MultiDiscrete([2, 3]), (2, 3)),
        (spaces.MultiBinary(40), (2,) * 40),
    ],
)
def test_small_integers_from_0_have_levels(space, levels):
    assert described(space).spec.observation_levels == levels
