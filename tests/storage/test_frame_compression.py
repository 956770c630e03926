"""Frames on disk: the same bytes come back, and fewer are stored."""

import numpy as np
import pytest

from self_imitation.storage import checkpoint, frame_compression


def film(seeds, frames, side=20):
    """A dot that moves over a picture."""
    pictures = np.zeros((seeds, frames, side, side, 1), np.uint8)
    pictures[:, :, 5:9] = 77
    for seed, time in np.ndindex(seeds, frames):
        pictures[seed, time, (time + seed) % side, time // 7 % side] = 200
    return pictures


@pytest.mark.parametrize("frames", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("seeds", [1, 3])
def test_unpacking_restores_every_byte(monkeypatch, seeds, frames):
    monkeypatch.setattr(frame_compression, "BLOCK", 16)
    for array in (film(seeds, frames), np.random.default_rng(0).integers(0, 256, (seeds, frames, 9, 9, 1), np.uint8)):
        packed = frame_compression.pack(array)
        assert packed.dtype == np.uint8
        np.testing.assert_array_equal(frame_compression.unpack(packed, array.shape), array)


def test_a_film_is_stored_in_a_fraction_of_its_size():
    array = film(1, 300, side=84)
    assert frame_compression.pack(array).nbytes < 0.02 * array.nbytes


@pytest.mark.parametrize(
    ("shape", "dtype", "worthwhile"),
    [
        ((1, 200, 84, 84, 1), np.uint8, True),
        ((1, 20, 16, 84, 84, 1), np.uint8, True),
        ((1, 20, 84, 84, 1), np.uint8, False),
        ((1, 400_000), np.uint8, False),
        ((1, 200, 84, 84, 1), np.float32, False),
    ],
)
def test_only_many_images_are_compressed(shape, dtype, worthwhile):
    assert frame_compression.worthwhile(np.zeros(shape, dtype)) == worthwhile


def test_checkpoints_compress_and_restore_frames(tmp_path):
    state = {"frames": film(2, 100, side=84), "numbers": np.arange(5.0)}
    path = checkpoint.save(tmp_path, 7, state, {}, kept=1, settings="x")
    assert (path / "state.safetensors").stat().st_size < state["frames"].nbytes / 20
    found, collection = checkpoint.load_state(path, checkpoint._read_meta(path, "x"), state)
    assert collection == {}
    np.testing.assert_array_equal(found["frames"], state["frames"])
    np.testing.assert_array_equal(found["numbers"], state["numbers"])
