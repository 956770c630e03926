"""Which settings a search tries, and in which order."""

import json

import pytest

pytest.importorskip("ray")
pytest.importorskip("optuna")
pytestmark = pytest.mark.extras

from ray.tune.search import Searcher

from self_imitation.config import resolve
from self_imitation.tuning import space as spaces
from self_imitation.tuning import suggestions, trials
from self_imitation.tuning.suggestions import OptunaSource
from self_imitation.tuning.trials import Log, Search


def log_of(folder, words, algorithm="random"):
    config = trials.base_config(resolve("key-door-treasure", "authors", {"agent": "a2c+sil"}), 4000, 1)
    space = spaces.build(config, spaces.read_words(words, "search"))
    return Log.open(Search(config, "authors", {}, space, folder, algorithm, "return_latest", 9, 400, 3.0, 0))


def all_of(searcher, most=20):
    """The settings of all trials that it gives, each with a score of its number."""
    found = []
    for number in range(most):
        given = searcher.suggest(str(number))
        if given == Searcher.FINISHED:
            break
        found.append(json.loads(given["settings"]))
        searcher.on_trial_complete(str(number), {"score": float(number), "state": "finished"})
    return found


@pytest.mark.parametrize("algorithm", ["random", "optuna"])
def test_a_finite_space_is_tried_once_and_without_bad_combinations(tmp_path, algorithm):
    log = log_of(tmp_path, ["sil.optimiser=shared,own", "sil.learning-rate=None,1e-3"], algorithm)
    found = all_of(suggestions.create(log))
    pairs = {(own["sil.optimiser"], own["sil.learning_rate"]) for own in found}
    assert pairs == {("shared", None), ("own", None), ("own", 1e-3)}
    assert len(found) == 3


@pytest.mark.parametrize("algorithm", ["random", "optuna"])
def test_a_continued_search_begins_with_the_same_settings(tmp_path, algorithm):
    words = ["a2c.gamma=0.9..1", "sil.updates=1..8:log", "network.hidden=8,8 8"]
    before = all_of(suggestions.create(log_of(tmp_path, words, algorithm)), 4)
    log = log_of(tmp_path, words, algorithm)
    log.stop(1)
    searcher = suggestions.create(log)
    assert [searcher.suggest(str(number))["stopped"] for number in range(2)] == [False, True]
    assert all_of(suggestions.create(log), 6)[:4] == before


def test_optuna_learns_from_the_scores():
    """After some trials, most suggestions are near the best value."""
    config = resolve("key-door-treasure", "authors", {"agent": "a2c"})
    source = OptunaSource(spaces.build(config, {"a2c.gamma": "0..1"}), 0, [])
    found = []
    for number in range(40):
        found.append(source.suggest(str(number))["a2c.gamma"])
        source.learn(str(number), None if number == 3 else -abs(found[-1] - 0.7))
    assert sum(abs(value - 0.7) < 0.15 for value in found[20:]) > 12
