"""Seeds in processes of their own: the same numbers, and nothing left behind whatever ends first."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gymnasium
import host_probes
import numpy as np
import pytest
from helpers import assert_same_checkpoint, finish, rows, sil
from host_probes import as_flags

from self_imitation.training import devices
from self_imitation.config import override, resolve
from self_imitation.environments.gymnasium import make as engines
from self_imitation.errors import FaultyEnvironmentError, UsageError
from self_imitation.storage import checkpoint
from self_imitation.runs import program
from self_imitation.storage.trees import to_arrays
from self_imitation.runs.host_program import HostProgram
from self_imitation.runs.lanes import Lanes
from self_imitation.training.run import start
from self_imitation.training.loop import Silent
from self_imitation.validation import validate

TESTS = Path(__file__).parent
SETTINGS = {"agent": "a2c+sil", "seeds": 3, "num_envs": 2, "num_steps": 5, "network.hidden": (8,), "log_every": 20}
SETTINGS |= {"sil.batch_size": 32, "sil.buffer_size": 500, "sil.learning_starts": 20, "sil.updates": 2, "steps": 100, "lanes": 2}

SCRIPTED = {name: value for name, value in SETTINGS.items() if name not in ("agent", "seeds", "steps", "lanes")}


def config_of(tmp_path, env="gym:CartPole-v1", **settings):
    config = resolve(env, "authors", {**SETTINGS, "out": str(tmp_path / "run"), **settings})
    return engines.settle(validate(config))


def living():
    """The parent of every process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                parents[int(stat.parent.name)] = int(parent)
    return parents


def children(pid):
    return sorted(child for child, parent in living().items() if parent == pid)


def alive(pid):
    return pid in living()


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def test_lanes_change_no_number(tmp_path):
    """Three seeds in this process, or in two others: the same episodes, and parameters but for the last bits."""
    one, several = HostProgram(config_of(tmp_path)), Lanes(config_of(tmp_path), 2)
    assert several.places == [slice(0, 2), slice(2, 3)]
    assert several.device == f"2 x {one.device}"
    found = []
    for each in (one, several):
        progress = each.begin()
        each.compile(progress)
        progress = each.advance(each.advance(progress, 2), 3)
        tally, whole = each.tally(progress), to_arrays(each.whole(progress))
        own = [each.own_metrics(seed) for seed in range(3)]
        assert tally.iterations.tolist() == [5, 5, 5]
        progress = each.clear_tally(progress)
        assert each.tally(progress).iterations.tolist() == [0, 0, 0]
        found.append((whole, each.environments(), own, tally))
        each.close()
    (whole, environments, own, tally), (whole_2, environments_2, own_2, tally_2) = found
    assert own == own_2
    assert environments.keys() == environments_2.keys()
    np.testing.assert_array_equal(environments["latest"], environments_2["latest"])
    np.testing.assert_array_equal(tally.episodes, tally_2.episodes)
    assert whole.keys() == whole_2.keys()
    for name in whole:
        np.testing.assert_allclose(whole[name], whole_2[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_run_in_lanes_repeats_itself_and_goes_on_where_it_stopped(tmp_path):
    settings = {"env": "mujoco:Swimmer", "engine": "gymnasium"}
    whole, _ = start(config_of(tmp_path / "whole", **settings), Silent())
    turns = iter([False, False, True])
    cut, reached_end = start(config_of(tmp_path / "cut", **settings), Silent(), lambda: next(turns))
    assert not reached_end
    code, output = finish(sil("resume", cut.path))
    assert code == 0, output
    assert "Fatal" not in output, "nor do the lanes end badly"
    assert "dropped" not in output
    assert_same_checkpoint(whole.path, cut.path, 100)
    assert rows(whole.path) == rows(cut.path)
    assert whole.evaluate(2).returns.shape == (3, 2)


def test_a_fault_in_a_lane_is_told_in_one_sentence_and_shows_where_it_was(tmp_path):
    config, before = config_of(tmp_path, "gym:host_probes:Raises-v0", checkpoint_seconds=0.0), children(os.getpid())
    with pytest.raises(FaultyEnvironmentError) as caught:
        start(config, Silent())
    message = str(caught.value)
    assert message.startswith("environment gym:host_probes:Raises-v0: it raised ZeroDivisionError: the ball left")
    assert "; training stopped, the checkpoint at step 10 is kept in " in message
    assert "host_probes.py" in str(caught.value.__cause__), "the traceback of the user's own code"
    assert children(os.getpid()) == before, "none is left behind"


def test_an_environment_that_cannot_be_made_in_a_lane_is_refused_as_in_one(tmp_path):
    config = config_of(tmp_path)
    with pytest.raises(UsageError, match="can't be made"):
        Lanes(override(config, {"env": "gym:NoSuchTask-v0"}), 2)


@pytest.fixture
def running(tmp_path):
    """A run that would take long, in two lanes, after its first rows."""
    flags = as_flags({**SETTINGS, "steps": 10_000_000, "checkpoint_seconds": 0.5, "out": tmp_path / "run"})
    process = sil("train", "gym:CartPole-v1", *flags)
    while not process.stdout.readline().startswith("step"):
        assert process.poll() is None
    lanes = children(process.pid)
    assert len(lanes) == 2
    yield process, lanes, tmp_path / "run"
    process.kill()
    process.communicate()


def test_when_a_lane_dies_the_run_says_so_and_keeps_its_checkpoint(running):
    process, lanes, path = running
    os.kill(lanes[1], signal.SIGKILL)
    code, output = finish(process)
    assert code == 1
    last = output.splitlines()[-1]
    assert last.startswith("sil: environment gym:CartPole-v1: the process with seed 2 ended by SIGKILL; training")
    assert "Traceback" not in output
    assert checkpoint.steps(path / "checkpoints")
    wait_until(lambda: not alive(lanes[0]))


def test_when_the_run_is_killed_its_lanes_end(running):
    process, lanes, _ = running
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, lanes)))


def test_they_end_with_the_run_also_in_the_middle_of_a_step(tmp_path):
    process = sil("train", "gym:host_probes:Sleeper-v0", *as_flags({**SETTINGS, "out": tmp_path / "run"}), cwd=TESTS)
    process.stdout.readline()
    wait_until(lambda: len(children(process.pid)) == 2)
    lanes = children(process.pid)
    time.sleep(8)  # by then they sleep, or else are about to
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, lanes)), seconds=10)


def test_ctrl_c_saves_and_ends_them_all(running):
    process, lanes, path = running
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert code == 130
    assert "Traceback" not in output
    saved = checkpoint.steps(path / "checkpoints")[-1]
    assert saved >= int(rows(path)[-1]["step"])
    assert not any(map(alive, lanes))


def test_a_script_without_a_guard_can_train_what_it_registers(tmp_path):
    """Lanes don't run the script again; what only the script knows is trained in its own process."""
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        import gymnasium, host_probes
        class Poles(gymnasium.Wrapper):
            def __init__(self): super().__init__(gymnasium.make("CartPole-v1"))
    """)
    )
    (tmp_path / "script.py").write_text(
        textwrap.dedent(f"""
        print("once")
        import gymnasium, mine, self_imitation
        class Own(mine.Poles): pass
        gymnasium.register("Mine-v0", "mine:Poles", max_episode_steps=50)
        gymnasium.register("Own-v0", Own, max_episode_steps=50)
        settings = {SCRIPTED!r}
        class Hear:
            def started(self, config, run, iteration, device): print(config.env, device)
            def __getattr__(self, name): return lambda *_: None
        for name in ("Mine-v0", "Own-v0"):
            self_imitation.train("gym:" + name, "a2c+sil", steps=20, seeds=2, out=name, settings=settings,
                                 listener=Hear())
    """)
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "PJRT_NPROC")}
    environment["PYTHONPATH"] = os.path.dirname(host_probes.__file__)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    cores = min(2, devices.cores())
    lanes = "" if cores == 1 else f"{cores} x "
    by = "cpu, environments by gymnasium"
    assert done.stdout.splitlines() == ["once", f"gym:Mine-v0 {lanes}{by}", f"gym:Own-v0 {by}"]


@pytest.fixture
def only_here():
    gymnasium.register("OnlyHere-v0", lambda: gymnasium.make("CartPole-v1"))
    yield "gym:OnlyHere-v0"
    gymnasium.registry.pop("OnlyHere-v0")


def test_how_many_lanes_there_are(monkeypatch, tmp_path, only_here):
    monkeypatch.setattr(devices, "cores", lambda: 4)

    def lanes(**settings):
        config = config_of(tmp_path, **{"lanes": None, **settings})
        return devices.lanes(config, engines.known_everywhere(config.env))

    assert lanes() == 3
    assert lanes(seeds=9) == 4
    assert lanes(seeds=9, lanes=7) == 7
    assert lanes(seeds=2, lanes=7) == 2
    assert lanes(seeds=1, lanes=7) == lanes(lanes=1) == 1
    assert lanes(engine="processes") == 1, "which use all cores already"
    assert lanes(**{"network.hidden": (512,)}) == 1, "as do large networks"
    assert lanes(env=only_here) == 1
    with pytest.raises(UsageError, match=r"lanes: 2 is not allowed; only this process knows 'gym:OnlyHere-v0'"):
        lanes(env=only_here, lanes=2)
    assert isinstance(program.create(config_of(tmp_path, lanes=1)), HostProgram)


def test_cores_are_shared_out(monkeypatch):
    monkeypatch.setattr(devices, "_own_cores", lambda: {0, 2, 4, 6, 7})
    assert devices.shares(2) == [{0, 4, 7}, {2, 6}]
    assert devices.shares(7) == [{0}, {2}, {4}, {6}, {7}, {0}, {2}]
