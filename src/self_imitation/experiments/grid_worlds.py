"""The grid worlds (paper, figure 2): agents on Key-Door-Treasure, with and without apples."""

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Experiment, Line, Settings, markdown
from self_imitation.report import statistics
from self_imitation.training.run import Run

BEST_RETURN = {"key-door-treasure": 7.0, "apple-key-door-treasure": 9.0}
SOLVED = 0.95
"""A seed solves a task if its mean return in the last row of metrics is at least this fraction of the best return."""

PAPER = {
    "key-door-treasure": "all four agents learn it: A2C+SIL and A2C+SIL+EXP fastest, then A2C+EXP, then A2C",
    "apple-key-door-treasure": "only A2C+SIL+EXP collects everything; the others settle for the two apples",
}


class GridWorlds(Experiment):
    name = "grid-worlds"
    title = "Grid worlds (paper, figure 2)"
    defaults = Settings(steps=2_000_000, seeds=16)
    environments: Sequence[str] = tuple(BEST_RETURN)
    agents: Sequence[str] = ("a2c", "a2c+exp", "a2c+sil", "a2c+sil+exp")
    first_column = "environment"
    """Of the table."""

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        cases = product(self.environments, self.agents)
        return [campaign.config(env, agent, settings, folder / f"{env}_{agent}") for env, agent in cases]

    def line(self, run: Run) -> Line:
        """`steps_to_solve`: steps until the mean over seeds first reached the solved level; NaN if it never did."""
        curve = run.curve
        final, level = curve.returns[-1], SOLVED * BEST_RETURN[curve.env]
        low, high = statistics.mean_interval(final)
        solved = int((final >= level).sum())
        solved_low, solved_high = statistics.fraction_interval(solved, len(final))
        reached = np.flatnonzero(curve.returns.mean(axis=1) >= level)
        return {
            "env": curve.env,
            "agent": curve.label,
            "final_mean": float(final.mean()),
            "final_low": low,
            "final_high": high,
            "solved": solved,
            "seeds": len(final),
            "solved_low": solved_low,
            "solved_high": solved_high,
            "steps_to_solve": float(curve.steps[reached[0]]) if len(reached) else math.nan,
            "seconds": run.metrics()[-1]["seconds"],
        }

    def table(self, lines: Sequence[Line]) -> str:
        final = "{final_mean:.2f} ({final_low:.2f} to {final_high:.2f})"
        solved = "{solved} of {seeds} ({solved_low:.0%} to {solved_high:.0%})"
        header = self.first_column, "agent", "final return (95 %)", "seeds that solve it (95 %)"
        rows = [
            (
                self.first_cell(line),
                line["agent"],
                final.format(**line),
                solved.format(**line),
                steps_to_solve(line) or "never",
            )
            for line in lines
        ]
        return markdown((*header, "mean reaches that level after"), rows)

    def first_cell(self, line: Line) -> str:
        return line["env"]

    def text(self, lines: Sequence[Line], loaded: Sequence[Run], settings: Settings) -> str:
        return f"""\
A seed solves a task if its mean return in the last row of metrics ({TrainConfig().log_every:,} steps) is at least
{SOLVED:.0%} of the best possible return (7, or 9 with apples). Intervals over n = {settings.seeds} seeds are Student's
for means and Wilson's for fractions.

{self.comparison(lines)}

Each seed trains for {settings.steps:,} steps. `curves.csv` has the mean return of every seed at every logging point,
`table.csv` the first table."""

    def comparison(self, lines: Sequence[Line]) -> str:
        rows = [(env, claim, ranking(lines, env)) for env, claim in PAPER.items()]
        return markdown(("environment", "paper (figure 2)", "here"), rows)


def ranking(lines: Sequence[Line], env: str) -> str:
    """The agents that reached the solved level, fastest first, then the final returns of the others."""
    own = [line for line in lines if line["env"] == env]
    reached = sorted((line for line in own if steps_to_solve(line)), key=lambda line: line["steps_to_solve"])
    parts = [f"{line['agent']} after {steps_to_solve(line)}" for line in reached]
    parts += [f"{line['agent']} ends at {line['final_mean']:.2f}" for line in own if not steps_to_solve(line)]
    return ", ".join(parts)


def steps_to_solve(line: Line) -> str:
    return f"{line['steps_to_solve']:,.0f} steps" if math.isfinite(line["steps_to_solve"]) else ""
