"""Small helpers for arrays: shape checks, masked means, short scans, loops over a batch of seeds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from self_imitation.errors import UsageError

MAX_UNROLL = 8
"""A scan of at most this many steps is unrolled: one iteration of a loop costs a GPU more than a step's arithmetic."""


def require_same_shape(**arrays: Any) -> None:
    """Raise if the shapes differ, so that (B, 1) minus (B,) can't broadcast to (B, B). Free at run time."""
    if len({array.shape for array in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"shapes must be the same: {shapes}")


def require_vectors(**arrays: Any) -> None:
    """Raise a `UsageError` that names the first array that is not a vector of the same length as the others: (B, 1)
    where (B,) is needed would broadcast to (B, B). Free at run time.
    """
    shapes = {name: jnp.shape(array) for name, array in arrays.items()}
    reference = next((name for name, shape in shapes.items() if len(shape) == 1), None)
    for name, shape in shapes.items():
        if reference is None:
            raise UsageError(f"{name}: shape {shape} is not allowed; expected a vector, one number per sample")
        if shape != shapes[reference]:
            expected = f"expected {shapes[reference]}, as {reference} has, one number per sample"
            raise UsageError(f"{name}: shape {shape} is not allowed; {expected}")


def scan_unrolled(function: Callable, init: PyTree, xs: PyTree, reverse: bool = False) -> tuple[PyTree, PyTree]:
    """`jax.lax.scan`, unrolled when it is short."""
    length = jax.tree.leaves(xs)[0].shape[0]
    return jax.lax.scan(function, init, xs, reverse=reverse, unroll=length if length <= MAX_UNROLL else 1)


def masked_mean(x: Float[Array, "*batch"], valid: Bool[Array, "*batch"] | None) -> Float[Array, ""]:
    """Mean over the valid entries; 0 if there are none. `valid=None`: all entries are valid."""
    if valid is None:
        return jnp.mean(x)
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def select(condition: Bool[Array, "*batch"], yes: PyTree, no: PyTree) -> PyTree:
    """`jnp.where` on trees; `condition` covers the leading axes of every leaf."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(*condition.shape, *(1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(choose, yes, no)


@jax.custom_batching.custom_vmap
def max_over_seeds(count: Int[Array, ""]) -> Int[Array, ""]:
    """The count itself; under `vmap` the largest of the batch.

    A loop whose length differs over the batch would, at every iteration, copy its whole state to restore the members
    that are done. With one length for all, nothing is copied.
    """
    return count


@max_over_seeds.def_vmap
def _(axis_size: int, in_batched: list[bool], count: Int[Array, " seeds"]) -> tuple[Int[Array, ""], bool]:
    return max_over_seeds(jnp.max(count)), False
