"""Small grey frames from image observations."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from self_imitation.exploration.frames import downsample, newest_grey_frame, quantise
from self_imitation.types import Discrete, Spec

SPEC = Spec((6, 5, 4), Discrete(2), None, observation_kind="image", stack=4)
RNG = np.random.default_rng(0)


def pixels(*shape):
    return RNG.integers(256, size=shape, dtype=np.uint8)


def as_frames(image):
    return jnp.asarray(image, jnp.float32)


def test_the_newest_frame_of_a_stack_is_its_last_channel():
    image = pixels(3, 6, 5, 4)
    frame = newest_grey_frame(jnp.asarray(image), SPEC)
    assert frame.dtype == jnp.float32
    np.testing.assert_array_equal(frame, image[..., 3])


def test_colours_become_grey_by_their_mean():
    image = pixels(3, 6, 5, 6)
    colour = dataclasses.replace(SPEC, observation_shape=(6, 5, 6), stack=2)
    np.testing.assert_allclose(newest_grey_frame(jnp.asarray(image), colour), image[..., 3:].mean(axis=-1), rtol=1e-6)


def test_numbers_beside_an_image_are_left_out():
    image = pixels(3, 6, 5, 4)
    spec = dataclasses.replace(SPEC, numbers_beside_image=2)
    frame = newest_grey_frame({"image": jnp.asarray(image), "numbers": jnp.ones((3, 2))}, spec)
    np.testing.assert_array_equal(frame, image[..., 3])


def test_half_the_side_is_exactly_the_mean_of_2_x_2_blocks():
    image = pixels(5, 84, 84)
    blocks = image.reshape(5, 42, 2, 42, 2).astype(np.float32)
    np.testing.assert_array_equal(downsample(as_frames(image), 42), blocks.mean(axis=(2, 4)))


def test_any_ratio_is_the_mean_over_the_area():
    """Against pixels repeated until the areas are whole blocks."""
    image = pixels(2, 84, 72)
    fine = np.kron(image, np.ones((1, 13, 13)))  # 84 * 13 = 52 * 21, 72 * 13 = 52 * 18
    expected = fine.reshape(2, 52, 21, 52, 18).mean(axis=(2, 4))
    np.testing.assert_allclose(downsample(as_frames(image), 52), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(36, 42), (36, 84)])
def test_short_sides_stay_as_they_are(shape):
    image = pixels(2, *shape)
    expected = image if shape[1] == 42 else image.reshape(2, 36, 42, 2).mean(axis=-1)
    np.testing.assert_array_equal(downsample(as_frames(image), 42), expected)


def test_levels_are_of_equal_width():
    levels = quantise(jnp.arange(256.0), 8)
    assert levels.dtype == jnp.int32
    np.testing.assert_array_equal(levels, np.arange(256) // 32)


def test_the_largest_value_is_in_the_highest_level():
    for levels in (2, 3, 8, 100, 256):
        assert int(quantise(jnp.array([255.0]), levels)[0]) == levels - 1
