"""A search on disk: search.json with the settings of its trials, a run directory for each, tune.csv and preset.toml."""

import csv
import datetime
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from self_imitation.config import BasePreset, TrainConfig, is_hyperparameter
from self_imitation.errors import UsageError
from self_imitation.experiments import runs
from self_imitation.experiments.search import FIRST_SEED
from self_imitation.storage import files, metrics_file
from self_imitation.storage.settings_file import write_preset
from self_imitation.tuning import space as spaces
from self_imitation.tuning.space import Candidate, Space

FILE, TABLE, PRESET = "search.json", "tune.csv", "preset.toml"
VERSION = 1
ROWS = 20
"""Rows of metrics of a trial, at least: a trial can be stopped after each of them."""

Algorithm = Literal["random", "asha", "optuna"]
Measure = Literal["return_latest", "return_mean"]
State = Literal["waiting", "done", "stopped", "failed"]


@dataclass(frozen=True)
class Search:
    """What is searched, and how."""

    config: TrainConfig
    """Of a trial, with the settings that all of them have."""
    preset: BasePreset
    settings: Candidate
    """Those over the preset, of the user's own preset and of flags."""
    space: Space
    folder: Path
    algorithm: Algorithm
    measure: Measure
    trials: int
    grace_period: int
    reduction_factor: float
    seed: int
    """Of the random numbers that draw settings."""

    def trial(self, number: int, candidate: Candidate) -> TrainConfig:
        """The run of a trial. Raises a `UsageError` if its settings do not go together."""
        return replace(spaces.apply(self.config, candidate), out=str(self.folder / trial_name(number)))

    def to_json(self) -> dict[str, object]:
        """What must be the same when a search is continued."""
        config = self.config
        return {
            "version": VERSION,
            "env": config.env,
            "agent": config.agent,
            "preset": self.preset,
            "steps": config.steps,
            "seeds": config.seeds,
            "settings": plain(self.settings),
            "space": {name: str(dimension) for name, dimension in self.space.items()},
            "algorithm": self.algorithm,
            "measure": self.measure,
            "grace_period": self.grace_period,
            "reduction_factor": self.reduction_factor,
            "seed": self.seed,
        }


def base_config(config: TrainConfig, steps: int, seeds: int) -> TrainConfig:
    """A trial's config: seeds that are never reported, and rows often enough to stop it early."""
    log_every = min(config.log_every, max(1, steps // ROWS))
    return replace(config, steps=steps, seeds=seeds, seed=FIRST_SEED, log_every=log_every)


def trial_name(number: int) -> str:
    """Counted from 1."""
    return f"trial-{number + 1:03}"


@dataclass
class Log:
    """The trials that were started, in search.json. Only the process that searches writes it."""

    search: Search
    candidates: list[Candidate] = field(default_factory=list)
    stopped: set[int] = field(default_factory=set)
    """Trials that were stopped early."""
    failed: dict[int, str] = field(default_factory=dict)
    """Trials that failed, and why."""

    @classmethod
    def open(cls, search: Search) -> "Log":
        """The log of the folder, or a new one. Raises a `UsageError` if the folder has another search."""
        path = search.folder / FILE
        if not os.path.exists(path):
            return cls(search)
        try:
            data = files.read_json(path)
            candidates = [from_json(search, entry["settings"]) for entry in data["trials"]]
            stopped = {i for i, entry in enumerate(data["trials"]) if entry["stopped"]}
            about = {name: data[name] for name in search.to_json()}
        except (files.UnreadableError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{str(path)!r} is damaged: not the trials of a search") from None
        for name, value in search.to_json().items():
            if about[name] != value:
                hint = "search in another folder with --name"
                raise UsageError(f"{str(search.folder)!r} has {name} = {about[name]}, not {value}; {hint}")
        return cls(search, candidates, stopped)

    def add(self, number: int, candidate: Candidate) -> None:
        if number == len(self.candidates):
            self.candidates.append(candidate)
            self.write()

    def stop(self, number: int) -> None:
        self.stopped.add(number)
        self.write()

    def write(self) -> None:
        listed = [{"settings": plain(c), "stopped": i in self.stopped} for i, c in enumerate(self.candidates)]
        files.write_json(self.search.folder / FILE, {**self.search.to_json(), "trials": listed})


@dataclass(frozen=True)
class Outcome:
    """A trial as far as it has come."""

    name: str
    settings: Candidate
    state: State
    step: int
    scores: tuple[float, ...]
    """Of each seed, in its latest row."""
    error: str = ""

    @property
    def score(self) -> float:
        """NaN if a seed has none."""
        return float(np.mean(self.scores)) if self.scores else math.nan

    @property
    def rank(self) -> tuple[bool, int, float]:
        """A failed trial is worse than all others; then more steps are better, and of as many a higher score."""
        return self.state != "failed", self.step, -math.inf if math.isnan(self.score) else self.score


def outcomes(log: Log) -> list[Outcome]:
    """All trials, best first."""
    found = [_outcome(log, number) for number in range(min(len(log.candidates), log.search.trials))]
    return sorted(found, key=lambda outcome: outcome.rank, reverse=True)


def _outcome(log: Log, number: int) -> Outcome:
    search, candidate, name = log.search, log.candidates[number], trial_name(number)
    rows = metrics_file.read(search.folder / name)
    step, scores = latest(rows, search.measure)
    state: State = "waiting"
    if number in log.failed:
        state = "failed"
    elif runs.is_finished(search.trial(number, candidate)):
        state = "done"
    elif number in log.stopped:
        state = "stopped"
    return Outcome(name, candidate, state, step, tuple(scores), log.failed.get(number, ""))


def latest(rows: Sequence[Mapping[str, float]], measure: str) -> tuple[int, list[float]]:
    """The last step of these rows, and the score of each seed there."""
    step = int(max((row["step"] for row in rows), default=0))
    return step, [row[measure] for row in rows if row["step"] == step]


def best(found: Sequence[Outcome]) -> Outcome | None:
    """The trial with the highest score among those with most steps; None if none has a score."""
    scored = [outcome for outcome in found if outcome.state != "failed" and not math.isnan(outcome.score)]
    return max(scored, key=lambda outcome: outcome.rank, default=None)


def write_table(search: Search, found: Sequence[Outcome]) -> Path:
    """Write tune.csv, best trial first."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    seeds = search.config.seed_numbers
    table.writerow(["trial", "state", "step", "score", *(f"seed {seed}" for seed in seeds), *search.space, "error"])
    for own in found:
        scores = ["" if math.isnan(score) else f"{score:.9g}" for score in (own.score, *own.scores)]
        scores += [""] * (1 + len(seeds) - len(scores))
        values = [own.settings[name] for name in search.space]
        table.writerow([own.name, own.state, own.step, *scores, *values, own.error])
    path = search.folder / TABLE
    files.write_text(path, text.getvalue())
    return path


def write_best(search: Search, winner: Outcome, found: Sequence[Outcome], command: str) -> Path:
    """Write preset.toml, with where its settings come from."""
    config, path = search.config, search.folder / PRESET
    first, last = config.seed_numbers[0], config.seed_numbers[-1]
    seeds = f"seeds {first} to {last}" if last > first else f"seed {first}"
    states = ", ".join(f"{n} {s}" for s in ("done", "stopped", "failed") if (n := sum(o.state == s for o in found)))
    comments = [
        f"Found by: {command}",
        f"On {datetime.datetime.now(datetime.UTC).date()}: {winner.name}, the best of {len(found)} trials ({states}).",
        f"{search.measure} {winner.score:.6g} with {seeds} after {winner.step:,} steps.",
        "As the best of many, this score is optimistic: train other seeds for one to report.",
    ]
    fixed = {name: value for name, value in search.settings.items() if is_hyperparameter(name)}
    write_preset(path, config.agent, config.env, {**fixed, **winner.settings}, comments, search.preset)
    return path


def plain(candidate: Candidate) -> dict[str, Any]:
    """Settings as JSON has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in candidate.items()}


def from_json(search: Search, data: Mapping[str, Any]) -> Candidate:
    """Settings that `plain` has written."""
    return {name: spaces.converted(search.config, name, value) for name, value in data.items()}
