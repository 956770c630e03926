"""What an experiment would train, and how long that takes by measured rates."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.experiments import runs, train
from self_imitation.experiments.definition import Definition
from self_imitation.experiments.runs import Case
from self_imitation.registry import SELF_IMITATION
from self_imitation.report.results_tables import duration
from self_imitation.storage import metrics_file


@dataclass(frozen=True)
class Expected:
    """A run, and what is left of it."""

    name: str
    seeds: int
    steps: int
    """Per seed, in all."""
    made: int
    """Per seed, so far."""
    rate: float | None
    """Steps per second of all seeds together; None if it was never measured."""
    source: str
    """Where the rate was measured."""

    @property
    def seconds(self) -> float | None:
        left = (self.steps - self.made) * self.seeds
        return 0.0 if not left else left / self.rate if self.rate else None

    @property
    def state(self) -> str:
        if self.made >= self.steps:
            return "finished"
        return f"resumes at {self.made:,}" if self.made else "new"


def expect(
    definition: Definition, cases: Sequence[Case], folder: Path, gpu: bool, seeds_per_run: int | None = None
) -> list[Expected]:
    """One entry for each run that the cases need, including those of searches."""
    return [_expected(config, folder, gpu) for config in train.planned(definition, cases, folder, seeds_per_run)]


def _expected(config: TrainConfig, folder: Path, gpu: bool) -> Expected:
    run = runs.directory(config)
    rows = metrics_file.read(run.path)
    made = config.total_steps if runs.is_finished(config) else int(rows[-1]["step"]) if rows else 0
    rate, source = _measured(config, gpu)
    if rows:
        rate, source = float(np.median([row["steps_per_second"] for row in rows])), "this run so far"
    name = str(run.shown.relative_to(folder))
    return Expected(name, config.seeds, config.total_steps, min(made, config.total_steps), rate, source)


def _measured(config: TrainConfig, gpu: bool) -> tuple[float | None, str]:
    """From the table of measured rates: that of the agent, or of the same one without bonuses.

    Seeds that can't be divided equally among the workers of that machine leave some of them idle.
    """
    without_bonuses = f"{config.parts.learner}{f'+{SELF_IMITATION}' * config.parts.self_imitation}"
    device = "gpu" if gpu and config.env.startswith("atari:") else "cpu"
    for agent in (config.agent, without_bonuses):
        for row in _rates():
            if fnmatch(config.env, row["env"]) and fnmatch(agent, row["agent"]) and row["device"] == device:
                workers = int(row["workers"])
                busy = config.seeds / (workers * math.ceil(config.seeds / workers))
                return busy * float(row["steps_per_second"]), row["machine"]
    return None, "not measured"


def _rates() -> list[dict[str, str]]:
    file = resources.files("self_imitation.experiments").joinpath("rates.csv")
    with file.open(encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def in_words(expected: Sequence[Expected]) -> str:
    """A line for each run, then their sum and where the estimate comes from."""
    width = max(len(run.name) for run in expected)
    lines = []
    for run in expected:
        time = "unknown" if run.seconds is None else "-" if not run.seconds else f"about {duration(run.seconds)}"
        lines.append(f"{run.name:{width}}  {run.steps:>12,} steps x {run.seeds} seeds  {run.state:22} {time}")
    left = [run for run in expected if run.seconds != 0]
    total = sum(run.seconds or 0.0 for run in left)
    steps = sum((run.steps - run.made) * run.seeds for run in left)
    unknown = sum(run.seconds is None for run in left)
    known = [f"about {duration(total)}"] if unknown < len(left) or not left else []
    unmeasured = [f"{unknown} runs for which no rate was measured"] if unknown else []
    time = " and ".join(known + unmeasured)
    lines.append(f"{len(left)} of {len(expected)} runs to train, {steps:,} steps of all seeds: {time}")
    if sources := sorted({run.source for run in left if run.rate}):
        lines.append(f"Rates were measured on: {'; '.join(sources)}. Other machines differ.")
    return "\n".join(lines)
