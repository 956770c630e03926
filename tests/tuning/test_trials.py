"""A search on disk, without training."""

import dataclasses
import json
import math

import pytest

from self_imitation.config import resolve
from self_imitation.errors import UsageError
from self_imitation.tuning import space as spaces
from self_imitation.tuning import trials
from self_imitation.tuning.trials import Log, Outcome, Search


@pytest.fixture
def search(tmp_path):
    config = trials.base_config(resolve("key-door-treasure", "authors", {"agent": "a2c+sil"}), 4000, 2)
    space = spaces.build(config, {"sil.updates": [1, 2], "network.hidden": [[8], [8, 8]], "a2c.gamma": "0.9..1"})
    return Search(config, "authors", {"num_envs": 8}, space, tmp_path, "asha", "return_latest", 4, 400, 3.0, 0)


CANDIDATES = [
    {"sil.updates": 1, "network.hidden": (8,), "a2c.gamma": 0.95},
    {"sil.updates": 2, "network.hidden": (8, 8), "a2c.gamma": 0.9},
]


def test_seeds_of_a_search_are_never_reported_ones(search):
    config = search.trial(1, CANDIDATES[1])
    assert config.seed_numbers == (1000, 1001)
    assert config.out == str(search.folder / "trial-002")
    assert config.components["a2c"].gamma == 0.9
    assert config.network.hidden == (8, 8)


def test_a_trial_has_rows_often_enough_to_be_stopped(search):
    assert search.config.log_every == 200


def test_the_log_of_a_search_is_read_again(search):
    log = Log.open(search)
    for number, candidate in enumerate(CANDIDATES):
        log.add(number, candidate)
    log.stop(1)
    found = Log.open(dataclasses.replace(search, trials=9))
    assert found.candidates == CANDIDATES
    assert found.stopped == {1}


def test_another_search_in_the_same_folder_is_refused(search):
    Log.open(search).write()
    config = dataclasses.replace(search.config, steps=8000)
    with pytest.raises(UsageError, match="has steps = 4000, not 8000; search in another folder with --name"):
        Log.open(dataclasses.replace(search, config=config))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"trials": [{"settings": 1, "stopped": false}]}'])
def test_a_damaged_log_is_refused(search, text):
    (search.folder / trials.FILE).write_text(text)
    with pytest.raises(UsageError, match="is damaged: not the trials of a search"):
        Log.open(search)


def outcome(name, state, step, *scores):
    return Outcome(name, CANDIDATES[0], state, step, scores, "it broke" if state == "failed" else "")


def test_the_best_trial_has_made_most_steps():
    """A trial that was stopped early is not compared with one that was trained to its end."""
    done = [outcome("a", "done", 4000, 1.0, 2.0), outcome("b", "done", 4000, 3.0, 1.0)]
    others = [outcome("c", "stopped", 400, 9.0, 9.0), outcome("d", "failed", 4000, 9.0, 9.0)]
    assert trials.best([*others, *done]).name == "b"


def test_a_trial_without_a_score_is_not_the_best():
    assert trials.best([outcome("a", "done", 4000, math.nan, 1.0), outcome("b", "done", 4000, -5.0, -5.0)]).name == "b"
    assert trials.best([outcome("a", "done", 4000, math.nan, 1.0), outcome("b", "failed", 400, 1.0, 1.0)]) is None


def test_outcomes_are_read_from_the_runs_best_first(search):
    log = Log(search, list(CANDIDATES), stopped={0}, failed={})
    header = "seed,step,episodes,return_mean,return_best,length_mean,return_latest,steps_per_second,seconds\n"
    for number, score in enumerate((0.25, 0.5)):
        run = search.folder / trials.trial_name(number)
        run.mkdir()
        rows = [f"{seed},{step},1,0,0,1,{score * step},1,1\n" for step in (200, 400) for seed in (1000, 1001)]
        (run / "metrics.csv").write_text(header + "".join(rows))
        (run / "summary.json").write_text(json.dumps({"finished": number == 1, "step": 4000}))
    found = trials.outcomes(log)
    assert [(own.name, own.state, own.step, own.scores) for own in found] == [
        ("trial-002", "done", 400, (200.0, 200.0)),
        ("trial-001", "stopped", 400, (100.0, 100.0)),
    ]


def test_the_table_has_every_trial(search):
    found = [outcome("trial-002", "done", 4000, 1.0, 2.0), outcome("trial-001", "failed", 0)]
    lines = trials.write_table(search, found).read_text().splitlines()
    assert lines == [
        "trial,state,step,score,seed 1000,seed 1001,sil.updates,network.hidden,a2c.gamma,error",
        'trial-002,done,4000,1.5,1,2,1,"(8,)",0.95,',
        'trial-001,failed,0,,,,1,"(8,)",0.95,it broke',
    ]


def test_the_preset_says_where_it_comes_from(search):
    winner = outcome("trial-002", "done", 4000, 1.0, 2.0)
    path = trials.write_best(search, winner, [winner, outcome("trial-001", "stopped", 400, 0.0)], "sil tune maze")
    text = path.read_text()
    for part in (
        "# Found by: sil tune maze\n",
        "trial-002, the best of 2 trials (1 done, 1 stopped).",
        "# return_latest 1.5 with seeds 1000 to 1001 after 4,000 steps.",
        'agent = "a2c+sil"\npreset = "authors"\nnum_envs = 8\n',
        "[a2c]\ngamma = 0.95\n",
    ):
        assert part in text
