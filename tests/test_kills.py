"""Processes that are killed or interrupted while they train: real signals, then `sil resume`."""

import random
import signal
import time
from functools import partial

import compilation
import pytest
from helpers import SMALL_FLAGS, assert_same_checkpoint, finish, rows, sil

from self_imitation.storage import checkpoint, files

STEPS = 30_000
FLAGS = [*SMALL_FLAGS, "--agent", "a2c+sil+exp+simhash", "--log-every", 2000, "--checkpoint-seconds", 0]
cheaply_compiled = partial(sil, xla_flags=compilation.CHEAP)


def wait_for_rows(process):
    """From then on it handles signals, also where SIGINT was ignored when it started, as in a background job."""
    assert process.stdout is not None
    while not process.stdout.readline().startswith("step"):
        assert process.poll() is None


@pytest.mark.slow
def test_three_kills_change_nothing(tmp_path, monkeypatch):
    """In the middle of a checkpoint, between a row and its checkpoint, and at a random moment."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    code, output = finish(cheaply_compiled("train", *FLAGS, "--steps", STEPS, "--out", whole))
    assert code == 0, output
    found = []
    for moment, command in (("checkpoint", ["train", *FLAGS, "--steps", STEPS, "--out"]), ("row", ["resume"])):
        monkeypatch.setenv("KILL", moment)
        code, output = finish(cheaply_compiled(*command, killed, module="killed"))
        assert code == -signal.SIGKILL, output
        found.append(checkpoint.steps(killed / "checkpoints")[-1])
        if moment == "checkpoint":
            assert list((killed / "checkpoints").glob(f"{files.PARTIAL}*")), "half a checkpoint"
        else:
            assert int(rows(killed)[-1]["step"]) > found[-1], "a row without its checkpoint"
    process = cheaply_compiled("resume", killed)
    wait_for_rows(process)
    time.sleep(random.Random(7).uniform(0, 0.2))
    process.kill()
    process.communicate()
    found.append(checkpoint.steps(killed / "checkpoints")[-1])
    assert found == sorted(found)
    assert 0 < found[0] < found[1]
    assert found[2] < STEPS, "too fast to be killed"
    code, output = finish(cheaply_compiled("resume", killed))
    assert code == 0, output
    assert_same_checkpoint(whole, killed, STEPS)
    assert rows(whole) == rows(killed)
    assert not list(killed.rglob(f"{files.PARTIAL}*")), "nothing half-written is left"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_and_says_how_to_resume(tmp_path, number):
    path = tmp_path / "run"
    process = sil("train", *SMALL_FLAGS, "--steps", 10**9, "--out", path)
    wait_for_rows(process)
    process.send_signal(number)
    code, output = finish(process)
    assert code == 128 + number, output
    assert "Saving a checkpoint before stopping." in output
    assert output.endswith(f"Stopped; progress saved. Resume with: sil resume {path}\n")
    assert checkpoint.steps(path / "checkpoints")[-1] >= int(rows(path)[-1]["step"])
