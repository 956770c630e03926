"""Training an experiment on a Ray cluster: each run a task, placed and restarted by Ray."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from self_imitation.cluster import connect
from self_imitation.cluster.connect import Resources
from self_imitation.cluster.task import Job, Place, Result, train_run
from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError, first_line
from self_imitation.experiments import runs, status, train
from self_imitation.experiments.definition import Definition
from self_imitation.experiments.runs import Case
from self_imitation.experiments.status import Board, Status
from self_imitation.storage import files, lock, mirror
from self_imitation.storage.mirror import Mirror

POLL_SECONDS = 0.5
"""How often finished tasks and Ctrl-C are noticed."""
URL_STATUS_SECONDS = 10.0
"""Between updates of the status where it is uploaded."""
TAKEOVER_SECONDS = 2.5 * URL_STATUS_SECONDS
"""How long the status at a URL must be unchanged before another driver may take over."""


@dataclass(frozen=True)
class Work:
    """What a driver trains."""

    definition: Definition
    cases: Sequence[Case]
    place: Place
    command: str
    seeds_per_run: int | None = None

    @property
    def folder(self) -> Path:
        return Path(self.place.folder)


@dataclass
class _Progress:
    """A case: the runs of its present stage that are not finished, and the stages after it."""

    stages: Iterator[list[TrainConfig]]
    left: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Running:
    """A task that was submitted."""

    case: _Progress
    job: Job


@contextlib.contextmanager
def claimed(place: Place, board: Board) -> Iterator["Store"]:
    """A place for runs, for one driver at a time. Raises a `UsageError` if another one uses it."""
    folder = Path(place.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with lock.hold(folder):
        store = Store(place, board)
        store.claim()
        try:
            yield store
        finally:
            store.publish(active=False)


class Store:
    """The folder of the runs; where it is the copy of a URL, it has what reports need of each run."""

    def __init__(self, place: Place, board: Board):
        self._place, self._folder, self._board, self._url = place, Path(place.folder), board, place.url
        self._root = None if self._url is None else Mirror(self._url, self._folder)
        self._runs: dict[str, Mirror] = {}
        self._published = 0.0

    def claim(self) -> None:
        """Wait whether another driver updates the status at the URL; if not, it is dead or has ended."""
        if self._root is not None:
            assert self._url is not None
            with mirror.explain_failure(self._url):
                before = self._status()
                if before is not None and before.active:
                    time.sleep(TAKEOVER_SECONDS)
                    if (now := self._status()) is not None and now.updated != before.updated:
                        raise UsageError(f"storage: {self._url!r} is being used by process {now.pid} on {now.host}")
                self._place.clear_started()
        else:
            self._place.clear_started()
        self.publish()

    def _status(self) -> Status | None:
        assert self._root is not None
        content = self._root.read(status.FILE)
        return None if content is None else status.from_json(json.loads(content), f"{self._url}/{status.FILE}")

    def publish(self, active: bool = True) -> Status:
        """Write the status. Raises a `UsageError` if another driver has taken the URL over."""
        found = self._board.publish(active)
        status.write(found, self._folder)
        if self._root is not None:
            assert self._url is not None
            with mirror.explain_failure(self._url):
                now = self._status() if self._published else None
                if now is not None and now.owner != found.owner and now.active:
                    raise UsageError(f"storage: {self._url!r} was taken over by process {now.pid} on {now.host}")
                self._root.write(status.FILE, status.to_bytes(found))
        self._published = time.monotonic()
        return found

    def is_due(self) -> bool:
        """Whether the status should be published again."""
        return time.monotonic() - self._published >= (
            train.STATUS_SECONDS if self._root is None else URL_STATUS_SECONDS
        )

    def fetch(self, name: str) -> None:
        """Bring the folder's copy of a run up to date."""
        if self._url is None:
            return
        if name not in self._runs:
            self._runs[name] = Mirror(f"{self._url}/{name}", self._folder / name)
        with mirror.explain_failure(self._url):
            self._runs[name].download(mirror.LIGHT)


@runtime_checkable
class Report(Protocol):
    """Receives the progress of an experiment."""

    def progress(self, found: Status) -> None: ...
    def messages(self, name: str, texts: Sequence[str]) -> None: ...
    def done(self, name: str, result: str = "") -> None: ...
    def stopped(self, name: str, step: int) -> None: ...
    def failed(self, name: str, cause: str) -> None: ...


class Driver:
    """Submits the runs of an experiment as tasks and follows them."""

    def __init__(self, work: Work, resources: Resources, store: Store, board: Board, report: Report):
        import ray

        self._work, self._resources, self._store, self._board, self._report = work, resources, store, board, report
        # A process of its own for each run: XLA reads its flags only once.
        self._task = ray.remote(max_calls=1, **resources.options)(train_run)
        self._running: dict[Any, _Running] = {}

    def train(self, stop: Callable[[], bool]) -> bool:
        """Train all runs; a failed one does not stop the others. Returns False if `stop` ended it early."""
        import ray

        for case in self._work.cases:
            stages = train.stages(self._work.definition, case, self._work.folder, self._work.seeds_per_run)
            self._advance(_Progress(stages))
        stopping = False
        while self._running:
            if stop() and not stopping:
                stopping = True
                for task in self._running:
                    ray.cancel(task, force=False)
            ready, _ = ray.wait(list(self._running), timeout=POLL_SECONDS)
            for task in ready:
                self._finish(task, stopping)
            if self._store.is_due():
                self._report.progress(self._refresh())
        return not stopping

    def _advance(self, case: _Progress) -> None:
        """Submit the next runs of a case that are not finished."""
        while not case.left:
            stage = next(case.stages, None)
            if stage is None:
                return
            for config in stage:
                name = train.directory_name(config, self._work.folder)
                self._store.fetch(name)
                if os.path.exists(runs.directory(config).config_file):
                    runs.require_same(runs.directory(config), config)
                if runs.is_finished(config):
                    self._board.update(name, state="done", made=config.total_steps)
                else:
                    case.left.add(name)
                    self._submit(case, name, config)

    def _submit(self, case: _Progress, name: str, config: TrainConfig) -> None:
        own = self._resources
        job = Job(name, config, self._work.command, self._work.place, own.cpus, own.gpus)
        self._running[self._task.options(name=name).remote(job)] = _Running(case, job)

    def _refresh(self) -> Status:
        """Read from the storage which runs have started, and how far they are."""
        with mirror.explain_failure(self._work.place.url or self._work.place.folder):
            started = self._work.place.started()
        for own in self._running.values():
            if attempts := started[own.job.token]:
                self._board.update(own.job.name, state="running", attempts=attempts)
                self._store.fetch(own.job.name)
                self._board.refresh(self._work.folder, [own.job.name])
        return self._store.publish()

    def _finish(self, task: Any, stopping: bool) -> None:
        import ray

        own = self._running.pop(task)
        case, name, config = own.case, own.job.name, own.job.config
        try:
            result: Result = ray.get(task)
        except ray.exceptions.TaskCancelledError:
            return
        except ray.exceptions.RayError as error:
            self._fail(name, cause_of(error))
            return
        self._store.fetch(name)
        self._board.refresh(self._work.folder, [name])
        self._report.messages(name, result.messages)
        if not result.finished:
            self._board.update(name, state="waiting", rate=None)
            if not stopping:  # its node was shut down in an orderly way
                self._submit(case, name, config)
            return
        self._board.update(name, state="done", made=config.total_steps)
        self._report.done(name)
        case.left.discard(name)
        if not stopping:
            try:
                self._advance(case)
            except UsageError as error:
                self._report.failed(name, str(error))

    def _fail(self, name: str, cause: str) -> None:
        self._board.update(name, state="failed", error=cause, rate=None)
        self._report.failed(name, cause)


def cause_of(error: Any) -> str:
    """Why a task failed, in one line: its own error, or how its worker died."""
    import ray

    if isinstance(error, ray.exceptions.RayTaskError):
        return first_line(error.cause) or type(error.cause).__name__
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "its node ran out of memory; give each run more with --memory"
    died = ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.RayActorError
    if isinstance(error, died):
        return "its worker died again and again; see --retries"
    return first_line(error) or type(error).__name__


def run(
    work: Work, resources: Resources, address: str | None, report: Report, stop: Callable[[], bool]
) -> tuple[bool, Status]:
    """Train an experiment on the cluster; returns whether it came to its end, and the status then."""
    configs = train.planned(work.definition, work.cases, work.folder, work.seeds_per_run)
    board = Board(work.definition.title, work.command, train.expected(configs, work.folder))
    failures = files.explain_failure(work.folder, "storage")
    with failures, claimed(work.place, board) as store, connect.connected(address):
        connect.require_resources(resources)
        ended = Driver(work, resources, store, board, report).train(stop)
    return ended, board.publish(active=False)
