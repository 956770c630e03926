"""Atari games by name, and their scores beside those of a human."""

import pytest

from self_imitation.environments import atari_scores, registry
from self_imitation.errors import UsageError


def test_all_single_player_games_are_known():
    assert len(registry.atari_games()) >= 100
    assert not set(registry.MULTIPLAYER_GAMES) & set(registry.atari_games().values())


def test_the_papers_49_games_are_known_by_its_names():
    games = atari_scores.table()
    assert len(games) == 49
    for game in games:
        assert registry.find(f"atari:{game}").name == f"atari:{game}"


@pytest.mark.parametrize("name", ["montezuma_revenge", "MONTEZUMAREVENGE", "Montezuma-Revenge"])
def test_any_spelling_is_the_same_game(name):
    entry = registry.find(f"atari:{name}")
    assert (entry.name, entry.atari_rom) == ("atari:MontezumaRevenge", "montezuma_revenge")
    assert entry.envpool_id == "MontezumaRevenge-v5"


def test_unknown_games_are_refused_with_the_nearest_names():
    with pytest.raises(
        UsageError, match="'atari:Montezuma' is unknown; did you mean 'atari:MontezumaRevenge'"
    ) as error:
        registry.find("atari:Montezuma")
    assert str(error.value).count("atari:") <= 7, "in one line"


def test_a_game_without_its_prefix_is_suggested():
    with pytest.raises(UsageError, match="env: 'Pong' is unknown; did you mean 'atari:Pong'"):
        registry.find("Pong")


def test_multiplayer_games_are_refused():
    with pytest.raises(UsageError, match="env: 'atari:MazeCraze' is a multiplayer game"):
        registry.find("atari:MazeCraze")


def test_without_ale_py_saved_runs_can_be_read(monkeypatch):
    monkeypatch.setattr(registry, "atari_games", dict)
    assert registry.find("atari:Pong").name == "atari:Pong"


@pytest.mark.parametrize(
    ("game", "score", "normalised"),
    [("Alien", 227.8, 0), ("Alien", 6875.4, 1), ("MontezumaRevenge", 4366.7, 1), ("Adventure", 1.0, None)],
)
def test_scores_are_normalised_by_a_random_and_a_human_player(game, score, normalised):
    assert atari_scores.human_normalised(game, score) == normalised
