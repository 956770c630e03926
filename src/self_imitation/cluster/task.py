"""What a worker of the cluster does: train one run, in a process of its own."""

import contextlib
import os
import platform
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import self_imitation
from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError
from self_imitation.experiments import runs
from self_imitation.storage import lock, mirror
from self_imitation.storage.mirror import Mirror
from self_imitation.training.callbacks import Callback

LOCK_SECONDS = 60.0
"""How long to wait for a worker that lost its cluster and still trains this run."""


STARTED = ".started"
"""Folder with a file for each time that a worker started a run."""


@dataclass(frozen=True)
class Place:
    """Where runs are stored: a folder that every node sees, or a URL."""

    folder: str
    url: str | None = None
    """To which the runs are uploaded; the folder then is the driver's copy of what reports need."""

    def announce(self, token: str) -> None:
        """Called by a worker that starts a run."""
        name = f"{token}-{uuid.uuid4().hex}"
        if self.url is not None:
            with mirror.explain_failure(self.url):
                Mirror(f"{self.url}/{STARTED}", Path(self.folder)).write(name, b"")
        elif (Path(self.folder) / STARTED).is_dir():
            (Path(self.folder) / STARTED / name).touch()
        else:
            raise UsageError(
                f"{platform.node()} does not see {self.folder!r}; name a place that every node sees: --storage"
            )

    def started(self) -> Counter[str]:
        """How often each run was started, by its token."""
        if self.url is None:
            names = os.listdir(Path(self.folder) / STARTED)
        else:
            names = Mirror(f"{self.url}/{STARTED}", Path(self.folder)).names()
        return Counter(name.partition("-")[0] for name in names)

    def clear_started(self) -> None:
        shutil.rmtree(Path(self.folder) / STARTED, ignore_errors=True)
        (Path(self.folder) / STARTED).mkdir()
        if self.url is not None:
            Mirror(f"{self.url}/{STARTED}", Path(self.folder)).delete()


@dataclass(frozen=True)
class Job:
    """A run as it is sent to a worker."""

    name: str
    """Its directory, relative to the folder."""
    config: TrainConfig
    command: str
    place: Place
    cpus: float
    gpus: float
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    version: str = self_imitation.__version__


@dataclass(frozen=True)
class Result:
    finished: bool
    """False if it was stopped; it resumes from its checkpoint."""
    messages: tuple[str, ...]


class _Messages(Callback):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def train_run(job: Job) -> Result:
    """Train or resume the run. SIGTERM, or cancelling the task, saves a checkpoint and ends it early."""
    messages, stopping = _Messages(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # Ray cancels a task with the former
        signal.signal(number, lambda *_: stopping.set())
    return Result(train_job(job, messages, stopping), tuple(messages.texts))


def train_job(job: Job, callback: Callback, stopping: threading.Event) -> bool:
    """Train or resume the run until it is finished or `stopping` is set; returns whether it is finished."""
    if job.version != self_imitation.__version__:
        here = f"{platform.node()} has self-imitation {self_imitation.__version__}"
        raise UsageError(f"{here}, but the experiment was started with {job.version}")
    _limit_to_share(job)
    with _local_run(job, stopping) as config:
        return _train(config, job.command, callback, stopping)


def _limit_to_share(job: Job) -> None:
    """Before JAX starts: as many threads as the run has CPUs, and its share of the memory of a GPU."""
    os.environ.setdefault("PJRT_NPROC", str(max(1, int(job.cpus))))
    if 0 < job.gpus < 1:
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * job.gpus:.3f}")


@contextlib.contextmanager
def _local_run(job: Job, stopping: threading.Event) -> Iterator[TrainConfig]:
    """The config with the directory in which this worker trains."""
    config = replace(job.config, workers=job.config.workers or max(1, int(job.cpus)))
    job.place.announce(job.token)
    if job.place.url is None:
        yield config
        return
    with _scratch() as folder:
        copy = Mirror(f"{job.place.url}/{job.name}", folder / "run")
        with mirror.explain_failure(copy.url):
            copy.download()
        with mirror.uploading(copy, lost=stopping.set):
            yield replace(config, out=str(copy.local))


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary directory. Those that killed workers have left are deleted."""
    parent = Path(tempfile.gettempdir()) / f"self-imitation-{os.getuid()}"
    parent.mkdir(mode=0o700, exist_ok=True)
    for other in parent.iterdir():
        with contextlib.suppress(OSError, UsageError):
            if time.time() - other.stat().st_mtime > LOCK_SECONDS:
                with lock.hold(other):
                    shutil.rmtree(other)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        with lock.hold(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _train(config: TrainConfig, command: str, callback: Callback, stopping: threading.Event) -> bool:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return runs.train(config, command, [callback], stopping.is_set)
        except lock.HeldError:
            if time.monotonic() > until:
                raise
            time.sleep(1)
