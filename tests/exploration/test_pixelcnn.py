"""Pseudo-counts from a PixelCNN: the density model, the formula, and what is rewarded."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular import make_rollout

from self_imitation.errors import UsageError
from self_imitation.exploration.frames import downsample, newest_grey_frame, quantise
from self_imitation.exploration.pixelcnn import LEVELS, PixelCNN, PixelCNNBonus, PixelCNNConfig
from self_imitation.storage.trees import from_arrays, to_arrays
from self_imitation.types import Discrete, Spec

KEY = jax.random.key(0)
SPEC = Spec((36, 36, 2), Discrete(2), None, observation_kind="image", stack=2)
BONUS = PixelCNNBonus(PixelCNNConfig(scale=2.0), SPEC)
update = jax.jit(BONUS.update)
RNG = np.random.default_rng(0)


def random_model(levels=LEVELS):
    """A model with large random weights, far from equal probabilities."""
    model = PixelCNN(np.random.default_rng(0), levels)
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(KEY, len(leaves))
    noise = [jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, noise)


def frames_of(*shape, levels=LEVELS):
    return RNG.integers(levels, size=shape).astype(np.int32)


def test_a_pixel_is_predicted_from_earlier_ones_alone():
    model, frame = random_model(), frames_of(1, 9, 8)
    log_probs = jax.jit(PixelCNN.log_probs)
    before = np.asarray(log_probs(model, frame)).reshape(9 * 8, LEVELS)
    for row, column in [(0, 0), (4, 3), (4, 7), (5, 0), (8, 7)]:
        changed = frame.copy()
        changed[0, row, column] = (changed[0, row, column] + 3) % LEVELS
        difference = np.abs(np.asarray(log_probs(model, changed)).reshape(9 * 8, LEVELS) - before).max(axis=1)
        place = row * 8 + column
        assert difference[: place + 1].max() == 0
        expected = {
            (row + i) * 8 + column + j
            for i, j in itertools.product(range(4), range(-3, 4))
            if (i, j) > (0, 0) and row + i < 9 and 0 <= column + j < 8
        }
        assert set(np.flatnonzero(difference)) == expected, "7 x 7 pixels see it"


def test_the_log_density_is_that_of_a_masked_convolution_in_numpy():
    model, frames = random_model(), frames_of(2, 5, 6)
    density = model.log_density(jnp.asarray(frames))
    (first, *blocks), weight = (model.first, *model.blocks), np.zeros((7, 7, 16))
    weight.reshape(49, 16)[:24] = first.weight  # the pixels before the middle one
    padded = np.pad(2 * frames / 7 - 1, ((0, 0), (3, 3), (3, 3)))
    for n, i, j in np.ndindex(frames.shape):
        x = np.einsum("ij,ijo->o", padded[n, i : i + 7, j : j + 7], weight) + first.bias
        for block in blocks:
            gates = x @ block.gates.weight + block.gates.bias
            gated = np.tanh(gates[:16]) / (1 + np.exp(-gates[16:]))
            x = x + gated @ block.output.weight + block.output.bias
        x = np.maximum(np.maximum(x, 0) @ model.hidden.weight + model.hidden.bias, 0)
        logits = x @ model.logits.weight + model.logits.bias
        expected = logits[frames[n, i, j]] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        np.testing.assert_allclose(density[n, i, j], expected, rtol=1e-3, atol=1e-3)


def test_probabilities_of_all_images_sum_to_1():
    images = np.array(list(itertools.product(range(2), repeat=4)), np.int32).reshape(16, 2, 2)
    density = np.exp(np.asarray(random_model(levels=2).log_density(jnp.asarray(images))).sum(axis=(1, 2)))
    assert density.sum() == pytest.approx(1.0, rel=1e-5)
    assert density.max() > 0.2, "far from equal probabilities"


def test_at_first_all_levels_are_about_equally_probable():
    model = BONUS.init(KEY, 2).model
    np.testing.assert_allclose(model.log_density(jnp.asarray(frames_of(2, 6, 6))), -np.log(LEVELS), atol=0.1)


@pytest.mark.parametrize(("ratio", "count"), [(2.0, 1.0), (1.25, 4.0), (1.01, 100.0), (101.0, 0.01)])
def test_the_pseudo_count_of_a_gain(ratio, count):
    """After 4 frames, exp(0.1 / 2 gain) is the ratio: N = 1 / (ratio - 1)."""
    gain = jnp.array([np.log(ratio) / 0.05], jnp.float32)
    assert float(BONUS.pseudo_count(gain, jnp.int32(4))[0]) == pytest.approx(count, rel=1e-4)


def test_pseudo_counts_grow_with_the_number_of_frames():
    counts = [float(BONUS.pseudo_count(jnp.array([1e-2]), jnp.int32(n))[0]) for n in (1, 100)]
    assert counts[1] == pytest.approx(10 * counts[0], rel=1e-2)


def test_without_a_gain_the_pseudo_count_is_infinite():
    np.testing.assert_array_equal(BONUS.pseudo_count(jnp.array([0.0, -5.0]), jnp.int32(3)), np.inf)


# Observations: a bright square at one of nine places, and stripes.
SCENES = np.full((10, 36, 36, 2), 40, np.uint8)
SCENES[9, ::4, :, 1] = 200
STRIPES = 9
for number in range(9):
    row, column = divmod(number, 3)
    SCENES[number, 12 * row + 2 : 12 * row + 8, 12 * column + 3 : 12 * column + 9, 1] = 25 * number + 50


def reaching(*scenes, **columns):
    """A rollout [T, N] whose steps reach these scenes."""
    reached = SCENES[np.array(scenes)]
    return make_rollout(reached, np.zeros(reached.shape[:2]), reached[0], reached, **columns)


@pytest.fixture(scope="module")
def start():
    return BONUS.init(KEY, 2)


@pytest.fixture(scope="module")
def visited(start):
    """The states after many visits to scenes 0, 1 and 2, and the bonuses."""
    state, history = start, []
    for _ in range(60):
        state, exploration, metrics = update(state, reaching([0, 1], [1, 2], [2, 0]), KEY)
        history.append((np.asarray(exploration.reward), {name: float(value) for name, value in metrics.items()}))
    return state, history


def test_each_bonus_is_that_of_the_gain_of_its_step(start):
    """Step by step: a gradient step on both frames, then the formula in NumPy."""
    scenes = [[0, 1], [0, 4], [5, 0]]
    after, exploration, metrics = update(start, reaching(*scenes), KEY)
    assert exploration.advantage is None
    train, density = jax.jit(BONUS.train), jax.jit(PixelCNN.log_density)
    state, gains, densities = start, [], []
    for now in scenes:
        frames = quantise(downsample(newest_grey_frame(jnp.asarray(SCENES[now]), SPEC), 42), LEVELS)
        models = [state.model]
        state, log_density, gain = train(state, frames, jnp.ones(2, bool))
        models.append(state.model)
        before, later = (np.asarray(density(model, frames)).sum(axis=(1, 2)) for model in models)
        np.testing.assert_allclose(log_density, before, rtol=1e-5)
        np.testing.assert_allclose(gain, later - before, rtol=1e-2, atol=1e-2)
        gains.append(np.asarray(gain, np.float64))
        densities.append(np.asarray(log_density))
    frames_seen = np.array([[2], [4], [6]])
    count = 1 / np.expm1(0.1 / np.sqrt(frames_seen) * np.maximum(gains, 1e-30))
    expected = 2.0 / np.sqrt(np.maximum(count, 1.0))
    np.testing.assert_allclose(exploration.reward, expected, rtol=1e-2, atol=1e-3)
    assert int(after.frames) == 6
    assert float(metrics["pixelcnn_gain"]) == pytest.approx(np.mean(gains), rel=1e-2)
    assert float(metrics["pixelcnn_log_density"]) == pytest.approx(np.mean(densities), rel=1e-3)
    assert float(metrics["pixelcnn_bonus"]) == pytest.approx(np.mean(expected), rel=1e-2)


def test_the_model_learns_and_the_bonus_of_repeated_frames_falls(visited):
    _, history = visited
    early, late = (np.mean([bonus for bonus, _ in part]) for part in (history[:3], history[-10:]))
    assert late < 0.2 * early
    densities = [metrics["pixelcnn_log_density"] for _, metrics in history]
    assert densities[-1] > 0.2 * densities[0]
    assert max(bonus.max() for bonus, _ in history) <= 2.0, "the scale"


def test_a_new_frame_is_paid_more_than_known_ones(visited):
    _, known, _ = update(visited[0], reaching([0, 1], [1, 2], [2, 0]), KEY)
    _, new, _ = update(visited[0], reaching([0, STRIPES], [1, 2], [2, 0]), KEY)
    assert new.reward[0, 1] > 3 * known.reward[0, 1]
    assert new.reward[0, 1] > 3 * new.reward[0, 0]


def test_older_frames_of_the_stack_do_not_matter(start):
    rollout = reaching([0, 1], [2, 3], [4, 5])
    older = rollout.next_observation.at[..., 0].set(200)
    results = [
        update(start, eqx.tree_at(lambda r: r.next_observation, rollout, seen), KEY)
        for seen in (rollout.next_observation, older)
    ]
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_array_equal(one, other)


def test_reset_steps_teach_nothing_and_are_paid_nothing(start):
    """What a reset step reached changes nothing; a step in which all environments reset changes nothing at all."""
    valid = [[True, False], [False, False], [True, True]]
    different = ([[0, 1], [2, 3], [4, 5]], [[0, 7], [8, 6], [4, 5]])
    results = [update(start, reaching(*scenes, valid=valid), KEY) for scenes in different]
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_array_equal(one, other)
    state, exploration, _ = results[0]
    assert int(state.frames) == 3
    np.testing.assert_array_equal(np.asarray(exploration.reward)[~np.array(valid)], 0.0)
    assert (np.asarray(exploration.reward)[np.array(valid)] > 0).all()


def test_nothing_changes_in_a_rollout_of_reset_steps(visited):
    for state in (visited[0], BONUS.init(KEY, 2)):
        after, exploration, metrics = update(state, reaching([0, 1], [2, 3], [4, 5], valid=np.zeros((3, 2), bool)), KEY)
        for one, other in zip(*map(jax.tree.leaves, (state, after)), strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(exploration.reward, 0.0)
        assert set(map(float, metrics.values())) == {0.0}


def test_vectors_are_refused():
    with pytest.raises(UsageError, match="agent: 'pixelcnn' models images"):
        PixelCNNBonus(PixelCNNConfig(), Spec((4,), Discrete(2), None))


def test_seeds_side_by_side_are_as_each_alone(start):
    states = [start, BONUS.init(jax.random.key(1), 2)]
    assert (states[0].model.first.weight != states[1].model.first.weight).any()
    rollouts = [reaching([0, 1], [1, 2], [3, 3]), reaching([4, 5], [4, 6], [4, 4])]
    stack = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    together = jax.jit(jax.vmap(BONUS.update, in_axes=(0, 0, None)))(stack(*states), stack(*rollouts), KEY)
    for seed, (state, rollout) in enumerate(zip(states, rollouts, strict=True)):
        alone = update(state, rollout, KEY)
        mine = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
        for one, other in zip(*map(jax.tree.leaves, (mine, alone)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)


def test_the_state_can_be_stored(start):
    state, another = (jax.tree.map(lambda leaf: leaf[None], s) for s in (start, BONUS.init(jax.random.key(1), 2)))
    restored = from_arrays(to_arrays(state), another, "here")
    for one, other in zip(*map(jax.tree.leaves, (state, restored)), strict=True):
        np.testing.assert_array_equal(one, other)
