"""What the page of a run shows, read from its directory. No symbolic link in it is followed."""

import contextlib
import json
import math
import os
import stat
import time
from pathlib import Path
from typing import Any

from self_imitation.environments.jax import maze
from self_imitation.recording import grid_world
from self_imitation.recording.series import SERIES
from self_imitation.storage import metrics_file
from self_imitation.storage.run_directory import RECORD, RunDirectory

CURVES = (
    "return_mean",
    "return_best",
    "sil_imitated",
    "sil_advantage",
    "sil_kl",
    "policy_kl",
    "sil_step_share",
    "steps_per_second",
)
"""Columns of metrics.csv that the page shows."""
MAX_SEEDS, MAX_POINTS = 8, 400
"""Seeds with curves of their own, and points of a curve."""


class RunData:
    """A run directory, for reading only."""

    def __init__(self, run: RunDirectory):
        self._root = run.path.resolve()
        self._config = run.config()

    def about(self) -> dict[str, Any]:
        """What does not change while the run trains."""
        config = self._config
        gamma = config.components[config.parts.learner].gamma
        return {
            "name": self._root.name,
            "env": config.env,
            "agent": config.agent,
            "learner": config.parts.learner,
            "self_imitation": config.parts.self_imitation,
            "total_steps": config.total_steps,
            "gamma": gamma if config.sil.gamma is None else config.sil.gamma,
            "learner_gamma": gamma,
            "rewards": config.rewards,
            "atari": config.env.startswith("atari:"),
            "record": config.record,
            "maze": _maze(config.env),
        }

    def state(self) -> dict[str, Any]:
        """How far the run is, its curves, and the steps of what it recorded."""
        rows = metrics_file.parse(self.read(metrics_file.FILE) or b"", self._root / metrics_file.FILE)
        summary = _json_object(self.read("summary.json"))
        return {
            "step": int(rows[-1]["step"]) if rows else 0,
            "total_steps": max(self._config.total_steps, int(rows[-1]["step"]) if rows else 0),
            "finished": summary.get("finished") is True and bool(rows) and summary.get("step") == rows[-1]["step"],
            "row_seconds": rows[-1]["seconds"] / len({row["step"] for row in rows}) if rows else 0.0,
            "curves": _curves(rows),
            **{series: self._steps(series) for series in SERIES},
        }

    def seconds_since_change(self) -> float:
        """Since a row was written; before the first, since the run was created."""
        changed = 0.0
        for name in ("config.json", metrics_file.FILE):
            with contextlib.suppress(OSError):
                changed = max(changed, os.lstat(self._root / name).st_mtime)
        return max(0.0, time.time() - changed)

    def recorded(self, series: str, step: int) -> bytes | None:
        """The file of a step; None if there is none."""
        assert series in SERIES
        return self.read(RECORD, series, f"{step}.json")

    def read(self, *parts: str) -> bytes | None:
        """A regular file inside the run directory; None if there is none."""
        folder = self._open(*parts[:-1])
        if folder is None:
            return None
        try:
            # Opening a named pipe would wait for a writer.
            file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError:
            return None
        finally:
            os.close(folder)
        with os.fdopen(file, "rb") as opened:
            return opened.read() if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else None

    def _steps(self, series: str) -> list[int]:
        folder = self._open(RECORD, series)
        if folder is None:
            return []
        try:
            stems = [Path(name).stem for name in os.listdir(folder) if name.endswith(".json")]
        finally:
            os.close(folder)
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())

    def _open(self, *parts: str) -> int | None:
        """A descriptor of a directory inside the run directory; None if there is none."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        for part in parts:
            outer = folder
            try:
                folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
            except OSError:
                return None
            finally:
                os.close(outer)
        return folder


def _maze(env: str) -> dict[str, Any] | None:
    if not grid_world.is_one(env):
        return None
    world = grid_world.of_environment(env)
    assert world is not None
    return {
        "rows": maze.PLAN.splitlines(),
        "cells": world.cells.tolist(),
        "key": maze.KEY,
        "door": maze.DOOR,
        "treasure": maze.TREASURE,
        "apples": maze.APPLES if world.stages.shape[1] > 3 else (),
        "stages": world.stages.tolist(),
    }


def _curves(rows: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Of each seed; a long curve is thinned."""
    curves = []
    for seed in sorted({int(row["seed"]) for row in rows})[:MAX_SEEDS]:
        own = [row for row in rows if int(row["seed"]) == seed]
        every = -(-len(own) // MAX_POINTS)
        shown = own[(len(own) - 1) % every :: every]  # the last row is always among them
        columns = {name: [_number(row.get(name)) for row in shown] for name in CURVES if name in own[0]}
        curves.append({"seed": seed, "step": [int(row["step"]) for row in shown], **columns})
    return curves


def _number(value: float | None) -> float | None:
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None


def _json_object(content: bytes | None) -> dict[str, Any]:
    """Empty if it is none."""
    try:
        found = json.loads(content or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
