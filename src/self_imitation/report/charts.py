"""Interactive figures: their data for the page's script, and each in words and numbers for those who can't see it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from self_imitation import registry
from self_imitation.experiments.definition import Agent, Definition, Task, file_name
from self_imitation.experiments.results import BEST, Curve, Results
from self_imitation.report import curves, statistics
from self_imitation.report.tables import Cell, Estimate, Table

ROWS = 12
"""Of a figure's table, at most: the CSV files have all points."""


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    kind: str
    """curves, bars or profile: the function in page/report.js that draws it"""
    summary: str
    """What it shows, in a sentence."""
    file: str
    """Name of its files, without suffix."""
    data: dict[str, Any]
    """For the script."""
    table: Table
    files: Sequence[str] = ()
    """For papers, relative to the page."""


@dataclass(frozen=True)
class Style:
    """How an agent is drawn in all figures of an experiment."""

    name: str
    colour: str
    """As in files for papers."""
    dashed: bool
    """Agents without self-imitation."""

    @property
    def css(self) -> str:
        """In both themes of a page; lighter in the dark one."""
        return theme_pair(self.colour)


def theme_pair(colour: str) -> str:
    """A colour as CSS: itself in the light theme, mixed with white in the dark one."""
    light = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    mixed = "".join(f"{round(part + (255 - part) * 0.38):02x}" for part in light)
    return f"light-dark({colour}, #{mixed})"


def styles(definition: Definition) -> list[Style]:
    colours = curves.colours(agent.name for agent in definition.agents)
    return [
        Style(agent.name, colours[agent.name], not registry.parse_agent(agent.agent).self_imitation)
        for agent in definition.agents
    ]


def panels(results: Results, section: str) -> list[Chart]:
    """Learning curves: one chart for each task, or for each group of agents that share a panel."""
    definition = results.definition
    charts: list[Chart] = []
    for task in definition.tasks:
        for group in dict.fromkeys(agent.group for agent in definition.agents):
            agents = [agent for agent in definition.agents if agent.group == group]
            known = [agent for agent in agents if results.curve(task.name, agent.name) is not None]
            if known:
                charts.append(_panel(results, task, known, f"{section}-curves-{len(charts)}"))
    return charts


def panel_title(definition: Definition, task: Task, agent: Agent) -> str:
    return ": ".join(filter(None, [task.name if len(definition.tasks) > 1 or not agent.group else "", agent.group]))


def _panel(results: Results, task: Task, agents: Sequence[Agent], identifier: str) -> Chart:
    definition = results.definition
    own = [curve for agent in agents if (curve := results.curve(task.name, agent.name))]
    best = [curve for agent in agents if (curve := results.curve(task.name, agent.name, BEST))]
    names = [agent.name for agent in definition.agents]
    title = panel_title(definition, task, agents[0])
    digits = definition.digits_of(task)
    data = {
        "id": identifier,
        "digits": digits,
        "curves": [
            {"agent": names.index(curve.agent), "best": curve.measure == BEST, **_points(curve)}
            for curve in [*own, *best]
        ],
    }
    return Chart(
        identifier,
        title,
        "curves",
        _summary(own, digits),
        f"{definition.name}-{file_name(title)}",
        data,
        _table(own, digits, f"{title}: mean return and 95 % interval at some of the logging points"),
    )


def _estimates(curve: Curve) -> list[Estimate | None]:
    """Mean and interval at each point, over the seeds that have finished an episode by then."""
    values = curves.interpolated(curves.Curve(curve.agent, curve.task, curve.seeds, curve.steps, curve.values))
    known = [row[np.isfinite(row)] for row in values]
    return [Estimate(float(row.mean()), *statistics.mean_interval(row)) if len(row) else None for row in known]


def _points(curve: Curve) -> dict[str, Any]:
    estimates = _estimates(curve)
    seconds = plain(curve.seconds)
    return {
        "steps": curve.steps.tolist(),
        "seconds": None if None in seconds else seconds,
        "mean": plain(e and e.mean for e in estimates),
        "low": plain(e and e.low for e in estimates),
        "high": plain(e and e.high for e in estimates),
        "n": np.isfinite(curve.values).sum(axis=1).tolist(),
        "seeds": [plain(seed) for seed in curve.values.T],
    }


def plain(values: Iterable[float | None]) -> list[float | None]:
    """For JSON, which has no NaN; five digits are more than a screen shows."""
    return [None if value is None or not math.isfinite(value) else float(f"{value:.5g}") for value in values]


def _summary(own: Sequence[Curve], digits: int) -> str:
    ends = []
    for curve in own:
        last = next((e for e in reversed(_estimates(curve)) if e), None)
        reached = "no episode has ended" if last is None else f"{last._replace(digits=digits)}, n = {len(curve.seeds)}"
        ends.append(f"{curve.agent} {reached}, after {curve.steps[-1]:,} steps")
    return f"Return over training. At the end: {'; '.join(ends)}."


def _table(own: Sequence[Curve], digits: int, caption: str) -> Table:
    steps = sorted({int(step) for curve in own for step in curve.steps})
    chosen = [steps[at] for at in np.unique(np.linspace(0, len(steps) - 1, min(ROWS, len(steps))).astype(int))]
    rows: dict[int, dict[str, Cell]] = {step: {"step": step} for step in chosen}
    for curve in own:
        at = dict(zip(curve.steps.tolist(), _estimates(curve), strict=True))
        for step, row in rows.items():
            found = at.get(step)
            row[curve.agent] = found and found._replace(digits=digits)
    return Table("", caption, {"step": "steps", **{curve.agent: curve.agent for curve in own}}, list(rows.values()))
