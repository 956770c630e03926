"""The command line as its user meets it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import SMALL_FLAGS, finish, rows, sil

from self_imitation.cli.main import COMMANDS, main
from self_imitation.cli.train import read_config
from self_imitation.config import AGENTS, TrainConfig, flatten
from self_imitation.environments import registry as catalogue
from self_imitation.storage import checkpoint


def told(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", *SMALL_FLAGS, "--steps", "1200", "--out", str(path)]) == 0
    return path


def test_with_nothing_given_it_is_a2c_sil_on_key_door_treasure_with_four_seeds():
    config = read_config([])
    assert (config.env, config.agent, config.seeds, config.seed) == ("key-door-treasure", "a2c+sil", 4, 0)
    assert config.preset == "authors"


def test_flags_go_over_preset_and_environment():
    config = read_config(["apple-key-door-treasure", "--preset", "paper", "--sil.updates", "7", "--sil.max_advantage", "2"])
    assert config.env == "apple-key-door-treasure"
    assert (config.sil.updates, config.sil.max_advantage, config.sil.buffer_size) == (7, 2.0, 1000)
    assert read_config(["--sil.max_advantage", "None"]).sil.max_advantage is None
    assert read_config(["--network.hidden", "3", "5"]).network.hidden == (3, 5)
    assert read_config(["--seeds", "2", "apple-key-door-treasure"]).env == "apple-key-door-treasure"


def test_every_setting_is_a_flag_with_its_default_and_meaning(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--help"])
    assert stopped.value.code == 0
    page = capsys.readouterr().out
    for name in flatten(TrainConfig()):
        if name != "env":
            assert f"--{name.replace('_', '-')}" in page
    assert page.count("(default:") == len(flatten(TrainConfig()))
    for group in ("network options", "optimiser options", "a2c options", "sil options", "exp options"):
        assert group in page


def test_help_shows_the_defaults_of_the_named_environment_and_preset(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--preset", "paper", "--help"])
    page = re.sub(r"[│\s]+", " ", capsys.readouterr().out)
    assert "leave first (paper, hyperparameter tables). (default: 1000)" in page


def test_help_comes_without_jax_and_within_a_second():
    code = "import sys; from self_imitation.cli.main import main; main(['--help']); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "self_imitation", "train", "--help"], stdout=subprocess.DEVNULL, check=True)
    assert time.perf_counter() - begun < 5, "far above what it takes, even on a busy machine"


def test_top_help_names_every_command_and_version(capsys):
    status, out, _ = told(capsys, "--help")
    assert status == 0
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in COMMANDS)
    assert told(capsys)[:2] == (0, out)
    assert told(capsys, "--version")[1].startswith("self-imitation ")


def test_list_has_a_line_for_every_environment_and_agent(capsys):
    _, out, _ = told(capsys, "list")
    lines = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert lines == [*catalogue.ENTRIES, "atari:GAME", "gym:ID", *AGENTS]


def test_list_names_all_games_and_those_of_the_papers_table(capsys, monkeypatch):
    *games, explained = told(capsys, "list", "atari")[1].splitlines()
    assert len(games) == len(catalogue.atari_games()) > 100
    assert "atari:MontezumaRevenge *" in games
    assert sum(game.endswith(" *") for game in games) == 49
    assert explained.startswith("* one of the paper's 49 games")
    monkeypatch.setattr(catalogue, "atari_games", dict)
    status, _, err = told(capsys, "list", "atari")
    assert status == 2
    assert "what: 'atari' is not allowed; the games come with ale-py" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "command: 'trian' is unknown; did you mean 'train'?"),
        (["train", "key-dor"], "env: 'key-dor' is unknown; did you mean 'key-door-treasure'?"),
        (["train", "--agent", "a3c"], "agent: 'a3c' is unknown; did you mean 'a2c'?"),
        (
            ["train", "--network.hidden", "wide"],
            "--network.hidden: 'wide' is not allowed; allowed: None or whole numbers",
        ),
        (["train", "--sil.max_pending_steps", "much"], "--sil.max_pending_steps: 'much' is not allowed; allowed: None or a whole number"),
        (["train", "--steps", "0"], "steps: 0 is not allowed; allowed: a whole number of 1 or more"),
        (["train", "--steps", "-3"], "steps: -3 is not allowed"),
        (["train", "--steps", "many"], "--steps: 'many' is not a whole number"),
        (["train", "--steps", "1e6"], "--steps: '1e6' is not a whole number"),
        (["train", "--seeds", "0"], "seeds: 0 is not allowed"),
        (["train", "--sil.batch_size", "100001"], "sil.batch_size: 100001 is not allowed; at most sil.buffer_size = 100000"),
        (["train", "--sil.max_advantage", "x"], "--sil.max_advantage"),
        (["train", "--sil.keep", "none"], "'none'"),
        (["train", "--preset", "mine"], "'mine'"),
        (["train", "--sil.update", "3"], "did you mean --sil.updates?"),
        (
            ["train", "--agent", "a2c", "--exp.scale", "2"],
            "exp.scale: 2.0 is not allowed; agent 'a2c' has no part 'exp'",
        ),
        (["train", "a", "b"], "b"),
        (["resume"], "RUN"),
        (["resume", "nowhere"], "run: 'nowhere' is not allowed; there is no such directory"),
        (["evaluate", "."], "run: '.' is not allowed; it holds no run: there is no config.json in it"),
        (["play", "nowhere"], "run: 'nowhere' is not allowed"),
        (["plot"], "runs: none given"),
        (["plot", "nowhere"], "run: 'nowhere' is not allowed"),
        (["train", "--envs", "1000000000"], "envs: 1000000000 is not allowed"),
        (["train", "--rollout", "99999999999"], "rollout: 99999999999 is not allowed"),
        (["train", "--network.hidden", "9999999"], "network.hidden: (9999999,) is not allowed"),
        (
            ["bench", "everything"],
            "what: 'everything' is not allowed; allowed: 'all', 'replay', 'train', 'mujoco'",
        ),
        (["reproduce", "foo"], "figure: 'foo' is not allowed; allowed: 'grid-worlds', 'mujoco', 'atari'"),
        (["train", "--steps"], "--steps: its value is missing"),
        (["bench", "replay", "--json", "no/where.json"], "json: 'no/where.json' can't be written; there is no such"),
        (["reproduce", "grid-worlds", "--out", "/dev/null/x"], "out: '/dev/null/x"),
        (["reproduce", "grid-worlds", "--out", ""], "out: '' is not allowed; allowed: a directory"),
        (["reproduce"], "one of grid-worlds,mujoco,atari is missing"),
        (
            ["train", "atari:Freeway", "--envs", "2000", "--seeds", "2"],
            "envs: 2000 is not allowed; with seeds = 2 that is 4000 emulators; allowed: at most 1024",
        ),
        (["reproduce", "grid-worlds", "--seeds", "0"], "seeds: 0 is not allowed"),
    ],
)
def test_bad_input_is_one_clear_line_and_status_2(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = told(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert message in err
    assert err.startswith("sil: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing written"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--out", "RUN"], "out: 'RUN' is not allowed; it holds a run already; go on with it: sil resume RUN"),
        (["resume", "RUN", "--steps", "0"], "steps: 0 is not allowed"),
        (["resume", "RUN", "--steps", "100"], "steps: 100 is not allowed; the run has made 1200 steps already"),
        (["evaluate", "RUN", "--episodes", "0"], "episodes: 0 is not allowed"),
        (["play", "RUN", "--seed", "9"], "seed: 9 is not allowed; this run has seeds 0 to 1"),
        (["play", "RUN", "--out", "x.mp5"], "out: 'x.mp5' is not allowed; allowed: a file name that ends in .gif"),
        (["play", "RUN", "--out", "no/where.gif"], "out: 'no/where.gif' can't be written"),
        (["plot", "RUN", "--out", "x.doc"], "out: 'x.doc' is not allowed"),
        (["evaluate", "RUN", "--json", "no/where.json"], "json: 'no/where.json' can't be written"),
        (["evaluate", "RUN", "--key", "99999999999999999999"], "key: 99999999999999999999 is not allowed"),
    ],
)
def test_bad_input_to_a_run_loses_nothing(capsys, run, arguments, message):
    before = rows(run)
    names = sorted(path.name for path in run.iterdir())
    status, _, err = told(capsys, *(str(run) if a == "RUN" else a for a in arguments))
    assert status == 2
    assert message.replace("RUN", str(run)) in err
    assert err.count("\n") == 1
    assert rows(run) == before
    assert sorted(path.name for path in run.iterdir()) == names


def test_training_says_what_it_trains_and_ends_with_the_next_command(capsys, tmp_path):
    path = tmp_path / "run"
    _, out, _ = told(capsys, "train", *SMALL_FLAGS, "--steps", 800, "--out", path)
    lines = out.splitlines()
    assert lines[0].startswith("a2c+sil on key-door-treasure: 2 seeds (0-1) to 800 steps each on ")
    assert lines[0].endswith(f"in {path}")
    assert [line.split("  ")[0] for line in lines[1:3]] == ["step 400", "step 800"]
    assert lines[-3:] == [f"Run: {path}", f"Curve: {path}/curve.png", f"Next: sil play {path}"]


def test_without_out_a_new_folder_under_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = [*SMALL_FLAGS, "--steps", 40]
    for _ in range(2):
        assert told(capsys, "train", *flags)[0] == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_seed_and_seeds_name_a_range(capsys, tmp_path):
    told(capsys, "train", *SMALL_FLAGS, "--seed", 5, "--seeds", 3, "--steps", 200, "--out", tmp_path / "run")
    assert [row["seed"] for row in rows(tmp_path / "run")] == ["5", "6", "7"]


def test_resume_sets_a_new_total(capsys, tmp_path):
    path = tmp_path / "run"
    told(capsys, "train", *SMALL_FLAGS, "--steps", 400, "--out", path)
    status, out, _ = told(capsys, "resume", path, "--steps", 800)
    assert status == 0
    assert "from step 400 to 800 steps" in out
    assert {row["step"] for row in rows(path)} == {"400", "800"}
    status, out, _ = told(capsys, "resume", path)
    assert status == 0
    assert "from step 800 to 800 steps" in out
    assert "The run has made all of its steps; --steps gives it more." in out
    assert "gives it more" not in told(capsys, "resume", path, "--steps", 800)[1]


def test_evaluate_all_seeds(capsys, run, tmp_path):
    status, out, _ = told(capsys, "evaluate", run, "--episodes", 20, "--json", tmp_path / "figures.json")
    assert status == 0
    assert out.startswith("seed 0: return ")
    assert "\nseed 1: return " in out
    assert "(20 sampled episodes a seed)" in out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [len(seed["returns"]) for seed in figures["seeds"]] == [20, 20]
    assert "greedy" in told(capsys, "evaluate", run, "--episodes", 5, "--greedy")[1]


def test_evaluate_names_a_damaged_checkpoint_and_fails_without_another(capsys, run, tmp_path):
    import shutil

    path = shutil.copytree(run, tmp_path / "copy")
    for file in path.glob("checkpoints/*/policy.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    status, out, err = told(capsys, "evaluate", path)
    assert status == 2
    assert "is damaged (policy.safetensors: checksum differs)" in out
    assert "has no checkpoint that is not damaged" in err


def test_play_makes_an_animation_and_text(capsys, run, tmp_path):
    from PIL import Image

    status, out, _ = told(capsys, "play", run, "--seed", 1, "--out", tmp_path / "x.gif")
    assert status == 0
    maze = out.splitlines()[:13]
    assert all(len(line) == 13 for line in maze)
    assert re.search(r"^\d+ steps, return [\d.]+$", out, re.MULTILINE)
    steps = int(re.search(r"^(\d+) steps", out, re.MULTILINE)[1])
    with Image.open(tmp_path / "x.gif") as animation:
        assert animation.is_animated
        shown = sum(animation.seek(i) or animation.info["duration"] for i in range(animation.n_frames))
    assert shown == steps * 120 + 1500, "each step 120 ms, the last frame held"


def test_plot_several_runs(capsys, run, tmp_path):
    other = tmp_path / "other"
    told(capsys, "train", "apple-key-door-treasure", *SMALL_FLAGS, "--steps", 400, "--out", other)
    for name in ("curves.png", "curves.svg"):
        assert told(capsys, "plot", run, other, run, "--out", tmp_path / name)[0] == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    drawing = (tmp_path / "curves.svg").read_text()
    assert "key-door-treasure" in drawing
    assert "apple-key-door-treasure" in drawing


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path, number, status):
    path = tmp_path / "run"
    process = sil("train", *SMALL_FLAGS, "--steps", 10**9, "--out", path)
    for line in process.stdout:
        if line.startswith("step "):
            break
    process.send_signal(number)
    code, output = finish(process)
    assert code == status
    assert output.endswith(f"Stopped; all is saved. Go on with: sil resume {path}\n")
    step = checkpoint.steps(path / "checkpoints")[-1]
    assert step > 0
    assert json.loads((path / "summary.json").read_text())["finished"] is False
    code, output = finish(sil("resume", path, "--steps", step + 20))
    assert code == 0, output
    assert f"from step {step:,} to" in output


def test_a_second_ctrl_c_ends_at_once_even_while_compiling(tmp_path):
    process = sil("train", "--network.hidden", 31, "--out", tmp_path / "run")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().startswith("Stopping: a checkpoint is saved first.")
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert (code, output) == (130, "sil: interrupted\n")


def test_ctrl_c_while_nothing_is_trained_ends_in_order():
    process = sil("bench", "train")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert (code, output) == (130, "sil: interrupted\n")


def test_a_reader_that_goes_away_stops_the_run_as_ctrl_c_does(tmp_path):
    process = sil("train", *SMALL_FLAGS, "--steps", 10**9, "--out", tmp_path / "run")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] > 0


def test_hints_can_be_pasted_and_paths_are_shown_as_they_are(capsys, tmp_path):
    path = tmp_path / "a b [bold]x"
    _, out, _ = told(capsys, "train", *SMALL_FLAGS, "--steps", 40, "--out", path)
    assert out.splitlines()[-1] == f"Next: sil play '{path}'"
    assert out.splitlines()[0].endswith(f"in {path}")


def test_a_screen_without_arrows_is_no_error(run, tmp_path):
    command = [sys.executable, "-m", "self_imitation", "play", str(run), "--out", str(tmp_path / "x.gif")]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_foreign_metrics_are_one_line(capsys, run, tmp_path):
    import shutil

    path = shutil.copytree(run, tmp_path / "copy")
    (path / "metrics.csv").write_text("x,y\n1,2\n")
    status, _, err = told(capsys, "plot", path)
    assert status == 2
    assert "metrics.csv' is damaged; it has no column" in err


def test_on_a_terminal_there_is_a_progress_bar(tmp_path):
    """A real pseudo-terminal: steps, rate, time left and mean return on one line that moves."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "self_imitation", "train", *map(str, SMALL_FLAGS)]
    command += ["--steps", "60000", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdout=follower, stderr=follower, close_fds=True, env=environment)
    os.close(follower)
    seen = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    assert process.wait(timeout=120) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    assert "60,000/60,000 steps" in text
    assert re.search(r"[\d,]+/s", text)
    assert re.search(r"\d:\d\d|--:--", text)
    assert re.search(r"return \d\.\d\d", text)


def test_a_reader_that_goes_away_is_no_error(run):
    process = subprocess.run(
        f"{sys.executable} -m self_imitation train --help | head -1", shell=True, capture_output=True, check=False
    )
    assert process.stderr == b""


def test_reproduce_small(capsys, tmp_path):
    arguments = ["reproduce", "grid-worlds", "--steps", 400, "--seeds", 2, "--runs", tmp_path / "runs"]
    status, out, _ = told(capsys, *arguments, "--out", tmp_path / "out")
    assert status == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "README.md",
        "curves.csv",
        "figure.png",
        "table.csv",
    }
    assert len((tmp_path / "out" / "table.csv").read_text().splitlines()) == 1 + 8
    page = (tmp_path / "out" / "README.md").read_text()
    assert "sil reproduce grid-worlds --steps 400 --seeds 2\n" in page
    assert out.count("| key-door-treasure |") == 4
    status, _, err = told(capsys, "reproduce", "grid-worlds", "--steps", 400, "--seeds", 3, "--runs", tmp_path / "runs")
    assert status == 2
    assert "is a run with seeds = 2, not 3" in err
    before = (tmp_path / "out" / "curves.csv").read_text()
    told(capsys, *arguments, "--out", tmp_path / "again")
    assert (tmp_path / "again" / "curves.csv").read_text() == before, "runs that are there are not trained again"


def test_bench_writes_its_figures(capsys, tmp_path, monkeypatch):
    """Small sizes: that it measures what it says, not how fast."""
    from self_imitation.benchmarks import replay, training

    monkeypatch.setattr("self_imitation.cli.bench.CAPACITIES", (2000,))
    monkeypatch.setattr(replay, "ROUNDS", 5)
    monkeypatch.setattr(training, "ITERATIONS", {"a2c": 3, "a2c+sil": 3})
    file = tmp_path / "figures.json"
    for what in ("replay", "train"):
        status, out, _ = told(capsys, "bench", what, "--json", file)
        assert status == 0
        assert out.startswith(what)
        figures = json.loads(file.read_text())[what]
        assert figures
        assert all(value > 0 for entry in figures for value in entry.values() if isinstance(value, float))


def test_module_and_script_are_the_same_command():
    script = Path(sys.executable).with_name("sil")
    outputs = [
        subprocess.run([*command, "list"], capture_output=True, check=True).stdout
        for command in ([script], [sys.executable, "-m", "self_imitation"])
    ]
    assert outputs[0] == outputs[1] != b""
