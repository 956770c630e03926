"""A search with Ray Tune: it places the trials, restarts those whose worker died, and stops weak ones early.

Tune keeps nothing: search.json and the run directories have all that a search needs to be continued.
"""

import logging
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from self_imitation.cluster import connect
from self_imitation.cluster.connect import Resources
from self_imitation.cluster.driver import Report, Store, cause_of, claimed
from self_imitation.cluster.task import Place
from self_imitation.experiments.status import Board, RunStatus, Status
from self_imitation.storage import files
from self_imitation.tuning import suggestions, trials
from self_imitation.tuning.trainable import NUMBER, NotSaved, Shared, Trial
from self_imitation.tuning.trials import Log, Search

QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is handled here
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # trials have their own metrics
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # there is no score before an episode has ended
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
}
"""Ray's variables with which it neither prints nor catches signals."""


def run(
    search: Search, resources: Resources, address: str | None, command: str, report: Report, stop: Callable[[], bool]
) -> tuple[bool, Log]:
    """Search; returns whether it came to its end, and the trials."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    place = Place(str(search.folder))
    names = [trials.trial_name(number) for number in range(search.trials)]
    config = search.config
    expected = [RunStatus(name, config.seeds, config.total_steps) for name in names]
    board = Board(f"{config.agent} on {config.env}: search for settings", command, expected)
    Log.open(search)  # another search in this folder is refused before anything is written
    failures = files.explain_failure(search.folder, "storage")
    with failures, claimed(place, board) as store, connect.connected(address):
        connect.require_resources(resources)
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        log = Log.open(search)
        follower = _Follower(log, board, store, report)
        with tempfile.TemporaryDirectory(prefix="self-imitation-tune-") as scratch:
            _fit(Shared(search, place, command, resources), log, follower, stop, scratch)
        follower.end()
        ended = not stop()
        for name in names[len(log.candidates) :] if ended else ():
            board.remove(name)  # the space has fewer combinations that are allowed
    return ended, log


def _fit(shared: Shared, log: Log, follower: "_Follower", stop: Callable[[], bool], scratch: str) -> None:
    own = shared.resources
    needed = {"cpu": own.cpus, "gpu": own.gpus}
    if own.memory is not None:
        needed["memory"] = own.needed["memory"]
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(Trial, shared=shared), needed),
        tune_config=tune.TuneConfig(
            num_samples=shared.search.trials,
            search_alg=suggestions.create(log),
            scheduler=_scheduler(shared.search),
            reuse_actors=False,  # a process of its own for each trial: XLA reads its flags only once
        ),
        run_config=tune.RunConfig(
            storage_path=scratch,
            name="search",
            verbose=0,
            callbacks=[follower],
            stop=_StopAll(stop),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # runs have their own
            failure_config=tune.FailureConfig(max_failures=own.retries),
        ),
    )
    tuner.fit()


def _scheduler(search: Search) -> TrialScheduler:
    if search.algorithm == "random":
        return FIFOScheduler()
    return ASHAScheduler(
        time_attr="step",
        metric="score",
        mode="max",
        max_t=search.config.total_steps + 1,  # the last step is the end of a run, not a decision
        grace_period=search.grace_period,
        reduction_factor=search.reduction_factor,
    )


class _StopAll(NotSaved, tune.Stopper):
    """Ends all trials when the user wants to stop."""

    def __init__(self, stop: Callable[[], bool]):
        self._stop = stop

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._stop()


class _Follower(NotSaved, tune.Callback):
    """Keeps the status and search.json up to date."""

    def __init__(self, log: Log, board: Board, store: Store, report: Report):
        self._log, self._board, self._store, self._report = log, board, store, report

    def on_step_begin(self, iteration: int, trials: Sequence[Any], **_: Any) -> None:
        if self._store.is_due():
            self._report.progress(self._refresh())

    def _refresh(self) -> Status:
        running = [run.name for run in self._board.runs if run.state == "running"]
        self._board.refresh(self._log.search.folder, running)
        return self._store.publish()

    def on_trial_start(self, iteration: int, trials: Sequence[Any], trial: Any, **_: Any) -> None:
        name = _name(trial)
        self._board.update(name, state="running", attempts=self._board[name].attempts + 1)

    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **_: Any) -> None:
        name, found = _name(trial), trial.last_result or {}
        self._board.refresh(self._log.search.folder, [name])
        self._report.messages(name, found.get("messages", ()))
        state = found.get("state")
        if state == "finished":
            self._board.update(name, state="done", made=found["step"])
            self._report.done(name, f"{self._log.search.measure} {found.get('score', math.nan):.6g}")
        elif state == "failed":
            self._fail(trial, found["error"])
        else:
            self._board.update(name, state="stopped", rate=None)
            self._log.stop(trial.config[NUMBER])
            if state == "training":  # now, and not before this search was continued
                self._report.stopped(name, int(found.get("step", 0)))

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **_: Any) -> None:
        self._fail(trial, cause_of(trial.get_pickled_error() or trial.get_error()))

    def _fail(self, trial: Any, cause: str) -> None:
        self._log.failed[trial.config[NUMBER]] = cause
        self._board.update(_name(trial), state="failed", error=cause, rate=None)
        self._report.failed(_name(trial), cause)

    def end(self) -> None:
        """Trials that were running when the user stopped the search continue later."""
        for run_ in self._board.runs:
            if run_.state == "running":
                self._board.update(run_.name, state="waiting", rate=None)


def _name(trial: Any) -> str:
    return trials.trial_name(trial.config[NUMBER])
