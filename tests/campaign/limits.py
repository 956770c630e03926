"""Full disks, read-only directories, few descriptors, little memory, closed streams and broken pipes.

A run on a machine that lacks something goes on, or stops with one line; afterwards `sil resume` ends bit-identical to a
run that lacked nothing.
"""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from campaign import commands, processes
from campaign.context import Context
from campaign.faults import MUCH
from campaign.outcomes import Case, Outcome, Tally

ROWS = 60
SYSTEM = "pure JAX"
PIPE_CLOSED = 141


class NotAllowedError(Exception):
    """This machine does not let us test that."""


def run(context: Context) -> Tally:
    tally, folder = Tally(), context.folder / "limits"
    folder.mkdir()
    whole = processes.run(*processes.train_words(SYSTEM, ROWS), "--out", folder / "whole")
    if whole.status != 0:
        tally.add(Case("limits", ("train",), about="without limits"), whole)
        return tally
    names, late = list(attacks()), 0
    with ThreadPoolExecutor(context.jobs) as threads:
        for name, found in zip(names, threads.map(lambda name: _attack(name, folder, context), names), strict=True):
            if found is None:
                late += 1
                continue
            if isinstance(found, str):
                tally.notes.append(f"{name}: not tested; {found}")
                continue
            case = Case("limits", tuple(processes.train_words(SYSTEM, ROWS)), about=name)
            context.report(case, tally.add(case, found))
    if late:
        tally.notes.append(f"{late} of {len(names)} attacks not tested; no time was left")
    return tally


def attacks() -> dict[str, Callable[[Path], Outcome]]:
    """By name; each gets an empty directory."""
    return {
        **{f"a file of at most {n} bytes": _at_start(resource.RLIMIT_FSIZE, n) for n in (0, 1000, 20_000)},
        **{f"a file of at most {n} bytes in mid-run": _in_mid_run(resource.RLIMIT_FSIZE, n) for n in (0, 3000, 15_000)},
        **{f"{n} descriptors": _at_start(resource.RLIMIT_NOFILE, n) for n in (8, 16, 24, 40)},
        **{f"{n} descriptors in mid-run": _in_mid_run(resource.RLIMIT_NOFILE, n) for n in (4, 12)},
        **{f"{n} GB of memory": _at_start(resource.RLIMIT_AS, n << 30) for n in (2, 3)},
        "disk full in mid-run, then free again": full_disk_for_a_moment,
        "disk full until the end": full_disk,
        "read-only in mid-run": read_only,
        "no write permission in mid-run": no_permission,
        **{f"descriptors {closed} closed": _closed(closed) for closed in ((0,), (1,), (2,), (1, 2), (0, 1, 2))},
        **{f"output with descriptors {closed} closed": _printing(closed) for closed in ((1,), (0, 1), (0, 1, 2))},
        "stdout on a full device": on_full_device,
        "stdout closed by its reader": broken_pipe,
        **{
            f"sil {' '.join(words)} into a closed pipe": _into_closed_pipe(*words) for words in (("list",), ("--help",))
        },
    }


def _attack(name: str, folder: Path, context: Context) -> Outcome | str | None:
    """What happened, why it could not be tested here, or None if no time was left."""
    if context.over():
        return None
    place = folder / name.replace(" ", "-")
    place.mkdir()
    try:
        return attacks()[name](place)
    except NotAllowedError as error:
        return str(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _train(out: Path, **options) -> subprocess.Popen[str]:
    return processes.start(*processes.train_words(SYSTEM, ROWS), "--out", out, **options)


def _then_resumed(outcome: Outcome, run: Path, whole: Path) -> Outcome:
    """The outcome under the limit; if it is a clear one and left a checkpoint, also that of `sil resume` without it."""
    if outcome.status in (0, 1, 2, PIPE_CLOSED) and any(run.glob("checkpoints/*/meta.json")):
        resumed = processes.must_succeed(processes.run("resume", run))
        if resumed.status != 0:
            return resumed
        if text := processes.difference(whole, run):
            return replace(outcome, divergence=text)
    if outcome.status == PIPE_CLOSED and not outcome.stderr:
        return replace(outcome, status=0)
    return outcome


def _at_start(what: int, limit: int) -> Callable[[Path], Outcome]:
    def attack(place: Path) -> Outcome:
        process = _train(place / "run", prepare=lambda: resource.setrlimit(what, (limit, limit)))
        return _then_resumed(processes.finish(process), place / "run", place.with_name("whole"))

    return attack


def _in_mid_run(what: int, limit: int) -> Callable[[Path], Outcome]:
    def attack(place: Path) -> Outcome:
        process = _train(place / "run")
        processes.wait_for_row(process)
        if process.poll() is None:
            resource.prlimit(process.pid, what, (limit, limit))
        return _then_resumed(processes.finish(process), place / "run", place.with_name("whole"))

    return attack


def full_disk_for_a_moment(place: Path) -> Outcome:
    with _small_disk(place):
        process = _train(place / "run")
        processes.wait_for_row(process)
        _fill(place / "filler")
        time.sleep(1)
        (place / "filler").unlink()
        return _then_resumed(processes.finish(process), place / "run", place.with_name("whole"))


def full_disk(place: Path) -> Outcome:
    with _small_disk(place):
        process = _train(place / "run")
        processes.wait_for_row(process)
        _fill(place / "filler")
        outcome = processes.finish(process)
        (place / "filler").unlink()
        return _then_resumed(outcome, place / "run", place.with_name("whole"))


def _fill(file: Path) -> None:
    with open(file, "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            return


def read_only(place: Path) -> Outcome:
    with _small_disk(place):
        process = _train(place / "run")
        processes.wait_for_row(process)
        remount = ["mount", "-o", "remount,ro", str(place)]
        if subprocess.run(remount, capture_output=True).returncode:
            processes.end(process)
            processes.finish(process)
            raise NotAllowedError("a file system with open files can't be made read-only here")
        outcome = processes.finish(process)
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
        return _then_resumed(outcome, place / "run", place.with_name("whole"))


def no_permission(place: Path) -> Outcome:
    """Directories in which nothing can be created or deleted; for root, only attributes of the file system do that."""
    run = place / "run"
    folders = [str(run), str(run / "checkpoints")]
    lock, unlock = (["chattr", "+i"], ["chattr", "-i"]) if os.geteuid() == 0 else (["chmod", "555"], ["chmod", "755"])
    process = _train(run)
    processes.wait_for_row(process)
    if shutil.which(lock[0]) is None or subprocess.run([*lock, *folders], capture_output=True).returncode:
        processes.end(process)
        processes.finish(process)
        raise NotAllowedError("directories can't be protected from root here")
    outcome = processes.finish(process)
    subprocess.run([*unlock, *folders], check=True)
    return _then_resumed(outcome, run, place.with_name("whole"))


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    """A file system of 8 MB."""
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True)
    if mount.returncode:
        raise NotAllowedError("file systems can't be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _closed(descriptors: tuple[int, ...]) -> Callable[[Path], Outcome]:
    def attack(place: Path) -> Outcome:
        process = _train(place / "run", prepare=lambda: [os.close(number) for number in descriptors])
        return _then_resumed(processes.finish(process), place / "run", place.with_name("whole"))

    return attack


def _printing(descriptors: tuple[int, ...]) -> Callable[[Path], Outcome]:
    """An environment that writes to descriptors 1 and 2, as C libraries do. That must not end up in a file."""

    def attack(place: Path) -> Outcome:
        command = [
            "train",
            "gym:campaign.hostile:PrintsMuch-v0",
            *commands.SMALL,
            "--steps",
            "64",
            "--out",
            place / "run",
        ]
        outcome = processes.run(*command, prepare=lambda: [os.close(number) for number in descriptors])
        files = [path for path in (place / "run").rglob("*") if path.is_file()]
        hit = [path.name for path in files if MUCH in path.read_bytes()]
        if not files or hit:
            return replace(outcome, divergence=f"what an environment printed is in {hit}" if hit else "no run")
        return replace(outcome, stderr="") if outcome.status == 0 else outcome

    return attack


def on_full_device(place: Path) -> Outcome:
    with open("/dev/full", "w") as full:
        process = _train(place / "run", stdout=full)
        return _then_resumed(processes.finish(process), place / "run", place.with_name("whole"))


def broken_pipe(place: Path) -> Outcome:
    process = _train(place / "run")
    processes.wait_for_row(process)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    return _then_resumed(processes.finish(process), place / "run", place.with_name("whole"))


def _into_closed_pipe(*words: str) -> Callable[[Path], Outcome]:
    def attack(place: Path) -> Outcome:
        process = processes.start(*words, cwd=place)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        outcome = processes.finish(process)
        return replace(outcome, status=0) if outcome.status == PIPE_CLOSED else outcome

    return attack
