"""What a worker of a search does: train one trial in a process of its own, and report every row of its metrics."""

import contextlib
import json
import math
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune

from self_imitation.cluster import task
from self_imitation.cluster.connect import Resources
from self_imitation.cluster.task import Job, Place
from self_imitation.errors import first_line
from self_imitation.storage import metrics_file
from self_imitation.storage.metrics_file import Row
from self_imitation.training.callbacks import Callback
from self_imitation.training.context import Context
from self_imitation.tuning import trials
from self_imitation.tuning.trials import Search

POLL_SECONDS = 1.0
"""How long a worker waits for the next row before it lets Tune stop it."""
NUMBER, SETTINGS, STOPPED = "number", "settings", "stopped"
"""What Tune sends to a worker: which trial, its settings as JSON, and whether it was stopped early before."""


class NotSaved:
    """A base class for what Tune would save to disk with a search. It stays in this process: see tuner.py."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Shared:
    """What all workers of a search know."""

    search: Search
    place: Place
    command: str
    resources: Resources


@dataclass(frozen=True)
class Report:
    """A trial as Tune sees it."""

    step: int = 0
    score: float = math.nan
    """Mean over seeds; NaN before an episode of each has ended."""
    state: str = "training"
    """Or finished, failed, stopped (early, before this search was continued)."""
    error: str = ""
    messages: tuple[str, ...] = ()

    def to_tune(self) -> dict[str, Any]:
        """Without a score if there is none yet: no decision is made then."""
        found = {**vars(self), "done": self.state != "training"}
        return {name: value for name, value in found.items() if name != "score" or math.isfinite(self.score)}


class Trial(tune.Trainable):
    """Trains in a thread; Tune asks for the next report with `step`, and ends a trial with `cleanup`."""

    def setup(self, config: Mapping[str, Any], shared: Shared) -> None:
        self._reports: queue.Queue[Report] = queue.Queue(maxsize=1)
        self._stopping, self._latest = threading.Event(), Report()
        self._thread = threading.Thread(target=self._run, args=(dict(config), shared), daemon=True)
        self._thread.start()

    def step(self) -> dict[str, Any]:
        with contextlib.suppress(queue.Empty):  # then the same report again
            self._latest = self._reports.get(timeout=POLL_SECONDS)
        return self._latest.to_tune()

    def cleanup(self) -> None:
        """Stop with a checkpoint."""
        self._stopping.set()
        self._thread.join()

    def _run(self, config: dict[str, Any], shared: Shared) -> None:
        rows = _Rows(shared.search.measure, self._put)
        try:
            state = _train(config, shared, rows, self._stopping)
            end = Report(*rows.latest, state, messages=tuple(rows.texts))
        except Exception as error:  # of this trial only: it is reported, and the others go on
            cause = first_line(error) or type(error).__name__
            end = Report(*rows.latest, "failed", cause, tuple(rows.texts))
        self._put(end)

    def _put(self, report: Report) -> None:
        """Wait until Tune has taken the report before: a trial is not far ahead of the decision to stop it."""
        while not self._stopping.is_set():
            with contextlib.suppress(queue.Full):
                self._reports.put(report, timeout=0.1)
                return


def _train(config: Mapping[str, Any], shared: Shared, rows: "_Rows", stopping: threading.Event) -> str:
    """Returns the state at the end."""
    number, own = int(config[NUMBER]), shared.resources
    run = shared.search.trial(number, trials.from_json(shared.search, json.loads(config[SETTINGS])))
    rows.replay(Path(str(run.out)))
    if config[STOPPED]:
        return "stopped"
    job = Job(trials.trial_name(number), run, shared.command, shared.place, own.cpus, own.gpus)
    task.train_job(job, rows, stopping)
    return "finished"


class _Rows(Callback):
    """Reports each row once, also those of earlier starts."""

    def __init__(self, measure: str, put: Any):
        self._measure, self._put = measure, put
        self.latest = (0, math.nan)
        self.texts: list[str] = []

    def started(self, context: Context) -> None:
        self.replay(context.path)

    def logged(self, context: Context, rows: Sequence[Row]) -> None:
        self._report(rows)

    def _report(self, rows: Sequence[Row]) -> None:
        step, scores = trials.latest(rows, self._measure)
        if step > self.latest[0]:
            self.latest = step, float(np.mean(scores))
            self._put(Report(*self.latest))

    def replay(self, path: Path) -> None:
        """Report the rows that a run has: Tune decides by all of them, in the same way as before."""
        rows = metrics_file.read(path)
        for step in dict.fromkeys(row["step"] for row in rows):
            self._report([row for row in rows if row["step"] == step])

    def message(self, text: str) -> None:
        self.texts.append(text)
