"""A results directory: what an experiment found, as small tables that can be committed.

experiment.toml   the definition as it was run
scores.csv        one row per task, agent and seed
curves.csv        one row per task, agent, measure and logging point, with a column for each seed
provenance.json   command, commit, versions, machines, wall time, date, and the steps of each run
choices.json      with a search: the candidates with their scores, and the chosen ones
"""

import csv
import io
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from self_imitation.errors import UsageError
from self_imitation.experiments import definition as definitions
from self_imitation.experiments import provenance
from self_imitation.experiments.definition import Definition
from self_imitation.storage import files

T = TypeVar("T")
DEFINITION, SCORES, CURVES, PROVENANCE, CHOICES = (
    "experiment.toml",
    "scores.csv",
    "curves.csv",
    "provenance.json",
    "choices.json",
)
SCORE_COLUMNS = ("task", "agent", "seed", "steps", "final", "best")
CURVE_COLUMNS = ("task", "agent", "measure", "step", "seconds")
SEED = "seed_"
"""Prefix of the columns of curves.csv with the values of a seed."""
BEST = "return_best"
"""Measure of curves: the best episode of each `Definition.best_every` steps."""


@dataclass(frozen=True)
class Score:
    """What one seed reached."""

    task: str
    agent: str
    seed: int
    steps: int
    """Made so far."""
    final: float
    """The definition's measure at the end; NaN if unknown."""
    best: float
    """Return of the best episode; NaN if unknown."""


@dataclass(frozen=True)
class Curve:
    """One measure of one agent on one task at each logging point."""

    task: str
    agent: str
    measure: str
    seeds: tuple[int, ...]
    steps: np.ndarray
    """[points]"""
    seconds: np.ndarray
    """[points] wall time since the run began; NaN if unknown"""
    values: np.ndarray
    """[points, seeds]; NaN where there is none"""


@dataclass(frozen=True)
class Results:
    """What an experiment found."""

    definition: Definition
    """The experiment as it was run."""
    scores: Sequence[Score]
    curves: Sequence[Curve]
    provenance: Mapping[str, Any]
    """provenance.json."""
    choices: Sequence[Mapping[str, Any]] = field(default=())
    """With a search: for each task and agent, the candidates with their scores and the chosen one."""

    def finals(self, task: str, agent: str) -> np.ndarray:
        """The final score of each seed; empty if it was not run."""
        return np.array([score.final for score in self.scores if (score.task, score.agent) == (task, agent)])

    def areas(self, task: str, agent: str, until: float = math.inf) -> np.ndarray:
        """The area under each seed's learning curve, as its mean up to `until` steps; empty if it was not run.

        Points without a value take those of their seed's neighbours.
        """
        curve = self.curve(task, agent)
        if curve is None:
            return np.array([])
        used = curve.steps <= max(until, curve.steps[0])
        steps, areas = curve.steps[used], []
        for own in curve.values[used].T:
            known = np.isfinite(own)
            areas.append(np.interp(steps, steps[known], own[known]).mean() if known.any() else math.nan)
        return np.array(areas)

    def compared(self, task: str, agent: str, until: float = math.inf) -> np.ndarray:
        """The score of each seed that differences compare; areas up to `until` steps, so that both are as long."""
        return self.areas(task, agent, until) if self.definition.primary == "area" else self.finals(task, agent)

    def curve(self, task: str, agent: str, measure: str | None = None) -> Curve | None:
        """None: not run. By default the definition's measure."""
        wanted = task, agent, measure or self.definition.measure
        return next((curve for curve in self.curves if (curve.task, curve.agent, curve.measure) == wanted), None)

    def cases(self) -> Iterator[tuple[str, str]]:
        """Task and agent of every run that the definition asks for."""
        return ((task.name, agent.name) for task in self.definition.tasks for agent in self.definition.agents)

    def steps(self, task: str, agent: str) -> int:
        """Steps per seed that were made, by the seed that made fewest; 0 if it was not run."""
        return min((s.steps for s in self.scores if (s.task, s.agent) == (task, agent)), default=0)

    def planned_steps(self, task: str, agent: str) -> int:
        """Steps per seed of the experiment in its full length."""
        runs = [run for run in self.provenance["runs"] if (run["task"], run["agent"]) == (task, agent)]
        return max((run["planned_steps"] for run in runs), default=self.definition.steps_of(self.definition.task(task)))

    def not_run(self) -> list[tuple[str, str]]:
        """Task and agent of the runs that are missing."""
        return [case for case in self.cases() if not self.steps(*case)]

    def shortened(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Runs with fewer steps than planned: by task and agent, the steps made and the planned ones."""
        found = {case: (self.steps(*case), self.planned_steps(*case)) for case in self.cases()}
        return {case: (made, planned) for case, (made, planned) in found.items() if 0 < made < planned}


def joined(kept: Results, found: Results) -> Results:
    """`found`, with the cases of `kept` that were not run again and that the definition still describes."""
    again = {_CASE_OF_ENTRY(run) for run in found.provenance["runs"]}
    old = {
        case for case in kept.cases() if case not in again and _is_same_case(kept.definition, found.definition, case)
    }
    place = {case: i for i, case in enumerate(found.cases())}

    def both(first: Iterable[T], second: Iterable[T], case_of: Callable[[T], tuple[str, str]]) -> list[T]:
        parts = [*(part for part in first if case_of(part) in old), *second]
        return sorted(parts, key=lambda part: place[case_of(part)])

    return Results(
        found.definition,
        both(kept.scores, found.scores, _CASE_OF),
        both(kept.curves, found.curves, _CASE_OF),
        provenance.joined(kept.provenance, found.provenance, both(_runs(kept), _runs(found), _CASE_OF_ENTRY)),
        both(kept.choices, found.choices, _CASE_OF_ENTRY),
    )


_CASE_OF: Any = operator.attrgetter("task", "agent")
_CASE_OF_ENTRY: Any = operator.itemgetter("task", "agent")


def _is_same_case(old: Definition, new: Definition, case: tuple[str, str]) -> bool:
    """Whether both definitions train and measure it in the same way."""
    parts = [
        [
            *(task for task in definition.tasks if task.name == case[0]),
            *(agent for agent in definition.agents if agent.name == case[1]),
            *(getattr(definition, name) for name in ("preset", "settings", "measure", "steps", "best_every")),
        ]
        for definition in (old, new)
    ]
    return parts[0] == parts[1]


def _runs(results: Results) -> list[Mapping[str, Any]]:
    """Of provenance.json; what holds for all runs is written to each."""
    common = {key: results.provenance.get(key) for key in provenance.KEYS}
    return [{**run, **{k: v for k, v in common.items() if run.get(k) is None}} for run in results.provenance["runs"]]


def write(results: Results, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    files.write_text(out / DEFINITION, definitions.to_toml(results.definition))
    scores = [{name: _cell(getattr(score, name), 9) for name in SCORE_COLUMNS} for score in results.scores]
    write_table(out / SCORES, scores, SCORE_COLUMNS)
    seeds = sorted({seed for curve in results.curves for seed in curve.seeds})
    write_table(out / CURVES, _curve_rows(results.curves), [*CURVE_COLUMNS, *(f"{SEED}{seed}" for seed in seeds)])
    files.write_json(out / PROVENANCE, results.provenance)
    if results.choices:
        files.write_json(out / CHOICES, results.choices)
    else:
        (out / CHOICES).unlink(missing_ok=True)


def _curve_rows(curves: Sequence[Curve]) -> Iterator[dict[str, str]]:
    for curve in curves:
        for step, seconds, values in zip(curve.steps, curve.seconds, curve.values, strict=True):
            row = {"task": curve.task, "agent": curve.agent, "measure": curve.measure, "step": str(step)}
            row["seconds"] = _cell(seconds, 4)
            yield row | {f"{SEED}{seed}": _cell(value, 4) for seed, value in zip(curve.seeds, values, strict=True)}


def write_table(path: Path, rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    """A CSV file; missing cells are empty, numbers have six digits."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(value, 6) for name, value in row.items()})


def _cell(value: object, digits: int) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}g}" if math.isfinite(value) else ""
    return str(value)


def read(path: str | Path) -> Results:
    """Read a results directory.

    Raises:
        UsageError: the directory is not one of results, or it is damaged.
    """
    path = Path(path)
    if not (path / DEFINITION).is_file():
        raise UsageError(f"{str(path)!r} is not a results directory (no {DEFINITION})")
    definition = definitions.parse(_text(path / DEFINITION), str(path / DEFINITION), path.name)
    provenance = _json(path / PROVENANCE)
    runs = provenance.get("runs") if isinstance(provenance, dict) else None
    if not isinstance(runs, list) or not all(isinstance(run, dict) and run.keys() >= RUN_KEYS for run in runs):
        raise UsageError(f"{str(path / PROVENANCE)!r} is damaged: no list of runs")
    return Results(
        definition,
        [_score(row) for row in _rows(path / SCORES, SCORE_COLUMNS)],
        _read_curves(path / CURVES),
        provenance,
        _json(path / CHOICES) if (path / CHOICES).exists() else (),
    )


RUN_KEYS = frozenset({"task", "agent", "seeds", "first_seed", "steps", "planned_steps", "seconds", "machine"})
"""Of each run in provenance.json; `None` for what is unknown."""


def _score(row: Mapping[str, str]) -> Score:
    final, best = _number(row["final"]), _number(row["best"])
    return Score(row["task"], row["agent"], int(row["seed"]), int(row["steps"]), final, best)


def _read_curves(path: Path) -> list[Curve]:
    found: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for row in _rows(path, CURVE_COLUMNS):
        found.setdefault((row["task"], row["agent"], row["measure"]), []).append(row)
    return [_curve(*case, rows) for case, rows in found.items()]


def _curve(task: str, agent: str, measure: str, rows: Sequence[Mapping[str, str]]) -> Curve:
    """Seeds without any value were not trained with this agent."""
    columns = [name for name in rows[0] if name.startswith(SEED) and any(row[name] for row in rows)]
    return Curve(
        task,
        agent,
        measure,
        tuple(int(name.removeprefix(SEED)) for name in columns),
        np.array([int(row["step"]) for row in rows]),
        np.array([_number(row["seconds"]) for row in rows]),
        np.array([[_number(row[name]) for name in columns] for row in rows]),
    )


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a table whose cells are what its columns need."""
    table = csv.DictReader(io.StringIO(_text(path)))
    if missing := set(columns) - set(table.fieldnames or ()):
        raise UsageError(f"{str(path)!r} is damaged: no column {sorted(missing)[0]!r}")
    rows = list(table)
    for number, row in enumerate(rows, start=2):
        for name, cell in row.items():
            if name in ("task", "agent", "measure"):
                continue
            try:
                whole = name in ("seed", "steps", "step")
                int(cell) if whole else _number(cell)
            except (ValueError, TypeError, AttributeError):
                raise UsageError(f"{str(path)!r} is damaged: line {number}, column {name!r}: {cell!r}") from None
    return rows


def _number(cell: str) -> float:
    return float(cell) if cell else math.nan


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{str(path)!r} is damaged: not text") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except ValueError:
        raise UsageError(f"{str(path)!r} is damaged: not readable JSON") from None
