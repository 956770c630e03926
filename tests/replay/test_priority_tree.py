"""The priority tree: exact against a plain array, exact in its frequencies, and never a leaf of weight 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from self_imitation.replay import priority_tree
from self_imitation.replay.priority_tree import PriorityTree

CAPACITIES = (5, 1025, 20_000)
"""Trees with zero, one and two levels below the top, full and partly empty ones."""
LARGEST = 100_000
BATCH = 64
FLOOR = 1e-6**0.6
"""Weight of the smallest priority at the usual exponent."""
BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
ROUNDING = 5e-6
"""How far, relative to the sum of all weights, float32 may move the boundary between two leaves."""

update = jax.jit(priority_tree.update)
sample = jax.jit(priority_tree.sample)


def filled(weights: np.ndarray) -> PriorityTree:
    """A tree whose every leaf was set."""
    return update(
        priority_tree.create(len(weights)),
        jnp.arange(len(weights)),
        jnp.asarray(weights, jnp.float32),
        jnp.ones(len(weights), bool),
    )


def leaves_of(tree: PriorityTree, capacity: int) -> np.ndarray:
    return np.asarray(tree.sums)[tree.first_leaf : tree.first_leaf + capacity]


def assert_tree_equals(tree: PriorityTree, weights: np.ndarray, was_set: np.ndarray) -> None:
    """Every node holds the sum and the minimum of the leaves below it."""
    leaves = tree.top * 16**tree.depth
    padding = leaves - len(weights)
    assert padding >= 0
    summed = np.pad(weights.astype(np.float64), (0, padding))
    drawable = was_set & (weights > 0)
    least = np.pad(np.where(drawable, weights, np.float32(np.inf)), (0, padding), constant_values=np.inf)
    first = 0
    for level in range(tree.depth + 1):
        nodes = tree.top * 16**level
        here = slice(first, first + nodes)
        assert_allclose(np.asarray(tree.sums)[here], summed.reshape(nodes, -1).sum(axis=1), rtol=2e-6, atol=0)
        assert_array_equal(np.asarray(tree.minima)[here], least.reshape(nodes, -1).min(axis=1))
        first += nodes
    assert first == tree.sums.shape[0] == tree.minima.shape[0]
    assert_array_equal(leaves_of(tree, len(weights)), weights)
    assert_array_equal(np.asarray(tree.minimum), least.min())


def treacherous_uniforms(weights: np.ndarray, count: int = 1024) -> np.ndarray:
    """The ends of [0, 1) and the floats next to the boundaries between leaves."""
    edges = np.unique(np.cumsum(weights, dtype=np.float64)[weights > 0])
    edges = (edges / edges[-1]).astype(np.float32)
    near = [edges]
    for direction in (-1, 2):
        step = edges
        for _ in range(3):
            step = np.nextafter(step, np.float32(direction))
            near.append(step)
    near = np.concatenate(near)
    rng = np.random.default_rng(0)
    ends = np.array([0, 1e-45, 1e-38, 2**-24, 2**-23, BELOW_ONE, 1 - 2**-23], np.float32)
    if len(near) > count - len(ends):
        near = rng.choice(near, count - len(ends), replace=False)
    others = rng.random(count - len(ends) - len(near), dtype=np.float32)
    return np.clip(np.concatenate([ends, near, others]), 0, BELOW_ONE).astype(np.float32)


def at_every_level(tree: PriorityTree, uniform: np.ndarray) -> np.ndarray:
    """Columns with the same number at all levels, then columns of numbers that have nothing to do with each other."""
    rng = np.random.default_rng(1)
    others = [rng.permutation(uniform) for _ in range(tree.levels)]
    return np.concatenate([np.tile(uniform, (tree.levels, 1)), np.stack(others)], axis=1)


def row_uniforms(tree: PriorityTree) -> np.ndarray:
    """Numbers next to the boundaries between the children of some of the nodes that have any weight."""
    rows = np.asarray(tree.sums).reshape(-1, 16)
    rows = rows[rows.sum(axis=1) > 0]
    some = rows[np.random.default_rng(2).integers(len(rows), size=4)]
    return np.concatenate([treacherous_uniforms(row, 128) for row in some])


def assert_samples_only_positive(tree: PriorityTree, weights: np.ndarray) -> None:
    uniform = np.concatenate([treacherous_uniforms(weights), row_uniforms(tree)])
    leaf, weight = map(np.asarray, sample(tree, jnp.asarray(at_every_level(tree, uniform))))
    assert leaf.min() >= 0
    assert leaf.max() < len(weights)
    assert_array_equal(weight, weights[leaf])
    assert (weight > 0).all()


@pytest.mark.parametrize(
    ("capacity", "depth"), [(1, 0), (5, 0), (1024, 0), (1025, 1), (16_384, 1), (16_385, 2), (LARGEST, 2)]
)
def test_depth_is_minimal_and_every_item_has_a_leaf(capacity, depth):
    tree = jax.eval_shape(lambda: priority_tree.create(capacity))
    assert tree.depth == depth
    assert tree.top <= priority_tree.MAX_TOP
    assert capacity <= tree.top * 16**depth < capacity + 16 ** (depth + 1)
    assert tree.sums.shape == tree.minima.shape == (tree.first_leaf + tree.top * 16**depth,)


def random_update(rng: np.random.Generator, capacity: int, leaves: str, span: str, zeros: float, masked: float):
    """A batch of leaves, their weights (equal for equal leaves, but for masked places) and a mask."""
    if leaves == "anywhere":
        leaf = rng.integers(0, capacity, BATCH)
    elif leaves == "few":
        leaf = rng.choice(rng.integers(0, capacity, 4), BATCH)
    else:
        leaf = (rng.integers(0, capacity) + np.arange(BATCH)) % capacity
    low, high = {"priorities": (FLOOR, 1.0), "wide": (1e-12, 1e12), "equal": (1.0, 1.0)}[span]
    table = np.exp(rng.uniform(np.log(low), np.log(high), capacity)).astype(np.float32)
    table[rng.random(capacity) < zeros] = 0
    where = rng.random(BATCH) >= masked
    weight = np.where(where, table[leaf], rng.choice(np.array([0, 1e-9, 7, np.nan], np.float32), BATCH))
    return leaf.astype(np.int32), weight.astype(np.float32), where


updates = st.lists(
    st.tuples(
        st.integers(0, 2**32 - 1),
        st.sampled_from(["anywhere", "few", "run"]),
        st.sampled_from(["priorities", "wide", "equal"]),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from([0.0, 0.5, 1.0]),
    ),
    min_size=1,
    max_size=5,
)


def assert_follows_plain_array(capacity: int, operations: list) -> None:
    tree = priority_tree.create(capacity)
    weights, was_set = np.zeros(capacity, np.float32), np.zeros(capacity, bool)
    for seed, *how in operations:
        leaf, weight, where = random_update(np.random.default_rng(seed), capacity, *how)
        tree = update(tree, leaf, weight, where)
        weights[leaf[where]] = weight[where]
        was_set[leaf[where]] = True
        assert_tree_equals(tree, weights, was_set)
        if weights.any():
            assert_samples_only_positive(tree, weights)


@pytest.mark.parametrize("capacity", CAPACITIES)
@settings(deadline=None, derandomize=True, max_examples=12)
@given(operations=updates)
def test_updates_match_a_plain_array(capacity, operations):
    assert_follows_plain_array(capacity, operations)


def test_updates_match_a_plain_array_at_full_size():
    ways = [("anywhere", "priorities", 0.0, 0.5), ("run", "wide", 0.5, 0.0), ("few", "equal", 0.0, 0.0)]
    assert_follows_plain_array(LARGEST, [(seed, *ways[seed % 3]) for seed in range(6)])


def test_minimum_is_that_of_the_leaves_set_and_can_rise_again():
    tree = priority_tree.create(1025)
    assert tree.minimum == jnp.inf

    def put(tree: PriorityTree, leaf: int, weight: float) -> PriorityTree:
        return update(tree, jnp.array([leaf]), jnp.array([weight], jnp.float32), jnp.array([True]))

    tree = put(put(tree, 3, 0.5), 1024, 0.25)
    assert tree.minimum == 0.25
    tree = put(tree, 1024, 2.0)
    assert tree.minimum == 0.5
    tree = put(tree, 3, 8.0)
    assert tree.minimum == 2.0


@pytest.mark.parametrize("capacity", [1000, 20_000])
def test_frequencies_are_proportional_to_the_weights(capacity):
    """200 leaves from the smallest weight to 1, in random places of the tree."""
    rng = np.random.default_rng(capacity)
    places = rng.choice(capacity, 200, replace=False)
    weights = np.zeros(capacity, np.float32)
    weights[places] = np.geomspace(FLOOR, 1, 200)
    tree = filled(weights)
    leaf, _ = sample(tree, jnp.asarray(rng.random((tree.levels, 1_000_000), dtype=np.float32)))
    counts = np.bincount(np.asarray(leaf), minlength=capacity)
    assert counts.sum() == counts[places].sum()
    probabilities = weights[places].astype(np.float64) / weights.sum(dtype=np.float64)
    assert (probabilities * counts.sum()).min() > 5
    assert stats.chisquare(counts[places], probabilities * counts.sum()).pvalue > 1e-4


def patterns(capacity: int) -> dict[str, np.ndarray]:
    """Weights that leave a careless walk on a leaf of weight 0."""
    rng = np.random.default_rng(capacity)
    index = np.arange(capacity)
    priorities = np.geomspace(FLOOR, 1, capacity)
    wide = 10.0 ** rng.uniform(-12, 12, capacity)
    magnitudes = np.where(rng.random(capacity) < 0.1, wide, 0.0)
    magnitudes[capacity // 3] = 1.0
    weights = {
        "only the first": index == 0,
        "only the last": index == capacity - 1,
        "only the middle": index == capacity // 2,
        "first and last": (index == 0) | (index == capacity - 1),
        "every 17th from 3": index % 17 == 3,
        "last of each row of 16": (index % 16 == 15) | (index == capacity - 1),
        "long stretches": np.where(index // 40 % 5 == 2, priorities, 0) + (index == 1),
        "first half filled": np.where(index < (capacity + 1) // 2, priorities, 0),
        "second half filled": np.where(index >= capacity // 2, priorities, 0),
        "thirds, whose sums are rounded": np.where(index % 3 == 0, 1 / 3, 0),
        "all magnitudes": magnitudes,
        "one huge among the tiny": np.where(index == capacity // 2, 1e9, np.where(index % 2 == 0, 1e-9, 0)),
    }
    return {name: np.asarray(weight, np.float32) for name, weight in weights.items()}


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("pattern", patterns(5))
def test_a_leaf_of_weight_zero_is_never_sampled(capacity, pattern):
    weights = patterns(capacity)[pattern]
    assert_samples_only_positive(filled(weights), weights)


@pytest.mark.parametrize("capacity", [20_000])
def test_rounding_does_not_lead_past_the_last_positive_leaf_of_a_row(capacity):
    """A row's sum must be added up just as sampling adds up its leaves: an ulp more would lead to the empty one."""
    rng = np.random.default_rng(9)
    row = 16 * (capacity // 32) + np.arange(16)
    for _ in range(30):
        weights = np.zeros(capacity, np.float32)
        weights[row[:15]] = rng.uniform(FLOOR, 1, 15)
        tree = update(priority_tree.create(capacity), row, weights[row], np.ones(16, bool))
        assert_samples_only_positive(tree, weights)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_partly_filled_tree_samples_only_what_was_set(capacity):
    rng = np.random.default_rng(1)
    tree, weights = priority_tree.create(capacity), np.zeros(capacity, np.float32)
    for stored in sorted({1, 2, 5, *(n for n in (16, 17, 64) if n <= capacity)}):
        leaf = np.minimum(np.arange(BATCH), stored - 1)
        weights[:stored] = rng.uniform(FLOOR, 1, stored)
        tree = update(tree, leaf, weights[leaf], np.arange(BATCH) < stored)
        assert_samples_only_positive(tree, weights)
        assert tree.minimum == weights[:stored].min()


@pytest.mark.parametrize("capacity", [20_000])
def test_sums_do_not_drift_over_thousands_of_updates(capacity):
    """After thousands of jumps between huge and tiny weights all leaves but one are set to 0: that one is exact."""
    rng = np.random.default_rng(2)
    leaf = rng.integers(0, capacity, (2000, 8))
    weight = np.broadcast_to(np.where(rng.random((2000, 1)) < 0.5, 1e6, 1e-6) * rng.uniform(1, 2, (2000, 1)), (2000, 8))

    @jax.jit
    def jump(tree, leaf, weight):
        def one(tree, step):
            return priority_tree.update(tree, *step, jnp.ones(8, bool)), None

        return jax.lax.scan(one, tree, (leaf, weight))[0]

    tree = jump(priority_tree.create(capacity), jnp.asarray(leaf, jnp.int32), jnp.asarray(weight, jnp.float32))
    expected, was_set = np.zeros(capacity, np.float32), np.zeros(capacity, bool)
    for leaves, weights in zip(leaf, weight, strict=True):
        expected[leaves], was_set[leaves] = weights, True
    assert_tree_equals(tree, expected, was_set)

    expected[:] = 0
    expected[capacity - 7] = FLOOR
    tree = update(tree, jnp.arange(capacity), jnp.asarray(expected), jnp.ones(capacity, bool))
    assert_tree_equals(tree, expected, np.ones(capacity, bool))
    assert float(tree.sums[: tree.top].sum()) == expected[capacity - 7]
    chosen, _ = sample(tree, jnp.asarray(at_every_level(tree, treacherous_uniforms(expected))))
    assert set(np.asarray(chosen).tolist()) == {capacity - 7}


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_each_level_selects_as_an_exact_cumulative_sum_does(capacity):
    """Below the node reached, children come in proportion to their weight; near a boundary, rounding decides."""
    rng = np.random.default_rng(3)
    middle = np.abs(np.arange(capacity) - capacity // 2) < 20  # neighbours, and others far from them
    positive = middle | (rng.random(capacity) < 30 / capacity)
    weights = np.where(positive, rng.uniform(FLOOR, 1, capacity), 0).astype(np.float32)
    tree = filled(weights)
    uniform = at_every_level(tree, np.concatenate([treacherous_uniforms(weights), row_uniforms(tree)]))
    leaf = np.asarray(sample(tree, jnp.asarray(uniform))[0])
    assert_array_equal(leaf, np.asarray(sample(tree, jnp.asarray(uniform))[0]), "the same numbers, the same leaves")

    levels = [np.pad(weights.astype(np.float64), (0, tree.top * 16**tree.depth - capacity))]
    for _ in range(tree.depth):
        levels.insert(0, levels[0].reshape(-1, 16).sum(axis=1))
    for level, (sums, number) in enumerate(zip(levels, uniform.astype(np.float64), strict=True)):
        chosen = leaf // 16 ** (tree.depth - level)
        family = np.zeros(len(leaf), int) if level == 0 else chosen // 16
        members = sums.reshape(1 if level == 0 else -1, tree.top if level == 0 else 16)[family]
        upper = np.cumsum(members, axis=1)
        place = chosen - family * members.shape[1]
        above = np.take_along_axis(upper, place[:, None], 1)[:, 0]
        below = above - np.take_along_axis(members, place[:, None], 1)[:, 0]
        mass, slack = number * upper[:, -1], ROUNDING * upper[:, -1]
        assert (mass < above + slack).all()
        assert (mass >= below - slack).all()


def test_a_small_weight_among_a_hundred_thousand_is_sampled_as_often_as_it_should():
    """One number of 24 bits would never lead to a weight this far below the rounding of the sum, or too often."""
    weights = np.ones(LARGEST, np.float32)
    weights[77_777] = FLOOR
    tree = filled(weights)
    node = 77_777 // 256
    sums = np.asarray(tree.sums)
    start = (sums[:node].sum() + 0.5) / sums[: tree.top].sum()  # a number that leads to the leaf's node at the top
    uniform = np.random.default_rng(5).random((tree.levels, 4_000_000), dtype=np.float32)
    uniform[0] = start
    uniform[1] = (77_777 % 256 // 16 + 0.5) / 16  # and to its row
    count = int((np.asarray(sample(tree, jnp.asarray(uniform))[0]) == 77_777).sum())
    expected = 4_000_000 * FLOOR / (15 + FLOOR)
    assert abs(count - expected) < 5 * expected**0.5


@pytest.mark.parametrize("capacity", [20_000])
def test_vmapped_trees_match_single_ones(capacity):
    rng = np.random.default_rng(4)
    trees = [priority_tree.create(capacity) for _ in range(3)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    update_all, sample_all = jax.jit(jax.vmap(priority_tree.update)), jax.jit(jax.vmap(priority_tree.sample))
    for masked in (0.0, 0.5, 1.0):
        steps = [random_update(rng, capacity, "anywhere", "priorities", 0.2, masked) for _ in trees]
        trees = [update(tree, *step) for tree, step in zip(trees, steps, strict=True)]
        together = update_all(together, *(np.stack(part) for part in zip(*steps, strict=True)))
        uniform = rng.random((3, trees[0].levels, BATCH), dtype=np.float32)
        leaf, weight = sample_all(together, uniform)
        for k, tree in enumerate(trees):
            for mine, alone in zip(jax.tree.leaves(together), jax.tree.leaves(tree), strict=True):
                assert_array_equal(mine[k], alone)
            alone_leaf, alone_weight = sample(tree, uniform[k])
            assert_array_equal(leaf[k], alone_leaf)
            assert_array_equal(weight[k], alone_weight)


@pytest.mark.parametrize("find", [priority_tree._find_by_walking, priority_tree._find_by_comparing])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.99])
def test_top_level_search_matches_an_exact_cumulative_sum(find, zeros):
    rng = np.random.default_rng(0)
    sums = np.where(rng.random(1024) < zeros, 0, 10.0 ** rng.uniform(-4, 3, 1024)).astype(np.float32)
    sums[500] = 1.0  # else there may be none
    uniform = rng.random(2000).astype(np.float32)
    uniform[:2] = 0.0, 1 - 2.0**-24
    node = np.asarray(jax.jit(find)(sums, uniform))
    assert (sums[node] > 0).all()
    exact = np.cumsum(sums.astype(np.float64))
    mass, slack = uniform * exact[-1], 1e-5 * exact[-1]
    assert (mass <= exact[node] + slack).all()
    assert (mass >= exact[node] - sums[node] - slack).all()
