"""Frames on disk: the same bytes come back, and fewer lie there."""

import numpy as np
import pytest

from self_imitation.storage import frame_compression as packing


def film(seeds, frames, side=20):
    """A dot that wanders over a picture."""
    pictures = np.zeros((seeds, frames, side, side, 1), np.uint8)
    pictures[:, :, 5:9] = 77
    for seed, time in np.ndindex(seeds, frames):
        pictures[seed, time, (time + seed) % side, time // 7 % side] = 200
    return pictures


@pytest.mark.parametrize("frames", [1, 4095, 4096, 4097, 9000])
@pytest.mark.parametrize("seeds", [1, 3])
def test_what_is_packed_comes_back(seeds, frames):
    array = film(seeds, frames)
    packed = packing.pack(array)
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(packing.unpack(packed, array.shape), array)
    noise = np.random.default_rng(0).integers(0, 256, array.shape, np.uint8)
    np.testing.assert_array_equal(packing.unpack(packing.pack(noise), noise.shape), noise)


def test_a_film_becomes_much_smaller_than_by_compression_alone():
    array = film(1, 2000, side=84)
    assert packing.pack(array).nbytes < 0.01 * array.nbytes


def test_only_many_pictures_are_packed():
    assert packing.worthwhile(np.zeros((1, 200, 84, 84, 1), np.uint8))
    assert packing.worthwhile(np.zeros((1, 20, 16, 84, 84, 1), np.uint8))
    assert not packing.worthwhile(np.zeros((1, 20, 84, 84, 1), np.uint8))
    assert not packing.worthwhile(np.zeros((1, 400_000), np.uint8))
    assert not packing.worthwhile(np.zeros((1, 200, 84, 84, 1), np.float32))
