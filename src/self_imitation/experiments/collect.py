"""From the runs of an experiment to its results."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from self_imitation.errors import UsageError
from self_imitation.experiments import provenance, runs, search
from self_imitation.experiments.definition import Definition
from self_imitation.experiments.results import BEST, Curve, Results, Score
from self_imitation.experiments.runs import Case
from self_imitation.storage.run_directory import RunDirectory

MOST_POINTS = 200
"""Of a curve; every other one, every third one ... of longer curves is kept."""
Rows = list[dict[str, float]]


@dataclass(frozen=True)
class Batch:
    """The seeds of a case that were trained together."""

    run: RunDirectory
    seeds: tuple[int, ...]
    rows: Rows


def collect(definition: Definition, folder: Path, planned: Definition) -> Results:
    """The results of the runs in `folder`, finished or not. `planned`: the experiment in its full length.

    Raises a `UsageError` if there is no run at all, or one that is not of this experiment.
    """
    scores: list[Score] = []
    curves: list[Curve] = []
    choices: list[dict[str, Any]] = []
    sources: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    for case in runs.cases(definition):
        choice = search.choose(definition, case, folder) if case.agent.search else None
        choices += [choice] if choice else []
        if case.agent.search and not choice:
            continue  # the settings of the run are not known yet
        if batches := _batches(definition, case, folder, choice["chosen"] if choice else None):
            scores += [score for batch in batches for score in _scores(definition, case, batch)]
            curves += _curves(definition, case, batches)
        for batch in batches:
            sources.append(provenance.read(batch.run.path) | {"machines": batch.run.machines()})
            entries.append(_entry(planned, case, batch, sources[-1]))
    if not entries:
        raise UsageError(f"runs: {str(folder)!r} has no run of this experiment; train without --report-only")
    machines = [machine for source in sources for machine in source["machines"] or ["an unnamed machine"]]
    total = {"machines": [*dict.fromkeys(machines)], "wall_seconds": round(sum(e["seconds"] for e in entries), 1)}
    return Results(definition, scores, curves, provenance.common(sources) | total | {"runs": entries}, choices)


def _entry(planned: Definition, case: Case, batch: Batch, source: dict[str, Any]) -> dict[str, Any]:
    """A run in provenance.json."""
    return {
        "task": case.task.name,
        "agent": case.agent.name,
        "seeds": len(batch.seeds),
        "first_seed": batch.seeds[0],
        "steps": int(batch.rows[-1]["step"]),
        "planned_steps": planned.steps_of(planned.task(case.task.name)),
        "paper_steps": planned.paper_steps,
        "seconds": round(batch.rows[-1]["seconds"], 1),
        "machine": ", ".join(source["machines"]) or None,
        **{name: source[name] for name in ("command", "commit", "version", "date")},
    }


def _batches(definition: Definition, case: Case, folder: Path, chosen: dict[str, Any] | None) -> list[Batch]:
    """Of the case, those that have metrics."""
    wanted = runs.run_config(definition, case, folder, chosen)
    found = []
    for run in runs.batches(definition, case, folder):
        runs.require_same(run, wanted, but=("seed", "seeds"))
        if rows := runs.metrics(run, definition.measure):
            found.append(Batch(run, run.config().seed_numbers, rows))
    return found


def _scores(definition: Definition, case: Case, batch: Batch) -> list[Score]:
    found = []
    for seed in batch.seeds:
        own = [row for row in batch.rows if int(row["seed"]) == seed]
        best = float(np.fmax.reduce([row["return_best"] for row in own]))
        steps, final = int(own[-1]["step"]), own[-1][definition.measure]
        found.append(Score(case.task.name, case.agent.name, seed, steps, final, best))
    return found


def _curves(definition: Definition, case: Case, batches: Sequence[Batch]) -> list[Curve]:
    found = [_thinned(_curve(case, batches, definition.measure))]
    if definition.best_every:
        found.append(_windows(_curve(case, batches, BEST), definition.best_every))
    return found


def _curve(case: Case, batches: Sequence[Batch], column: str) -> Curve:
    seeds = [seed for batch in batches for seed in batch.seeds]
    steps = sorted({int(row["step"]) for batch in batches for row in batch.rows})
    place, own = {step: i for i, step in enumerate(steps)}, {seed: i for i, seed in enumerate(seeds)}
    seconds, values = np.full(len(steps), math.nan), np.full((len(steps), len(seeds)), math.nan)
    for batch in reversed(batches):
        for row in batch.rows:
            point = place[int(row["step"])]
            values[point, own[int(row["seed"])]] = row[column]
            seconds[point] = row["seconds"]
    return Curve(case.task.name, case.agent.name, column, tuple(seeds), np.array(steps), seconds, values)


def _thinned(curve: Curve) -> Curve:
    stride = -(-len(curve.steps) // MOST_POINTS)
    return _points(curve, np.arange(len(curve.steps) - 1, -1, -stride)[::-1])


def _windows(curve: Curve, length: int) -> Curve:
    """The highest value within each `length` steps."""
    window = (curve.steps - 1) // length
    ends = np.flatnonzero(np.diff(window, append=window[-1] + 1))
    best = [np.fmax.reduce(curve.values[window == window[end]]) for end in ends]
    return dataclasses.replace(_points(curve, ends), values=np.array(best))


def _points(curve: Curve, kept: np.ndarray) -> Curve:
    return dataclasses.replace(curve, steps=curve.steps[kept], seconds=curve.seconds[kept], values=curve.values[kept])
