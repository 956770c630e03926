"""Pseudo-counts from a CTS density model, against a twin of dictionaries and logarithms."""

import dataclasses
import math
from collections import defaultdict
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular import make_rollout

from self_imitation import registry
from self_imitation.errors import UsageError
from self_imitation.exploration.cts import CTSBonus, CTSConfig
from self_imitation.exploration.frames import frames_reached
from self_imitation.storage import checkpoint
from self_imitation.types import Discrete, Spec

KEY = jax.random.key(0)


class Twin:
    """Context tree switching as its paper defines it: a tree for each pixel, whose nodes are the contexts."""

    def __init__(self, levels):
        self.levels, self.time = levels, 0
        self.counts = defaultdict(lambda: [1 / levels] * levels)
        self.log_weights = defaultdict(lambda: (math.log(0.5), math.log(0.5)))  # of stopping here, and of going deeper

    def learn(self, frame):
        """Log-probabilities of the frame before and after it is learnt."""
        before = self.log_density(frame)
        self.time += 1
        for y, x in np.ndindex(*frame.shape):
            self._learn(y, x, (), neighbours(frame, y, x), frame[y, x])
        return before, self.log_density(frame)

    def log_density(self, frame):
        return sum(self._predict(y, x, (), neighbours(frame, y, x), frame[y, x]) for y, x in np.ndindex(*frame.shape))

    def _estimate(self, node, level):
        return math.log(self.counts[node][level] / sum(self.counts[node]))

    def _predict(self, y, x, known, unknown, level):
        own = self._estimate((y, x, known), level)
        if not unknown:
            return own
        deeper = self._predict(y, x, (*known, unknown[0]), unknown[1:], level)
        stop, split = self.log_weights[y, x, known]
        return np.logaddexp(stop + own, split + deeper) - np.logaddexp(stop, split)

    def _learn(self, y, x, known, unknown, level):
        node = y, x, known
        if unknown:
            own = self._estimate(node, level)
            deeper = self._predict(y, x, (*known, unknown[0]), unknown[1:], level)
            stop, split = (weight + log for weight, log in zip(self.log_weights[node], (own, deeper), strict=True))
            keep, change = math.log(self.time / (self.time + 1)), math.log(1 / (self.time + 1))
            self.log_weights[node] = (
                np.logaddexp(keep + stop, change + split),
                np.logaddexp(keep + split, change + stop),
            )
            self._learn(y, x, (*known, unknown[0]), unknown[1:], level)
        self.counts[node][level] += 1


def neighbours(frame, y, x):
    """Left, above, above left, above right; 0 outside the frame."""
    places = (y, x - 1), (y - 1, x), (y - 1, x - 1), (y - 1, x + 1)
    height, width = frame.shape
    return tuple(int(frame[v, u]) if 0 <= v < height and 0 <= u < width else 0 for v, u in places)


def twin_results(frames, levels):
    """Log-probability before learning, pseudo-count and bonus of each frame of a stream."""
    twin, results = Twin(levels), []
    for frame in frames:
        before, after = twin.learn(frame)
        rho, recoding = math.exp(before), math.exp(after)
        count = rho * (1 - recoding) / (recoding - rho)
        results.append((before, count, 0.01 / math.sqrt(count + 0.01)))
    return np.array(results).T


@cache
def make(height, width, levels):
    bonus = CTSBonus(CTSConfig(levels=levels), Spec((height, width, 1), Discrete(2), None, observation_kind="image"))
    return bonus, jax.jit(bonus.update)


def pixels(frames, levels):
    """Images whose pixels lie in the middle of their levels."""
    return np.asarray((np.asarray(frames) + 0.5) * 256 / levels, np.uint8)[..., None]


def rollout_of(frames, levels, envs=1, **columns):
    """Frames in order of time and then of environment; the observations before the first step don't matter."""
    reached = pixels(frames, levels).reshape(-1, envs, *np.shape(frames)[1:], 1)
    return make_rollout(np.zeros_like(reached), np.zeros(reached.shape[:2]), reached[-1], reached, **columns)


def learnt(frames, levels, state=None, **columns):
    """State and bonus of each frame, in the order of the stream, and metrics."""
    bonus, update = make(*np.shape(frames)[1:], levels)
    state = bonus.init(KEY, 1) if state is None else state
    state, exploration, metrics = update(state, rollout_of(frames, levels, **columns), KEY)
    return state, np.asarray(exploration.reward).reshape(-1), metrics


def count_of(bonus):
    """The pseudo-count for which a bonus was paid, with the default scale."""
    return (0.01 / np.asarray(bonus, np.float64)) ** 2 - 0.01


def stream(count, height, width, levels, seed=0):
    """Frames in which a bright square moves over a gradient, and now and then a pixel is random."""
    rng = np.random.default_rng(seed)
    gradient = np.add.outer(np.arange(height), np.arange(width)) % levels
    frames = np.stack([gradient] * count)
    for frame in frames:
        y, x = rng.integers(height), rng.integers(width)
        frame[y : y + 2, x : x + 2] = levels - 1
        frame[rng.integers(height), rng.integers(width)] = rng.integers(levels)
    return frames


def assert_same(one, other):
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("height", "width", "levels"), [(1, 1, 2), (4, 4, 3), (5, 6, 8), (6, 3, 5)])
def test_densities_counts_and_bonuses_are_those_of_the_definition(height, width, levels):
    frames = stream(40, height, width, levels)
    log_density, count, expected = twin_results(frames, levels)
    _, bonus, metrics = learnt(frames, levels)
    np.testing.assert_allclose(bonus, expected, rtol=1e-5)
    # with the bonus at 0.1, counts near 0 are rounded away: they are compared where they matter
    np.testing.assert_allclose(count_of(bonus), count, rtol=2e-5, atol=1e-6)
    assert float(metrics["cts_log_density"]) == pytest.approx(log_density.mean(), rel=1e-5)
    assert float(metrics["cts_bonus"]) == pytest.approx(expected.mean(), rel=1e-5)


def test_the_density_of_a_frame_before_any_other_is_uniform():
    _, _, metrics = learnt(stream(1, 4, 4, 3), 3)
    assert float(metrics["cts_log_density"]) == pytest.approx(-16 * math.log(3))


def test_densities_add_up_to_one():
    """Over all images of two pixels with three levels, after others were learnt."""
    _, update = make(1, 2, 3)
    state, _, _ = learnt([[[0, 2]], [[1, 2]], [[0, 2]]], 3)
    frames = [[[a, b]] for a in range(3) for b in range(3)]
    densities = [update(state, rollout_of([frame], 3), KEY)[2]["cts_log_density"] for frame in frames]
    assert np.exp(densities).sum() == pytest.approx(1, rel=1e-5)


def test_the_pseudo_count_of_a_pixel_that_never_changes_is_the_number_of_its_frames():
    """One pixel outside of any context: N = n + 1 / levels, as Perks' prior gives it."""
    _, bonus, _ = learnt(np.full((300, 1, 1), 2), 8)
    np.testing.assert_allclose(count_of(bonus), np.arange(300) + 1 / 8, rtol=1e-4)


def test_the_pseudo_count_of_a_repeated_image_grows_with_its_visits():
    """All pixels are learnt at once: at first, N is below the number of visits."""
    _, bonus, _ = learnt(stream(1, 4, 4, 3).repeat(1000, axis=0), 3)
    count = count_of(bonus)
    assert (np.diff(count) > 0).all()
    assert count[10] < 8
    assert 0.95 < count[-1] / 1000 < 1


def test_small_gains_are_not_rounded_away():
    """From probabilities near 1, in float32, these counts would be off by a tenth."""
    frames = stream(1, 2, 2, 3).repeat(1000, axis=0)
    _, count, _ = twin_results(frames, 3)
    np.testing.assert_allclose(count_of(learnt(frames, 3)[1])[-10:], count[-10:], rtol=1e-3)


def test_a_new_frame_is_more_novel_than_a_seen_one():
    first, second = stream(2, 4, 4, 3)
    state, bonus, _ = learnt([first] * 12, 3)
    _, later, _ = learnt([second] + [first] * 11, 3, state)
    assert later[0] > 5 * bonus[-1]
    assert later[0] > 5 * later[1]


def test_a_frame_with_one_new_pixel_is_less_novel_than_one_with_many():
    frame = stream(1, 4, 4, 3)[0]
    slightly = frame.copy()
    slightly[2, 2] = (frame[2, 2] + 1) % 3
    state, _, _ = learnt([frame] * 12, 3)
    bonuses = [learnt([other] * 12, 3, state)[1][0] for other in (frame, slightly, (frame + 1) % 3)]
    assert bonuses == sorted(bonuses)


def test_frames_are_learnt_in_order_of_time_and_then_of_environment():
    frames = stream(12, 4, 4, 3)
    one, expected, _ = learnt(frames, 3)
    several, bonus, _ = learnt(frames, 3, envs=3)
    np.testing.assert_array_equal(bonus, expected)
    assert_same(one, several)


def test_a_rollout_continues_from_the_one_before():
    frames = stream(12, 4, 4, 3)
    at_once, expected, _ = learnt(frames, 3)
    half, first, _ = learnt(frames[:6], 3)
    in_two, second, _ = learnt(frames[6:], 3, half)
    np.testing.assert_allclose(np.concatenate([first, second]), expected, rtol=1e-6)
    np.testing.assert_array_equal(at_once.counts, in_two.counts)
    np.testing.assert_allclose(at_once.odds, in_two.odds, rtol=1e-6)


def test_a_resumed_state_continues_exactly(tmp_path):
    frames = stream(12, 4, 4, 3)
    state, _, _ = learnt(frames[:6], 3)
    seeds = jax.tree.map(lambda leaf: leaf[None], state)
    path = checkpoint.save(tmp_path, 1, seeds, {}, kept=1, settings="x")
    loaded, _ = checkpoint.load_state(path, checkpoint._read_meta(path, "x"), seeds)
    resumed = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), loaded)
    assert_same(learnt(frames[6:], 3, resumed), learnt(frames[6:], 3, state))


def test_reset_steps_are_not_learnt_and_not_paid():
    frames = stream(7, 4, 4, 3)
    one, expected, metrics = learnt(np.delete(frames, 2, axis=0), 3)
    other, bonus, same_metrics = learnt(frames, 3, valid=np.arange(7)[:, None] != 2)
    assert bonus[2] == 0
    np.testing.assert_allclose(np.delete(bonus, 2), expected, rtol=1e-6)
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_allclose(one.odds, other.odds, rtol=1e-6)
    for name, metric in metrics.items():
        assert float(same_metrics[name]) == pytest.approx(float(metric), rel=1e-6)


def test_a_rollout_of_reset_steps_changes_nothing():
    state, _, _ = learnt(stream(6, 4, 4, 3), 3)
    after, bonus, metrics = learnt(stream(7, 4, 4, 3, seed=1), 3, state, valid=np.zeros((7, 1), bool))
    assert_same(after, state)
    assert not bonus.any()
    assert set(map(float, metrics.values())) == {0.0}


def test_a_step_is_paid_for_the_observation_that_it_reached():
    """Where environments reset in the next step, that is the observation of the following row."""
    frames = pixels(stream(7, 4, 4, 3), 3)[:, None]
    bonus, update = make(4, 4, 3)
    state, nothing = bonus.init(KEY, 1), np.zeros((6, 1))
    given = update(state, make_rollout(frames[:-1], nothing, frames[0], frames[1:]), KEY)
    following = update(state, make_rollout(frames[:-1], nothing, frames[-1]), KEY)
    assert_same(given, following)


def test_the_scale_multiplies_the_bonus():
    frames = stream(6, 4, 4, 3)
    bonus, _ = make(4, 4, 3)
    doubled = CTSBonus(dataclasses.replace(bonus.config, scale=0.02), bonus.spec)
    _, exploration, _ = jax.jit(doubled.update)(bonus.init(KEY, 1), rollout_of(frames, 3), KEY)
    np.testing.assert_allclose(exploration.reward.reshape(-1), 2 * learnt(frames, 3)[1], rtol=1e-6)
    assert exploration.advantage is None


def test_seeds_side_by_side_are_as_each_alone():
    streams = [stream(6, 4, 4, 3, seed) for seed in range(2)]
    bonus, _ = make(4, 4, 3)
    stack = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    states, rollouts = stack(*[bonus.init(KEY, 1)] * 2), stack(*(rollout_of(frames, 3) for frames in streams))
    states, exploration, _ = jax.jit(jax.vmap(bonus.update, (0, 0, None)))(states, rollouts, KEY)
    for seed, frames in enumerate(streams):
        state, expected, _ = learnt(frames, 3)
        np.testing.assert_array_equal(states.counts[seed], state.counts)
        np.testing.assert_allclose(exploration.reward[seed].reshape(-1), expected, rtol=1e-6)


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_table_is_updated_in_place(seeds):
    """No loop body of the compiled program copies it."""
    bonus, _ = make(4, 4, 8)
    stack = partial(jax.tree.map, lambda leaf: jnp.stack([leaf] * seeds))
    program = jax.jit(jax.vmap(bonus.update, (0, 0, None)), donate_argnums=0)
    arguments = stack(bonus.init(KEY, 1)), stack(rollout_of(stream(4, 4, 4, 8), 8)), KEY
    compiled = program.lower(*arguments).compile()
    size = seeds * bonus.rows * bonus.pixels * 4
    assert compiled.memory_analysis().temp_size_in_bytes < size / 2


def test_the_newest_frame_is_seen_in_grey():
    """Two frames of three channels, the newest last."""
    spec = Spec((2, 2, 6), Discrete(2), None, observation_kind="image", stack=2)
    image = np.zeros((1, 1, 2, 2, 6), np.uint8)
    image[..., :3] = 255
    image[0, 0, 1, 1, 3:] = 30, 130, 230
    frames = frames_reached(spec, make_rollout(image, np.zeros((1, 1)), image[0], image), side=42, levels=8)
    np.testing.assert_array_equal(frames, [[[0, 0], [0, 4]]])


def test_numbers_beside_an_image_are_ignored():
    spec = Spec((4, 4, 1), Discrete(2), None, observation_kind="image", numbers_beside_image=2)
    frames = stream(6, 4, 4, 3)
    plain = rollout_of(frames, 3)
    beside = {"image": plain.next_observation, "numbers": jnp.ones((6, 1, 2))}
    bonus = CTSBonus(CTSConfig(levels=3), spec)
    rollout = dataclasses.replace(plain, next_observation=beside)
    _, exploration, _ = jax.jit(bonus.update)(bonus.init(KEY, 1), rollout, KEY)
    np.testing.assert_allclose(exploration.reward.reshape(-1), learnt(frames, 3)[1], rtol=1e-6)


def test_levels_divide_the_range_of_a_byte_evenly():
    spec = Spec((1, 256, 1), Discrete(2), None, observation_kind="image")
    image = np.arange(256, dtype=np.uint8).reshape(1, 1, 1, 256, 1)
    frames = frames_reached(spec, make_rollout(image, np.zeros((1, 1)), image[0], image), side=256, levels=8)
    np.testing.assert_array_equal(frames.reshape(-1), np.arange(256) // 32)


def test_small_images_are_used_as_they_are():
    bonus, _ = make(5, 6, 8)
    assert (bonus.height, bonus.width) == (5, 6)


@pytest.mark.parametrize(("kind", "words"), [("numbers", "vectors of numbers"), ("categories", "categories")])
def test_other_observations_are_refused(kind, words):
    with pytest.raises(UsageError, match=f"agent: 'cts' models images; .* are {words}"):
        CTSBonus(CTSConfig(), Spec((4,), Discrete(2), None, observation_kind=kind))


def test_a_table_that_is_too_large_is_refused():
    spec = Spec((84, 84, 4), Discrete(2), None, observation_kind="image", stack=4)
    with pytest.raises(UsageError, match=r"84 x 84 pixels with 16 levels .* lower cts\.side or cts\.levels"):
        CTSBonus(CTSConfig(side=84, levels=16), spec)


def test_agents_can_be_made_of_it():
    assert registry.parse_agent("a2c+sil+cts").bonuses == ("cts",)
