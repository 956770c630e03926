"""Learning curves: the mean over seeds with its confidence band, or with each seed if there are few."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from self_imitation import registry
from self_imitation.errors import UsageError
from self_imitation.report import statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (("#7f7f7f", "#2c6fbb"), ("#c4770f", "#b3303a"), ("#6a9a36", "#2e7d32"), ("#a06fb5", "#5e35b1"))
"""Of agents without and with self-imitation: without a bonus, with the first registered one, the second ... Each has a
contrast of 3 or more with white."""
OTHER_COLOURS = ("#138f8f", "#d6539f", "#8c564b", "#948708")
"""Of labels that are no agent's name, and of agents whose colour is taken."""
LINES = ("-", "--", ":", "-.")
"""Of curves that have the same colour."""
MAX_ENTRIES, MAX_LETTERS = 5, 30
"""Of a legend within a panel: its entries, and letters of each if there are more than two."""
FEW_SEEDS = 5
"""Up to this many seeds, the curve of each seed is drawn in place of a band, which is as wide as the picture."""


@dataclass(frozen=True)
class Curve:
    """Returns of each seed at each logging point; NaN where no episode ended since the previous one."""

    label: str
    env: str
    seeds: tuple[int, ...]
    steps: np.ndarray
    returns: np.ndarray
    """[points, seeds]"""


def from_rows(label: str, env: str, rows: Sequence[dict[str, float]], column: str = "return_mean") -> Curve:
    """From rows of metrics; by default the mean return of the episodes that ended since the previous row."""
    steps = sorted({int(row["step"]) for row in rows})
    seeds = sorted({int(row["seed"]) for row in rows})
    at_step, of_seed = ({number: i for i, number in enumerate(numbers)} for numbers in (steps, seeds))
    returns = np.full((len(steps), len(seeds)), math.nan)
    for row in rows:
        returns[at_step[int(row["step"])], of_seed[int(row["seed"])]] = row[column]
    return Curve(label, env, tuple(seeds), np.array(steps), returns)


def draw(curves: Sequence[Curve], path: Path, title: str = "") -> None:
    """Save a picture with one panel per environment and one line per curve."""
    save(figure(curves, title), path)


def save(drawn: "Figure", path: Path) -> None:
    with np.errstate(over="ignore", invalid="ignore"):  # returns near the largest float
        drawn.savefig(path, dpi=130)


def figure(
    curves: Sequence[Curve],
    title: str = "",
    columns: int | None = None,
    measure: str = "return, mean over seeds",
    axis: str = "environment steps per seed",
    show_seeds: bool = False,
) -> "Figure":
    """A figure with one panel per environment, in this many columns, and one line per curve.

    `measure` and `axis` label the axes. `show_seeds`: draw each seed, however many there are. Names may contain $: they
    are no formulas.
    """
    import matplotlib

    with matplotlib.rc_context({"text.parse_math": False}), np.errstate(over="ignore", invalid="ignore"):
        return _figure(curves, title, columns, (axis, measure), show_seeds)


def _figure(
    curves: Sequence[Curve], title: str, columns: int | None, names: tuple[str, str], show_seeds: bool
) -> "Figure":
    from self_imitation.report.notebook_figure import NotebookFigure

    environments = list(dict.fromkeys(curve.env for curve in curves))
    columns = min(columns or len(environments), len(environments))
    rows = -(-len(environments) // columns)
    below = _legend_rows(curves)
    drawn = NotebookFigure((5.6 * columns, (3.8 + 0.21 * below) * rows), layout="constrained")
    looks = _looks([curve.label for curve in curves])
    for panel, env in enumerate(environments, start=1):
        axis = drawn.add_subplot(rows, columns, panel)
        for curve in curves:
            if curve.env == env:
                _draw_one(axis, curve, *looks[curve.label], show_seeds)
        axis.set_title(_printable(title or env))
        axis.set_xlabel(names[0])
        axis.set_ylabel(names[1])
        axis.xaxis.set_major_formatter(lambda step, _: short(step))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        if axis.get_legend_handles_labels()[0] and below:
            axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize="small")
        elif axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, loc="best")
    return drawn


def _legend_rows(curves: Sequence[Curve]) -> int:
    """Rows of legends that are placed below the panels, where they would hide the curves; else 0."""
    labels = [[curve.label for curve in curves if curve.env == env] for env in {curve.env for curve in curves}]
    most, longest = max(map(len, labels)), max(len(curve.label) for curve in curves)
    return most if most > MAX_ENTRIES or (most > 2 and longest > MAX_LETTERS) else 0


def _looks(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and line of each label: no two look the same."""
    chosen = colours(labels)
    taken = list(chosen.values())
    return {
        label: (colour, LINES[taken[:place].count(colour) % len(LINES)])
        for place, (label, colour) in enumerate(chosen.items())
    }


def interpolated(curve: Curve) -> np.ndarray:
    """The returns, with missing ones interpolated between their seed's neighbours, so that the mean over seeds does not
    jump where some seeds finished no episode. Before a seed's first return they stay NaN.
    """
    filled = np.full(curve.returns.shape, math.nan)
    for seed, own in enumerate(curve.returns.T):
        known = np.flatnonzero(np.isfinite(own))
        if len(known):
            later = slice(known[0], None)
            filled[later, seed] = np.interp(curve.steps[later], curve.steps[known], own[known])
    return filled


def _draw_one(axis: "Axes", curve: Curve, colour: str, line: str, show_seeds: bool) -> None:
    returns, seeds = interpolated(curve), curve.returns.shape[1]
    known = np.isfinite(returns).any(axis=1)
    if not known.any():
        return
    steps, points = curve.steps[known], [row[np.isfinite(row)] for row in returns[known]]
    means = [row.mean() for row in points]
    label = f"{_printable(curve.label)} ({seeds} seed{'s' * (seeds > 1)})"
    axis.plot(steps, means, label=label, color=colour, linestyle=line, marker="." if len(points) == 1 else "")
    if seeds > FEW_SEEDS:
        low, high = zip(*map(statistics.mean_interval, points), strict=True)
        axis.fill_between(steps, low, high, alpha=0.2, color=colour, linewidth=0)
    if 1 < seeds <= FEW_SEEDS or (show_seeds and seeds > 1):
        width, alpha = (0.7, 0.6) if seeds <= FEW_SEEDS else (0.5, 0.4)
        axis.plot(curve.steps, returns, color=colour, linestyle=line, linewidth=width, alpha=alpha)


def colours(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each label. An agent has the same one in all figures, unless an earlier label has taken it."""
    kinds = [(), *((bonus,) for bonus in registry.bonuses())]
    known = {(kind, sil): pair[sil] for kind, pair in zip(kinds, COLOURS, strict=False) for sil in (False, True)}
    others = itertools.cycle(OTHER_COLOURS)
    chosen: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        colour = None
        with contextlib.suppress(UsageError):
            agent = registry.parse_agent(label)
            colour = known.get((agent.bonuses, agent.self_imitation))
        chosen[label] = next(others) if colour is None or colour in chosen.values() else colour
    return chosen


def _printable(name: str) -> str:
    """Fonts have no control characters, nor the bytes of file names that are not text."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def short(step: float) -> str:
    """A number of steps in thousands (k) or millions (M)."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if step >= size:
            return f"{step / size:g}{unit}"
    return f"{step:g}"
