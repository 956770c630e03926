"""Statistics over tasks: the paper's own table, and numbers worked out by hand."""

import builtins
import re

import numpy as np
import pytest

from self_imitation.environments import atari_scores
from self_imitation.errors import UsageError
from self_imitation.experiments import definition as definitions
from self_imitation.report import aggregate

HARD = """Alien, Amidar, BankHeist, Freeway, Frostbite, Gravitar, Hero, MontezumaRevenge, MsPacman, PrivateEye, Qbert,
Venture, WizardOfWor, Zaxxon"""
"""Of the 49 games, those that Bellemare et al. (2016) call hard to explore."""


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr(aggregate, "RESAMPLES", 300)


TASKS = definitions.read("atari-49").tasks


@pytest.mark.parametrize(("agent", "median", "above"), [("a2c", 96.1, 23), ("acper", 46.8, 18), ("a2c+sil", 138.7, 29)])
def test_the_papers_table_gives_its_medians_and_games_above_human(agent, median, above):
    scores = np.array([aggregate.normalise(task.paper[agent], *task.normalise) for task in TASKS])
    assert round(100 * aggregate.aggregates(scores[None])["median"].value, 1) == median
    assert aggregate.above_human(scores) == above


def test_the_papers_table_improves_35_games_and_11_of_14_hard_ones():
    gains = {t.name: aggregate.relative(t.paper["a2c+sil"], t.paper["a2c"], *t.normalise) for t in TASKS}
    assert sum(gain > aggregate.IMPROVED for gain in gains.values()) == 35
    assert sum(gains[game] > aggregate.IMPROVED for game in re.findall(r"\w+", HARD)) == 11
    assert sum(gain > 0 for gain in gains.values()) == 38, "by plain comparison"


def test_the_experiment_has_the_scores_of_the_papers_table():
    table = atari_scores.table()
    assert [task.name for task in TASKS] == list(table)
    for task in TASKS:
        known = table[task.name]
        assert task.paper == {"a2c": known["a2c"], "acper": known["acper"], "a2c+sil": known["a2c_sil"]}
        assert task.normalise == (known["random"], known["human"])


def test_the_relative_measure_is_in_units_of_the_better_one_of_human_and_baseline():
    assert aggregate.relative(30, 20, random=0, human=40) == 0.25
    assert aggregate.relative(30, 50, random=10, human=40) == -0.5


def test_aggregates_of_numbers_worked_out_by_hand():
    scores = np.array([[0.0, 2.0, 4.0, 10.0], [2.0, 2.0, 4.0, 30.0]])
    found = aggregate.aggregates(scores)
    assert found["mean"].value == 6.75
    assert found["median"].value == 3, "of the task means 1, 2, 4 and 20"
    assert found["IQM"].value == 3, "of 2, 2, 4 and 4, the middle half of all eight"
    assert all((estimate.runs, estimate.tasks) == (2, 4) for estimate in found.values())
    assert (found["mean"].low, found["mean"].high) == (4.0, 9.5), "every task by its lower or its higher run"
    assert found == aggregate.aggregates(scores), "with the same random numbers each time"


def test_a_single_run_has_no_interval():
    found = aggregate.aggregates(np.array([[1.0, 2.0, 3.0]]))["mean"]
    assert found.value == 2
    assert np.isnan([found.low, found.high]).all()


def test_probability_of_improvement_counts_pairs_and_halves_of_ties():
    first, second = np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[2.0, 5.0], [3.0, 4.0], [0.0, 1.0]])
    estimate = aggregate.probability_of_improvement(first, second)
    assert estimate.value == pytest.approx((3.5 / 6 + 5 / 6) / 2), "pairs that are won, in each task"
    assert estimate.value == pytest.approx(aggregate._rliable()[1].probability_of_improvement(first, second))
    assert estimate.low <= estimate.value <= estimate.high
    assert (estimate.runs, estimate.tasks) == (2, 2)


def test_profiles_are_the_share_of_runs_above_each_threshold():
    profile = aggregate.performance_profile(np.array([[0.1, 0.5], [0.3, 0.9]]), np.array([0.0, 0.2, 0.4, 1.0]))
    assert list(profile.share) == [1, 0.75, 0.5, 0]
    assert list(profile.low) == [1, 0.5, 0.5, 0]
    assert list(profile.high) == [1, 1, 0.5, 0], "of the second task, both runs are above 0.4 in any sample"


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("rliable"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'self-imitation\[report\]'"):
        aggregate.aggregates(np.zeros((2, 2)))
