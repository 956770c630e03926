"""A loop over the steps of a rollout."""

from collections.abc import Callable

import jax
from jaxtyping import PyTree

SHORT = 8


def over_steps(function: Callable, start: PyTree, steps: PyTree, reverse: bool = False) -> tuple[PyTree, PyTree]:
    """`jax.lax.scan`; a short one is written out, for a turn of a loop costs a GPU more than a step's arithmetic."""
    length = jax.tree.leaves(steps)[0].shape[0]
    return jax.lax.scan(function, start, steps, reverse=reverse, unroll=length if length <= SHORT else 1)
