"""Commands in processes that have imported JAX already, with a time limit for each."""

import contextlib
import faulthandler
import gc
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from campaign.outcomes import Case, DivergenceError, Outcome
from campaign.sandbox import Sandbox

CPU_LIMIT, WALL_LIMIT = 30.0, 150.0
"""Seconds after which a command hangs: of its own work, and altogether, since other processes may use the machine."""
MEMORY = 8 << 30
"""Bytes of data that a command may allocate, so that it can't take the machine down."""

Command = Callable[[list[str]], int]


def call(command: Command, arguments: list[str], sandbox: Sandbox) -> tuple[int, float]:
    """Run a command in this process; returns its exit status and how long it took.

    Output goes to files in the sandbox, also what C libraries print. An exception is written there too.
    """
    saved = _remember()
    started = time.monotonic()
    try:
        os.chdir(sandbox.cwd)
        with _redirected(sandbox):
            status = command(arguments)
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    except DivergenceError as error:
        (sandbox.path / "divergence").write_text(str(error))
        status = 1
    except BaseException:
        (sandbox.path / "traceback").write_text(traceback.format_exc(), errors="replace")
        status = 1
    finally:
        _restore(saved)
    return status, time.monotonic() - started


class _redirected:  # noqa: N801 (a context manager)
    """Descriptors 0 to 2 and Python's streams."""

    def __init__(self, sandbox: Sandbox):
        self.targets = {0: os.devnull, 1: str(sandbox.path / "stdout"), 2: str(sandbox.path / "stderr")}

    def __enter__(self) -> None:
        self.streams = sys.stdin, sys.stdout, sys.stderr
        for stream in self.streams[1:]:
            stream.flush()
        self.copies = {number: os.dup(number) for number in self.targets}
        for number, name in self.targets.items():
            opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", buffering=1, closefd=False, encoding="utf-8")
        sys.stderr = open(2, "w", buffering=1, closefd=False, encoding="utf-8", errors="backslashreplace")

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, AttributeError, OSError):  # a case may have closed it
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = self.streams
        for number, copy in self.copies.items():
            os.dup2(copy, number)
            os.close(copy)


def _remember() -> tuple[Any, ...]:
    """What a command may change in this process; also limits its memory."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    memory = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, memory[1]))
    return os.getcwd(), list(sys.path), set(sys.modules), handlers, os.umask(0o022), np.geterr(), memory


def _restore(saved: tuple[Any, ...]) -> None:
    directory, path, modules, handlers, umask, errors, memory = saved
    resource.setrlimit(resource.RLIMIT_DATA, memory)
    os.umask(umask)
    np.seterr(**errors)
    os.chdir(directory)
    sys.path[:] = path
    importlib.invalidate_caches()
    for name in set(sys.modules) - modules:
        if name.startswith("evil"):
            del sys.modules[name]
    for number, handler in handlers.items():
        signal.signal(number, handler)


def perform(case: Case, path: Path, bases: Path | None, command: Command) -> Outcome:
    """A case in this process, without a time limit."""
    sandbox = Sandbox(path, case, bases)
    status, seconds = call(command, sandbox.command(case), sandbox)
    return outcome(sandbox, status, seconds)


def outcome(sandbox: Sandbox, status: int | None, seconds: float, ended: bool = False) -> Outcome:
    found = Outcome(
        status,
        sandbox.text("stdout"),
        sandbox.text("stderr"),
        sandbox.text("traceback") or (sandbox.text("stack") if status is None else ""),
        sandbox.executed,
        sandbox.touched(),
        ended=ended,
        divergence=sandbox.text("divergence"),
        seconds=seconds,
    )
    sandbox.remove()
    return found


def serve(pipe: Connection, make_command: Callable[[], Command]) -> None:
    """The main function of a worker process: run what the pipe brings. SIGUSR1 prints where it is."""
    os.setpgrp()  # Ctrl-C is for the campaign
    command = make_command()
    pipe.send("ready")
    while (given := pipe.recv()) is not None:
        with open(given[1].path / "stack", "w") as stack:
            faulthandler.register(signal.SIGUSR1, stack)
            pipe.send(call(command, *given))
            faulthandler.unregister(signal.SIGUSR1)
        gc.collect(0)


class Worker:
    """A process that runs commands; it is replaced when a command hangs or ends it."""

    def __init__(self, make_command: Callable[[], Command]):
        self._make = make_command
        self._process: multiprocessing.process.BaseProcess | None = None

    def perform(self, case: Case, path: Path, bases: Path | None) -> Outcome:
        sandbox = Sandbox(path, case, bases)
        self._ensure()
        started = time.monotonic()
        self._pipe.send((sandbox.command(case), sandbox))
        if not self._answers():
            os.kill(self._process.pid, signal.SIGUSR1)
            time.sleep(1)
            self.close()
            return outcome(sandbox, None, time.monotonic() - started)
        try:
            status, seconds = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            status, seconds = self._process.exitcode, time.monotonic() - started
            self._process = None
            return outcome(sandbox, status, seconds, ended=True)
        return outcome(sandbox, status, seconds)

    def _answers(self) -> bool:
        """Wait for the result; False if it takes too long."""
        begun, cpu = time.monotonic(), _cpu_seconds(self._process.pid)
        while not self._pipe.poll(1.0):
            if time.monotonic() - begun > WALL_LIMIT or _cpu_seconds(self._process.pid) - cpu > CPU_LIMIT:
                return False
        return True

    def _ensure(self) -> None:
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._make))
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def perform_all(
    cases: Iterable[Case],
    folder: Path,
    bases: Path | None,
    make_command: Callable[[], Command],
    stop: Callable[[], bool],
    jobs: int = 2,
) -> Iterator[tuple[Case, Outcome]]:
    """The outcomes of cases as they come, until there are no more or `stop` says so."""
    workers = [Worker(make_command) for _ in range(jobs)]
    remaining = iter(cases)
    running: dict[Any, tuple[Case, Worker]] = {}
    with ThreadPoolExecutor(jobs) as threads:
        free = list(enumerate(workers))
        while True:
            while free and not stop() and (case := next(remaining, None)) is not None:
                number, worker = free.pop()
                future = threads.submit(worker.perform, case, folder / f"worker-{number}", bases)
                running[future] = (case, (number, worker))
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                case, seat = running.pop(future)
                free.append(seat)
                yield case, future.result()
    for worker in workers:
        worker.close()
