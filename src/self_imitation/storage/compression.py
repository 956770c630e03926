"""Compression of arrays in checkpoints: XOR of neighbouring rows, then LZMA.

Neighbouring frames of a game are nearly the same: 100,000 frames of Freeway or Montezuma's Revenge take 6 MB instead of
700 (39 and 13 MB with zlib, whose window is smaller). So are the rows of a table that is mostly empty.
"""

import itertools
import lzma
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BLOCK = 4096
"""Rows compressed together; blocks are compressed in parallel."""
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 22}]
MAX_RATIO = 1 << 13
"""LZMA makes nothing smaller than by this factor; zeros: 6,850."""
SMALLEST = 1 << 20
"""Arrays with fewer bytes are stored as they are."""
MAX_CHANGES = 1 / 8
"""An array is repetitive if a smaller share of its entries than this differs from the row before."""


def worthwhile(array: np.ndarray) -> bool:
    """Whether an array, [seeds, rows, ...], holds many images, [..., height, width, channels], or is repetitive."""
    if array.ndim < 3 or array.nbytes < SMALLEST:
        return False
    return (array.dtype == np.uint8 and array.ndim >= 5) or _repetitive(array)


def pack(array: np.ndarray) -> np.ndarray:
    """Bytes: the number of blocks, the length of each, and the blocks."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        packed = list(threads.map(_pack_block, _blocks(array)))
    lengths = np.array([len(packed), *map(len, packed)], np.uint64)
    return np.frombuffer(lengths.tobytes() + b"".join(packed), np.uint8)


def unpack(packed: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Raises `ValueError` if this is not what `pack` makes of an array of this shape, before much memory is used."""
    if packed.dtype != np.uint8 or packed.ndim != 1 or math.prod(shape) * dtype.itemsize > MAX_RATIO * packed.size:
        raise ValueError(f"{packed.size} packed entries of {packed.dtype} can't hold {dtype.name}{list(shape)}")
    count = shape[0] * -(-shape[1] // BLOCK)
    start = 8 * (count + 1)
    lengths = packed[:start].view(np.uint64).tolist() if start <= packed.size else []
    if lengths[:1] != [count] or start + sum(lengths[1:]) != packed.size:
        raise ValueError(f"the packed blocks are not those of {dtype.name}{list(shape)}")
    ends = list(itertools.accumulate(lengths[1:], initial=start))
    pieces = [packed[start:end] for start, end in itertools.pairwise(ends)]
    array = np.empty(shape, dtype)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(_unpack_block, pieces, _blocks(array)))
    return array


def _repetitive(array: np.ndarray) -> bool:
    changes = sum(int(np.count_nonzero(seed[1:] != seed[:-1])) for seed in array)
    return changes < MAX_CHANGES * array.size


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Views of the bytes."""
    for seed in array.view(np.uint8):
        for start in range(0, len(seed), BLOCK):
            yield seed[start : start + BLOCK]


def _pack_block(block: np.ndarray) -> bytes:
    changes = block.copy()
    np.bitwise_xor(block[1:], block[:-1], out=changes[1:])
    return lzma.compress(changes.data, lzma.FORMAT_RAW, filters=FILTERS)


def _unpack_block(piece: np.ndarray, block: np.ndarray) -> None:
    try:
        changes = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS).decompress(piece.data, block.nbytes + 1)
    except lzma.LZMAError as error:
        raise ValueError(f"a packed block is damaged: {error}") from None
    if len(changes) != block.nbytes:
        raise ValueError(f"a packed block has not the expected {block.nbytes} bytes")
    block[:] = np.frombuffer(changes, np.uint8).reshape(block.shape)
    for before, row in itertools.pairwise(block):  # 20 times as fast as bitwise_xor.accumulate
        row ^= before
