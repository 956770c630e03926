"""Experiments on a Ray cluster: the same results as in one process, whatever dies on the way."""

import signal
import socket
import time
from pathlib import Path

import pytest
from helpers import finish, rows, sil

pytest.importorskip("ray")
pytestmark = pytest.mark.extras

from cluster.ray_cluster import experiment, kill_workers, nodes

from self_imitation.cli.main import main
from self_imitation.cluster import connect
from self_imitation.experiments import results, status

RUNS = ("Maze_a2c", "Maze_a2c+exp", "Apples_a2c", "Apples_a2c+exp")


@pytest.fixture(scope="module")
def cluster():
    with nodes(2) as found:
        yield found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The runs of an experiment that one process trained."""
    here = tmp_path_factory.mktemp("alone")
    code, output = finish(sil("reproduce", experiment(here, LONG), "--runs", here / "runs", "--out", here / "results"))
    assert code == 0, output
    return here / "runs"


LONG = 160_000
"""Steps that take a few seconds."""


def on_ray(cluster, here, *flags):
    return sil(
        "reproduce", here / "my.toml", "--engine", "ray", "--address", cluster.address, "--out", here / "results",
        "--runs", here / "runs", *flags,
    )  # fmt: skip


def assert_same(here, alone):
    for name in RUNS:
        assert rows(here / "runs" / name) == rows(alone / name), name
    found = status.read(here / "runs")
    assert [run.state for run in found.runs] == ["done"] * 4
    assert not found.active


def wait_for(condition, process):
    until = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def has_checkpoint(run):
    return any(path.name not in ("", "0") for path in (run / "checkpoints").glob("[0-9]*"))


def test_the_results_are_those_of_one_process(cluster, tmp_path, alone):
    experiment(tmp_path, LONG)
    code, output = finish(on_ray(cluster, tmp_path))
    assert code == 0, output
    assert_same(tmp_path, alone)
    assert (tmp_path / "results" / "report.html").exists()


def test_dead_workers_and_lost_nodes_change_nothing(cluster, tmp_path, alone):
    experiment(tmp_path, LONG)
    extra = cluster.add_node(num_cpus=1)
    process = on_ray(cluster, tmp_path)
    first, second = tmp_path / "runs" / RUNS[0], tmp_path / "runs" / RUNS[1]
    wait_for(lambda: has_checkpoint(first), process)
    kill_workers(RUNS[0])
    wait_for(lambda: has_checkpoint(second), process)
    cluster.remove_node(extra, allow_graceful=False)
    code, output = finish(process)
    assert code == 0, output
    assert_same(tmp_path, alone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_driver_can_be_stopped_and_started_again(cluster, tmp_path, alone, number):
    experiment(tmp_path, LONG)
    process = on_ray(cluster, tmp_path)
    wait_for(lambda: has_checkpoint(tmp_path / "runs" / RUNS[0]), process)
    process.send_signal(number)
    code, output = finish(process)
    if number == signal.SIGINT:
        assert code == 130
        assert "Stopped; progress saved. Resume with: sil reproduce" in output
    done = [name for name in RUNS if (tmp_path / "runs" / name / "summary.json").exists()]
    before = {name: (tmp_path / "runs" / name / "metrics.csv").stat().st_mtime_ns for name in done}
    code, output = finish(on_ray(cluster, tmp_path))
    assert code == 0, output
    assert_same(tmp_path, alone)
    if number == signal.SIGKILL:
        for name, moment in before.items():
            assert (tmp_path / "runs" / name / "metrics.csv").stat().st_mtime_ns == moment, "it was finished"


def test_a_run_that_fails_does_not_stop_the_others(cluster, tmp_path):
    experiment(tmp_path, 400, more='[[task]]\nname = "Unknown"\nenv = "gym:Nowhere-v0"\n')
    code, output = finish(on_ray(cluster, tmp_path, "--only", "Maze", "Unknown", "a2c"))
    assert code == 1, output
    assert "Unknown_a2c: failed: " in output
    assert "Nowhere" in output
    assert "Maze_a2c: done" in output
    assert "sil: 1 run failed; start them again with: sil reproduce" in output
    states = {run.name: run.state for run in status.read(tmp_path / "runs").runs}
    assert states == {"Maze_a2c": "done", "Unknown_a2c": "failed"}


def test_each_run_has_a_process_of_its_own(cluster, tmp_path):
    """Deterministic operations are a flag that JAX reads when it starts: a reused worker would refuse it."""
    agents = '[[agent]]\nname = "exact"\nagent = "a2c"\nsettings = { deterministic = true }\n'
    experiment(tmp_path, 400, more=agents)
    code, output = finish(on_ray(cluster, tmp_path, "--only", "Maze", "a2c", "exact", "--cpus", "1"))
    assert code == 0, output


def test_seeds_can_be_divided_among_tasks(cluster, tmp_path):
    experiment(tmp_path, 400)
    code, output = finish(on_ray(cluster, tmp_path, "--only", "Maze", "a2c", "--seeds-per-run", "1"))
    assert code == 0, output
    assert (tmp_path / "runs" / "Maze_a2c" / "summary.json").exists()
    assert (tmp_path / "runs" / "Maze_a2c_seed-1" / "summary.json").exists()
    assert [score.seed for score in results.read(tmp_path / "results").scores] == [0, 1]


def test_a_second_driver_is_refused(cluster, tmp_path):
    experiment(tmp_path, LONG)
    process = on_ray(cluster, tmp_path)
    wait_for(lambda: (tmp_path / "runs" / status.FILE).exists(), process)
    code, output = finish(on_ray(cluster, tmp_path))
    assert code == 2
    assert "is being trained by another process" in output
    process.send_signal(signal.SIGKILL)
    finish(process)


def call(capsys, *arguments):
    code = main(["reproduce", *map(str, arguments)])
    return code, capsys.readouterr().err


def test_an_address_that_does_not_answer_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = time.monotonic()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    code, err = call(capsys, experiment(tmp_path), "--engine", "ray", "--address", f"127.0.0.1:{port}")
    assert code == 2
    assert err == f"sil: address: '127.0.0.1:{port}' does not answer: Connection refused\n"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, err = call(capsys, tmp_path / "my.toml", "--engine", "ray", "--address", f"127.0.0.1:{port}")
    assert code == 2
    assert err == (
        f"sil: address: '127.0.0.1:{port}' accepts connections, but does not answer as a Ray cluster; if it has token "
        "authentication, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN\n"
    )
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("address", ["somewhere", "a..b:6379", f"{'a' * 70}:6379", "http://127.0.0.1:80", "[]:1", ""])
def test_what_is_no_address_is_one_line(capsys, tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    code, err = call(capsys, experiment(tmp_path), "--engine", "ray", "--address", address)
    assert code == 2
    assert err == f"sil: address: {address!r} is not allowed; allowed: HOST:PORT, ray://HOST:PORT, auto or local\n"


def test_the_error_of_ray_is_shown_if_it_refuses_to_connect(cluster, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connect, "TRY", "raise RuntimeError('the token is wrong')")
    code, err = call(capsys, experiment(tmp_path), "--engine", "ray", "--address", cluster.address)
    assert code == 2
    cause = "RuntimeError: the token is wrong"
    assert err == f"sil: address: can't connect to a Ray cluster at '{cluster.address}': {cause}\n"


def test_resources_that_no_node_has_are_one_line(cluster, tmp_path):
    experiment(tmp_path)
    code, output = finish(on_ray(cluster, tmp_path, "--cpus", "64"))
    assert code == 2
    assert output.startswith("sil: no node of the cluster has 64 CPUs for a run; the most that nodes have: 1 CPU; if ")
    assert output.count("\n") == 1
    code, output = finish(on_ray(cluster, tmp_path, "--gpus", "0.5"))
    assert "no node of the cluster has 1 CPU, 0.5 GPUs for a run" in output


def test_storage_that_can_not_be_used_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, err = call(capsys, experiment(tmp_path), "--engine", "ray", "--storage", tmp_path / "file")
    assert code == 2
    assert err.count("\n") == 1
    assert "can't be written: Not a directory" in err
    code, err = call(capsys, tmp_path / "my.toml", "--engine", "ray", "--storage", "nothing://bucket/runs")
    assert code == 2
    assert err == "sil: storage: 'nothing://bucket/runs/my' is not allowed; Protocol not known: nothing\n"
    code, err = call(capsys, tmp_path / "my.toml", "--engine", "ray", "--storage", "s3://")
    assert err == "sil: storage: 's3://' is not allowed; allowed: a directory, or a URL such as s3://bucket/path\n"


def test_the_cluster_file_of_the_examples_is_one():
    import yaml
    from ray.autoscaler._private import util

    text = (Path(__file__).parents[2] / "examples" / "cluster.yaml").read_text()
    util.validate_config(util.prepare_config(yaml.safe_load(text)))
