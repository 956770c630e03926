"""What the server answers: three kinds of addresses for a run; for an experiment its table, and those of its runs."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from self_imitation.errors import UsageError
from self_imitation.experiments import status
from self_imitation.recording.series import SERIES
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.watch import page
from self_imitation.watch.run_data import RunData

NUMBER = "0|[1-9][0-9]{0,17}"
RECORDED = re.compile(rf"({'|'.join(SERIES)})/({NUMBER})\.json")
RUN = re.compile(rf"runs/({NUMBER})/(.*)")
"""A run of an experiment, by its number in the table."""


@dataclass(frozen=True)
class Answer:
    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Site(Protocol):
    """Some addresses. Paths have no leading slash."""

    def answer(self, path: str) -> Answer | None:
        """None if there is no such address."""


class RunSite:
    """The page of a run, its state, and what it recorded."""

    def __init__(self, run: RunDirectory):
        self._data = RunData(run)

    def answer(self, path: str) -> Answer | None:
        if path == "":
            return Answer(self._page, "text/html; charset=utf-8")
        if path == "run.json":
            return self._state()
        if found := RECORDED.fullmatch(path):
            content = self._data.recorded(found[1], int(found[2]))
            return None if content is None else Answer(content, "application/json")
        return None

    @cached_property
    def _page(self) -> bytes:
        return page.render(self._data.about()).encode()

    def _state(self) -> Answer:
        try:
            return _json(self._data.state(), {"X-Idle-Seconds": f"{self._data.seconds_since_change():.0f}"})
        except UsageError as error:  # a damaged table
            return _unavailable(error)


class ExperimentSite:
    """The table of an experiment's runs, and the site of each."""

    def __init__(self, folder: Path):
        self._folder = folder.resolve()
        self._title = status.read(folder).title
        self._runs: dict[str, RunSite] = {}

    def answer(self, path: str) -> Answer | None:
        try:
            if path == "":
                return Answer(page.render_experiment(self._title).encode(), "text/html; charset=utf-8")
            if path == "status.json":
                return self._status()
            if found := RUN.fullmatch(path):
                run = self._run(int(found[1]))
                return None if run is None else run.answer(found[2])
        except UsageError as error:  # something damaged
            return _unavailable(error)
        return None

    def _status(self) -> Answer:
        found = status.read(self._folder)
        totals = {"rate": found.rate, "seconds_left": found.seconds_left, "current": found.is_current()}
        shown = [{**asdict(run), "has_page": self._path(run.name) is not None} for run in found.runs]
        return _json({"command": found.command, "runs": shown, **totals}, {})

    def _run(self, number: int) -> RunSite | None:
        listed = status.read(self._folder).runs
        if number >= len(listed):
            return None
        name = listed[number].name
        path = self._path(name)
        if path is not None and name not in self._runs:
            self._runs[name] = RunSite(RunDirectory(path))
        return self._runs.get(name)

    def _path(self, name: str) -> Path | None:
        """The directory of a run that has begun; None also for names and links that lead out of the folder."""
        path = self._folder / name
        begun = path.resolve() == path and path.is_relative_to(self._folder) and (path / "config.json").is_file()
        return path if begun else None


def _json(data: Any, headers: Mapping[str, str]) -> Answer:
    """With a tag by which a client knows that it has the same already."""
    content = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Answer(content, "application/json", headers={"ETag": tag, **headers})


def _unavailable(error: UsageError) -> Answer:
    return Answer(str(error).encode(), "text/plain; charset=utf-8", HTTPStatus.SERVICE_UNAVAILABLE)
