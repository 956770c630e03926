import math
from dataclasses import replace

import numpy as np
import pytest
from sample_results import sample

from self_imitation.experiments.results import Curve
from self_imitation.report import survival

SAMPLE = sample()
STEPS = np.array([100, 200, 300, 400])


def _results(**values):
    """The sample with these curves on Hero, which is solved at 50."""
    curves = [
        Curve("Hero", agent, "return_latest", tuple(range(len(own))), STEPS, STEPS * math.nan, np.array(own, float).T)
        for agent, own in (("a2c", values["a2c"]), ("a2c+sil", values["sil"]))
    ]
    return replace(SAMPLE, curves=curves)


RESULTS = _results(
    a2c=[[0, 0, 0, 60], [0, 0, 0, 0], [math.nan, 0, 0, 0]],
    sil=[[0, 50, 0, 0], [60, 60, 60, 60], [0, 0, 70, 80]],
)


def test_a_seed_has_solved_a_task_from_the_first_point_at_the_level():
    found = survival.solving(RESULTS, "Hero", "a2c+sil")
    assert found.steps.tolist() == [200, 100, 300]
    assert found.solved.all()
    assert found.share(np.array([0, 100, 200, 300])).tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert found.median == 200


def test_seeds_that_never_solve_it_are_censored_at_the_end():
    found = survival.solving(RESULTS, "Hero", "a2c")
    assert found.steps.tolist() == [400, 400, 400]
    assert found.solved.tolist() == [True, False, False]
    assert found.median == math.inf


def test_without_a_level_or_a_run_there_is_nothing_to_solve():
    assert survival.solving(RESULTS, "Venture", "a2c") is None
    assert survival.solving(SAMPLE, SAMPLE.definition.tasks[0].name, "a2c") is None


def test_the_log_rank_test_agrees_with_a_calculation_by_hand():
    """At each time at which seeds solve it: those expected of the first group, if both were the same."""
    first, second = (survival.solving(RESULTS, "Hero", agent) for agent in ("a2c+sil", "a2c"))
    # 100: 1 of 6, 3 in the first group; 200: 1 of 5, 2; 300: 1 of 4, 1; 400: 1 of 3, 0.
    expected = 3 / 6 + 2 / 5 + 1 / 4
    variance = 3 * 3 / 6**2 + 2 * 3 / 5**2 + 1 * 3 / 4**2
    z = (3 - expected) / math.sqrt(variance)
    assert survival.logrank(first, second) == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), rel=1e-6)


def test_where_no_seed_solves_it_the_log_rank_test_finds_nothing():
    never = survival.Solving(np.array([400, 400]), np.array([False, False]))
    assert survival.logrank(never, never) == 1.0


def test_the_table_names_seeds_median_and_test():
    rows = {row["agent"]: row for row in survival.table(RESULTS).rows}
    assert (rows["a2c"]["solved"], rows["a2c"]["median"]) == ("1 of 3", "more than half never do")
    assert (rows["a2c+sil"]["solved"], rows["a2c+sil"]["median"]) == ("3 of 3", "200")
    assert rows["a2c+sil"]["logrank"].startswith("a2c: p = 0.0")


def test_the_figure_has_a_panel_for_each_task_that_can_be_solved():
    drawn = survival.figure(RESULTS)
    assert [axis.get_title() for axis in drawn.axes] == ["Hero"]
    assert drawn.axes[0].lines[1].get_ydata().tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1, 1])
