import math
from dataclasses import replace

import pytest
from sample_results import FREEWAY, sample

from self_imitation.experiments.results import Score
from self_imitation.report import findings, results_tables

SAMPLE = sample()


def _with_finals(finals):
    """The sample with these final scores by agent on Freeway."""
    scores = [
        Score(FREEWAY, agent, seed, 1000, final, math.nan)
        for agent, own in finals.items()
        for seed, final in enumerate(own)
    ]
    return replace(SAMPLE, scores=scores)


@pytest.mark.parametrize(
    ("a2c", "sil", "mark"),
    [
        ((0, 1, 2), (30, 31, 32), findings.SHOWN),
        ((30, 31, 32), (0, 1, 2), findings.OPPOSITE),
        ((0, 1, 2), (1, 2, 3), findings.NOT_SHOWN),
        ((0,), (30,), findings.NOT_SHOWN),
        ((0, 1), (), findings.NOT_RUN),
        ((0, 1, math.nan), (30, 31, 32), findings.NOT_SHOWN),
    ],
)
def test_a_difference_is_shown_if_its_interval_excludes_zero(a2c, sil, mark):
    assert findings.findings(_with_finals({"a2c": a2c, "a2c+sil": sil}))[0].mark == mark


def test_evidence_has_the_interval_and_n():
    evidence = findings.findings(SAMPLE)[0].evidence
    assert evidence == (f"{FREEWAY}: a2c+sil minus a2c +30.67 (+28.01 to +33.33), n = 3",)


def test_a_task_is_learnt_if_the_share_of_seeds_is_above_one_half_beyond_doubt():
    finding = findings.findings(SAMPLE)[2]
    assert finding.mark == findings.NOT_SHOWN
    assert finding.evidence == (
        "a2c+sil: 2 of 3 seeds solve it (21 to 94 %)",
        "a2c: 0 of 3 seeds solve it (0 to 56 %)",
    )


def test_what_was_not_run_leaves_a_claim_shown_in_part():
    claim = replace(SAMPLE.definition.claims[0], tasks=(FREEWAY, "Venture"))
    results = replace(SAMPLE, definition=replace(SAMPLE.definition, claims=(claim,)))
    (finding,) = findings.findings(results)
    assert finding.mark == findings.PARTLY
    assert finding.evidence[-1] == "a2c+sil against a2c: not run on Venture"


def test_an_interval_that_excludes_zero_is_seen_to():
    results = _with_finals({"a2c": (0.0, 0.0001, 0.0002), "a2c+sil": (0.002, 0.0021, 0.0022)})
    (found, *_) = findings.differences(results)
    assert str(found.estimate) == "+0.002 (+0.002 to +0.002)"


def test_the_table_of_scores_marks_what_was_shortened_or_not_run():
    table = results_tables.scores(SAMPLE)
    assert [(row["task"], row["agent"], row["status"]) for row in table.rows] == [
        (FREEWAY, "a2c", ""),
        (FREEWAY, "a2c+sil", ""),
        ("Hero", "a2c", ""),
        ("Hero", "a2c+sil", "shortened: 500 of 1k steps"),
        ("Venture", "a2c", "not run"),
        ("Venture", "a2c+sil", "not run"),
    ]
    assert str(table.rows[1]["paper"]) == "34.00"
    assert table.rows[4]["final"] is None


def test_scores_of_other_agents_in_the_paper_have_their_own_table():
    table = results_tables.others_of_the_paper(SAMPLE)
    assert [str(row["other"]) for row in table.rows] == ["30.00", "None", "None"]


def test_candidates_of_a_search_are_listed_and_the_chosen_one_is_marked():
    choice = {
        "task": "Hero",
        "agent": "a2c",
        "seeds": [1000, 1001],
        "steps": 400,
        "candidates": [
            {"settings": {"a2c.gamma": 0.9}, "scores": [1.0, 3.0]},
            {"settings": {"a2c.gamma": 0.99}, "scores": [5.0, None]},
        ],
        "chosen": {"a2c.gamma": 0.99},
    }
    rows = results_tables.choices(replace(SAMPLE, choices=[choice])).rows
    assert [row["settings"] for row in rows] == ["a2c.gamma 0.9", "a2c.gamma 0.99"]
    assert [row["chosen"] for row in rows] == ["", "chosen"]
    assert rows[1]["score"].mean == 5


def test_areas_are_compared_over_the_steps_that_both_have_made():
    """A run under way is not worse for lack of its better half."""
    definition = replace(SAMPLE.definition, primary="area")
    results = replace(SAMPLE, definition=definition)
    (hero,) = [d for d in findings.differences(results) if d.task == "Hero"]
    until = results.steps("Hero", "a2c+sil")
    assert until < results.steps("Hero", "a2c")
    expected = results.areas("Hero", "a2c+sil").mean() - results.areas("Hero", "a2c", until).mean()
    assert hero.estimate.mean == pytest.approx(expected)
    assert hero.probability == 1.0
