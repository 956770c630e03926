"""A run's directory: its files, and how it is created and opened."""

import contextlib
import dataclasses
import datetime
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError, bad_value
from self_imitation.storage import best, checkpoint, config_file, files, lock, metrics_file

RECORD = "record"
"""Folder of what a run writes for `sil watch`."""
WANDB = "wandb.json"
"""File with the id of its W&B runs."""
PARENT = Path("runs")
"""Of runs without `--out`."""


class RunDirectory:
    """`path` is absolute, with links resolved; `shown` is what the user wrote, for messages."""

    def __init__(self, path: Path, shown: Path | None = None):
        self.shown = path if shown is None else shown
        path = self.path = Path(os.path.realpath(files.absolute(path)))
        self._in_place: Callable[[], bool] = lambda: False
        self.config_file = path / "config.json"
        self.checkpoints = path / checkpoint.DIRECTORY
        self.best = path / best.DIRECTORY
        self.summary = path / "summary.json"
        self.curve = path / "curve.png"
        names = (metrics_file.FILE, lock.FILE, WANDB)
        self._files = (self.config_file, self.summary, self.curve, *(path / name for name in names))
        self._folders = (self.checkpoints, self.best, path / metrics_file.TENSORBOARD, path / RECORD)

    def config(self) -> TrainConfig:
        try:
            data = files.read_json(self.config_file)
        except files.UnreadableError as error:
            raise UsageError(f"{str(self.config_file)!r} is damaged: {error}") from None
        return config_file.from_json(data, str(self.config_file))

    def machines(self) -> list[str]:
        """Machines that it was trained on, according to its summary."""
        named = self._summary().get("machines")
        return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []

    def finished_step(self) -> int:
        """The step at which it finished, according to its summary; -1 if it did not."""
        step = self._summary().get("step")
        return step if self._summary().get("finished") is True and isinstance(step, int) else -1

    def stopped_early(self) -> bool:
        """Whether its evaluations ended it before its last step, according to its summary."""
        return self.finished_step() >= 0 and "stopped_early" in self._summary()

    def _summary(self) -> dict[str, Any]:
        """Empty if there is none that can be read."""
        try:
            summary = files.read_json(self.summary)
        except files.UnreadableError:
            return {}
        return summary if isinstance(summary, dict) else {}

    def is_untrained(self) -> bool:
        """Whether it is where it was locked, and has neither a checkpoint nor a row of metrics."""
        return self._in_place() and not checkpoint.steps(self.checkpoints) and not metrics_file.read(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process trains a run at a time. Raises `UsageError` if another one does."""
        self._refuse_links()
        with lock.hold(self.path) as self._in_place:
            yield

    def require_usable(self) -> None:
        """Raise if the directory was moved or deleted since it was locked, or contains links where it is written."""
        if not self._in_place():
            raise UsageError(
                f"{str(self.shown)!r} or its {lock.FILE} was moved or deleted while it was trained; training stopped; "
                "if it was moved, resume it where it is now"
            )
        self._refuse_links()

    def _refuse_links(self) -> None:
        """Raise if something that training writes or deletes is a symbolic link: its target may belong to others."""
        with files.explain_failure(self.shown):
            inside = (path for folder in self._folders if folder.is_dir() for path in folder.iterdir())
            for path in (*self._files, *self._folders, *inside):
                if path.is_symlink():
                    raise UsageError(f"{str(path)!r} is a symbolic link; links inside a run directory are not followed")

    def discard(self, directory: bool) -> None:
        """Delete the files of the run, but not what others put there; and the `directory` itself, if it is empty."""
        for path in self._files:
            path.unlink(missing_ok=True)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        files.clear_partial(self.path)
        if directory:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def write_config(self, config: TrainConfig) -> None:
        files.write_json(self.config_file, config_file.to_json(config))


@contextlib.contextmanager
def create(config: TrainConfig, path: Path, checkpoint_bytes: int = 0) -> Iterator[RunDirectory]:
    """A new run directory with its config.json, locked. Nothing is written to a directory that can't be used.

    `path`: what `destination(config)` returned before the environment could change the working directory.

    If an exception ends the block before anything was trained, the run is deleted: the same command works again.
    """
    run = RunDirectory(path, Path(os.path.normpath(config.out))) if config.out else None
    with files.explain_failure(run.shown if run else path):
        if run:
            _require_unused(run)
        _require_space(config, path, checkpoint_bytes)
        made = run is None or _make(run.path)
        run = run or _make_new(config, path)
    with run.locked():
        _require_unused(run)  # another process may have been faster
        try:
            with files.explain_failure(run.path):
                run.write_config(dataclasses.replace(config, out=str(run.shown)))
            yield run
        except Exception:
            if run.is_untrained():
                run.discard(made)
            raise


def destination(config: TrainConfig) -> Path:
    """Where a new run goes: its directory, or that of all runs without a name. Independent of the working directory."""
    return Path(os.path.realpath(files.absolute(config.out or PARENT)))


def _require_unused(run: RunDirectory) -> None:
    names = os.listdir(run.path) if os.path.isdir(run.path) else []  # once: another process may create the run
    if run.config_file.name in names:
        resume = f"sil resume {shlex.quote(str(run.shown))}"
        raise UsageError(f"{run.shown} already contains a run; continue it with: {resume}")
    if not all(map(_is_leftover, names)):
        raise bad_value("out", str(run.shown), "allowed: a new or an empty directory")


def _is_leftover(name: str) -> bool:
    """Whether a process that was killed while it created a run may have left a file of this name."""
    return name == lock.FILE or name.startswith(files.PARTIAL)


def open_run(path: str | Path) -> RunDirectory:
    if not isinstance(path, str | os.PathLike):
        raise bad_value("run", path, "allowed: the path of a run directory")
    run = RunDirectory(Path(path))
    if not os.path.isdir(run.path):  # unlike Path.is_dir, also False for names that are too long
        exists = os.path.exists(run.path)
        raise UsageError(f"{str(path)!r} is a file, not a run directory" if exists else f"no such run: {str(path)!r}")
    if not os.path.isfile(run.config_file):
        raise UsageError(f"{str(path)!r} is not a run directory (no config.json)")
    return run


def find_runs(path: str | Path) -> list[RunDirectory]:
    """The run in this directory, or all runs below it in the order of their paths. Links are not followed."""
    try:
        return [open_run(path)]
    except UsageError:
        if not isinstance(path, str | os.PathLike) or not os.path.isdir(files.absolute(path)):
            raise
        below = []
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if "config.json" in names:
                below.append(RunDirectory(Path(folder)))
                folders.clear()
        if not below:
            raise UsageError(f"no run (no config.json) in {str(path)!r} or below it") from None
        return below


def _make_new(config: TrainConfig, parent: Path) -> RunDirectory:
    """A directory that no other process makes at the same time."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = f"{re.sub('[^A-Za-z0-9.-]+', '-', config.env)}_{config.agent}_{now}"
    parent.mkdir(exist_ok=True)
    own, number = name, 1
    while not _make(parent / own):
        number += 1
        own = f"{name}-{number}"
    return RunDirectory(parent / own, PARENT / own)


def _make(path: Path) -> bool:
    """False if it exists."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _require_space(config: TrainConfig, path: Path, checkpoint: int) -> None:
    """Check the space for checkpoints before training starts."""
    existing = next(parent for parent in (path, *path.parents) if os.path.exists(parent))
    need, free = (config.checkpoints_kept + 1) * checkpoint, shutil.disk_usage(existing).free
    if free < need:
        raise UsageError(
            f"out: {str(path)!r} has no space left: {free / 1e6:.1f} MB free, "
            f"{need / 1e6:.1f} MB needed for {config.checkpoints_kept + 1} checkpoints"
        )
