"""A run's directory: its files, and how it is created and opened."""

import dataclasses
import datetime
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError, bad_value
from self_imitation.storage import config_file, files


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path
        self.config_file = path / "config.json"
        self.checkpoints = path / "checkpoints"
        self.summary = path / "summary.json"
        self.curve = path / "curve.png"

    def config(self) -> TrainConfig:
        try:
            data = json.loads(self.config_file.read_text(encoding="utf-8"))
        except (ValueError, OSError):
            raise UsageError(f"{str(self.config_file)!r} is damaged: not readable JSON") from None
        return config_file.from_json(data, str(self.config_file))

    def machines(self) -> list[str]:
        """Machines that it was trained on, according to its summary."""
        named = self._summary().get("machines")
        return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []

    def finished_step(self) -> int:
        """The step at which it finished, according to its summary; -1 if it did not."""
        step = self._summary().get("step")
        return step if self._summary().get("finished") is True and isinstance(step, int) else -1

    def _summary(self) -> dict[str, Any]:
        """Empty if there is none that can be read."""
        try:
            summary = json.loads(self.summary.read_text(encoding="utf-8"))
        except (ValueError, OSError):
            return {}
        return summary if isinstance(summary, dict) else {}

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def write_config(self, config: TrainConfig) -> None:
        files.write_json(self.config_file, config_file.to_json(config))


def create(config: TrainConfig, checkpoint_bytes: int = 0) -> RunDirectory:
    """A new run directory with its config.json; nothing is written if the directory can't be used."""
    run = RunDirectory(Path(os.path.normpath(config.out)) if config.out else _new_path(config))
    if run.config_file.exists():
        resume = f"sil resume {shlex.quote(str(run.path))}"
        raise UsageError(f"{run.path} already contains a run; continue it with: {resume}")
    if run.path.is_dir() and any(not path.name.startswith(files.PARTIAL) for path in run.path.iterdir()):
        raise bad_value("out", str(run.path), "allowed: a new or an empty directory")
    _require_space(config, run.path, checkpoint_bytes)
    with files.explain_failure(run.path):
        run.path.mkdir(parents=True, exist_ok=True)
        run.checkpoints.mkdir(exist_ok=True)
        run.write_config(dataclasses.replace(config, out=str(run.path)))
    return run


def open_run(path: str | Path) -> RunDirectory:
    if not isinstance(path, str | os.PathLike):
        raise bad_value("run", path, "allowed: the path of a run directory")
    run = RunDirectory(Path(path))
    if not run.path.is_dir():
        raise UsageError(
            f"{str(path)!r} is a file, not a run directory" if run.path.exists() else f"no such run: {str(path)!r}"
        )
    if not run.config_file.is_file():
        raise UsageError(f"{str(path)!r} is not a run directory (no config.json)")
    return run


def _new_path(config: TrainConfig) -> Path:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = f"{re.sub('[^A-Za-z0-9.-]+', '-', config.env)}_{config.agent}_{now}"
    candidates = (Path("runs") / (name if n == 1 else f"{name}-{n}") for n in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def _require_space(config: TrainConfig, path: Path, checkpoint: int) -> None:
    """Check the space for checkpoints before training starts."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    need, free = (config.checkpoints_kept + 1) * checkpoint, shutil.disk_usage(existing).free
    if free < need:
        raise UsageError(
            f"out: {str(path)!r} has no space left: {free / 1e6:.1f} MB free, "
            f"{need / 1e6:.1f} MB needed for {config.checkpoints_kept + 1} checkpoints"
        )
