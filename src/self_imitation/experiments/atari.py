"""Two of the paper's games that are hard to explore (section 5.3), Freeway and Montezuma's Revenge: A2C and A2C+SIL.

The paper trains for 50 M steps; here as far as tells the agents apart.
"""

import dataclasses
import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig, resolve
from self_imitation.experiments import campaign
from self_imitation.report import curves, statistics
from self_imitation.training.run import Run
from self_imitation.validation import validate

GAMES = {"Freeway": 3_000_000, "MontezumaRevenge": 20_000_000}
"""And after how many steps nothing more is expected of them here."""
COMPARED = ("a2c", "a2c+sil")
PAPER = {
    "Freeway": {"a2c": 0.0, "a2c+sil": 34.0},
    "MontezumaRevenge": {"a2c": 5.8, "a2c+sil": 2500.0},
}
"""After 50 M steps: A2C in the table of 49 games, A2C+SIL in that of the games that are hard to explore, where its bias
correction is 0.1 as here (with 0.4, in the table of 49 games: 32.2 and 1100)."""


@dataclass(frozen=True)
class Settings:
    steps: int = 5_000_000
    seeds: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    game: str
    agent: str
    steps: int
    final_mean: float
    """Over seeds, of each one's mean score of its last 100 episodes."""
    final_low: float
    final_high: float
    each: str
    """The same of each seed."""
    first: str
    """Steps until each seed first scored."""
    best: float
    """Score of the best episode of all."""
    paper: float
    steps_per_second: float
    hours: float


def configs(settings: Settings, folder: Path) -> list[TrainConfig]:
    """Self-imitation first: what takes longest to judge."""
    return [_config(settings, folder, *case) for case in product(GAMES, reversed(COMPARED))]


def _config(settings: Settings, folder: Path, game: str, agent: str) -> TrainConfig:
    named = {**dataclasses.asdict(settings), "steps": min(settings.steps, GAMES[game])}
    return validate(
        resolve(f"atari:{game}", "authors", {**named, "agent": agent, "out": str(folder / f"{game}_{agent}")})
    )


def report(settings: Settings, folder: Path, out: Path) -> list[Line]:
    """curves.csv, table.csv, figure.png and README.md in `out`, from the runs in `folder`."""
    wanted = configs(settings, folder)
    loaded = campaign.load(wanted, "return_latest")
    drawn = [curves.from_rows(run.config.agent, _game(run), run.metrics(), "return_latest") for run in loaded]
    lines = [_line(run) for run in loaded]
    out.mkdir(parents=True, exist_ok=True)
    campaign.write_curves(out / "curves.csv", drawn)
    campaign.write_table(out / "table.csv", lines)
    curves.draw(drawn, out / "figure.png", columns=len(GAMES), measure="score of the last 100 games")
    campaign.write_page(out / "README.md", _page(lines, settings, loaded, wanted))
    return lines


def _game(run: Run) -> str:
    return run.config.env.removeprefix("atari:")


def _line(run: Run) -> Line:
    rows, final, game = run.metrics(), campaign.final_returns(run), _game(run)
    return Line(
        game,
        run.config.agent,
        int(rows[-1]["step"]),
        float(final.mean()),
        *statistics.mean_interval(final),
        ", ".join(map(_score, final)),
        ", ".join(_first_points(rows, seed) for seed in run.seeds),
        float(np.fmax.reduce([row["return_best"] for row in rows])),
        PAPER[game][run.config.agent],
        campaign.usual_rate(run),
        rows[-1]["seconds"] / 3600,
    )


def _score(score: float) -> str:
    """A mean of 100 whole numbers, in as many digits as tell something."""
    return f"{score:,.0f}" if score >= 100 else f"{score:.2f}"


def _first_points(rows: list[dict[str, float]], seed: int) -> str:
    """After how many steps, as far as rows of metrics tell."""
    steps = (row["step"] for row in rows if int(row["seed"]) == seed and row["return_best"] > 0)
    return next((curves.short(step) for step in steps), "not yet")


def table(lines: list[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [
        "| game | agent | steps | score of the last 100 games (95 %) | each seed | first points | best game "
        "| paper, 50 M steps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        final = f"{_score(line.final_mean)} ({_score(line.final_low)} to {_score(line.final_high)})"
        if math.isnan(line.final_mean):
            final = "a seed has ended no game yet"
        rows.append(
            f"| {line.game} | {line.agent} | {line.steps:,} | {final} | {line.each} | {line.first} | {line.best:,.0f} "
            f"| {line.paper:,.4g} |"
        )
    return "\n".join(rows)


def _page(lines: list[Line], settings: Settings, loaded: list[Run], wanted: list[TrainConfig]) -> str:
    times = "\n".join(
        f"| {line.game} | {line.agent} | {line.steps_per_second:,.0f} | {line.hours:.2f} |" for line in lines
    )
    return f"""# Atari games that are hard to explore (paper, section 5.3)

{campaign.picture(loaded, wanted)}

{table(lines)}

The mean over seeds of each seed's mean score of its last 100 games, with a bootstrap interval over {settings.seeds}
seeds: with so few, only large differences show. Thin lines are single seeds. Scores are raw.

The first points are the steps until a seed first scored at all, as far as rows of metrics tell. Until then there is
nothing to imitate, and both agents of a seed, which draw the same random numbers, do the same: they have the same luck,
and differ in what they make of it. Only where one of them was stopped and resumed, which begins fresh games, their luck
parts. How long it takes is luck alone. Freeway's road, for one, a player at random crosses in about one game of 500
(6 of 3,072 that were counted), which is once in a million steps.

The paper's scores are those after 50 M steps: A2C+SIL's of its table of games that are hard to explore (with the same
bias correction, 0.1), A2C's of its table of 49 games.

| game | agent | steps/s, all seeds together (median) | hours of training |
|---|---|---|---|
{times}

Runs that were trained side by side shared the machine.

{campaign.made_by("atari", settings, loaded)}

`curves.csv` holds every seed's mean score of its last 100 games at every logging point, `table.csv` both tables.
"""
