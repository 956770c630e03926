"""Counts of hashed observations, against a dictionary of counts by code."""

from collections import Counter
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tabular import make_rollout, with_reset_step

from self_imitation.errors import UsageError
from self_imitation.exploration import autoencoder
from self_imitation.exploration.simhash import PRIMES, SimHash, SimHashConfig, table_index
from self_imitation.storage.trees import from_arrays, to_arrays
from self_imitation.types import Discrete, Spec

KEY = jax.random.key(0)
BITS = 20
RAW = SimHashConfig(scale=1.0, normalise_steps=0)
NUMBERS = Spec((BITS,), Discrete(2), None)
IMAGES = Spec((84, 84, 4), Discrete(2), None, observation_kind="image", stack=4)
RNG = np.random.default_rng(0)

# Each number of an observation is one bit of the code: its sign.
SIGNS = SimHash(SimHashConfig(scale=1.0, bits=BITS, normalise_steps=0), NUMBERS)
update_signs = jax.jit(SIGNS.update)


@pytest.fixture(scope="module")
def start():
    return eqx.tree_at(lambda s: s.projection, SIGNS.init(KEY, 2), jnp.eye(BITS))


def observation_of(code):
    """Observations whose codes are these whole numbers."""
    return np.where(np.asarray(code)[..., None] >> np.arange(BITS) & 1, 1.0, -1.0).astype(np.float32)


def reaching(*codes, **columns):
    """A rollout [T, N] in which the steps reach these codes."""
    reached = observation_of(codes)
    return make_rollout(reached, np.zeros(reached.shape[:2]), reached[0], reached, **columns)


def bonuses(bonus, state, rollout):
    state, exploration, metrics = jax.jit(bonus.update)(state, rollout, KEY)
    assert exploration.advantage is None
    return state, np.asarray(exploration.reward), metrics


def test_environments_in_the_same_state_are_counted_before_any_is_rewarded(start):
    _, bonus, metrics = bonuses(SIGNS, start, reaching([7, 7], [7, 9]))
    np.testing.assert_allclose(bonus, [[2**-0.5, 2**-0.5], [3**-0.5, 1.0]], rtol=1e-6)
    assert float(metrics["simhash_bonus"]) == pytest.approx(bonus.mean(), rel=1e-6)


def test_bonus_matches_a_dictionary_of_counts_by_code():
    """With a random projection, over several rollouts with ends of episodes."""
    hashed = SimHash(SimHashConfig(scale=2.0, bits=6, normalise_steps=0), Spec((3,), Discrete(2), None))
    state, seen = hashed.init(KEY, 4), Counter()
    projection = np.asarray(state.projection, np.float64)
    for _ in range(3):
        reached = RNG.normal(size=(5, 4, 3)).astype(np.float32)
        ended = RNG.random((5, 4)) < 0.3
        rollout = make_rollout(RNG.normal(size=(5, 4, 3)), ended, reached[-1], reached, terminated=ended)
        state, bonus, _ = bonuses(hashed, state, rollout)
        for t in range(5):
            codes = [tuple(row) for row in reached[t] @ projection > 0]
            seen.update(codes)
            np.testing.assert_allclose(bonus[t], [2.0 / np.sqrt(seen[code]) for code in codes], rtol=1e-6)
    assert 5 < len(seen) < 60


def test_without_next_observations_the_following_row_was_reached(start):
    observed = observation_of([[3, 3], [4, 5], [4, 6]])
    rollout = make_rollout(observed[:2], np.zeros((2, 2)), observed[2])
    _, bonus, _ = bonuses(SIGNS, start, rollout)
    np.testing.assert_allclose(bonus, [[1.0, 1.0], [2**-0.5, 1.0]], rtol=1e-6)


def test_reset_steps_are_neither_counted_nor_rewarded(start):
    rollout = reaching([1, 2], [2, 2], [1, 2])
    expected_state, expected, _ = bonuses(SIGNS, start, rollout)
    state, bonus, metrics = bonuses(SIGNS, start, with_reset_step(rollout, after=0))
    np.testing.assert_array_equal(bonus[1], 0.0)
    assert int(state.counts.sum()) == int(expected_state.counts.sum()) == 6 * len(PRIMES)
    assert float(metrics["simhash_bonus"]) == pytest.approx(bonus[[0, 2, 3]].mean(), rel=1e-6)
    assert bonus[0].tolist() == expected[0].tolist()


def test_states_that_differ_in_one_bit_are_counted_apart(start):
    _, bonus, _ = bonuses(SIGNS, start, reaching(*[[1 << i, (1 << BITS) - 1 - (1 << i)] for i in range(BITS)]))
    np.testing.assert_array_equal(bonus, 1.0)


def test_an_entry_for_each_table_is_the_code_modulo_its_prime():
    codes = RNG.integers(1 << 62, size=50)
    index = table_index(jnp.asarray(codes[:, None] >> np.arange(62) & 1 == 1))
    np.testing.assert_array_equal(index - (np.cumsum(PRIMES) - PRIMES), codes[:, None] % PRIMES)


def test_codes_that_collide_in_one_table_are_kept_apart_by_the_others(start):
    one, other = 5, 5 + int(PRIMES[0])
    index = np.asarray(table_index(jnp.asarray(observation_of([one, other]) > 0)))
    assert (index[0] == index[1]).tolist() == [True] + [False] * (len(PRIMES) - 1)
    state, bonus, _ = bonuses(SIGNS, start, reaching([one], [one], [other], [other]))
    np.testing.assert_allclose(bonus[:, 0], [1.0, 2**-0.5, 1.0, 2**-0.5], rtol=1e-6)
    assert int(state.counts.max()) == 4, "both are counted in the table where they collide"


def test_powers_of_2_take_many_values_modulo_each_prime():
    for prime in map(int, PRIMES):
        assert all(prime % divisor for divisor in range(2, int(prime**0.5) + 1))
        assert len({pow(2, i, prime) for i in range(prime)}) >= prime // 4


def test_the_state_takes_a_few_megabytes():
    state = SimHash(SimHashConfig(), IMAGES).init(KEY, 16)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(state)) < 8e6


def test_more_bits_for_images():
    """As in the paper."""
    assert SimHash(SimHashConfig(), NUMBERS).init(KEY, 1).projection.shape[1] == 32
    assert SimHash(SimHashConfig(), IMAGES).init(KEY, 1).projection.shape == (52 * 52, 256)
    assert SimHash(SimHashConfig(bits=64), IMAGES).init(KEY, 1).projection.shape[1] == 64


def first_rollouts(scales, steps=40):
    """A bonus that normalises by the first 40 steps of numbers on these scales, and its states afterwards."""
    normalising = SimHash(SimHashConfig(normalise_steps=40), Spec((len(scales),), Discrete(2), None))
    state, states = normalising.init(KEY, 4), []
    for shift in (0.0, 100.0):
        x = RNG.normal(size=(steps // 4, 4, len(scales))) * scales + shift
        state, _, _ = bonuses(normalising, state, make_rollout(x, np.zeros(x.shape[:2]), x[0], x))
        states.append(state)
    return normalising, states


def test_moments_are_those_of_the_first_steps():
    _, (first, later) = first_rollouts(np.array([1.0, 50.0]))
    assert float(first.observation.count) == 40
    for one, other in zip(*map(jax.tree.leaves, (first.observation, later.observation)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_normalised_numbers_on_small_scales_change_the_code():
    scale = np.array([1.0, 1e-3], np.float32)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(500, 2)).astype(np.float32) * scale)
    normalising, (state, _) = first_rollouts(scale)
    assert len(np.unique(normalising.code(state, x), axis=0)) > 100
    raw = SimHash(RAW, Spec((2,), Discrete(2), None))
    assert len(np.unique(raw.code(raw.init(KEY, 1), x), axis=0)) < 20


def test_a_flag_that_was_never_set_leaves_the_other_numbers_their_say():
    normalising, (state, _) = first_rollouts(np.array([1.0, 0.0]))
    x = np.stack([np.linspace(-2, 2, 200), np.ones(200)], axis=1).astype(np.float32)
    set_, unset = (np.asarray(normalising.code(state, jnp.asarray(rows))) for rows in (x, x * [1.0, 0.0]))
    assert len(np.unique(set_, axis=0)) > 10
    assert (set_ != unset).any(axis=1).mean() > 0.9


def test_categories_are_counted_exactly():
    categories = Spec((2,), Discrete(2), None, (5, 4), observation_kind="categories")
    hashed = SimHash(SimHashConfig(scale=1.0), categories)
    states = np.stack(np.meshgrid(range(5), range(4)), axis=-1).reshape(1, 20, 2).astype(np.int32)
    reached = np.concatenate([states, states])
    _, bonus, _ = bonuses(hashed, hashed.init(KEY, 20), make_rollout(reached, np.zeros((2, 20)), states[0], reached))
    np.testing.assert_allclose(bonus, [[1.0] * 20, [2**-0.5] * 20], rtol=1e-6)


def test_the_newest_frame_of_an_image_is_hashed():
    """The older frames and numbers beside the image don't matter; equal to hashing block means in NumPy."""
    spec = Spec((104, 104, 2), Discrete(2), None, observation_kind="image", stack=2, numbers_beside_image=1)
    hashed = SimHash(SimHashConfig(bits=16), spec)
    state = hashed.init(KEY, 1)
    image = RNG.integers(256, size=(6, 104, 104, 2), dtype=np.uint8)
    code = hashed.code(state, {"image": jnp.asarray(image), "numbers": jnp.zeros((6, 1))})
    small = image[..., 1].reshape(6, 52, 2, 52, 2).mean(axis=(2, 4)).reshape(6, -1) / 255
    np.testing.assert_array_equal(code, small @ np.asarray(state.projection, np.float64) > 0)
    assert len(np.unique(code, axis=0)) > 1


@pytest.mark.parametrize(
    "spec", [NUMBERS, Spec((51, 84, 1), Discrete(2), None, observation_kind="image")], ids=["vector", "small image"]
)
def test_a_learned_hash_of_other_observations_is_refused(spec):
    with pytest.raises(UsageError, match=r"simhash\.hash: 'learned' is not allowed; .* images of at least 52 x 52"):
        SimHash(SimHashConfig(hash="learned"), spec)


def test_seeds_side_by_side_are_as_each_alone(start):
    states = [start, SIGNS.init(jax.random.key(1), 2)]
    rollouts = [reaching([1, 2], [1, 1]), reaching([3, 4], [4, 4])]
    stack = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    together = jax.jit(jax.vmap(SIGNS.update, in_axes=(0, 0, None)))(stack(*states), stack(*rollouts), KEY)
    for seed, (state, rollout) in enumerate(zip(states, rollouts, strict=True)):
        alone = update_signs(state, rollout, KEY)
        mine = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
        for one, other in zip(*map(jax.tree.leaves, (mine, alone)), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("learned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_state_can_be_stored(learned):
    hashed = SimHash(SimHashConfig(hash="learned" if learned else "static"), IMAGES if learned else NUMBERS)
    state, another = (jax.tree.map(lambda leaf: leaf[None], hashed.init(key, 2)) for key in jax.random.split(KEY))
    restored = from_arrays(to_arrays(state), another, "here")
    for one, other in zip(*map(jax.tree.leaves, (state, restored)), strict=True):
        np.testing.assert_array_equal(one, other)


# The learned hash: a bright square at each of twelve places.
SCENES = np.full((12, 84, 84, 4), 40, np.uint8)
for number in range(12):
    row, column = divmod(number, 4)
    SCENES[number, 12 + 20 * row : 26 + 20 * row, 6 + 20 * column : 20 + 20 * column, 3] = 200
LEARNED = SimHash(SimHashConfig(scale=1.0, hash="learned", learning_rate=2e-3), IMAGES)
ADAM = optax.adam(2e-3)


def scenes_of(*numbers):
    return jnp.asarray(SCENES[np.array(numbers)])


@pytest.fixture(scope="module")
def trained():
    """Before and after gradient steps on the twelve scenes."""
    state = LEARNED.init(KEY, 2)
    learned = autoencoder.insert(state.autoencoder, LEARNED._frames(scenes_of(*range(12))), None)
    learned, _ = jax.jit(partial(autoencoder.train, optimiser=ADAM, steps=60))(learned, key=KEY)
    learned = autoencoder.renew_codes(learned, jnp.int32(5), every=5)
    return state, eqx.tree_at(lambda s: s.autoencoder, state, learned)


@pytest.mark.slow
def test_the_learned_code_becomes_binary_and_tells_frames_apart(trained):
    frames = LEARNED._frames(scenes_of(*range(12))) / 255.0
    before, after = (np.asarray(state.autoencoder.coder(frames)) for state in trained)
    near = [np.mean(np.minimum(code, 1 - code) < 0.1) for code in (before, after)]
    assert near[0] < 0.1
    assert near[1] > 0.5
    differing = (np.round(after)[:, None] != np.round(after)).sum(axis=-1)
    assert differing[~np.eye(12, dtype=bool)].min() > 20, "of 512 bits"
    assert len(np.unique(LEARNED.code(trained[1], scenes_of(*range(12))), axis=0)) == 12


@pytest.mark.slow
def test_training_lowers_the_loss(trained):
    frames = LEARNED._frames(scenes_of(*range(12))) / 255.0
    before, after = (float(state.autoencoder.network.loss(frames, KEY)[0]) for state in trained)
    assert after < 0.8 * before


@pytest.mark.slow
def test_learned_codes_are_counted_and_stay_the_same_while_the_autoencoder_is_trained(trained):
    """Older frames of the stack don't matter."""
    observed = np.stack([SCENES[[0, 0]], SCENES[[0, 1]]])
    observed[1, 0, ..., :3] = 255
    rollout = make_rollout(observed, np.zeros((2, 2)), observed[0], observed)
    state = trained[1]
    for visits in ([[2, 2], [3, 1]], [[5, 5], [6, 2]]):
        before = state
        state, bonus, metrics = bonuses(LEARNED, state, rollout)
        np.testing.assert_allclose(bonus, np.array(visits) ** -0.5, rtol=1e-6)
        assert 0 < float(metrics["simhash_loss"]) < 2000
        weights = [s.autoencoder.network.encoder.hidden.weight for s in (before, state)]
        assert (weights[0] != weights[1]).any()
    assert int(state.autoencoder.age) == 8


@pytest.mark.slow
def test_learned_codes_are_renewed_in_intervals(trained):
    state = eqx.tree_at(lambda s: s.coder, trained[1].autoencoder, trained[0].autoencoder.coder)
    ages = []
    for steps in (6, 3, 2):
        state = autoencoder.renew_codes(state, jnp.int32(steps), every=10)
        ages.append(int(state.age))
        renewed = (state.coder.encoder.hidden.weight == state.network.encoder.hidden.weight).all()
        assert bool(renewed) == (len(ages) == 3)
    assert ages == [6, 9, 0]


@pytest.fixture(scope="module")
def empty():
    return autoencoder.create(np.random.default_rng(0), ADAM)


def filled_with(values, state, valid=None):
    """The pool after frames of one grey value each."""
    frames = jnp.broadcast_to(jnp.asarray(values, jnp.float32)[:, None, None], (len(values), 52, 52))
    return autoencoder.insert(state, frames, None if valid is None else jnp.asarray(valid))


def test_the_pool_holds_frames_but_those_of_reset_steps(empty):
    state = filled_with([7, 8, 9], empty, [True, False, True])
    state = filled_with([1, 2, 3, 4], state, [False, True, True, False])
    assert (int(state.filled), int(state.position)) == (4, 4)
    np.testing.assert_array_equal(state.pool[:5, 0, 0], [7, 9, 2, 3, 0])


def test_a_full_pool_loses_its_oldest_frames(empty):
    size = autoencoder.POOL_SIZE // 2 + 1
    state = filled_with([2] * size, filled_with([1] * size, empty))
    assert (int(state.filled), int(state.position)) == (autoencoder.POOL_SIZE, 2)
    np.testing.assert_array_equal(state.pool[:, 0, 0], [2, 2] + [1] * (size - 2) + [2] * (size - 2))


def test_of_a_large_rollout_every_nth_frame_enters_the_pool(empty):
    values = np.arange(2 * autoencoder.POOL_SIZE) % 256
    np.testing.assert_array_equal(filled_with(values, empty).pool[:, 0, 0], values[::2])
