"""Arrays on disk: the same bytes come back, and fewer are stored."""

import numpy as np
import pytest

from self_imitation.storage import checkpoint, compression


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
    monkeypatch.setattr(compression, "BLOCK", 16)
    for array in (film(seeds, frames), np.random.default_rng(0).integers(0, 256, (seeds, frames, 9, 9, 1), np.uint8)):
        packed = compression.pack(array)
        assert packed.dtype == np.uint8
        np.testing.assert_array_equal(compression.unpack(packed, array.shape, array.dtype), array)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.int64, np.float16, bool])
def test_unpacking_restores_every_bit_of_any_dtype(monkeypatch, dtype):
    """Whatever the bits mean: NaN, -0, infinity."""
    monkeypatch.setattr(compression, "BLOCK", 16)
    drawn = np.random.default_rng(0).integers(0, 256, (2, 37, 3, 5 * np.dtype(dtype).itemsize), np.uint8)
    array = (drawn % 2 if dtype is bool else drawn).view(dtype)
    unpacked = compression.unpack(compression.pack(array), array.shape, array.dtype)
    assert unpacked.dtype == dtype
    np.testing.assert_array_equal(unpacked.view(np.uint8), array.view(np.uint8))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 2**40, 9, 9, 1), "can't hold uint8"),
        ((2, 41, 9, 9, 1), "a packed block has not the expected"),
        ((2, 39, 9, 9, 1), "a packed block has not the expected"),
        ((2, 60, 9, 9, 1), "the packed blocks are not those of"),
        ((1, 40, 9, 9, 2), "the packed blocks are not those of"),
    ],
)
def test_other_shapes_than_that_of_the_array_are_refused(monkeypatch, shape, message):
    """Before memory for them is used."""
    monkeypatch.setattr(compression, "BLOCK", 16)
    with pytest.raises(ValueError, match=message):
        compression.unpack(compression.pack(film(2, 40, 9)), shape, np.dtype(np.uint8))


def test_a_block_that_expands_further_than_it_may_is_not_expanded(monkeypatch):
    """A gigabyte of zeros in 150 kB, in place of 4 kB."""
    real, asked = compression.lzma.LZMADecompressor, []

    class Decompressor:
        def __init__(self, *arguments, **filters):
            self.own = real(*arguments, **filters)

        def decompress(self, data, most):
            asked.append(most)
            return self.own.decompress(data, most)

    monkeypatch.setattr(compression.lzma, "LZMADecompressor", Decompressor)
    packed = compression.pack(np.zeros((1, 4096, 4096, 1), np.uint8))
    with pytest.raises(ValueError, match="a packed block has not the expected 4096 bytes"):
        compression.unpack(packed, (1, 4096, 1, 1), np.dtype(np.uint8))
    assert asked == [4097]


@pytest.mark.parametrize("damage", [lambda p: p[:5], lambda p: p[:-1], lambda p: np.append(p, p[-1]), lambda p: p ^ 1])
def test_damaged_blocks_are_refused(damage):
    array = film(1, 40)
    with pytest.raises(ValueError, match="packed"):
        compression.unpack(damage(compression.pack(array)), array.shape, array.dtype)


def test_a_film_is_stored_in_a_fraction_of_its_size():
    array = film(1, 300, side=84)
    assert compression.pack(array).nbytes < 0.02 * array.nbytes


@pytest.mark.parametrize(
    ("shape", "dtype", "worthwhile"),
    [
        ((1, 200, 84, 84, 1), np.uint8, True),
        ((1, 20, 16, 84, 84, 1), np.uint8, True),
        ((1, 20, 84, 84, 1), np.uint8, False),
        ((1, 2_000_000), np.uint8, False),
        ((1, 1000, 1000), np.float32, False),
    ],
)
def test_many_images_are_compressed_whatever_they_show(shape, dtype, worthwhile):
    drawn = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    assert compression.worthwhile(drawn) == worthwhile


@pytest.mark.parametrize(("share", "worthwhile"), [(0.0, True), (0.01, True), (0.5, False)])
@pytest.mark.parametrize("usual", [0, 1])
def test_other_arrays_are_compressed_if_most_rows_repeat(usual, share, worthwhile):
    rng = np.random.default_rng(0)
    array = np.where(rng.random((2, 500, 1000)) < share, rng.normal(size=(2, 500, 1000)), usual).astype(np.float32)
    assert compression.worthwhile(array) == worthwhile
    if worthwhile:
        assert compression.pack(array).nbytes < array.nbytes / 10


def test_checkpoints_compress_and_restore_arrays(tmp_path):
    table = np.zeros((2, 1000, 300), np.int32)
    table[:, 3, ::7] = 5
    state = {"frames": film(2, 100, side=84), "table": table, "numbers": np.arange(5.0)}
    path = checkpoint.save(tmp_path, 7, state, {}, kept=1, settings="x")
    assert (path / "state.safetensors").stat().st_size < (state["frames"].nbytes + table.nbytes) / 20
    assert_restored(path, state)


def test_checkpoints_without_dtypes_hold_compressed_bytes(tmp_path, monkeypatch):
    """As they were saved before other arrays than frames were compressed."""
    state = {"frames": film(2, 100, side=84), "numbers": np.arange(5.0)}
    monkeypatch.setattr(checkpoint, "DTYPES", "something else")
    path = checkpoint.save(tmp_path, 7, state, {}, kept=1, settings="x")
    monkeypatch.undo()
    assert_restored(path, state)


def assert_restored(path, state):
    found, collection = checkpoint.load_state(path, checkpoint._read_meta(path, "x"), state)
    assert collection == {}
    for name, array in state.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
