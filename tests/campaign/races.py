"""Several processes on one run, and a run that is moved or deleted while it is trained."""

import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from campaign import processes
from campaign.context import Context
from campaign.outcomes import Case, Outcome, Tally, judge

FULL = 12
"""Races of the full campaign."""
ROWS = 60
SYSTEM = "pure JAX"


def run(context: Context) -> Tally:
    tally, folder, random_ = Tally(), context.folder / "races", context.random("races")
    folder.mkdir()
    whole = processes.run(*_words(), "--out", folder / "whole")
    if whole.status != 0:
        tally.add(Case("races", ("train",), about="one process"), whole)
        return tally
    races = [two_trainings, two_resumes, readers, deleted, moved, metrics_deleted]
    chosen = [(i, races[i % len(races)], random_.randrange(2**32)) for i in range(context.count(FULL))]
    with ThreadPoolExecutor(1) as threads:  # a race needs both cores
        for (_, race, seed), found in zip(
            chosen, threads.map(lambda args: _race(*args, folder, context), chosen), strict=True
        ):
            if found is not None:
                case = Case("races", tuple(_words()), about=f"{race.__name__}, seed {seed}")
                context.report(case, tally.add(case, found))
    return tally


def _words() -> list[str]:
    return processes.train_words(SYSTEM, ROWS)


def _race(number: int, race: Callable[..., Outcome], seed: int, folder: Path, context: Context) -> Outcome | None:
    if context.over():
        return None
    place = folder / str(number)
    place.mkdir()
    outcome = race(place, random.Random(seed))
    shutil.rmtree(place, ignore_errors=True)
    return outcome


def _compared(outcome: Outcome, run: Path, folder: Path) -> Outcome:
    """The outcome, with how the run differs from one that was left alone."""
    if outcome.divergence:
        return outcome
    text = "the run is gone" if not run.exists() else processes.difference(folder / "whole", run)
    return replace(outcome, divergence=text)


def two_trainings(place: Path, random_: random.Random) -> Outcome:
    """One trains, the other says in one line why not."""
    return _two(place, random_, [[*_words(), "--out", str(place / "run")]] * 2)


def two_resumes(place: Path, random_: random.Random) -> Outcome:
    process = processes.start(*_words(), "--out", place / "run")
    processes.wait_for_row(process)
    processes.end(process)
    processes.finish(process)
    return _two(place, random_, [["resume", str(place / "run")]] * 2)


def _two(place: Path, random_: random.Random, commands: list[list[str]]) -> Outcome:
    first = processes.start(*commands[0])
    time.sleep(random_.choice((0, random_.uniform(0, 0.2), random_.uniform(0, 3))))
    second = processes.start(*commands[1])
    with ThreadPoolExecutor(2) as threads:
        outcomes = sorted(threads.map(processes.finish, (first, second)), key=lambda found: found.status or 0)
    case = Case("races", ())
    for outcome in outcomes:
        if judge(case, outcome) is not None:
            return outcome
    if outcomes[0].status != 0:
        return replace(outcomes[0], divergence=f"neither process trained: {outcomes[0].stderr.strip()[-60:]}")
    return _compared(outcomes[0], place / "run", place.parent)


def readers(place: Path, random_: random.Random) -> Outcome:
    """Evaluations and plots in the middle of training: they work, and change nothing."""
    run = place / "run"
    training = processes.start(*_words(), "--out", run)
    processes.wait_for_row(training)
    with ThreadPoolExecutor(1) as threads:
        trained = threads.submit(processes.finish, training)
        while not trained.done():
            command = random_.choice(
                (["evaluate", run, "--episodes", "1"], ["plot", run, "--out", place / "curves.png"])
            )
            outcome = processes.must_succeed(processes.run(*command))
            if outcome.status != 0:
                processes.end(training)
                return outcome
    return _compared(processes.must_succeed(trained.result()), run, place.parent)


def deleted(place: Path, random_: random.Random) -> Outcome:
    """One line; the directory does not come back."""
    run = place / "run"
    process = processes.start(*_words(), "--out", run)
    processes.wait_for_row(process)
    time.sleep(random_.uniform(0, 0.3))
    shutil.rmtree(run, ignore_errors=True)
    shutil.rmtree(run, ignore_errors=True)  # what was written in between
    outcome = processes.finish(process)
    back = [path.name for path in run.rglob("*")] if run.exists() else []
    if outcome.status == 0 and not back:
        return replace(outcome, divergence="status 0 without a run")
    return replace(outcome, divergence=f"a deleted run came back with {sorted(back)[:3]}") if back else outcome


def moved(place: Path, random_: random.Random) -> Outcome:
    """It goes on where it is now, or stops with one line; nothing appears in the old place."""
    run, target = place / "run", place / "elsewhere"
    process = processes.start(*_words(), "--out", run)
    processes.wait_for_row(process)
    time.sleep(random_.uniform(0, 0.3))
    run.rename(target)
    outcome = processes.finish(process)
    if run.exists():
        return replace(outcome, divergence="the run is split: a second directory in the old place")
    if judge(Case("races", ()), outcome) is not None:
        return outcome
    return _compared(processes.must_succeed(processes.run("resume", target)), target, place.parent)


def metrics_deleted(place: Path, random_: random.Random) -> Outcome:
    """Rows are lost, and the run says so."""
    run = place / "run"
    process = processes.start(*_words(), "--out", run)
    processes.wait_for_row(process)
    (run / "metrics.csv").unlink()
    outcome = processes.finish(process)
    if outcome.status == 0 and "metrics.csv" not in outcome.stdout + outcome.stderr:
        return replace(outcome, divergence="metrics.csv vanished and nothing was said")
    return outcome
