"""Training an experiment: one run after another, each after the search for its settings."""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from self_imitation.config import TrainConfig
from self_imitation.errors import first_line
from self_imitation.experiments import runs, search, status
from self_imitation.experiments.definition import Definition
from self_imitation.experiments.runs import Case
from self_imitation.experiments.status import Board, RunStatus
from self_imitation.storage import files, lock, metrics_file
from self_imitation.training.callbacks import Callback, CallbackLike
from self_imitation.training.context import Context

STATUS_SECONDS = 2.0
"""Between updates of status.json."""


def stages(
    definition: Definition, case: Case, folder: Path, seeds_per_run: int | None = None
) -> Iterator[list[TrainConfig]]:
    """The runs of a case: those of its search, then its own. Ask for the next ones when these are finished.

    `seeds_per_run`: divide its own seeds among several runs. None: one run.
    """
    chosen = None
    if case.agent.search:
        yield [config for _, config in search.configs(definition, case, folder)]
        choice = search.choose(definition, case, folder)
        chosen = choice and choice["chosen"]
    yield [runs.run_config(part, case, folder, chosen) for part in split_seeds(definition, seeds_per_run)]


def split_seeds(definition: Definition, seeds_per_run: int | None) -> list[Definition]:
    """The experiment in parts of at most this many seeds."""
    size = seeds_per_run or definition.seeds
    last = definition.seed + definition.seeds
    return [
        replace(definition, seed=first, seeds=min(size, last - first)) for first in range(definition.seed, last, size)
    ]


def planned(
    definition: Definition, cases: Iterable[Case], folder: Path, seeds_per_run: int | None = None
) -> list[TrainConfig]:
    """All runs. Those whose settings a search has still to choose have those of its first candidate."""
    found: list[TrainConfig] = []
    for case in cases:
        candidates = search.configs(definition, case, folder) if case.agent.search else []
        choice = search.choose(definition, case, folder) if candidates else None
        chosen = choice["chosen"] if choice else candidates[0][0] if candidates else None
        parts = split_seeds(definition, seeds_per_run)
        found += [config for _, config in candidates]
        found += [runs.run_config(part, case, folder, chosen) for part in parts]
    return found


def expected(configs: Iterable[TrainConfig], folder: Path) -> list[RunStatus]:
    """The status of runs before anything is trained: done, or waiting with the steps that they have made."""
    found = []
    for config in configs:
        row = metrics_file.last_row(runs.directory(config).path)
        made = min(int(row["step"]), config.total_steps) if row else 0
        waiting = RunStatus(directory_name(config, folder), config.seeds, config.total_steps, made=made)
        done = replace(waiting, state="done", made=config.total_steps)
        found.append(done if runs.is_finished(config) else waiting)
    return found


def directory_name(config: TrainConfig, folder: Path) -> str:
    """The run's directory, relative to the folder of the experiment."""
    return runs.directory(config).path.relative_to(os.path.realpath(folder)).as_posix()


def train(
    definition: Definition,
    cases: Sequence[Case],
    folder: Path,
    command: str,
    callbacks: Sequence[CallbackLike],
    stop: Callable[[], bool],
    seeds_per_run: int | None = None,
) -> bool:
    """Finished runs are left as they are, unfinished ones resumed. Returns False if `stop` ended it early.

    `command`: recorded with each run. Only one process trains an experiment at a time; it writes status.json.
    """
    configs = planned(definition, cases, folder, seeds_per_run)
    board = Board(definition.title, command, expected(configs, folder))
    with files.explain_failure(folder, "runs"):
        folder.mkdir(parents=True, exist_ok=True)
    with lock.hold(folder):
        writer = _StatusWriter(board, folder)
        try:
            for case in cases:
                for stage in stages(definition, case, folder, seeds_per_run):
                    for config in stage:
                        if not writer.train(config, command, callbacks, stop):
                            return False
        finally:
            status.write(board.publish(active=False), folder)
    return True


class _StatusWriter(Callback):
    """Keeps status.json up to date while runs are trained one after another."""

    def __init__(self, board: Board, folder: Path):
        self._board, self._folder, self._name, self._written = board, folder, "", -math.inf

    def train(
        self, config: TrainConfig, command: str, callbacks: Sequence[CallbackLike], stop: Callable[[], bool]
    ) -> bool:
        self._name = directory_name(config, self._folder)
        try:
            finished = runs.train(config, command, [*callbacks, self], stop)
        except Exception as error:
            self._board.update(self._name, state="failed", error=first_line(error), rate=None)
            raise
        done = {"state": "done", "made": config.total_steps} if finished else {"state": "waiting"}
        self._board.update(self._name, rate=None, **done)
        return finished

    def started(self, context: Context) -> None:
        self._board.update(self._name, state="running", attempts=1, made=context.step)
        self._write()

    def advanced(self, context: Context) -> None:
        self._board.update(self._name, made=min(context.step, context.total_steps), rate=context.steps_per_second)
        if time.monotonic() - self._written >= STATUS_SECONDS:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        status.write(self._board.publish(), self._folder)
