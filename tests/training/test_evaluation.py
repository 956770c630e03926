"""Fresh episodes with trained policies, on all three backends."""

import numpy as np
import pytest
from helpers import small_run

import self_imitation
from self_imitation.environments.xla import envpool
from self_imitation.errors import FaultyEnvironmentError, UsageError
from self_imitation.training import evaluation

TINY = {"agent": "a2c", "num_envs": 2, "num_steps": 5, "steps": 20, "log_every": 10}


def probe(name):
    return f"gym:gymnasium_probes:{name}-v0"


@pytest.fixture(
    scope="module",
    params=[("key-door-treasure", "jax"), ("gym:CartPole-v1", "envpool"), ("gym:CartPole-v1", "gymnasium")],
    ids=["jax", "envpool", "gymnasium"],
)
def run(request, tmp_path_factory):
    env, engine = request.param
    return small_run(tmp_path_factory.mktemp("evaluation") / "run", env, **TINY, engine=engine, delay=20)


def test_as_many_episodes_as_asked_for(run):
    progress = []
    result = run.evaluate(19, progress=lambda *counts: progress.append(counts))
    assert result.returns.shape == result.lengths.shape == (2, 19)
    assert progress == sorted(progress)
    assert progress[-1] == (38, 38)


def test_returns_are_those_of_whole_episodes(run):
    """Without the delay of rewards that training had."""
    result = run.evaluate(5)
    if run.config.engine == "jax":
        assert (result.lengths == 50).all()
        assert set(np.unique(result.returns)) <= set(range(8))
    else:
        np.testing.assert_array_equal(result.returns, result.lengths)
        assert (result.lengths > 5).all()


def test_evaluation_repeats_with_its_key(run):
    one, same = (run.evaluate(12, key=1) for _ in range(2))
    np.testing.assert_array_equal(one.returns, same.returns)
    np.testing.assert_array_equal(one.lengths, same.lengths)
    if run.config.engine != "jax":
        assert not np.array_equal(one.returns, run.evaluate(12, key=2).returns)


def test_the_interval_contains_the_mean(run):
    result = run.evaluate(6)
    low, high = result.interval
    assert low <= result.mean <= high


@pytest.mark.parametrize("episodes", [0, -1])
def test_a_bad_number_of_episodes_is_refused(run, episodes):
    with pytest.raises(UsageError, match=f"episodes: {episodes} is not allowed; allowed: an integer >= 1"):
        run.evaluate(episodes)


def test_each_environment_plays_a_fixed_share(tmp_path):
    """20 episodes in 16 copies: two for each of the first four, one for each of the others, whatever their lengths."""
    run = small_run(tmp_path / "run", probe("Counter"), **TINY)
    result = run.evaluate(20, key=3)
    numbers = (np.random.SeedSequence((3, 0, 1)).generate_state(32) >> 1).reshape(2, 16)
    lengths = [
        [2 + (int(number) + episode) % 3 for copy, number in enumerate(own) for episode in range(2 if copy < 4 else 1)]
        for own in numbers
    ]
    np.testing.assert_array_equal(result.lengths, lengths)
    first = [True, False] * 4 + [True] * 12
    totals = [
        [length * (length + 1) // 2 + (0 if new else 100 * length) for length, new in zip(own, first, strict=True)]
        for own in lengths
    ]
    np.testing.assert_array_equal(result.returns, totals)


def test_short_episodes_are_not_favoured(tmp_path):
    """A first step to the left ends the episode: half of them, for an untrained policy. Counting the episodes that end
    first would make it nine in ten.
    """
    run = small_run(tmp_path / "run", probe("Chain"), **{**TINY, "seeds": 8, "steps": 10})
    result = run.evaluate(16)
    assert set(np.unique(result.lengths)) == {1, 5}
    assert 0.35 < (result.lengths == 1).mean() < 0.65


def test_greedy_episodes_take_the_most_likely_actions(run):
    if run.config.engine == "jax":
        result = run.evaluate(6, greedy=True)
        assert len(np.unique(result.returns[0])) == 1, "the grid world and the policy are deterministic"
    else:
        policy = run.policy(0)
        seen = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
        np.testing.assert_array_equal(policy.act(seen, greedy=True), policy.act(seen, greedy=True))


def test_endless_episodes_are_refused(tmp_path, monkeypatch):
    run = small_run(tmp_path / "run", probe("Endless"), **TINY)
    monkeypatch.setattr(evaluation, "MAX_STEPS", 300)
    with pytest.raises(UsageError, match=r"Endless-v0' can't be evaluated: an episode took 300 steps"):
        run.evaluate(3)


def test_a_fault_names_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBES_ARE_SOUND", "1")
    run = small_run(tmp_path / "run", probe("NotANumber"), **TINY)
    monkeypatch.delenv("PROBES_ARE_SOUND")
    with pytest.raises(
        FaultyEnvironmentError, match=r"^environment gym:gymnasium_probes:NotANumber-v0: observation is"
    ):
        self_imitation.load(run.path).evaluate(3)


@pytest.mark.parametrize("run", [("gym:CartPole-v1", "envpool")], indirect=True)
def test_a_run_can_be_evaluated_with_another_engine_than_it_was_trained_with(run, monkeypatch):
    monkeypatch.setattr(envpool, "available", lambda: False)
    loaded = self_imitation.load(run.path)
    assert loaded.config.engine == "envpool"
    result = loaded.evaluate(3)
    np.testing.assert_array_equal(result.returns, result.lengths)
