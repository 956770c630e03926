"""What a crash leaves: a copy of the run's directory before every call that changes files, each resumed to its end.

Before each `fsync` there is a second copy, in which what is not yet on disk is cut off, as a power cut may do it.
"""

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from campaign import commands, processes
from campaign.context import Context
from campaign.outcomes import Case, DivergenceError, Tally
from campaign.worker import perform_all

FULL = 100
"""States of the full campaign, chosen among those of one short run."""
ROWS = 4
CHANGING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


def run(context: Context) -> Tally:
    tally, folder = Tally(), context.folder / "crash states"
    folder.mkdir()
    context.apart(record, folder, context.seed)
    states = sorted(path.name for path in (folder / "states").iterdir())
    chosen = context.random("crash states").sample(states, min(len(states), context.count(FULL)))
    for case, outcome in perform_all(
        generate(folder, chosen), folder / "workers", None, resuming, context.over, context.jobs
    ):
        context.report(case, tally.add(case, outcome))
    tally.notes.append(f"crash states of one run: {len(states)}, of which {tally.cases} were resumed")
    return tally


def generate(folder: Path, states: list[str]) -> Iterator[Case]:
    for state in states:
        yield Case("crash_states", (str(folder / "states" / state), str(folder / "whole")), about=state)


def resuming() -> Callable[[list[str]], int]:
    """A command that resumes a state and compares the result with the whole run.

    Where nothing was trained, a state may be refused; without a config.json, the run is started again.
    """
    command = commands.sil()

    def resume(arguments: list[str]) -> int:
        state, whole = map(Path, arguments)
        trained = any(state.glob("checkpoints/*/meta.json"))
        started = (state / "config.json").exists()
        status = command(["resume", str(state)] if started else [*_train(), "--out", str(state)])
        if status == 0 and (text := processes.difference(whole, state)):
            raise DivergenceError(text)
        if status and trained:
            raise DivergenceError("the state can't be resumed")
        return status

    return resume


def _train() -> list[str]:
    return processes.train_words("pure JAX", ROWS)


def record(folder: Path, seed: int) -> None:
    """Train a run in this process and copy its directory before every call that changes it."""
    recorder = Recorder(folder / "whole", folder / "states", random.Random(seed))
    sys.addaudithook(recorder.hook)
    fsync = os.fsync
    os.fsync = lambda descriptor: (recorder.before_sync(descriptor), fsync(descriptor))[1]  # type: ignore[assignment]
    recorder.active = True
    status = commands.sil()([*_train(), "--out", str(folder / "whole")])
    recorder.active = False
    sys.exit(status)


class Recorder:
    active = False

    def __init__(self, run: Path, states: Path, random_: random.Random):
        self.run, self.states, self.random, self.count = run, states, random_, 0
        self.synced: dict[str, int] = {}
        """Length of each file that is on disk for certain."""

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and (event in CHANGING or (event == "open" and _writes(*arguments[1:3]))):
            self.copy(f"{event} {Path(str(arguments[0])).name}")

    def before_sync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not self.active or not path.startswith(str(self.run)):
            return
        name = os.path.basename(path)
        copy = self.copy(f"fsync {name}")
        if copy is not None and os.path.isfile(path):
            torn = self.copy(f"torn {name}") / os.path.relpath(path, self.run)
            length = os.path.getsize(path)
            self.active = False
            os.truncate(torn, self.random.randint(min(self.synced.get(path, 0), length), length))
            self.active = True
            self.synced[path] = length

    def copy(self, name: str) -> Path | None:
        if not self.run.exists():
            return None
        self.active = False  # copying makes calls of the same kind
        self.count += 1
        target = self.states / f"{self.count:04} {name}"
        shutil.copytree(self.run, target, symlinks=True)
        self.active = True
        return target


def _writes(mode: str | None, flags: int) -> bool:
    return any(letter in mode for letter in "wax+") if mode else bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
