"""The degree of self-imitation: schedules by hand, and the bandit against its definition in NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learning import SIL, begin, build, compiled_iteration
from probes import ChosenReward
from tabular import make_rollout

from self_imitation.algorithm import degree
from self_imitation.algorithm.degree import ARMS
from self_imitation.settings import SelfImitationConfig
from self_imitation.storage.trees import from_arrays, to_arrays

LINEAR = SelfImitationConfig(updates=4, updates_schedule="linear", loss_coef=0.5, loss_coef_schedule="linear")
BANDIT = SelfImitationConfig(updates_schedule="bandit", bandit_window=2)
EVERY_ITERATION = dataclasses.replace(BANDIT, bandit_window=1)

after_rollout = jax.jit(degree.after_rollout, static_argnums=2)


def at(state, config, iterations):
    now = degree.current(state, config, iterations)
    return int(now.updates), float(now.loss_coef)


def episodes(*returns, valid=None):
    """A rollout in which episodes with these returns ended, one after the other; None: a step that ended none."""
    ended = np.array([[one is not None] for one in returns])
    return make_rollout(
        np.zeros((len(returns), 1, 1), np.float32),
        [[1e6 if one is None else one] for one in returns],
        np.zeros((1, 1), np.float32),
        terminated=ended,
        valid=valid,
    )


def test_a_constant_degree_has_no_state():
    assert degree.init(SelfImitationConfig()) is None


@pytest.mark.parametrize(
    ("iteration", "updates", "loss_coef"),
    [(0, 4, 0.5), (1, 4, 0.45), (5, 2, 0.25), (8, 1, 0.1), (10, 0, 0.0), (12, 0, 0.0)],
)
def test_linear_schedules_fall_to_zero_over_the_run(iteration, updates, loss_coef):
    """M is rounded: 3.6 after one of ten iterations, 0.8 after eight."""
    state = dataclasses.replace(degree.init(LINEAR), iteration=jnp.int32(iteration))
    assert at(state, LINEAR, 10) == (updates, pytest.approx(loss_coef, abs=1e-6))


def test_each_schedule_leaves_the_other_alone():
    halfway = dataclasses.replace(degree.init(LINEAR), iteration=jnp.int32(5))
    assert at(halfway, dataclasses.replace(LINEAR, loss_coef_schedule="constant"), 10) == (2, 0.5)
    assert at(halfway, dataclasses.replace(LINEAR, updates_schedule="constant"), 10) == (4, 0.25)


def test_the_coefficient_follows_the_share_of_imitated_samples():
    config = dataclasses.replace(LINEAR, updates_schedule="constant", loss_coef_schedule="share")
    state = degree.init(config)
    assert at(state, config, 10) == (4, 0.5)
    state = degree.after_imitation(state, jnp.float32(0.25), jnp.array(True))
    assert at(state, config, 10) == (4, pytest.approx(0.5 * (0.99 + 0.01 * 0.25)))
    unchanged = degree.after_imitation(state, jnp.float32(0.0), jnp.array(False))
    assert at(unchanged, config, 10) == at(state, config, 10), "without updates there is no share"
    for _ in range(1000):
        state = degree.after_imitation(state, jnp.float32(0.25), jnp.array(True))
    assert at(state, config, 10)[1] == pytest.approx(0.5 * 0.25, rel=1e-3)


# The bandit


def played(state):
    """The number of updates that the bandit has chosen."""
    return at(state, BANDIT, 1)[0]


def test_the_bandit_plays_every_arm_once_each_for_a_window():
    state, sequence = degree.init(BANDIT), []
    for _ in range(9):
        state = after_rollout(state, episodes(1.0, None, 1.0), BANDIT)
        sequence.append(played(state))
    # it chooses before the imitation of the same iteration, whose effect is seen from the next rollout on
    assert sequence == [8, 0, 0, 1, 1, 2, 2, 4, 4]
    assert int(state.iteration) == 9


def test_the_bandit_counts_episodes_and_not_other_steps():
    """In the third window: a mean return of (2 + 4 + 9) / 3."""
    state = degree.init(BANDIT)
    for rollout in (episodes(2.0, None, 4.0), episodes(None, None, 9.0)):
        state = after_rollout(state, rollout, BANDIT)
    assert float(state.bandit.last_mean) == 5.0


def test_reset_steps_are_no_episodes():
    """A reset step that says it ended something is not believed."""
    masked = episodes(2.0, 1e6, 4.0, valid=[[True], [False], [True]])
    state = after_rollout(degree.init(EVERY_ITERATION), masked, EVERY_ITERATION)
    assert float(state.bandit.last_mean) == 3.0


def test_a_window_without_episodes_lasts_until_one_ends():
    state, sequence = degree.init(BANDIT), []
    for rollout in [episodes(None, None, None)] * 5 + [episodes(None, 7.0, None)]:
        state = after_rollout(state, rollout, BANDIT)
        sequence.append(played(state))
    assert sequence == [8, 8, 8, 8, 8, 0]
    assert int(state.bandit.iterations) == 0
    assert float(state.bandit.last_mean) == 7.0


def simulate(return_of, windows):
    """Arms in the order in which they were played; `return_of(arms so far)` is the return of the next episode."""
    state, arms = degree.init(EVERY_ITERATION), []
    for _ in range(windows):
        arms.append(played(state))
        state = after_rollout(state, episodes(return_of(arms)), EVERY_ITERATION)
    return arms, state


@pytest.mark.parametrize("good", [0, 4])
@pytest.mark.parametrize("size", [1e-3, 1000.0])
def test_the_bandit_prefers_the_arm_under_which_returns_rise(good, size):
    """Whatever the scale of the returns. The other arms are tried again now and then."""
    arms, _ = simulate(lambda arms: size * (5.0 + arms.count(good)), 80)
    assert sorted(arms[:5]) == list(ARMS)
    share = {arm: arms[5:].count(arm) / 75 for arm in ARMS}
    assert share[good] > 0.3
    assert all(share[good] > 1.5 * share[arm] for arm in ARMS if arm != good), share
    assert all(share[arm] > 0.05 for arm in ARMS)


def test_the_bandit_forgets():
    """Returns rise under 8 updates at first, and later under none."""

    def level(arms):
        return 1.0 * (arms[:60].count(8) + arms[60:].count(0))

    arms, _ = simulate(level, 140)
    assert arms[5:60].count(8) > 1.5 * arms[5:60].count(0)
    assert arms[90:].count(0) > 1.5 * arms[90:].count(8)


def bandit_twin(returns):
    """Arms by the definition of discounted UCB (Garivier and Moulines 2008), from the whole history each time."""
    arm, last, scale, history = len(ARMS) - 1, None, 0.0, []
    arms = []
    for one in returns:
        arms.append(ARMS[arm])
        change = 0.0 if last is None else one - last
        last = one
        scale = 0.9 * scale + 0.1 * abs(change) if scale > 0 else abs(change)
        history.append((arm, change / scale if scale else 0.0))
        age = np.arange(len(history))[::-1]
        score = []
        for candidate in range(len(ARMS)):
            own = np.array([place == candidate for place, _ in history])
            count = (0.95**age * own).sum()
            if count == 0:
                score.append(np.inf)
                continue
            mean = (0.95**age * own * [reward for _, reward in history]).sum() / count
            score.append(mean + np.sqrt(2 * np.log((0.95**age).sum()) / count))
        arm = int(np.argmax(score))
    return arms


def test_the_bandit_matches_its_definition():
    rng = np.random.default_rng(3)
    returns = np.cumsum(rng.normal(size=60)).round(3).tolist()
    arms, state = simulate(lambda arms: returns[len(arms) - 1], 60)
    assert arms == bandit_twin(returns)
    assert np.isfinite(np.concatenate([state.bandit.progress, state.bandit.plays])).all()


@pytest.mark.parametrize("rollouts", [0, 3])
def test_the_state_survives_storage(rollouts):
    """Of all seeds, also before the first mean is known, which is not a number then."""
    state = degree.init(BANDIT)
    for number in range(rollouts):
        state = after_rollout(state, episodes(float(number)), BANDIT)
    state = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    restored = from_arrays(to_arrays(state), state, "here")
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert np.isnan(restored.bandit.last_mean).all() == (rollouts == 0)


# In Algorithm 1


def metrics_of(sil, iterations, of=8):
    """Columns of metrics over iterations on a probe whose every step is an episode; `of`: iterations of the run."""
    environment = ChosenReward()
    sil = dataclasses.replace(SIL, keep="all", learning_starts=0, batch_size=16, **sil)
    agent = dataclasses.replace(build(environment, "a2c+sil", sil=sil), iterations=of)
    one_iteration, training, rows = compiled_iteration(environment, agent), begin(environment, agent), []
    for _ in range(iterations):
        training, _, metrics = one_iteration(training)
        rows.append({name: float(value) for name, value in metrics.items()})
    return {name: [row[name] for row in rows] for name in rows[0]}, training.agent


def test_a_run_with_linear_schedules_imitates_less_and_less():
    columns, _ = metrics_of({"updates_schedule": "linear", "loss_coef_schedule": "linear"}, 8)
    # 4 times 7/8, 6/8 ... 0, rounded to even
    assert columns["sil_updates"] == [4, 3, 2, 2, 2, 1, 0, 0]
    np.testing.assert_allclose(columns["sil_coef"], np.arange(8)[::-1] / 8, rtol=1e-5)
    moved = np.array(columns["sil_step_share"])
    assert (moved[:6] > 0).all()
    assert not moved[6:].any()


def test_a_run_with_a_bandit_and_the_share_follows_both():
    columns, state = metrics_of(
        {"updates_schedule": "bandit", "bandit_window": 1, "loss_coef_schedule": "share", "loss_coef": 2.0}, 6
    )
    assert columns["sil_updates"][:4] == [0, 1, 2, 4]
    share, expected = 1.0, []
    for updates, imitated in zip(columns["sil_updates"], columns["sil_imitated"], strict=True):
        expected.append(2.0 * share)
        share = 0.99 * share + 0.01 * imitated if updates else share
    np.testing.assert_allclose(columns["sil_coef"], expected, rtol=1e-5)
    assert columns["sil_imitated"][0] == 0.0 < columns["sil_imitated"][1] < 1.0
    assert int(state.degree.iteration) == 6
