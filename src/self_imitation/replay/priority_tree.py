"""Sampling in proportion to a weight, in O(log n): a 16-way tree of sums and minima in two flat arrays.

The layout is a heap. The `top` nodes come first; the children of node g are row g + top / 16 of the array seen as rows
of 16, so the parent of node c is (c - top) // 16. Below the top lie `depth` levels, the last of them the leaves.

Three things keep it fast and exact:
- a touched row is summed afresh on the way up, never incremented, so sums cannot drift;
- a sum is always added up from left to right, as sampling does, so a mass below a node's sum lands in one of its
  children of weight above 0 and a leaf of weight 0 is never drawn;
- what a level found is stored before the next one begins: else the compiler would recompute the whole walk for every
  one of the 16 children that the next level reads.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

WIDTH = 16
MAX_TOP = 1024
JUST_BELOW_ONE = 1.0 - 2.0**-23


class PriorityTree(eqx.Module):
    sums: Float[Array, " nodes"]
    minima: Float[Array, " nodes"]
    minimum: Float[Array, ""]
    """Smallest weight of any leaf that was set. Kept apart: reading it off `minima` while sampling, unordered with the
    write that follows, would make the compiler copy the whole array."""
    top: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)

    @property
    def levels(self) -> int:
        return self.depth + 1

    @property
    def first_leaf(self) -> int:
        return self.top * (WIDTH**self.depth - 1) // (WIDTH - 1)


def create(capacity: int) -> PriorityTree:
    """A tree of `capacity` leaves, all of weight 0."""
    depth = 0
    while capacity > MAX_TOP * WIDTH**depth:
        depth += 1
    rows = -(-capacity // WIDTH**depth)
    top = -(-rows // WIDTH) * WIDTH
    nodes = top * (WIDTH ** (depth + 1) - 1) // (WIDTH - 1)
    return PriorityTree(jnp.zeros(nodes), jnp.full(nodes, jnp.inf), jnp.float32(jnp.inf), top, depth)


def sample(
    tree: PriorityTree, uniform: Float[Array, "levels batch"]
) -> tuple[Int[Array, " batch"], Float[Array, " batch"]]:
    """Sample one leaf per column of uniform numbers in [0, 1), in proportion to its weight; also returns that weight.

    Each level uses a random number of its own: the 24 bits of a single one can't distinguish a million leaves, nor
    reach one of small weight among them.
    """
    node = jax.lax.platform_dependent(
        tree.sums[: tree.top], uniform[0], cuda=_find_by_comparing, default=_find_by_walking
    )

    def down(level: int | Int[Array, ""], walk: _Walk) -> _Walk:
        children = _children(tree, tree.sums, walk.node)
        mass = uniform[level + 1] * walk.weight * JUST_BELOW_ONE
        return _step_down(children, tree.top + walk.node * WIDTH, mass)

    walk = _over_levels(tree.depth, down, _Walk(node, tree.sums[node]))
    return walk.node - tree.first_leaf, walk.weight


def update(
    tree: PriorityTree, leaf: Int[Array, " batch"], weight: Float[Array, " batch"], where: Bool[Array, " batch"]
) -> PriorityTree:
    """Set the weight of each leaf for which `where` holds; a leaf of weight 0 can't be sampled. Duplicate leaves must
    have equal weights.
    """
    node = leaf + tree.first_leaf
    target = jnp.where(where, node, tree.sums.shape[0])  # out of range: dropped
    sums = tree.sums.at[target].set(weight, mode="drop")
    minima = tree.minima.at[target].set(jnp.where(weight > 0, weight, jnp.inf), mode="drop")

    def up(_: int | Int[Array, ""], climb: _Climb) -> _Climb:
        node = (climb.node - tree.top) // WIDTH
        sums = climb.sums.at[node].set(_left_to_right_sum(_children(tree, climb.sums, node)))
        minima = climb.minima.at[node].set(jnp.min(_children(tree, climb.minima, node), axis=1))
        return _Climb(sums, minima, node)

    climb = _over_levels(tree.depth, up, _Climb(sums, minima, node))
    minimum = jnp.min(climb.minima[: tree.top])
    return PriorityTree(climb.sums, climb.minima, minimum, tree.top, tree.depth)


def _over_levels(depth: int, body: Callable, start: eqx.Module) -> Any:
    """A loop on a CPU, so that each level's result is stored; unrolled with barriers on a GPU, where a loop can't be
    part of a CUDA graph.
    """

    def loop(start: eqx.Module) -> eqx.Module:
        return jax.lax.fori_loop(0, depth, body, start)

    return jax.lax.platform_dependent(start, cuda=partial(_unrolled, depth, body), default=loop)


def _unrolled(depth: int, body: Callable, state: eqx.Module) -> Any:
    for level in range(depth):
        state = jax.lax.optimization_barrier(body(level, state))
    return state


def _find_by_walking(sums: Float[Array, " top"], uniform: Float[Array, " batch"]) -> Int[Array, " batch"]:
    """The top node that each number selects.

    The parallel cumulative sum rounds differently from place to place. Held up by its running maximum over nodes of
    weight above 0, it rises at such nodes alone, so that no other can be found in it.
    """
    cumulative = jax.lax.cummax(jnp.where(sums > 0, jnp.cumsum(sums), 0.0))
    mass = uniform * cumulative[-1] * JUST_BELOW_ONE
    return jnp.searchsorted(cumulative, mass, side="right").astype(jnp.int32)


def _find_by_comparing(sums: Float[Array, " top"], uniform: Float[Array, " batch"]) -> Int[Array, " batch"]:
    """The same as reductions of dense tables, which a GPU computes faster than a sequential search."""
    place = jnp.arange(len(sums))
    before = place[None, :] <= place[:, None]
    total = jnp.sum(jnp.where(before, sums[None, :], 0.0), axis=1)
    cumulative = jnp.max(jnp.where(before & (sums > 0)[None, :], total[None, :], 0.0), axis=1)
    mass = uniform * cumulative[-1] * JUST_BELOW_ONE
    return jnp.sum(cumulative[None, :] <= mass[:, None], axis=1).astype(jnp.int32)


class _Walk(eqx.Module):
    """Nodes that the samples have reached on their way down, and their weights."""

    node: Int[Array, " batch"]
    weight: Float[Array, " batch"]


class _Climb(eqx.Module):
    sums: Float[Array, " nodes"]
    minima: Float[Array, " nodes"]
    node: Int[Array, " batch"]


def _children(
    tree: PriorityTree, nodes: Float[Array, " nodes"], node: Int[Array, " batch"]
) -> Float[Array, "batch 16"]:
    return nodes.reshape(-1, WIDTH)[node + tree.top // WIDTH]


def _left_to_right_sum(children: Float[Array, "batch 16"]) -> Float[Array, " batch"]:
    total = children[:, 0]
    for k in range(1, WIDTH):
        total = total + children[:, k]
    return total


def _step_down(
    children: Float[Array, "batch 16"], first_child: Int[Array, " batch"], mass: Float[Array, " batch"]
) -> _Walk:
    """The child in whose interval of the left-to-right sum the mass lies."""
    reached = jnp.zeros_like(mass)
    child, weight = first_child, children[:, 0]
    for k in range(WIDTH - 1):
        reached = reached + children[:, k]
        passed = reached <= mass
        child = jnp.where(passed, first_child + k + 1, child)
        weight = jnp.where(passed, children[:, k + 1], weight)
    return _Walk(child, weight)
