"""How far the runs of an experiment are: status.json in their folder, written by the process that trains them."""

import dataclasses
import datetime
import json
import os
import platform
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from self_imitation.errors import UsageError
from self_imitation.storage import files, metrics_file

FILE = "status.json"
State = Literal["waiting", "running", "done", "stopped", "failed"]
"""stopped: by a search that found it weaker than others."""
STALE = 60.0
"""Seconds without an update after which the process that trains is taken for dead."""


@dataclass(frozen=True)
class RunStatus:
    """One run. Steps are per seed."""

    name: str
    """Its directory, relative to the folder of the experiment."""
    seeds: int
    steps: int
    state: State = "waiting"
    made: int = 0
    rate: float | None = None
    """Steps per second of all its seeds together, in its latest row."""
    attempts: int = 0
    """How often it was started; more than once if a worker died."""
    error: str = ""

    @property
    def left(self) -> int:
        """Steps of all its seeds that are still to be made; none if it failed or was stopped."""
        return 0 if self.state in ("done", "stopped", "failed") else (self.steps - self.made) * self.seeds


@dataclass(frozen=True)
class Status:
    """All runs of an experiment."""

    title: str
    command: str
    """That continues it."""
    owner: str
    """Identifies the process that trains."""
    host: str
    pid: int
    updated: float
    """Unix time."""
    active: bool
    """False once the process has ended in an orderly way."""
    runs: tuple[RunStatus, ...]

    @property
    def rate(self) -> float:
        """Steps per second of all running runs together."""
        return sum(run.rate or 0.0 for run in self.runs if run.state == "running")

    @property
    def seconds_left(self) -> float | None:
        """By the present rate; None if it is unknown."""
        left = sum(run.left for run in self.runs)
        return 0.0 if not left else left / self.rate if self.rate else None

    def count(self, state: State) -> int:
        return sum(run.state == state for run in self.runs)

    def is_current(self) -> bool:
        """Whether the process that writes it is alive, as far as its updates tell."""
        return self.active and time.time() - self.updated < STALE


class Board:
    """The status as it changes. `publish` returns it with the present time."""

    def __init__(self, title: str, command: str, expected: Iterable[RunStatus]):
        self._about = {"title": title, "command": command, "owner": uuid.uuid4().hex}
        self._runs = {run.name: run for run in expected}

    @property
    def owner(self) -> str:
        return self._about["owner"]

    def update(self, name: str, **changes: Any) -> None:
        self._runs[name] = dataclasses.replace(self._runs[name], **changes)

    def remove(self, name: str) -> None:
        del self._runs[name]

    @property
    def runs(self) -> tuple[RunStatus, ...]:
        return tuple(self._runs.values())

    def __getitem__(self, name: str) -> RunStatus:
        return self._runs[name]

    def refresh(self, folder: Path, names: Iterable[str]) -> None:
        """Read how far these runs are from their metrics."""
        for name in names:
            row = metrics_file.last_row(folder / name)
            if row is not None:
                self.update(name, made=min(int(row["step"]), self[name].steps), rate=row["steps_per_second"])

    def publish(self, active: bool = True) -> Status:
        place = {"host": platform.node(), "pid": os.getpid(), "updated": time.time(), "active": active}
        return Status(**self._about, **place, runs=self.runs)  # type: ignore[arg-type]


def to_bytes(status: Status) -> bytes:
    return (json.dumps(dataclasses.asdict(status), indent=1) + "\n").encode()


def write(status: Status, folder: Path) -> None:
    with files.replacing(folder / FILE) as partial:
        partial.write_bytes(to_bytes(status))


def read(folder: Path) -> Status:
    """Raises a `UsageError` if there is none, or if it is damaged."""
    path = folder / FILE
    if not os.path.exists(path):
        raise UsageError(f"{str(folder)!r} has no {FILE}: not the runs of an experiment or a search that was started")
    try:
        data = files.read_json(path)
    except files.UnreadableError as error:
        raise UsageError(f"{str(path)!r} is damaged: {error}") from None
    return from_json(data, str(path))


def from_json(data: Any, source: str) -> Status:
    """Raises a `UsageError` that names the `source` if something is missing or of the wrong type."""
    try:
        listed = tuple(_checked(RunStatus, run) for run in data["runs"])
        return _checked(Status, {**data, "runs": listed})
    except (TypeError, KeyError, ValueError):
        raise UsageError(f"{source!r} is damaged: not the status of an experiment") from None


def _checked(kind: type, data: Mapping[str, Any]) -> Any:
    """A dataclass from a table whose values have the types of its fields."""
    allowed: dict[Any, tuple[type, ...]] = {float: (int, float), float | None: (int, float, type(None))}
    built = kind(**data)
    for field in dataclasses.fields(kind):
        value = getattr(built, field.name)
        if field.type is State:
            if value not in get_args(State):
                raise ValueError(field.name)
        elif field.name != "runs" and not isinstance(value, allowed.get(field.type, field.type)):  # type: ignore[arg-type]
            raise TypeError(field.name)
    return built


def when(moment: float) -> str:
    """A Unix time in words, in UTC."""
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
