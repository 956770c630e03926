"""Runs on storage that has a URL: S3, by a server on this machine."""

import dataclasses
import json
import os
import signal
import tempfile
import threading
import time

import pytest
from helpers import finish, rows, sil, small_config

boto3 = pytest.importorskip("boto3")
pytest.importorskip("s3fs")
pytest.importorskip("ray")
server = pytest.importorskip("moto.server")
pytestmark = pytest.mark.extras

from cluster.ray_cluster import experiment, kill_workers, nodes

from self_imitation.cluster import driver, task
from self_imitation.cluster.task import Job, Place, train_run
from self_imitation.errors import UsageError
from self_imitation.experiments import status
from self_imitation.storage import mirror
from self_imitation.storage.mirror import Mirror


@pytest.fixture(scope="module")
def variables():
    """Those that lead S3 clients to the server."""
    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    found = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "*",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield found
    running.stop()


@pytest.fixture
def url(variables, request):
    return f"s3://bucket/{request.node.name}"


def test_a_copy_of_a_run_is_the_run(url, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "checkpoints" / "80").mkdir(parents=True)
    for name in ("state.safetensors", "policy.safetensors", "meta.json"):
        (here / "checkpoints" / "80" / name).write_text(f"{name} at 80")
    (here / "metrics.csv").write_text("a,b\n1,2\n")
    (here / ".lock").touch()
    first = Mirror(url, here)
    first.upload()
    Mirror(url, there).download()
    assert (there / "metrics.csv").read_text() == "a,b\n1,2\n"
    assert (there / "checkpoints" / "80" / "meta.json").read_text() == "meta.json at 80"
    assert not (there / ".lock").exists()
    (here / "checkpoints" / "80").rename(here / "checkpoints" / "160")
    first.upload()
    Mirror(url, tmp_path / "again").download()
    assert [path.name for path in (tmp_path / "again" / "checkpoints").iterdir()] == ["160"]


def test_half_a_checkpoint_is_left_out(url, tmp_path):
    (tmp_path / "here" / "checkpoints" / "80").mkdir(parents=True)
    (tmp_path / "here" / "checkpoints" / "80" / "state.safetensors").touch()
    Mirror(url, tmp_path / "here").upload()
    Mirror(url, tmp_path / "there").download()
    assert not (tmp_path / "there").exists()


def test_every_state_of_the_storage_can_be_resumed_from(url, tmp_path, monkeypatch):
    """Metrics before the checkpoint that counts them, its metadata after its arrays, the summary last."""
    (tmp_path / "checkpoints" / "80").mkdir(parents=True)
    for name in ("summary.json", "metrics.csv", "checkpoints/80/meta.json", "checkpoints/80/state.safetensors"):
        (tmp_path / name).touch()
    copy, order = Mirror(url, tmp_path), []
    monkeypatch.setattr(copy._system, "put_file", lambda local, remote: order.append(remote))
    copy.upload()
    expected = ["metrics.csv", "checkpoints/80/state.safetensors", "checkpoints/80/meta.json", "summary.json"]
    assert [path.split("/", 2)[2] for path in order] == expected


def test_a_worker_whose_run_was_taken_over_uploads_nothing_more(url, tmp_path):
    lost = threading.Event()
    copy = Mirror(url, tmp_path)
    with mirror.uploading(copy, lost.set, seconds=0.05):
        copy.write(mirror.OWNER, b"another")
        assert lost.wait(10)
        (tmp_path / "metrics.csv").touch()
    assert copy.names() == [mirror.OWNER]


def test_a_second_driver_is_refused_and_a_dead_one_replaced(url, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "TAKEOVER_SECONDS", 0.3)
    first, second = (_store(url, tmp_path / name) for name in ("first", "second"))
    first.claim()
    alive = threading.Event()

    def live():
        while not alive.wait(0.1):
            first.publish()

    thread = threading.Thread(target=live)
    thread.start()
    with pytest.raises(UsageError, match="is being used by process"):
        second.claim()
    alive.set()
    thread.join()
    second.claim()
    with pytest.raises(UsageError, match="was taken over by process"):
        first.publish()


def _store(url, folder):
    folder.mkdir()
    return driver.Store(Place(str(folder), url), status.Board("title", "command", []))


def test_a_run_resumes_from_the_storage(url, tmp_path):
    config = small_config(tmp_path / "local" / "run", checkpoint_seconds=0.0, agent="a2c", workers=1)
    place = Place(str(tmp_path / "local"), url)
    (tmp_path / "local").mkdir()
    half = Job("run", dataclasses.replace(config, steps=400), "command", place, 1, 0)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert train_run(half).finished
        assert train_run(Job("run", config, "command", place, 1, 0)).finished
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
            signal.signal(number, handler)
    copy = Mirror(f"{url}/run", tmp_path / "copy")
    copy.download()
    assert json.loads((tmp_path / "copy" / "summary.json").read_text())["step"] == 800
    assert len({row["step"] for row in rows(tmp_path / "copy")}) == 2
    assert list(place.started().values()) == [1, 1]


def test_what_killed_workers_left_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    with task._scratch() as living:
        parent = living.parent
        for name in ("old", "new"):
            (parent / name).mkdir()
        for path in (parent / "old", living):
            os.utime(path, (0, 0))
        with task._scratch():
            assert {path.name for path in parent.iterdir()} >= {living.name, "new"}
            assert not (parent / "old").exists()
    assert [path.name for path in parent.iterdir()] == ["new"]


def test_an_experiment_on_s3_survives_the_death_of_a_worker(url, variables, tmp_path):
    experiment(tmp_path, 160_000)
    flags = ["--engine", "ray", "--storage", url, "--only", "Maze", "--out", tmp_path / "results"]
    with nodes(2, **variables) as cluster:
        where = ["--address", cluster.address]
        process = sil("reproduce", tmp_path / "my.toml", *flags, *where, "--runs", tmp_path / "runs")
        until = time.monotonic() + 120
        while not kill_workers("Maze_a2c"):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < until
            time.sleep(0.5)
        code, output = finish(process)
        assert code == 0, output
        assert {path.name for path in (tmp_path / "runs" / "Maze_a2c").iterdir()} == set(mirror.LIGHT)
        # From another machine, which has nothing of it: nothing is trained again.
        code, output = finish(sil("reproduce", tmp_path / "my.toml", *flags, *where, "--runs", tmp_path / "other"))
        assert code == 0, output
        assert "done" not in output
    code, output = finish(sil("status", f"{url}/my"))
    assert code == 0
    assert "2 done, 0 failed" in output
    for name in ("Maze_a2c", "Maze_a2c+exp"):
        assert rows(tmp_path / "runs" / name) == rows(tmp_path / "other" / name)
