"""Trees of JAX arrays as NumPy arrays by name, and back."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from self_imitation.errors import UsageError

MISFIT = "does not fit the environment or the settings"


def by_name(tree: PyTree) -> dict[str, Any]:
    """Leaves by dotted names, in their order."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Arrays by dotted names; random keys as integers."""
    arrays = jax.device_get([jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in jax.tree.leaves(tree)])
    return {name: np.ascontiguousarray(array) for name, array in zip(by_name(tree), arrays, strict=True)}


def from_arrays(arrays: Mapping[str, np.ndarray], like: PyTree, source: str) -> PyTree:
    """The tree with the structure, shapes and dtypes of `like`; `source` names the origin in errors."""
    wanted, structure = by_name(like), jax.tree.structure(like)
    if difference := sorted(set(wanted) ^ set(arrays)):
        raise UsageError(f"checkpoint: {source!r} {MISFIT}; it differs in {difference[0]!r}")
    found = []
    for name, leaf in wanted.items():
        array: Any = arrays[name]
        if is_key(leaf):
            array = jax.random.wrap_key_data(jnp.asarray(array))
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            have, want = f"{array.dtype}{list(array.shape)}", f"{leaf.dtype}{list(leaf.shape)}"
            raise UsageError(f"checkpoint: {source!r} {MISFIT}; {name} is {have}, not {want}")
        found.append(array)
    return jax.tree.unflatten(structure, found)


def is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
