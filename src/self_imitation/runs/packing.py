"""Frames on disk: of each but the first of a block, what changed since the one before, compressed.

A game's neighbouring frames are nearly the same, and what changes is often what changed before: 100 000 of Freeway or
Montezuma's Revenge take 6 megabytes instead of 700. (By zlib, which looks less far back, 39 and 13.)
"""

import lzma
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from self_imitation import devices

BLOCK = 4096
"""Frames that are packed together; blocks are worked on side by side."""
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 22}]
SMALLEST = 1 << 20
"""Bytes below which an array stays as it is."""


def worthwhile(array: np.ndarray) -> bool:
    """Pictures, [seeds, time, ..., height, width, channels], and many of them."""
    return array.dtype == np.uint8 and array.ndim >= 5 and array.nbytes >= SMALLEST


def pack(array: np.ndarray) -> np.ndarray:
    """As bytes: how many blocks, how long each of them, and the blocks."""
    with ThreadPoolExecutor(devices.cores()) as threads:
        packed = list(threads.map(_pack_block, _blocks(array)))
    lengths = np.array([len(packed), *map(len, packed)], np.uint64)
    return np.frombuffer(lengths.tobytes() + b"".join(packed), np.uint8)


def unpack(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, np.uint8)
    count = int(packed[:8].view(np.uint64)[0])
    ends = 8 * (count + 1) + np.cumsum(packed[8 : 8 * (count + 1)].view(np.uint64)).astype(int)
    starts = [8 * (count + 1), *ends[:-1]]
    pieces = [packed[start:end] for start, end in zip(starts, ends, strict=True)]
    with ThreadPoolExecutor(devices.cores()) as threads:
        list(threads.map(_unpack_block, pieces, _blocks(array)))
    return array


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    for seed in array:
        for start in range(0, len(seed), BLOCK):
            yield seed[start : start + BLOCK]


def _pack_block(block: np.ndarray) -> bytes:
    changes = block.copy()
    np.bitwise_xor(block[1:], block[:-1], out=changes[1:])
    return lzma.compress(changes.data, lzma.FORMAT_RAW, filters=FILTERS)


def _unpack_block(piece: np.ndarray, block: np.ndarray) -> None:
    changes = lzma.decompress(piece.data, lzma.FORMAT_RAW, filters=FILTERS)
    np.bitwise_xor.accumulate(np.frombuffer(changes, np.uint8).reshape(block.shape), axis=0, out=block)
