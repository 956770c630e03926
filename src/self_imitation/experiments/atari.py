"""Two of the paper's hard exploration games (section 5.3), Freeway and Montezuma's Revenge: A2C and A2C+SIL.

The paper trains for 50 M steps; here training is long enough to tell the agents apart.
"""

import dataclasses
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Experiment, Line, Settings, markdown
from self_imitation.report import curves, statistics
from self_imitation.report.curves import Curve
from self_imitation.training.run import Run

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


class Atari(Experiment):
    name = "atari"
    title = "Hard exploration games on Atari (paper, section 5.3)"
    defaults = Settings(steps=5_000_000, seeds=3)
    figure = {"columns": len(GAMES), "measure": "score of the last 100 games"}  # noqa: RUF012

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        return [
            campaign.config(
                f"atari:{game}",
                agent,
                dataclasses.replace(settings, steps=min(settings.steps, GAMES[game])),
                folder / f"{game}_{agent}",
            )
            for game, agent in product(GAMES, AGENTS)
        ]

    def curves(self, loaded: Sequence[Run]) -> list[Curve]:
        return [curves.from_rows(run.config.agent, _game(run), run.metrics(), "return_latest") for run in loaded]

    def line(self, run: Run) -> Line:
        """`final_mean`: mean over seeds of each seed's mean score over its latest 100 episodes; `each`: of each seed;
        `first`: steps until each seed first scored; `best`: score of the best episode.
        """
        rows, final, game = run.metrics(), campaign.final_returns(run), _game(run)
        low, high = statistics.mean_interval(final)
        return {
            "game": game,
            "agent": run.config.agent,
            "steps": int(rows[-1]["step"]),
            "final_mean": float(final.mean()),
            "final_low": low,
            "final_high": high,
            "each": ", ".join(map(_score, final)),
            "first": ", ".join(_first_points(rows, seed) for seed in run.seeds),
            "best": float(np.fmax.reduce([row["return_best"] for row in rows])),
            "paper": PAPER[game][run.config.agent],
            "steps_per_second": campaign.median_rate(run),
            "hours": rows[-1]["seconds"] / 3600,
        }

    def table(self, lines: Sequence[Line]) -> str:
        final = "score of the last 100 games (95 %)"
        header = "game", "agent", "steps", final, "each seed", "first points", "best game", "paper, 50 M steps"
        rows = []
        for line in lines:
            mean, low, high = (_score(line[f"final_{name}"]) for name in ("mean", "low", "high"))
            final = "a seed has finished no game yet" if math.isnan(line["final_mean"]) else f"{mean} ({low} to {high})"
            steps, best, paper = f"{line['steps']:,}", f"{line['best']:,.0f}", f"{line['paper']:,.4g}"
            rows.append((line["game"], line["agent"], steps, final, line["each"], line["first"], best, paper))
        return markdown(header, rows)

    def text(self, lines: Sequence[Line], loaded: Sequence[Run], settings: Settings) -> str:
        header = "game", "agent", "steps/s, all seeds together (median)", "hours of training"
        times = [
            (line["game"], line["agent"], f"{line['steps_per_second']:,.0f}", f"{line['hours']:.2f}") for line in lines
        ]
        return f"""\
Scores are means over seeds of each seed's mean raw score over its last 100 games, with Student's intervals over
n = {settings.seeds} seeds: with so few, only large differences are detected. Thin lines are single seeds.

First points: the number of steps until a seed first scored, to the resolution of the metrics. Until then there is
nothing to imitate, so finding the first points is a matter of luck for both agents. On Freeway, for example, a random
player crosses the road in about one game of 500 (6 of 3,072 games), or once in a million steps.

The paper's scores are after 50 M steps: A2C+SIL from its table of hard exploration games (importance exponent 0.1, as
here), A2C from its table of 49 games.

{markdown(header, times)}

Runs that were trained in parallel shared the machine. `curves.csv` has every seed's mean score over its last 100 games
at every logging point; `table.csv` has both tables."""


def _game(run: Run) -> str:
    return run.config.env.removeprefix("atari:")


def _score(score: float) -> str:
    return f"{score:,.0f}" if abs(score) >= 100 else f"{score:.2f}"


def _first_points(rows: list[dict[str, float]], seed: int) -> str:
    """Steps until a seed first scored, to the resolution of the metrics."""
    steps = (row["step"] for row in rows if int(row["seed"]) == seed and row["return_best"] > 0)
    return next((curves.short(step) for step in steps), "not yet")
