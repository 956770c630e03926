"""`sil reproduce`."""

import shutil
import signal
import sys
import time

import compilation
import pytest
from experiments.small import SMALL, small, write_runs
from helpers import finish, sil

from self_imitation.cli.main import main
from self_imitation.experiments import definition as definitions
from self_imitation.experiments import results
from self_imitation.experiments import status as statuses
from self_imitation.report import web_page
from self_imitation.storage import checkpoint, lock, metrics_file

ONE_SEED = SMALL.replace("seeds = 2", "seeds = 1")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text(ONE_SEED)
    return tmp_path


def call(capsys, *arguments):
    status = main(["reproduce", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_file_of_ones_own_is_trained_reported_and_not_trained_again(capsys, here):
    status, out, _ = call(capsys, "my.toml")
    assert status == 0
    assert out.endswith("Page: results/my/README.md\nWeb page: results/my/report.html\n")
    found = results.read(here / "results" / "my")
    assert found.provenance["command"] == "sil reproduce my.toml"
    assert [score.steps for score in found.scores] == [160, 160]
    written = {path.name for path in (here / "results" / "my").iterdir()}
    assert {"README.md", "figure.png", "table.csv", "report.html"} <= written
    assert [(run.state, run.made) for run in statuses.read(here / "runs" / "my").runs] == [("done", 160)] * 2
    status, out, _ = call(capsys, "my.toml")
    assert status == 0
    assert "step 160" not in out, "nothing was trained"


def test_without_its_packages_the_web_page_is_left_out(capsys, here, monkeypatch):
    write_runs(small(ONE_SEED, "my"), here / "runs" / "my")
    monkeypatch.setattr(web_page, "find_spec", lambda name: None)
    status, out, _ = call(capsys, "my.toml", "--report-only")
    assert status == 0
    assert out.endswith("Next: pip install 'self-imitation[report]', then sil report results/my --open\n")
    assert not (here / "results" / "my" / "report.html").exists()


def test_one_process_at_a_time(capsys, here):
    (here / "runs" / "my").mkdir(parents=True)
    with lock.hold(here / "runs" / "my"):
        status, _, err = call(capsys, "my.toml")
    assert status == 2
    assert "runs/my' is being trained by another process" in err


def test_flags_of_a_cluster_need_one(capsys, here):
    status, _, err = call(capsys, "my.toml", "--gpus", "0.5")
    assert (status, err) == (2, "sil: gpus has no effect without --engine ray\n")


def test_without_ray_the_package_to_install_is_named(capsys, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    status, _, err = call(capsys, "my.toml", "--engine", "ray")
    assert status == 2
    assert err == "sil: engine: 'ray' needs the package ray: pip install 'self-imitation[ray]'\n"


def test_a_dry_run_trains_nothing(capsys, here):
    status, out, _ = call(capsys, "my.toml", "--dry-run", "--scale", "0.5", "--only", "a2c")
    assert status == 0
    assert out.splitlines()[0] == "A small experiment, in runs/my_scale-0.5:"
    assert out.splitlines()[1].split()[:6] == ["Maze_a2c", "80", "steps", "x", "1", "seeds"]
    assert "1 of 1 runs to train, 80 steps of all seeds: about 0 s" in out
    assert "Rates were measured on: 2 cores." in out
    assert [path.name for path in here.iterdir()] == ["my.toml"]


def test_parts_and_scaled_versions_do_not_overwrite_the_results(capsys, here):
    definition = small(ONE_SEED, "my")
    write_runs(definition, here / "runs" / "my")
    write_runs(definitions.resized(definition, 0.5), here / "runs" / "my_scale-0.5")
    for arguments, out in (
        (["--only", "a2c"], "runs/my/report"),
        (["--scale", "0.5"], "runs/my_scale-0.5/report"),
        (["--seeds", "3"], "runs/my/report"),
    ):
        assert call(capsys, "my.toml", "--report-only", *arguments)[0] == 0
        assert (here / out / "README.md").exists()
        shutil.rmtree(here / out)
    assert not (here / "results").exists()


def test_results_without_runs_get_their_page_anew(capsys, here):
    write_runs(small(ONE_SEED, "my"), here / "runs" / "my")
    call(capsys, "my.toml", "--report-only")
    shutil.rmtree(here / "runs")
    (here / "results" / "my" / "README.md").unlink()
    assert call(capsys, "my.toml", "--report-only")[0] == 0
    assert "| Maze | a2c |" in (here / "results" / "my" / "README.md").read_text()
    shutil.rmtree(here / "results")
    assert "runs/my' has no run of this experiment; train without" in call(capsys, "my.toml", "--report-only")[2]


def test_all_means_every_experiment_that_has_what_is_selected(capsys, here):
    status, out, _ = call(capsys, "all", "--dry-run", "--only", "Hopper", "ppo")
    assert status == 0
    titles = [line.rpartition(", in ")[2] for line in out.splitlines() if ", in runs/" in line]
    assert titles == ["runs/mujoco:", "runs/mujoco-delayed:", "runs/mujoco-search:", "runs/mujoco-tuned:"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing.toml", "no such file: 'nothing.toml'"),
        ("bad.toml", "bad.toml: steps: 'x' is not allowed; allowed: an integer >= 1"),
        ("searched.toml --dry-run", "agent 'a2c+exp': log_every: -1 is not allowed; allowed: an integer >= 1"),
        ("grid-world", "experiment: 'grid-world' is unknown; did you mean 'grid-worlds'?"),
        ("my.toml --only foo", "only: 'foo' is unknown"),
        ("all --only foo", "only: 'foo' is unknown"),
        ("my.toml --scale 0", "scale: 0.0 is not allowed; allowed: a finite number > 0 and <= 1"),
        ("my.toml --steps 0", "steps: 0 is not allowed; allowed: an integer >= 1"),
        (". --dry-run", "experiment: '.' is unknown"),
        ("./ --dry-run", "'./' can't be read: Is a directory"),
    ],
)
def test_bad_input_is_one_clear_line(capsys, here, arguments, message):
    (here / "bad.toml").write_text(SMALL.replace("steps = 160", 'steps = "x"'))
    text = ONE_SEED.replace("log_every = 80, ", "")
    (here / "searched.toml").write_text(f"{text}[agent.search]\nlog_every = [80, -1]\n")
    status, out, err = call(capsys, *arguments.split())
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_kill_loses_no_finished_run_and_at_most_one_checkpoint_interval(here, capsys):
    text = ONE_SEED.replace("log_every = 80", "log_every = 10_000, checkpoint_seconds = 0.05")
    text = text.replace("steps = 160", "steps = 200_000").replace(
        'agent = "a2c+exp"', 'agent = "a2c"\nname = "a2c+exp"'
    )
    (here / "my.toml").write_text(text)
    process = sil("reproduce", "my.toml", xla_flags=compilation.CHEAP)
    second = here / "runs" / "my" / "Maze_a2c+exp"
    while not (second.exists() and len(checkpoint.steps(second / "checkpoints")) > 1):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    reached = checkpoint.steps(second / "checkpoints")[-1]
    assert [run.state for run in statuses.read(here / "runs" / "my").runs] == ["done", "running"]
    finished = here / "runs" / "my" / "Maze_a2c" / "metrics.csv"
    before = finished.stat().st_mtime_ns
    status, out, _ = call(capsys, "my.toml")
    assert status == 0
    assert f"from step {reached:,} to 200,000 steps" in out
    assert finished.stat().st_mtime_ns == before
    assert int(metrics_file.read(second)[-1]["step"]) == 200_000
