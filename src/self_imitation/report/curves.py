"""Learning curves: the mean over seeds with its confidence band, and of few seeds each one's own."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from self_imitation.report import statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"": "#7f7f7f", "+exp": "#d98c1f", "+sil": "#2c6fbb", "+sil+exp": "#b3303a"}
"""By what an agent has besides its base."""
FEW = 5
"""Seeds at most of which each one's own curve is drawn too: how they differ tells more than a band."""


@dataclass(frozen=True)
class Curve:
    """A return of each seed at each logging point; NaN where there is none, since no episode ended."""

    label: str
    env: str
    seeds: tuple[int, ...]
    steps: np.ndarray
    returns: np.ndarray
    """[points, seeds]"""


def from_rows(label: str, env: str, rows: Sequence[dict[str, float]], column: str = "return_mean") -> Curve:
    """From rows of metrics, by default the mean return of the episodes that ended since the row before."""
    steps = sorted({int(row["step"]) for row in rows})
    seeds = sorted({int(row["seed"]) for row in rows})
    returns = np.full((len(steps), len(seeds)), math.nan)
    for row in rows:
        returns[steps.index(int(row["step"])), seeds.index(int(row["seed"]))] = row[column]
    return Curve(label, env, tuple(seeds), np.array(steps), returns)


def relabel(curve: Curve, label: str) -> Curve:
    return dataclasses.replace(curve, label=label)


def draw(
    curves: Sequence[Curve],
    path: Path,
    title: str = "",
    columns: int | None = None,
    measure: str = "return, mean over seeds",
) -> None:
    """One panel per environment, so many in a row, one line per curve, saved as a picture."""
    pyplot = _pyplot()
    environments = list(dict.fromkeys(curve.env for curve in curves))
    columns = min(columns or len(environments), len(environments))
    rows = -(-len(environments) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(5.6 * columns, 3.8 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.reshape(-1)[len(environments) :]:
        axis.set_visible(False)
    for axis, env in zip(axes.reshape(-1), environments, strict=False):
        for curve in curves:
            if curve.env == env:
                _draw_one(axis, curve)
        axis.set_title(title or env)
        axis.set_xlabel("environment steps per seed")
        axis.set_ylabel(measure)
        axis.xaxis.set_major_formatter(lambda step, _: short(step))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, loc="best")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def between(curve: Curve) -> np.ndarray:
    """The returns, with those that are missing on the line between their seed's neighbours, so that a mean over seeds
    does not jump where not all of them ended an episode. Before a seed's first one they stay NaN.
    """
    filled = np.full(curve.returns.shape, math.nan)
    for seed, own in enumerate(curve.returns.T):
        there = np.flatnonzero(np.isfinite(own))
        if len(there):
            later = slice(there[0], None)
            filled[later, seed] = np.interp(curve.steps[later], curve.steps[there], own[there])
    return filled


def _draw_one(axis: "Axes", curve: Curve) -> None:
    returns = between(curve)
    points = [(step, row[np.isfinite(row)]) for step, row in zip(curve.steps, returns, strict=True)]
    points = [(step, row) for step, row in points if len(row)]
    if not points:
        return
    steps = [step for step, _ in points]
    band = np.array([statistics.mean_interval(row) for _, row in points])
    seeds = curve.returns.shape[1]
    label = f"{curve.label} ({seeds} seed{'s' * (seeds > 1)})"
    means = [row.mean() for _, row in points]
    marker = "." if len(points) == 1 else ""
    (line,) = axis.plot(steps, means, label=label, color=_colour(curve.label), marker=marker)
    if 1 < seeds <= FEW:
        axis.plot(curve.steps, returns, color=line.get_color(), linewidth=0.7, alpha=0.6)
    axis.fill_between(steps, band[:, 0], band[:, 1], alpha=0.2, color=line.get_color(), linewidth=0)


def _colour(label: str) -> str | None:
    base, plus, rest = label.partition("+")
    return COLOURS.get(plus + rest) if base in ("a2c", "ppo") else None


def short(step: float) -> str:
    """In thousands or millions."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if step >= size:
            return f"{step / size:g}{unit}"
    return f"{step:g}"


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
