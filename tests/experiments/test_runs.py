"""Training the runs of an experiment."""

import dataclasses
import shutil

import pytest
from experiments.small import SMALL, small, write_runs

from self_imitation.config import override
from self_imitation.errors import UsageError
from self_imitation.experiments import collect, provenance, runs, search, train
from self_imitation.experiments import definition as definitions
from self_imitation.storage import metrics_file
from self_imitation.storage.run_directory import RunDirectory

ONE_SEED = small(SMALL.replace("seeds = 2", "seeds = 1"))


def trained(definition, folder, stop=lambda: False, only=()):
    return train.train(definition, runs.cases(definition, only), folder, "sil reproduce small.toml", [], stop)


def last_step(path):
    return int(metrics_file.read(path)[-1]["step"])


def test_stopped_runs_are_resumed_and_finished_ones_left_alone(tmp_path):
    run = tmp_path / "Maze_a2c"
    assert not trained(ONE_SEED, tmp_path, lambda: True, only=["a2c"])
    assert trained(ONE_SEED, tmp_path, only=["a2c"])
    assert last_step(run) == 160
    before = (run / "metrics.csv").stat().st_mtime_ns
    shutil.rmtree(run / "checkpoints")  # its metrics and its summary are enough
    assert trained(ONE_SEED, tmp_path, only=["a2c"])
    assert (run / "metrics.csv").stat().st_mtime_ns == before
    assert not (run / "checkpoints").exists()


def test_a_run_records_command_versions_and_date(tmp_path):
    provenance.record(tmp_path, "sil reproduce small.toml")
    found = provenance.read(tmp_path)
    assert found["command"] == "sil reproduce small.toml"
    assert {"python", "jax", "numpy"} <= found["versions"].keys()
    assert found["date"].startswith("20")
    assert provenance.read(tmp_path / "nowhere") == dict.fromkeys(provenance.KEYS)


def test_what_runs_do_not_share_is_unknown():
    first = {"command": "a", "commit": "x", "version": "1", "versions": None, "date": "2026-01-02"}
    found = provenance.common([first, {**first, "commit": "y", "date": "2026-01-03"}])
    assert found == {**first, "commit": None, "date": "2026-01-03"}


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        ([], ["Maze/a2c", "Maze/a2c+exp", "Lake/a2c", "Lake/a2c+exp"]),
        (["lake"], ["Lake/a2c", "Lake/a2c+exp"]),
        (["*+exp"], ["Maze/a2c+exp", "Lake/a2c+exp"]),
        (["Maze", "a2c"], ["Maze/a2c"]),
    ],
)
def test_a_selection_names_tasks_and_agents(only, chosen):
    definition = small(SMALL + '\n[[task]]\nname = "Lake"\nenv = "gym:FrozenLake-v1"\n')
    assert [f"{case.task.name}/{case.agent.name}" for case in runs.cases(definition, only)] == chosen


def test_a_selection_of_nothing_is_refused():
    with pytest.raises(UsageError, match=r"only: 'Hopper' is unknown; known: Maze, a2c, a2c\+exp"):
        runs.cases(small(), ["Hopper"])


def test_runs_with_other_settings_or_seeds_are_refused(tmp_path):
    write_runs(small(), tmp_path)
    with pytest.raises(UsageError, match=r"Maze_a2c' has log_every = 80, not 160"):
        trained(small(SMALL.replace("log_every = 80", "log_every = 160")), tmp_path)
    with pytest.raises(UsageError, match=r"Maze_a2c' has seeds = 2, not 3; add seeds with --seed 2"):
        trained(definitions.resized(small(), seeds=3), tmp_path)


def test_a_network_that_was_chosen_when_the_run_began_is_the_one_that_was_wanted(tmp_path):
    open_network = SMALL.replace("key-door-treasure", "gym:CartPole-v1").replace(', "network.hidden" = [8]', "")
    write_runs(small(open_network), tmp_path)
    case, _ = runs.cases(small(open_network))
    wanted = runs.run_config(small(open_network), case, tmp_path)
    run = runs.directory(wanted)
    run.write_config(dataclasses.replace(wanted, network=wanted.network.resolved(images=False)))
    assert wanted.network.hidden is None
    runs.require_same(run, wanted)
    with pytest.raises(UsageError, match=r"has network\.hidden = \(64, 64\), not \(9,\)"):
        runs.require_same(run, override(wanted, {"network.hidden": (9,)}))


SEARCHED = SMALL.replace("seeds = 2", "seeds = 1\nsearch_seeds = 1\nsearch_steps = 80")
SEARCHED = SEARCHED.replace(
    'agent = "a2c+exp"', 'agent = "a2c"\nname = "a2c+exp"\n[agent.search]\n"log_every" = [40, 80]'
)
SEARCHED = SEARCHED.replace("log_every = 80, ", "")


def test_settings_are_searched_on_other_seeds_and_the_best_are_used(tmp_path):
    definition = small(SEARCHED)
    (case,) = runs.cases(definition, ["a2c+exp"])
    assert search.choose(definition, case, tmp_path) is None
    assert not trained(definition, tmp_path, lambda: True, only=["a2c+exp"])
    for config in next(train.stages(definition, case, tmp_path)):
        assert runs.train(config, "", [], lambda: False)
    tried = tmp_path / "search" / "Maze_a2c+exp"
    assert [last_step(tried / f"log_every={steps}") for steps in (40, 80)] == [80, 80]
    for steps, final in ((40, 1), (80, 3)):
        table = tried / f"log_every={steps}" / "metrics.csv"
        columns = ",".join((*metrics_file.LEADING, *metrics_file.TIMING))
        table.write_text(f"{columns}\n1000,80,1,{final},1,1,1,1\n")
    assert trained(definition, tmp_path, only=["a2c+exp"])
    assert search.choose(definition, case, tmp_path) == {
        "task": "Maze",
        "agent": "a2c+exp",
        "seeds": [1000],
        "steps": 80,
        "candidates": [
            {"settings": {"log_every": 40}, "scores": [1]},
            {"settings": {"log_every": 80}, "scores": [3]},
        ],
        "chosen": {"log_every": 80},
    }
    used = RunDirectory(tmp_path / "Maze_a2c+exp").config()
    assert (used.log_every, used.seed_numbers) == (80, (0,))
    found = collect.collect(definition, tmp_path, definition)
    assert found.choices[0]["chosen"] == {"log_every": 80}
    assert found.not_run() == [("Maze", "a2c")]


def test_reported_seeds_are_never_searched(tmp_path):
    definition = definitions.resized(small(SEARCHED), seed=1000)
    (case,) = runs.cases(definition, ["a2c+exp"])
    with pytest.raises(UsageError, match="a search uses the seeds from 1000"):
        search.configs(definition, case, tmp_path)


def test_a_search_and_a_setting_for_the_same_thing_are_refused():
    text = SEARCHED.replace('name = "a2c+exp"', 'name = "a2c+exp"\nsettings = { log_every = 160 }')
    with pytest.raises(UsageError, match=r"agent 'a2c\+exp': search: 'log_every' is not allowed; it is one of its"):
        small(text)
