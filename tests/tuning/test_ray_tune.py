"""Real searches on a Ray cluster with one CPU: one trial after another."""

import csv
import importlib.util
import json
import os
import signal
import time
import tomllib
from itertools import islice
from pathlib import Path

import pytest
from helpers import finish, rows, sil

pytest.importorskip("ray")
pytest.importorskip("optuna")
pytestmark = pytest.mark.extras

from cluster.ray_cluster import nodes

from self_imitation.config import resolve
from self_imitation.experiments import status
from self_imitation.tuning import space as spaces

TESTS = Path(__file__).parents[1]
CHAIN = "gym:gymnasium_probes:Chain-v0"
STEPS = 2000


@pytest.fixture(scope="module")
def marker(tmp_path_factory):
    return tmp_path_factory.mktemp("marker") / "died"


@pytest.fixture(scope="module")
def address(marker):
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    with nodes(1, PYTHONPATH=path, DYING_PROBE_MARKER=str(marker)) as cluster:
        yield cluster.address


def tune(address, folder, env, *flags):
    """`sil tune` of a small A2C; returns its process."""
    settings = ["num-envs=4", "network.hidden=8", "checkpoint-seconds=0.1"]
    shared = ["--agent", "a2c", "--settings", *settings, "--steps", STEPS, "--seeds", 1, "--storage", folder]
    return sil("tune", env, *shared, "--name", "search", "--address", address, *flags)


def table(folder):
    """tune.csv by the number of the trial."""
    with open(folder / "search" / "tune.csv", newline="") as file:
        return {int(row["trial"].removeprefix("trial-")): row for row in csv.DictReader(file)}


RATES = "optimiser.learning-rate=1e-2,1e-9,1e30"
"""One that learns, one that does not, and one with which the loss is not finite."""


def seed_for(*rates):
    """Of the search that tries these first."""
    config = resolve("key-door-treasure", "authors", {"agent": "a2c"})
    space = spaces.build(config, spaces.read_words([RATES], "search"))
    for seed in range(1000):
        drawn = [own["optimiser.learning_rate"] for own in islice(spaces.draws(space, seed), 20)]
        if list(dict.fromkeys(drawn))[: len(rates)] == list(rates):
            return seed
    raise AssertionError("no such seed")


@pytest.fixture(scope="module")
def searched(address, tmp_path_factory):
    """A search with ASHA, and the flags that it was started with."""
    folder = tmp_path_factory.mktemp("searched")
    flags = ["--search", RATES, "--grace-period", 1000, "--search-seed", seed_for(1e-2, 1e-9, 1e30)]
    return folder, flags, finish(tune(address, folder, CHAIN, *flags))


def test_weak_trials_are_stopped_and_failed_ones_reported(searched):
    folder, _, (code, output) = searched
    assert code == 1, output
    found = table(folder)
    assert [found[number]["state"] for number in (1, 2, 3)] == ["done", "stopped", "failed"]
    assert int(found[1]["step"]) == STEPS
    assert 1000 <= int(found[2]["step"]) < STEPS
    assert float(found[1]["score"]) > float(found[2]["score"])
    assert "was not finite" in found[3]["error"]
    assert "trial-003: failed: a loss of seed 1000 was not finite" in output
    assert "sil: 1 trial failed; start them again with: sil tune" in output
    assert "ray::" not in output, "what Ray prints stays away"


def test_the_winner_is_written_as_a_preset(searched):
    folder, _, _ = searched
    preset = tomllib.loads((folder / "search" / "preset.toml").read_text())
    assert preset == {
        "agent": "a2c",
        "preset": "authors",
        "num_envs": 4,
        "network": {"hidden": [8]},
        "optimiser": {"learning_rate": 0.01},
    }


def test_the_status_says_how_the_trials_ended(searched):
    found = status.read(searched[0] / "search")
    assert [run.state for run in found.runs] == ["done", "stopped", "failed"]
    assert not found.active


@pytest.mark.skipif(importlib.util.find_spec("self_imitation.storage.settings_file") is None, reason="no preset files")
def test_the_preset_can_be_trained_with(searched, tmp_path):
    preset = searched[0] / "search" / "preset.toml"
    code, output = finish(
        sil("train", CHAIN, "--preset", preset, "--steps", 200, "--seeds", 1, "--out", tmp_path / "run")
    )
    assert code == 0, output
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["agent"], config["num_envs"], config["optimiser"]["learning_rate"]) == ("a2c", 4, 0.01)


def test_the_same_command_trains_nothing_twice(address, searched):
    """Only the trial that failed is started again."""
    folder, flags, _ = searched
    metrics = [folder / "search" / f"trial-00{number}" / "metrics.csv" for number in (1, 2)]
    before = [path.stat().st_mtime_ns for path in metrics]
    code, output = finish(tune(address, folder, CHAIN, *flags))
    assert code == 1, output
    assert [path.stat().st_mtime_ns for path in metrics] == before
    assert [table(folder)[number]["state"] for number in (1, 2, 3)] == ["done", "stopped", "failed"]


def test_a_trial_whose_worker_died_resumes(address, tmp_path, marker):
    code, output = finish(
        tune(address, tmp_path, "gym:tuning.dying_probe:DiesOnce-v0", "--search", "a2c.gamma=0.9", "--trials", 1)
    )
    assert code == 0, output
    assert marker.exists()
    (run,) = status.read(tmp_path / "search").runs
    assert (run.state, run.attempts) == ("done", 2)
    assert int(rows(tmp_path / "search" / "trial-001")[-1]["step"]) == STEPS


def test_a_search_with_optuna_can_be_stopped_and_continued(address, tmp_path):
    flags = ["--algorithm", "optuna", "--search", "a2c.gamma=0.9..1", "optimiser.kind=rmsprop,adam", "--trials"]
    process = tune(address, tmp_path, CHAIN, *flags, 2)
    until = time.monotonic() + 120
    while not (tmp_path / "search" / "trial-001" / "checkpoints").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert code == 130, output
    assert "Stopped; progress saved. Continue with: sil tune" in output
    assert (tmp_path / "search" / "trial-001" / "summary.json").exists(), "it was not killed"
    assert not (tmp_path / "search" / "preset.toml").exists()
    first = json.loads((tmp_path / "search" / "search.json").read_text())["trials"][0]
    code, output = finish(tune(address, tmp_path, CHAIN, *flags, 2))
    assert code == 0, output
    found = json.loads((tmp_path / "search" / "search.json").read_text())["trials"]
    assert found[0]["settings"] == first["settings"]
    assert [row["state"] for row in table(tmp_path).values()] == ["done", "done"]


def test_an_address_that_does_not_answer_is_one_clear_line(tmp_path):
    code, output = finish(tune("127.0.0.1:1", tmp_path, CHAIN, "--search", "a2c.gamma=0.9"))
    assert code == 2
    assert "sil: address: '127.0.0.1:1' does not answer" in output
