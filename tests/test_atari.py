"""Atari: the emulators against a plain pipeline on one `ALEInterface`, and what is made of games."""


import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from self_imitation.columns import newest, seed_axis, stacked_up
from self_imitation.host_collection import HostCollector, Part
from self_imitation.validation import validate

import self_imitation
from self_imitation.config import resolve
from self_imitation.environments import atari_scores
from self_imitation.environments import registry as catalogue
from self_imitation.environments.gymnasium import atari
from self_imitation.environments.gymnasium import make as engines
from self_imitation.errors import UsageError
from self_imitation.training import run as runs


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), steps=st.integers(1, 7))
def test_stacks_that_travelled_frame_by_frame_are_those_that_the_policy_saw(seed, steps):
    """Over ends of games, from one rollout to the next, in two halves."""
    config = engines.settle(validate(resolve("atari:Breakout", "authors")))
    spaces = engines.inspect(config)
    halves = [Part(slice(i, i + 1), engines.make_vector(config, spaces, [seed + i])) for i in range(2)]
    collector = HostCollector(halves, spaces.spec, 1, steps, delay=1, rewards="sign")
    collector.begin(np.array([[seed, seed + 1]]))
    generator, seen, there = np.random.default_rng(seed), [], [collector.seen[part][0] for part in range(2)]

    def act(part, time, observation):
        seen.append(observation[0, 0].copy())
        if len(seen) > 2 or time > 0:
            there[part] = stacked_up(there[part], newest(observation, collector.fresh[part])[0])
        np.testing.assert_array_equal(there[part], observation[0])
        return generator.integers(4, size=(1, 1))

    for _ in range(60 // steps):
        rollout = jax.tree.map(lambda leaf: leaf[0], on_device(collector.collect(act, 0), spaces.spec))
        policy_saw = np.moveaxis(np.stack(seen[-2 * steps :]).reshape(steps, 2, 4, 84, 84), 2, -1)
        np.testing.assert_array_equal(rollout.observation, policy_saw)
        np.testing.assert_array_equal(rollout.last_observation, np.moveaxis(collector.observation[0], 1, -1))
        assert set(np.unique(rollout.reward)) <= {-1.0, 0.0, 1.0}
    collector.close()


def on_device(columns, spec):
    """The rollouts of all seeds."""
    return jax.jit(jax.vmap(type(columns).on_device, (seed_axis(spec),)))(columns)


def test_where_a_game_ends_the_rollout_has_its_last_state_and_goes_on_with_a_new_one():
    config = engines.settle(validate(resolve("atari:Breakout", "authors")))
    spaces = engines.inspect(config)
    vector, arrivals = engines.make_vector(config, spaces, [1, 2, 3]), []
    receive = vector.receive
    vector.receive = lambda: (arrivals.append(receive()), arrivals[-1])[1]
    collector = HostCollector([Part(slice(0, 3), vector)], spaces.spec, 1, 250, delay=1)
    collector.begin(np.array([[1, 2, 3]]))
    generator = np.random.default_rng(0)
    columns = collector.collect(lambda *_: generator.integers(4, size=(1, 3)), 0)
    collector.close()
    rollout = jax.tree.map(lambda leaf: leaf[0], on_device(columns, spaces.spec))
    ended = np.array([arrival.terminated for arrival in arrivals])
    assert ended.sum() > 2
    np.testing.assert_array_equal(rollout.terminated, ended)
    np.testing.assert_array_equal(columns.ended[:, 0], ended)
    for moved, field in ((rollout.next_observation, "next_observation"), (rollout.observation[1:], "observation")):
        came = np.stack([np.moveaxis(getattr(arrival, field), 1, -1) for arrival in arrivals])
        np.testing.assert_array_equal(moved, came[: len(moved)])
    ends = np.flatnonzero(ended[:, 0])
    np.testing.assert_array_equal(rollout.episode_length[ends, 0], np.diff([-1, *ends]))


def test_scores_are_raw_and_what_is_learnt_from_is_their_sign():
    """An invader pays 5 or more."""
    config = engines.settle(validate(resolve("atari:SpaceInvaders", "authors")))
    spaces = engines.inspect(config)
    collector = HostCollector(
        [Part(slice(0, 1), engines.make_vector(config, spaces, [1]))], spaces.spec, 1, 200, 1, config.rewards
    )
    collector.begin(np.array([[1]]))
    columns = collector.collect(lambda *_: np.array([[1]]), 0)
    collector.close()
    reward = columns.numbers[0]
    assert set(np.unique(reward)) == {0.0, 1.0}
    assert columns.episode_return.max() >= 5 * reward.sum() > 0


def test_games_go_by_the_papers_names_in_any_spelling():
    assert len(catalogue.atari_games()) >= 100
    for game in atari_scores.table():
        assert catalogue.find(f"atari:{game}").name == f"atari:{game}"
    assert catalogue.find("atari:montezuma_revenge") == catalogue.find("atari:MontezumaRevenge")
    with pytest.raises(UsageError, match=r"'atari:Montezuma' is unknown; did you mean 'atari:Montezum") as told:
        catalogue.find("atari:Montezuma")
    assert "Of 10" in str(told.value)
    with pytest.raises(UsageError, match="env: 'Pong' is unknown; did you mean 'atari:Pong'"):
        catalogue.find("Pong")
    with pytest.raises(UsageError, match="env: 'atari:MazeCraze' is a game for several players"):
        catalogue.find("atari:MazeCraze")
    assert str(told.value).count("atari:") <= 7


def test_every_game_can_be_played():
    for rom in catalogue.atari_games().values():
        assert atari.describe(rom).spec.stack == 4


def test_without_emulators_a_run_can_be_read_but_not_trained(monkeypatch):
    monkeypatch.setattr(catalogue, "atari_games", dict)
    monkeypatch.setattr(engines, "_installed", lambda package: False)
    config = resolve("atari:Pong", "authors")
    assert config.env == "atari:Pong"
    with pytest.raises(UsageError, match=r"^env: Atari games need a package: pip install 'self-imitation\[atari\]'$"):
        engines.settle(config)


def test_from_python_games_are_trained_for_as_long_as_from_the_command_line(monkeypatch):
    begun = []
    monkeypatch.setattr(runs, "start", lambda config, listener: (begun.append(config), True))
    self_imitation.train("atari:Pong")
    assert (begun[0].steps, begun[0].seeds) == (50_000_000, 1)
    self_imitation.train("atari:Pong", steps=80, seeds=2)
    assert (begun[1].steps, begun[1].seeds) == (80, 2)


def test_scores_are_normalised_by_a_human_and_a_random_player():
    assert atari_scores.human_normalised("Alien", 227.8) == 0
    assert atari_scores.human_normalised("Alien", 6875.4) == 1
    assert atari_scores.human_normalised("MontezumaRevenge", 4366.7) == 1
    assert atari_scores.human_normalised("Adventure", 1.0) is None
