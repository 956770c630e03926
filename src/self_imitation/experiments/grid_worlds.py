"""The paper's grid-world figure (figure 2): four agents on Key-Door-Treasure, with and without apples."""

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig, resolve
from self_imitation.experiments import campaign
from self_imitation.report import curves, statistics
from self_imitation.report.curves import Curve
from self_imitation.training.run import Run
from self_imitation.validation import validate

BEST_RETURN = {"key-door-treasure": 7.0, "apple-key-door-treasure": 9.0}
COMPARED = ("a2c", "a2c+exp", "a2c+sil", "a2c+sil+exp")
SOLVED = 0.95
"""A seed counts as solved when its mean return over the last row is at least this share of the best return."""

WHAT_THE_PAPER_SHOWS = {
    "key-door-treasure": "all four learn it, A2C+SIL and A2C+SIL+EXP fastest, then A2C+EXP, A2C slowest",
    "apple-key-door-treasure": "only A2C+SIL+EXP collects everything, the others stay with the two apples",
}


@dataclass(frozen=True)
class Settings:
    steps: int = 2_000_000
    seeds: int = 16
    seed: int = 0


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
    """Where the mean over seeds first reached the solved level; NaN if it never did."""
    seconds: float


def configs(settings: Settings, folder: Path) -> list[TrainConfig]:
    shared = dataclasses.asdict(settings)
    return [
        validate(resolve(env, "authors", {"agent": agent, "out": str(folder / f"{env}_{agent}"), **shared}))
        for env in BEST_RETURN
        for agent in COMPARED
    ]


def report(settings: Settings, folder: Path, out: Path) -> list[Line]:
    """curves.csv, table.csv, figure.png and README.md in `out`, from the runs in `folder`."""
    wanted = configs(settings, folder)
    loaded = campaign.load(wanted)
    drawn = [run.curve for run in loaded]
    lines = [_line(run.curve, float(run.metrics()[-1]["seconds"])) for run in loaded]
    out.mkdir(parents=True, exist_ok=True)
    campaign.write_curves(out / "curves.csv", drawn)
    campaign.write_table(out / "table.csv", lines)
    curves.draw(drawn, out / "figure.png")
    campaign.write_page(out / "README.md", _page(lines, settings, loaded, wanted))
    return lines


def _line(curve: Curve, seconds: float) -> Line:
    final = curve.returns[-1]
    level = SOLVED * BEST_RETURN[curve.env]
    solved = int((final >= level).sum())
    reached = np.flatnonzero(curve.returns.mean(axis=1) >= level)
    first = float(curve.steps[reached[0]]) if len(reached) else math.nan
    interval = statistics.mean_interval(final)
    share = statistics.fraction_interval(solved, len(final))
    return Line(curve.env, curve.label, float(final.mean()), *interval, solved, len(final), *share, first, seconds)


def table(lines: list[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [
        "| environment | agent | final return (95 %) | seeds that solve it (95 %) | mean at that level after |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        final = f"{line.final_mean:.2f} ({line.final_low:.2f} to {line.final_high:.2f})"
        solved = f"{line.solved} of {line.seeds} ({line.solved_low:.0%} to {line.solved_high:.0%})"
        first = f"{line.steps_to_solve:,.0f} steps" if math.isfinite(line.steps_to_solve) else "never"
        rows.append(f"| {line.env} | {line.agent} | {final} | {solved} | {first} |")
    return "\n".join(rows)


def _seen(lines: list[Line], env: str) -> str:
    """Who got to the solved level, in the order in which their means did, and where the others ended."""
    own = [line for line in lines if line.env == env]
    reached = sorted((line for line in own if math.isfinite(line.steps_to_solve)), key=lambda line: line.steps_to_solve)
    parts = [f"{line.agent} at {line.steps_to_solve:,.0f} steps" for line in reached]
    parts += [f"{line.agent} ends at {line.final_mean:.2f}" for line in own if line not in reached]
    return ", ".join(parts)


def _page(lines: list[Line], settings: Settings, loaded: list[Run], wanted: list[TrainConfig]) -> str:
    compared = "\n".join(f"| {env} | {claim} | {_seen(lines, env)} |" for env, claim in WHAT_THE_PAPER_SHOWS.items())
    return f"""# The grid worlds (paper, figure 2)

{campaign.picture(loaded, wanted)}

{table(lines)}

A seed solves a task when the mean return of its last row ({TrainConfig().log_every:,} steps) is at least {SOLVED:.0%}
of the best possible return (7, and 9 with apples). Intervals: bootstrap over seeds for means, Wilson's for fractions.

| | the paper (figure 2) | here |
|---|---|---|
{compared}

{campaign.made_by("grid-worlds", settings, loaded)}

Each seed trains for {settings.steps:,} steps. `curves.csv` holds the mean return of every seed at every logging point,
`table.csv` the table above.
"""
