"""Disks that are full or read-only: real ones where the system lets us mount one."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from helpers import SMALL_FLAGS, finish, rows, sil

from self_imitation.cli.main import main
from self_imitation.storage import checkpoint


def mounted(path, options: str) -> bool:
    path.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    path = tmp_path / "disk"
    if os.getuid() != 0 or not mounted(path, "size=1m"):
        pytest.skip("a file system can't be mounted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def read_only(tmp_path):
    """A directory in which nothing can be written: mounted so, or by its permissions where we are not root."""
    path = tmp_path / "fixed"
    if os.getuid() == 0:
        if not mounted(path, "ro"):
            pytest.skip("a file system can't be mounted here, and root may write anywhere")
        yield path
        subprocess.run(["umount", str(path)], check=True)
    else:
        path.mkdir()
        path.chmod(0o500)
        yield path
        path.chmod(0o700)


def test_no_space_is_told_before_anything_is_written(small_disk, capsys):
    status = main(["train", "--out", str(small_disk / "run")])
    assert status == 2
    error = capsys.readouterr().err
    assert "has no space left: 1.0 MB free, " in error
    assert " MB needed for 4 checkpoints" in error
    assert error.count("\n") == 1
    assert list(small_disk.iterdir()) == []


def test_read_only_directory_is_told_in_one_line(read_only, capsys):
    status = main(["train", *SMALL_FLAGS, "--out", str(read_only / "run")])
    assert status == 2
    error = capsys.readouterr().err
    assert "can't be written; " in error or "has no space left" in error
    assert error.count("\n") == 1


def fill(disk) -> Path:
    """A file that takes all the space there is, also what is given back while it grows."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return ballast


def test_a_disk_that_fills_up_costs_no_checkpoint_and_no_row(tmp_path):
    """The disk is full while the run trains: it says so and goes on; with space again, everything is there."""
    disk = tmp_path / "disk"
    if os.getuid() != 0 or not mounted(disk, "size=8m"):
        pytest.skip("a file system can't be mounted here")
    process = None
    try:
        flags = [*SMALL_FLAGS, "--checkpoint-seconds", 0.1, "--log-every", 2000]
        process = sil("train", *flags, "--steps", 10**9, "--out", disk / "run")
        output = ""
        for line in process.stdout:
            output += line
            if "step 4,000" in line:
                ballast = fill(disk)
            if "not written" in line:
                break
        kept = checkpoint.steps(disk / "run" / "checkpoints")
        assert kept, "the last good checkpoint is kept"
        assert "no space left on the disk" in output
        ballast.unlink()
        process.terminate()
        code, rest = finish(process)
        assert code == 143, rest
        assert "all is saved" in rest
        steps = [int(row["step"]) for row in rows(disk / "run") if row["seed"] == "0"]
        assert steps == list(range(2000, steps[-1] + 1, 2000)), "no row twice, none missing"
        done = checkpoint.steps(disk / "run" / "checkpoints")[-1]
        assert done >= steps[-1]
        fill(disk)
        code, output = finish(sil("resume", disk / "run", "--steps", done + 4000))
        assert code == 2, output
        assert f"the checkpoint at step {done} is kept" in output
    finally:
        if process is not None:
            process.kill()
            process.wait()
        subprocess.run(["umount", str(disk)], check=True)
