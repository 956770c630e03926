"""Two of the paper's hard exploration games (section 5.3), Freeway and Montezuma's Revenge: A2C and A2C+SIL.

The paper trains for 50 M steps; here training is long enough to tell the agents apart.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Settings
from self_imitation.report import curves, statistics
from self_imitation.training.run import Run

DEFAULTS = Settings(steps=5_000_000, seeds=3)
GAMES = {"Freeway": 3_000_000, "MontezumaRevenge": 20_000_000}
"""The games, with the largest number of steps that is useful here."""
AGENTS = ("a2c+sil", "a2c")
"""Self-imitation first, since it takes longest to judge."""
PAPER = {
    "Freeway": {"a2c": 0.0, "a2c+sil": 34.0},
    "MontezumaRevenge": {"a2c": 5.8, "a2c+sil": 2500.0},
}
"""Scores after 50 M steps. A2C: table of 49 games. A2C+SIL: table of hard exploration games, with importance exponent
0.1 as here (table of 49 games, with 0.4: 32.2 and 1100)."""


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    game: str
    agent: str
    steps: int
    final_mean: float
    """Mean over seeds of each seed's mean score over its latest 100 episodes."""
    final_low: float
    final_high: float
    each: str
    """The same for each seed."""
    first: str
    """Steps until each seed first scored."""
    best: float
    """Best score of a single episode."""
    paper: float
    steps_per_second: float
    hours: float


def configs(settings: Settings, folder: Path) -> list[TrainConfig]:
    return [_config(settings, folder, game, agent) for game, agent in product(GAMES, AGENTS)]


def _config(settings: Settings, folder: Path, game: str, agent: str) -> TrainConfig:
    shortened = dataclasses.replace(settings, steps=min(settings.steps, GAMES[game]))
    return campaign.config(f"atari:{game}", agent, shortened, folder / f"{game}_{agent}")


def report(settings: Settings, folder: Path, out: Path) -> list[Line]:
    """Write curves.csv, table.csv, figure.png and README.md to `out`, from the runs in `folder`."""
    wanted = configs(settings, folder)
    loaded = campaign.load(wanted, "return_latest")
    drawn = [curves.from_rows(run.config.agent, _game(run), run.metrics(), "return_latest") for run in loaded]
    lines = [_line(run) for run in loaded]
    page = _page(lines, settings, loaded, wanted)
    measure = "score of the last 100 games"
    campaign.write_report(out, drawn, {"table.csv": lines}, page, columns=len(GAMES), measure=measure)
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
        campaign.median_rate(run),
        rows[-1]["seconds"] / 3600,
    )


def _score(score: float) -> str:
    return f"{score:,.0f}" if score >= 100 else f"{score:.2f}"


def _first_points(rows: list[dict[str, float]], seed: int) -> str:
    """Steps until a seed first scored, to the resolution of the metrics."""
    steps = (row["step"] for row in rows if int(row["seed"]) == seed and row["return_best"] > 0)
    return next((curves.short(step) for step in steps), "not yet")


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [
        "| game | agent | steps | score of the last 100 games (95 %) | each seed | first points | best game "
        "| paper, 50 M steps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        final = f"{_score(line.final_mean)} ({_score(line.final_low)} to {_score(line.final_high)})"
        if math.isnan(line.final_mean):
            final = "a seed has finished no game yet"
        rows.append(
            f"| {line.game} | {line.agent} | {line.steps:,} | {final} | {line.each} | {line.first} | {line.best:,.0f} "
            f"| {line.paper:,.4g} |"
        )
    return "\n".join(rows)


def _page(lines: list[Line], settings: Settings, loaded: list[Run], wanted: list[TrainConfig]) -> str:
    times = "\n".join(
        f"| {line.game} | {line.agent} | {line.steps_per_second:,.0f} | {line.hours:.2f} |" for line in lines
    )
    return f"""# Hard exploration games on Atari (paper, section 5.3)

{campaign.figure(loaded, wanted)}

{table(lines)}

Scores are means over seeds of each seed's mean raw score over its last 100 games, with bootstrap intervals over
{settings.seeds} seeds: with so few, only large differences are detected. Thin lines are single seeds.

First points: the number of steps until a seed first scored, to the resolution of the metrics. Until then there is
nothing to imitate, so finding the first points is a matter of luck for both agents. On Freeway, for example, a random
player crosses the road in about one game of 500 (6 of 3,072 games), or once in a million steps.

The paper's scores are after 50 M steps: A2C+SIL from its table of hard exploration games (importance exponent 0.1, as
here), A2C from its table of 49 games.

| game | agent | steps/s, all seeds together (median) | hours of training |
|---|---|---|---|
{times}

Runs that were trained in parallel shared the machine.

{campaign.provenance("atari", settings, DEFAULTS, loaded)}

`curves.csv` has every seed's mean score over its last 100 games at every logging point; `table.csv` has both tables.
"""
