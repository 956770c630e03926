"""Figures of statistics over tasks: for the page's script, and for papers with matplotlib."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from self_imitation.report.charts import plain, theme_pair
from self_imitation.report.tables import Cell, Estimate, Number, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Series:
    """Values with their intervals, in one colour; NaN where there is none."""

    name: str
    colour: str
    values: Sequence[float] | np.ndarray
    low: Sequence[float] | np.ndarray
    high: Sequence[float] | np.ndarray
    n: int = 0
    """Runs behind each value."""
    text: Sequence[str] = ()
    """What is shown of each value."""
    dashed: bool = False

    def data(self) -> dict[str, Any]:
        numbers = {part: plain(getattr(self, part)) for part in ("values", "low", "high")}
        own = {"name": self.name, "colour": theme_pair(self.colour), "text": list(self.text), "dashed": self.dashed}
        return {**own, **numbers, "n": [self.n] * len(self.values)}


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, in a group for each name."""

    names: Sequence[str]
    series: Sequence[Series]
    x: str
    reference: float = 0.0
    """Where a line separates better from worse."""

    kind = "bars"

    def data(self) -> dict[str, Any]:
        series = [own.data() for own in self.series]
        own = {"names": list(self.names), "x": self.x, "reference": self.reference, "range": self.range()}
        return {**own, "series": series}

    def range(self) -> tuple[float, float]:
        """From the least to the greatest value and a little more; intervals of few seeds may reach far beyond."""
        values = np.concatenate([[0.0, self.reference], *(own.values for own in self.series)])
        least, greatest = float(np.nanmin(values)), float(np.nanmax(values))
        room = 0.25 * (greatest - least)
        return (least - room if least < 0 else least), greatest + room

    def table(self, caption: str) -> Table:
        rows = [{"name": name, **{own.name: own.text[at] for own in self.series}} for at, name in enumerate(self.names)]
        return Table("", caption, {"name": "name", **{own.name: own.name for own in self.series}}, rows)

    def figure(self) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure((6.4, 1.1 + 0.16 * len(self.names) * (0.6 + len(self.series))), layout="constrained")
        axis = figure.add_subplot()
        height = 0.8 / len(self.series)
        for number, own in enumerate(self.series):
            at = np.arange(len(self.names)) + (number - (len(self.series) - 1) / 2) * height
            values = np.asarray(own.values, float)
            errors = np.nan_to_num([values - np.asarray(own.low), np.asarray(own.high) - values])
            axis.barh(at, np.nan_to_num(values), height, color=own.colour, label=own.name)
            axis.errorbar(values, at, xerr=errors, fmt="none", ecolor="#555555", elinewidth=0.8)
        axis.axvline(self.reference, color="#555555", linewidth=0.8, linestyle=":")
        axis.set_yticks(range(len(self.names)), self.names)
        axis.invert_yaxis()
        axis.set_xlim(self.range())
        axis.set_xlabel(self.x)
        _tidy(axis, legend=len(self.series) > 1)
        return figure


@dataclass(frozen=True)
class Profile:
    """Lines with bands: for each threshold, the share of runs above it."""

    at: np.ndarray
    series: Sequence[Series]
    x: str
    y: str

    kind = "profile"

    def data(self) -> dict[str, Any]:
        return {"at": plain(self.at), "series": [own.data() for own in self.series], "x": self.x, "y": self.y}

    def table(self, caption: str) -> Table:
        rows: list[dict[str, Cell]] = []
        for at in range(0, len(self.at), 10):
            shares = {own.name: Estimate(own.values[at], own.low[at], own.high[at]) for own in self.series}
            rows.append({"threshold": Number(float(self.at[at]), 2), **shares})
        return Table("", caption, {"threshold": self.x, **{own.name: own.name for own in self.series}}, rows)

    def figure(self) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure((6.4, 3.8), layout="constrained")
        axis = figure.add_subplot()
        for own in self.series:
            axis.plot(self.at, own.values, color=own.colour, label=own.name, linestyle="--" if own.dashed else "-")
            axis.fill_between(self.at, own.low, own.high, color=own.colour, alpha=0.2, linewidth=0)
        axis.set_xlabel(self.x)
        axis.set_ylabel(self.y)
        _tidy(axis, legend=True)
        return figure


def save(figure: "Figure", folder: Path, name: str) -> list[str]:
    """Write it in all formats; returns the files, relative to the page beside the folder."""
    names = [f"{name}.{suffix}" for suffix in FORMATS]
    for file in names:
        figure.savefig(folder / file, dpi=130)
        figure.set_layout_engine("none")  # it stays as laid out; laying it out again would take as long as drawing
    return [f"{folder.name}/{file}" for file in names]


def _tidy(axis: Any, legend: bool) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    axis.set_axisbelow(True)
    if legend:
        axis.legend(frameon=False, loc="best")
