"""Training, resuming, evaluating, playing and plotting, as their user sees them."""

import json
import math
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import SMALL_FLAGS, rows
from PIL import Image

from self_imitation.cli import progress, runs
from self_imitation.cli.main import main
from self_imitation.cli.train import CLOSED_PIPE, with_signal_handling
from self_imitation.config import TrainConfig
from self_imitation.storage import checkpoint


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *SMALL_FLAGS, "--seed", "5", "--steps", "1200"]) == 0
    (path,) = (folder / "runs").iterdir()
    return path


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "copy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --out RUN", "RUN already contains a run; continue it with: sil resume RUN"),
        ("resume RUN --steps 0", "steps: 0 is not allowed"),
        ("resume RUN --steps 100", "steps: 100 is not allowed; the run has made 1200 steps already"),
        ("evaluate RUN --episodes 0", "episodes: 0 is not allowed"),
        ("evaluate RUN --json no/where.json", "json: 'no/where.json' can't be written"),
        ("evaluate RUN --json /", "json: '/' can't be written: Is a directory"),
        (f"evaluate RUN --json {'x' * 300}", "can't be written: File name too long"),
        (f"evaluate {'x' * 300}", "no such run: 'xxx"),
        (f"train --out {'x' * 300}", "can't be written: File name too long"),
        (f"plot RUN --out {'x' * 300}.png", "can't be written: File name too long"),
        (f"reproduce systems --report-only --out RUN --runs {'x' * 300}", "has no run of this experiment"),
        ("evaluate RUN --json a\0b", r"'a\x00b' is not a path: it has a NUL character"),
        ("reproduce a\0b.toml", r"'a\x00b.toml' is not a path: it has a NUL character"),
        ("report a\0b", r"'a\x00b' is not a path: it has a NUL character"),
        (f"report {'x' * 300}", "no such directory"),
        ("plot RUN --out a\0b.png", r"'a\x00b.png' is not a path: it has a NUL character"),
        ("evaluate RUN --key 99999999999999999999", "key: 99999999999999999999 is not allowed"),
        ("play RUN --seed 9", "seed: 9 is not allowed; this run has seeds 5 to 6"),
        ("play RUN --out x.mp5", "out: 'x.mp5' is not allowed; allowed: a file name that ends in .gif"),
        ("play RUN --out no/where.gif", "out: 'no/where.gif' can't be written"),
        ("plot RUN --out x.doc", "out: 'x.doc' is not allowed"),
    ],
)
def test_bad_input_leaves_a_run_unchanged(capsys, run, arguments, message):
    before, names = rows(run), sorted(path.name for path in run.iterdir())
    status, _, err = call(capsys, *arguments.replace("RUN", str(run)).split())
    assert status == 2
    assert message.replace("RUN", str(run)) in err
    assert err.count("\n") == 1
    assert rows(run) == before
    assert sorted(path.name for path in run.iterdir()) == names


def test_a_directory_that_can_not_be_read_is_one_line(capsys, run, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(checkpoint, "steps", refuse)
    status, _, err = call(capsys, "evaluate", run)
    assert (status, err) == (1, f"sil: [Errno 13] Permission denied: '{run}/checkpoints'\n")


def test_a_deleted_working_directory_is_one_line(capsys, run, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    status, _, err = call(capsys, "plot", run)
    assert (status, err) == (2, "sil: the working directory was deleted; change to one that exists\n")


def test_training_says_what_it_trains_and_ends_with_the_next_command(capsys, tmp_path):
    path = tmp_path / "a b [bold]x"
    _, out, _ = call(capsys, "train", *SMALL_FLAGS, "--seed", 5, "--steps", 800, "--out", path)
    lines = out.splitlines()
    assert lines[0].startswith("a2c+sil on key-door-treasure: 2 seeds (5-6) to 800 steps each on ")
    assert lines[0].endswith(f"in {path}")
    assert [line.split("  ")[0] for line in lines if line.startswith("step")] == ["step 400", "step 800"]
    assert lines[-4:-2] == [f"Run: {path}", f"Curve: {path}/curve.png"]
    assert lines[-2:] == [f"Metrics: tensorboard --logdir '{path}/tensorboard'", f"Next: sil play '{path}'"], (
        "can be pasted"
    )
    assert [row["seed"] for row in rows(path)] == ["5", "6", "5", "6"]


def test_the_first_line_has_the_notes(tmp_path):
    config = TrainConfig(seeds=1)
    context = SimpleNamespace(config=config, shown=tmp_path, step=240, device="cpu", notes=["slow", "small"])
    line = progress.first_line(context)
    assert line.startswith("a2c+sil on key-door-treasure: 1 seed (0) from step 240 to 1,000,000 steps each on cpu, in ")
    assert line.endswith(f"{tmp_path} (note: slow; small)")


def test_without_out_there_is_a_new_directory_under_runs(run):
    assert re.fullmatch(r"key-door-treasure_a2c\+sil_\d{8}-\d{6}", run.name)


def test_resume_sets_a_new_total(capsys, copy):
    status, out, _ = call(capsys, "resume", copy, "--steps", 1600)
    assert status == 0
    assert "from step 1,200 to 1,600 steps" in out
    assert {row["step"] for row in rows(copy)} == {"400", "800", "1200", "1600"}
    status, out, _ = call(capsys, "resume", copy)
    assert status == 0
    assert out.startswith("The run is complete; extend it with --steps N.\nRun: ")


def test_evaluate_all_seeds(capsys, run, tmp_path):
    status, out, _ = call(capsys, "evaluate", run, "--episodes", 20, "--json", tmp_path / "results.json")
    assert status == 0
    assert out.startswith("seed 5: return ")
    assert "\nseed 6: return " in out
    assert "(20 sampled episodes per seed)" in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert [len(seed["returns"]) for seed in results["seeds"]] == [20, 20]
    assert "(20 greedy episodes per seed)" in call(capsys, "evaluate", run, "--episodes", 20, "--greedy")[1]


def test_evaluate_names_a_damaged_checkpoint(capsys, copy):
    for file in copy.glob("checkpoints/*/policy.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    status, out, err = call(capsys, "evaluate", copy)
    assert status == 2
    assert "damaged" in out
    assert "policy.safetensors" in out
    assert "damaged" in err
    assert err.count("\n") == 1


def test_play_writes_an_animation_and_text(capsys, run, tmp_path):
    status, out, _ = call(capsys, "play", run, "--seed", 6, "--out", tmp_path / "x.gif")
    assert status == 0
    assert all(len(line) == 13 for line in out.splitlines()[:13]), "the path through the maze"
    steps = int(re.search(r"^(\d+) steps, return [\d.]+$", out, re.MULTILINE)[1])
    assert out.endswith(f"Animation: {tmp_path / 'x.gif'}\n")
    with Image.open(tmp_path / "x.gif") as animation:
        shown = sum(animation.seek(i) or animation.info["duration"] for i in range(animation.n_frames))
    assert shown == steps * 120 + 1500, "each step takes 120 ms, the last frame is held"


def test_plot_several_runs(capsys, run, copy, tmp_path):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "env": "apple-key-door-treasure"}))
    other = shutil.copytree(run, tmp_path / "other")
    assert call(capsys, "plot", run, copy, other, "--out", tmp_path / "curves.svg")[0] == 0
    drawing = (tmp_path / "curves.svg").read_text()
    assert "<!-- apple-key-door-treasure -->" in drawing
    assert "a2c+sil, other" in drawing


def test_foreign_metrics_are_one_line(capsys, copy):
    (copy / "metrics.csv").write_text("x,y\n1,2\n")
    status, _, err = call(capsys, "plot", copy)
    assert status == 2
    assert "metrics.csv' is damaged" in err
    (copy / "metrics.csv").unlink()
    assert "copy' has no metrics yet" in call(capsys, "plot", copy)[2]


class Recorder:
    closed = False

    def __init__(self):
        self.messages = []

    def message(self, text):
        self.messages.append(text)

    def close(self):
        pass


class QuitError(Exception):
    pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_quits(number, monkeypatch):
    def quit_with(status):
        raise QuitError(status)

    monkeypatch.setattr(os, "_exit", quit_with)
    before, recorder = signal.getsignal(number), Recorder()

    def go(signals):
        def send(shown, stop):
            for _ in range(signals):
                assert stop() is bool(shown.messages)
                os.kill(os.getpid(), number)
            return "result"

        return send

    assert with_signal_handling(go(1), lambda: recorder) == ("result", 128 + number)
    assert recorder.messages == ["Saving a checkpoint before stopping. Press Ctrl-C again to quit immediately."]
    with pytest.raises(QuitError, match=str(128 + number)):
        with_signal_handling(go(2), Recorder)
    assert signal.getsignal(number) is before


def test_a_closed_pipe_stops_the_run():
    class Closed:
        closed = False  # by its reader, which Python does not know

        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    lines = progress.Lines(Closed())

    def go(shown, stop):
        assert not stop()
        shown.message("hello")
        return stop()

    assert with_signal_handling(go, lambda: lines) == (True, CLOSED_PIPE)


def test_the_mean_return_ignores_seeds_without_episodes():
    assert progress.mean_return([{"return_mean": 2.0}, {"return_mean": math.nan}]) == 2.0
    assert math.isnan(progress.mean_return([{"return_mean": math.nan}]))


def test_main_help_needs_no_jax():
    code = "import sys; from self_imitation.cli.main import main; main(['--help']); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_closed_standard_streams_become_the_null_device(tmp_path):
    """Also for the processes that it starts."""
    code = """
import os, subprocess, sys
from self_imitation.cli.main import main
status = main(["plot", "nothing"])
child = subprocess.run(["sh", "-c", "cat; echo out; echo err >&2"]).returncode
with open(sys.argv[1], "x") as file:
    file.write(f"{status} {child} {file.fileno() > 2} {[os.readlink(f'/proc/self/fd/{n}') for n in range(3)]}")
"""
    command = [sys.executable, "-c", code, str(tmp_path / "x")]
    subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], check=True)
    assert (tmp_path / "x").read_text() == f"2 0 True {['/dev/null'] * 3}"


def test_a_terminal_shows_a_progress_bar_and_ctrl_c_saves(capsys, tmp_path):
    """In a pseudo-terminal. The run that Ctrl-C stopped is then resumed."""
    leader, follower = pty.openpty()
    path = tmp_path / "run"
    flags = [*SMALL_FLAGS, "--seed", "5", "--steps", str(10**9), "--out", str(path)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    command = [sys.executable, "-m", "self_imitation", "train", *flags]
    process = subprocess.Popen(command, stdout=follower, stderr=follower, close_fds=True, env=environment)
    os.close(follower)
    text, interrupted = "", False
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text + part.decode(errors="replace"))
        if not interrupted and re.search(r"return -?\d+\.\d\d", text):
            process.send_signal(signal.SIGINT)
            interrupted = True
    assert process.wait(timeout=60) == 130, text
    assert re.search(r"[\d,]+/1,000,000,000 steps", text)
    assert re.search(r"[\d,]+/s", text)
    assert "Saving a checkpoint before stopping. Press Ctrl-C again to quit immediately." in text
    assert text.rstrip().endswith(f"Stopped; progress saved. Resume with: sil resume {path}")
    step = checkpoint.steps(path / "checkpoints")[-1]
    assert json.loads((path / "summary.json").read_text())["finished"] is False
    status, out, _ = call(capsys, "resume", path, "--steps", step + 20)
    assert status == 0
    assert f"from step {step:,} to" in out


def test_bench_writes_its_results(capsys, tmp_path, monkeypatch):
    """With small sizes: that it measures, not how fast."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    from benchmarks import exploration, replay, train

    monkeypatch.setattr(replay, "CAPACITIES", (2000,))
    monkeypatch.setattr(replay, "ROUNDS", 5)
    monkeypatch.setattr(train, "CASES", {"a2c": train.CASES["a2c, one shared FC(64)"]})
    monkeypatch.setattr(train, "ITERATIONS", {"a2c": 3})
    file = tmp_path / "results.json"
    assert call(capsys, "bench", "replay", "--json", file)[0] == 0
    assert json.loads(file.read_text())["replay"][0]["milliseconds"] > 0
    status, out, _ = call(capsys, "bench", "train", "--json", file)
    assert (status, out.startswith("train: ")) == (0, True)
    assert json.loads(file.read_text())["train"]["a2c"] > 0
    monkeypatch.setattr(exploration, "NAMES", ("cts",))
    monkeypatch.setattr(exploration, "SEEDS", (1,))
    monkeypatch.setattr(exploration, "ROUNDS", 1)
    monkeypatch.setattr(exploration, "ENVS", 1)
    assert call(capsys, "bench", "exploration", "--json", file)[0] == 0
    assert json.loads(file.read_text())["exploration"][0]["microseconds"] > 0


def test_atari_scores_are_compared_with_a_human():
    line = runs._compare_with_human("MontezumaRevenge", 4366.7)
    assert line.startswith("human-normalised score 100.0%; the paper's table of 49 games, after 50 M steps: A2C 5.8")
    assert runs._compare_with_human("Adventure", 1.0).endswith("no human score is known")
