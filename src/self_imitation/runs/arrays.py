"""Trees of JAX arrays as NumPy arrays by name, and back: for files, and for other processes."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from self_imitation.errors import UsageError


def _names(tree: PyTree) -> list[str]:
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """By dotted names; keys as plain words."""
    arrays = jax.device_get(key_words(jax.tree.leaves(tree)))
    return {name: np.ascontiguousarray(array) for name, array in zip(_names(tree), arrays, strict=True)}


def from_arrays(arrays: Mapping[str, np.ndarray], like: PyTree, source: str) -> PyTree:
    """In the structure, shapes and types of `like`; `source` names what does not fit in an error."""
    leaves, structure = jax.tree.flatten(like)
    names = _names(like)
    if difference := sorted(set(names) ^ set(arrays)):
        raise UsageError(f"checkpoint: {source!r} belongs to another kind of run; differs in {difference[0]!r}")
    found = []
    for name, leaf in zip(names, leaves, strict=True):
        array: Any = arrays[name]
        if is_key(leaf):
            array = jax.random.wrap_key_data(jnp.asarray(array))
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            have, want = f"{array.dtype}{list(array.shape)}", f"{leaf.dtype}{list(leaf.shape)}"
            raise UsageError(f"checkpoint: {source!r} belongs to another kind of run; {name} is {have}, not {want}")
        found.append(array)
    return jax.tree.unflatten(structure, found)


def part(arrays: Mapping[str, np.ndarray], place: slice) -> dict[str, np.ndarray]:
    """Of some seeds, which come first in every array."""
    return {name: array[place] for name, array in arrays.items()}


def join(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What `part` took apart."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def key_words(leaves: list) -> list:
    """Keys among them as plain words."""
    return [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]


def is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
