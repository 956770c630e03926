"""Random network distillation on a chain of states."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular import make_rollout, one_hot, state_rollout

from self_imitation.exploration.rnd import RandomNetworkDistillation, RNDConfig
from self_imitation.types import Discrete, Spec

STATES = 6
SPEC = Spec((STATES,), Discrete(2), max_episode_steps=None)
CONFIG = RNDConfig(learning_rate=3e-3, features=8, hidden=16)
RND = RandomNetworkDistillation(CONFIG, SPEC)
KEY = jax.random.key(0)
update = jax.jit(RND.update)


@pytest.fixture(scope="module")
def start():
    return RND.init(KEY, 2)


def chain(*states, **columns):
    """Two environments side by side through these states, from one to the next."""
    path = np.repeat(np.array(states)[:, None], 2, axis=1)
    return state_rollout(path[:-1], np.zeros((len(states) - 1, 2)), path[-1], states=STATES, **columns)


def novelty(state):
    return np.asarray(RND.novelty(state, jnp.asarray(np.eye(STATES, dtype=np.float32))))


@pytest.fixture(scope="module")
def visited(start):
    """After many walks through states 0, 1 and 2; states 3, 4 and 5 were never seen."""
    state, history = start, []
    for _ in range(150):
        state, exploration, metrics = update(state, chain(0, 1, 2, 0, 1), KEY)
        history.append((exploration, {name: float(value) for name, value in metrics.items()}))
    return state, history


def test_novelty_falls_in_visited_states_and_stays_in_others(start, visited):
    # one walk first, so that both are seen through the same normalisation
    first, _, _ = update(start, chain(0, 1, 2, 0, 1), KEY)
    before, after = novelty(first), novelty(visited[0])
    assert (after[:3] < 0.05 * before[:3]).all()
    assert (after[3:] > 0.3 * before[3:]).all()


def test_a_new_state_is_more_novel_than_visited_ones(visited):
    after = novelty(visited[0])
    assert after[3:].min() > 10 * after[:3].max()


def test_the_target_network_is_fixed_and_the_predictor_learns(start, visited):
    for one, other in zip(*map(jax.tree.leaves, (start.target, visited[0].target)), strict=True):
        np.testing.assert_array_equal(one, other)
    predictors = start.trained.predictor, visited[0].trained.predictor
    assert all((a != b).any() for a, b in zip(*map(jax.tree.leaves, predictors), strict=True))
    _, history = visited
    assert history[-1][1]["rnd_error"] < 0.05 * history[0][1]["rnd_error"]


def test_intrinsic_rewards_are_divided_by_the_deviation_of_their_discounted_sums(start):
    """Against a loop in NumPy over the raw novelty, which goes on from episode to episode."""
    rollout = chain(0, 1, 2, 3, 4, terminated=np.array([[False], [True], [False], [False]]).repeat(2, axis=1))
    after, _, metrics = update(start, rollout, KEY)
    seen = dataclasses.replace(start, observation=after.observation)
    raw = novelty(seen)[[1, 2, 3, 4]].astype(np.float64)
    totals, running = [], 0.0
    for reward in raw:
        running = 0.99 * running + reward
        totals.append(running)
    assert float(metrics["rnd_bonus"]) == pytest.approx(raw.mean() / np.std(totals), rel=1e-3)
    assert float(after.sums.variance) == pytest.approx(np.var(totals), rel=1e-3)
    np.testing.assert_allclose(after.running, [running, running], rtol=1e-4)


def test_the_scale_of_novelty_does_not_matter(start):
    """A target and a predictor whose outputs are ten times as large give the same bonus."""

    def heads(state):
        return [layer for n in (state.target, state.trained.predictor) for layer in (n.head.weight, n.head.bias)]

    larger = eqx.tree_at(heads, start, replace_fn=lambda weight: 10 * weight)
    rollout = chain(0, 1, 2, 3, 4)
    _, expected, small = update(start, rollout, KEY)
    _, exploration, large = update(larger, rollout, KEY)
    assert float(large["rnd_error"]) == pytest.approx(100 * float(small["rnd_error"]), rel=1e-3)
    np.testing.assert_allclose(exploration.advantage, expected.advantage, rtol=1e-3, atol=1e-4)


def test_an_advantage_is_returned_and_no_reward(start):
    _, exploration, _ = update(start, chain(0, 1, 2, 0, 1), KEY)
    assert exploration.reward is None
    assert exploration.advantage.shape == (4, 2)
    doubled = RandomNetworkDistillation(dataclasses.replace(CONFIG, coef=2.0), SPEC)
    _, twice, _ = jax.jit(doubled.update)(start, chain(0, 1, 2, 0, 1), KEY)
    np.testing.assert_allclose(twice.advantage, 2 * exploration.advantage, rtol=1e-5)


def test_a_value_function_of_its_own_is_learnt(start, visited):
    state, history = visited
    values = start.trained.value, state.trained.value
    assert all((a != b).any() for a, b in zip(*map(jax.tree.leaves, values), strict=True))
    losses = [metrics["rnd_value_loss"] for _, metrics in history]
    assert np.mean(losses[-20:]) < 0.5 * max(losses)


def test_ends_of_episodes_do_not_matter(start):
    """Novelty is not episodic."""
    ended = np.array([[False], [True], [False], [False]]).repeat(2, axis=1)
    _, expected, _ = update(start, chain(0, 1, 2, 3, 4), KEY)
    _, exploration, _ = update(start, chain(0, 1, 2, 3, 4, terminated=ended), KEY)
    np.testing.assert_array_equal(exploration.advantage, expected.advantage)


def test_masked_steps_are_ignored(start):
    """What a masked step did, earned and reached changes nothing."""
    valid = np.array([[True], [True], [False], [True]]).repeat(2, axis=1)
    path = np.repeat(np.array([0, 1, 2, 0, 1])[:, None], 2, axis=1)
    results = []
    for garbage in (0.0, 1e6):
        following = one_hot(path[1:], STATES)
        following[2] += garbage
        reward = np.where(valid, 0.0, garbage)
        observation = one_hot(path[:-1], STATES)
        rollout = make_rollout(observation, reward, one_hot(path[-1], STATES), following, valid=valid)
        results.append(update(start, rollout, KEY))
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_is_learnt_from_a_rollout_of_masked_steps(start):
    after, _, metrics = update(start, chain(0, 1, 2, 0, 1, valid=np.zeros((4, 2), bool)), KEY)
    for part in ("trained", "observation", "sums", "running"):
        before_and_after = (jax.tree.leaves(getattr(state, part)) for state in (start, after))
        for one, other in zip(*before_and_after, strict=True):
            np.testing.assert_array_equal(one, other)
    assert set(map(float, metrics.values())) == {0.0}


def test_image_observations():
    """Where numbers come beside an image, novelty is that of the image."""
    spec = Spec((36, 36, 1), Discrete(2), None, observation_kind="image", numbers_beside_image=2)
    bonus = RandomNetworkDistillation(CONFIG, spec)
    state = bonus.init(KEY, 2)
    rng = np.random.default_rng(0)

    def observed(rows):
        image = rng.integers(256, size=(*rows, 36, 36, 1), dtype=np.uint8)
        return {"image": image, "numbers": rng.normal(size=(*rows, 2)).astype(np.float32)}

    rollout = make_rollout(observed((3, 2)), np.zeros((3, 2)), observed((2,)))
    one_update = jax.jit(bonus.update)
    after, exploration, metrics = one_update(state, rollout, KEY)
    other = {**rollout.observation, "numbers": rollout.observation["numbers"] + 100.0}
    _, same, _ = one_update(state, dataclasses.replace(rollout, observation=other), KEY)
    np.testing.assert_array_equal(exploration.advantage, same.advantage)
    assert after.observation.mean.shape == (36, 36, 1)
    assert np.isfinite(exploration.advantage).all()
    assert float(metrics["rnd_error"]) > 0


def test_seeds_side_by_side_are_as_each_alone(start):
    """Initialised with keys of their own, the states of seeds stack and update under `vmap`."""
    states = [start, RND.init(jax.random.key(1), 2)]
    assert (states[0].target.head.weight != states[1].target.head.weight).any()
    rollouts = [chain(0, 1, 2, 0, 1), chain(3, 4, 5, 0, 1)]
    stack = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    together = jax.jit(jax.vmap(RND.update, in_axes=(0, 0, None)))(stack(*states), stack(*rollouts), KEY)
    for seed, (state, rollout) in enumerate(zip(states, rollouts, strict=True)):
        alone = update(state, rollout, KEY)
        mine = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
        for one, other in zip(*map(jax.tree.leaves, (mine, alone)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
