"""The grid worlds (paper, figure 2): four agents on Key-Door-Treasure, with and without apples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Settings
from self_imitation.report import statistics
from self_imitation.training.run import Run

DEFAULTS = Settings(steps=2_000_000, seeds=16)
BEST_RETURN = {"key-door-treasure": 7.0, "apple-key-door-treasure": 9.0}
AGENTS = ("a2c", "a2c+exp", "a2c+sil", "a2c+sil+exp")
SOLVED = 0.95
"""A seed solves a task if its mean return in the last row of metrics is at least this fraction of the best return."""

PAPER = {
    "key-door-treasure": "all four agents learn it: A2C+SIL and A2C+SIL+EXP fastest, then A2C+EXP, then A2C",
    "apple-key-door-treasure": "only A2C+SIL+EXP collects everything; the others settle for the two apples",
}

EXPLANATION = f"""\
A seed solves a task if its mean return in the last row of metrics ({TrainConfig().log_every:,} steps) is at least
{SOLVED:.0%} of the best possible return (7, or 9 with apples). Intervals are bootstrapped over seeds for means, and
Wilson's for fractions."""

FILES = "`curves.csv` has the mean return of every seed at every logging point, `table.csv` the first table."


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    env: str
    agent: str
    final_mean: float
    final_low: float
    final_high: float
    solved: int
    seeds: int
    solved_low: float
    solved_high: float
    steps_to_solve: float
    """Steps until the mean over seeds first reached the solved level; NaN if it never did."""
    seconds: float


def configs(settings: Settings, folder: Path, agents: Sequence[str] = AGENTS) -> list[TrainConfig]:
    return [campaign.config(env, agent, settings, folder / f"{env}_{agent}") for env in BEST_RETURN for agent in agents]


def report(settings: Settings, folder: Path, out: Path) -> list[Line]:
    """Write curves.csv, table.csv, figure.png and README.md to `out`, from the runs in `folder`."""
    wanted = configs(settings, folder)
    loaded = campaign.load(wanted)
    lines = [summarise(run) for run in loaded]
    compared = "\n".join(f"| {env} | {claim} | {ranking(lines, env)} |" for env, claim in PAPER.items())
    page = f"""# Grid worlds (paper, figure 2)

{campaign.figure(loaded, wanted)}

{table(lines)}

{EXPLANATION}

| environment | paper (figure 2) | here |
|---|---|---|
{compared}

{campaign.provenance("grid-worlds", settings, DEFAULTS, loaded)}

Each seed trains for {settings.steps:,} steps. {FILES}
"""
    campaign.write_report(out, [run.curve for run in loaded], {"table.csv": lines}, page)
    return lines


def summarise(run: Run) -> Line:
    curve, seconds = run.curve, float(run.metrics()[-1]["seconds"])
    final = curve.returns[-1]
    level = SOLVED * BEST_RETURN[curve.env]
    solved = int((final >= level).sum())
    reached = np.flatnonzero(curve.returns.mean(axis=1) >= level)
    first = float(curve.steps[reached[0]]) if len(reached) else math.nan
    interval = statistics.mean_interval(final)
    fraction = statistics.fraction_interval(solved, len(final))
    return Line(curve.env, curve.label, float(final.mean()), *interval, solved, len(final), *fraction, first, seconds)


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [
        "| environment | agent | final return (95 %) | seeds that solve it (95 %) | mean reaches that level after |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        final = f"{line.final_mean:.2f} ({line.final_low:.2f} to {line.final_high:.2f})"
        solved = f"{line.solved} of {line.seeds} ({line.solved_low:.0%} to {line.solved_high:.0%})"
        first = f"{line.steps_to_solve:,.0f} steps" if math.isfinite(line.steps_to_solve) else "never"
        rows.append(f"| {line.env} | {line.agent} | {final} | {solved} | {first} |")
    return "\n".join(rows)


def ranking(lines: Sequence[Line], env: str) -> str:
    """The agents that reached the solved level, fastest first, then the final returns of the others."""
    own = [line for line in lines if line.env == env]
    reached = sorted((line for line in own if math.isfinite(line.steps_to_solve)), key=lambda line: line.steps_to_solve)
    parts = [f"{line.agent} after {line.steps_to_solve:,.0f} steps" for line in reached]
    parts += [f"{line.agent} ends at {line.final_mean:.2f}" for line in own if line not in reached]
    return ", ".join(parts)
