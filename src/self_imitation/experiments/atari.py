"""Atari: A2C and A2C+SIL on hard exploration games (section 5.3), bonuses with self-imitation, ACPER (section 5.5).

The paper trains for 50 M steps; here training is long enough to tell the agents apart.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.environments import atari_scores
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Experiment, Line, Settings, markdown
from self_imitation.report import curves, statistics
from self_imitation.report.curves import Curve
from self_imitation.training.run import Run

HARD_EXPLORATION = {"Freeway": 34.0, "MontezumaRevenge": 2500.0, "Gravitar": 2722.0, "Venture": 0.0}
"""Scores of A2C+SIL after 50 M steps in the paper's table of hard exploration games, with importance exponent 0.1 as
here. Its table of 49 games, with 0.4, has 32.2, 1100, 1874.2 and 0."""


class Atari(Experiment):
    name = "atari"
    title = "Hard exploration games on Atari (paper, section 5.3)"
    defaults = Settings(steps=5_000_000, seeds=3)
    games: Mapping[str, int] = {"Freeway": 3_000_000, "MontezumaRevenge": 20_000_000}
    """With the largest number of steps that is useful here."""
    agents: Sequence[str] = ("a2c+sil", "a2c")
    """Self-imitation first, since it takes longest to judge."""

    figure = {"columns": 2, "measure": "score of the last 100 games"}  # noqa: RUF012

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        return [
            campaign.config(
                f"atari:{game}",
                agent,
                dataclasses.replace(settings, steps=min(settings.steps, self.games[game])),
                folder / f"{game}_{agent}",
            )
            for game, agent in product(self.games, self.agents)
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
            "paper": paper_score(game, run.config.agent),
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
            steps, best = f"{line['steps']:,}", f"{line['best']:,.0f}"
            paper = "" if math.isnan(line["paper"]) else f"{line['paper']:,.6g}"
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
nothing to imitate, so without a bonus the first points are a matter of luck. On Freeway, for example, a random player
crosses the road in about one game of 500 (6 of 3,072 games), or once in a million steps.

The paper's scores are after 50 M steps: those of A2C+SIL from its table of hard exploration games where it has the game
(importance exponent 0.1, as here), the others from its table of 49 games.

{markdown(header, times)}

Runs that were trained in parallel shared the machine. `curves.csv` has every seed's mean score over its last 100 games
at every logging point; `table.csv` has both tables."""


class AtariBonuses(Atari):
    """Beyond the paper: what it names as future work, self-imitation with a bonus for large state spaces."""

    name = "atari-bonuses"
    title = "Exploration bonuses with self-imitation on Atari"
    introduction = """\
On Venture, A2C+SIL of the paper never sees a reward: there is nothing to imitate. On Montezuma's Revenge it repeats
what it has found, and finds more by chance alone. A bonus for new frames makes both more likely."""
    defaults = Settings(steps=5_000_000, seeds=2)
    games: Mapping[str, int] = {"MontezumaRevenge": 50_000_000, "Venture": 50_000_000}
    agents: Sequence[str] = ("a2c+sil+cts", "a2c+sil+rnd", "a2c+sil")


class ACPER(Atari):
    """Section 5.5 on two hard exploration games, and on one game each where the paper has ACPER ahead and behind."""

    name = "acper"
    title = "ACPER (paper, section 5.5)"
    introduction = """\
ACPER replays episodes with the priorities of self-imitation, but through importance weights. The paper finds it far
behind A2C+SIL on most games, and ahead on a few: Bowling is one of these, Breakout one of the others."""
    defaults = Settings(steps=3_000_000, seeds=2)
    games: Mapping[str, int] = dict.fromkeys(("Freeway", "Gravitar", "Bowling", "Breakout"), 50_000_000)
    agents: Sequence[str] = ("acper", "a2c+sil", "a2c")


def paper_score(game: str, agent: str) -> float:
    """After 50 M steps; NaN for an agent that the paper does not have."""
    if agent == "a2c+sil" and game in HARD_EXPLORATION:
        return HARD_EXPLORATION[game]
    return atari_scores.table()[game].get(agent.replace("+", "_"), math.nan)


def _game(run: Run) -> str:
    return run.config.env.removeprefix("atari:")


def _score(score: float) -> str:
    return f"{score:,.0f}" if abs(score) >= 100 else f"{score:.2f}"


def _first_points(rows: list[dict[str, float]], seed: int) -> str:
    """Steps until a seed first scored, to the resolution of the metrics."""
    steps = (row["step"] for row in rows if int(row["seed"]) == seed and row["return_best"] > 0)
    return next((curves.short(step) for step in steps), "not yet")
