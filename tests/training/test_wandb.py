"""Weights & Biases, offline: what is logged is read back from the file that `wandb sync` would send."""

import json

import pytest
from helpers import small_config, small_run

pytestmark = pytest.mark.extras
wandb = pytest.importorskip("wandb")

from self_imitation import WandbCallback
from self_imitation.storage.run_directory import WANDB
from self_imitation.training.run import continue_run, start

TINY = {"agent": "a2c", "log_every": 100, "steps": 200, "eval_every": 200, "eval_episodes": 2}


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    yield
    wandb.teardown()  # it reads these variables once


HEADER, BLOCK = 7, 32_768


def chunks(content):
    """Of a file in LevelDB's log format: blocks of parts, each with a checksum, its length and its kind (4: the last of
    several, 1: the only one).
    """
    place, whole = HEADER, b""
    while place < len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):
            yield whole
            whole = b""


def records(folder):
    """Of all W&B runs in the order in which they were begun: id, settings, and values by step."""
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # its process writes the last records as it ends
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        own = {"rows": {}, "config": {}}
        for chunk in chunks(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(chunk)
            if record.HasField("run"):
                own |= {name: getattr(record.run, name) for name in ("run_id", "project", "run_group")}
                own["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            if record.HasField("history"):
                items = {(item.key or ".".join(item.nested_key)): item.value_json for item in record.history.item}
                step = record.history.step.num
                own["rows"][step] = {name: json.loads(value) for name, value in items.items()}
        found.append(own)
    return found


def test_each_seed_is_a_run_of_one_group(tmp_path):
    run = small_run(tmp_path / "run", **TINY, wandb=True, wandb_project="mine")
    identifier = json.loads((run.path / WANDB).read_text())["id"]
    logged = sorted(records(tmp_path), key=lambda own: own["run_id"])
    assert [own["run_id"] for own in logged] == [f"{identifier}-0", f"{identifier}-1"]
    assert {(own["project"], own["run_group"]) for own in logged} == {("mine", "run")}
    for seed, own in enumerate(logged):
        assert own["config"]["seed"] == seed
        assert own["config"]["optimiser.learning_rate"] == run.config.optimiser.learning_rate
        expected = {row["step"]: row for row in run.metrics() if row["seed"] == seed}
        assert own["rows"].keys() == expected.keys() == {100, 200}
        for step, row in own["rows"].items():
            assert row["losses/loss"] == pytest.approx(expected[step]["loss"])
            assert ("eval/return_mean" in row) == (step == 200)


def test_a_resumed_run_continues_its_runs(tmp_path):
    run = small_run(tmp_path / "run", **TINY, wandb=True)
    before = {own["run_id"] for own in records(tmp_path)}
    continue_run(run.path, 400)
    logged = records(tmp_path)
    assert len(logged) == 4
    assert {own["run_id"] for own in logged} == before
    assert {own["project"] for own in logged} == {"self-imitation"}
    assert sorted({step for own in logged for step in own["rows"]}) == [100, 200, 300, 400]


def test_it_is_a_callback_as_others(tmp_path):
    start(small_config(tmp_path / "run", **TINY), [WandbCallback("other")])
    assert {own["project"] for own in records(tmp_path)} == {"other"}
