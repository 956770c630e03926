"""Steps until seeds solve a task: survival curves and the log-rank test. Seeds that never solve it are censored."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from self_imitation.experiments.results import Results
from self_imitation.report.charts import styles
from self_imitation.report.curves import short
from self_imitation.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Solving:
    """When the seeds of an agent solved a task."""

    steps: np.ndarray
    """[seeds] logging point at which a seed's curve first reached the level that counts as solved, or the last one."""
    solved: np.ndarray
    """[seeds] whether it did."""

    def share(self, at: np.ndarray) -> np.ndarray:
        """Share of seeds that have solved the task by each of these steps."""
        return (self.solved & (self.steps <= at[:, None])).mean(axis=1)

    @property
    def median(self) -> float:
        """Steps after which half of the seeds have solved it; infinite if fewer do."""
        known = np.sort(np.where(self.solved, self.steps, math.inf))
        return float(known[math.ceil(len(known) / 2) - 1])


def solving(results: Results, task: str, agent: str) -> Solving | None:
    """None if it was not run or has no level that counts as solved."""
    level, curve = results.definition.task(task).solved, results.curve(task, agent)
    if level is None or curve is None or not curve.values.size:
        return None
    reached = np.array(curve.values >= level)
    solved = np.array(reached.any(axis=0))
    return Solving(np.where(solved, curve.steps[reached.argmax(axis=0)], curve.steps[-1]), solved)


def logrank(first: Solving, second: Solving) -> float:
    """p-value of the log-rank test that both solve the task equally soon; 1 where no seed solves it."""
    from scipy import stats

    if not (first.solved.any() or second.solved.any()):
        return 1.0
    samples = (stats.CensoredData.right_censored(own.steps, ~own.solved) for own in (first, second))
    return float(stats.logrank(*samples).pvalue)


def table(results: Results) -> Table | None:
    """Seeds that ever solve each task, and the steps until half of them do; log-rank tests of the compared agents."""
    rows: list[dict[str, Cell]] = []
    for task, agent in results.cases():
        found = solving(results, task, agent)
        if found is None:
            continue
        tests = []
        for first, second in results.definition.compare:
            other = solving(results, task, second)
            if first == agent and other is not None:
                p = logrank(found, other)
                tests.append(f"{second}: {'p < 0.001' if p < 0.001 else f'p = {p:.3f}'}")
        rows.append(
            {
                "task": task,
                "agent": agent,
                "solved": f"{int(found.solved.sum())} of {len(found.solved)}",
                "median": "more than half never do" if math.isinf(found.median) else short(found.median),
                "logrank": "; ".join(tests),
            }
        )
    columns = {
        "task": "task",
        "agent": "agent",
        "solved": "seeds that ever solve it",
        "median": "steps until half do",
        "logrank": "log-rank test against",
    }
    caption = "Steps until seeds solve a task; seeds that never do are censored. Tests are not corrected"
    return Table(f"{results.definition.name}-solved", caption, columns, rows) if rows else None


def figure(results: Results) -> "Figure":
    """The share of seeds that have solved each task, by steps. Needs a task with a level that counts as solved."""
    from matplotlib.figure import Figure

    definition = results.definition
    tasks = [task for task in definition.tasks if any(solving(results, task.name, a.name) for a in definition.agents)]
    columns = min(definition.columns or len(tasks), len(tasks))
    rows = -(-len(tasks) // columns)
    drawn = Figure((4.2 * columns, 3.2 * rows), layout="constrained")
    for panel, task in enumerate(tasks, start=1):
        axis = drawn.add_subplot(rows, columns, panel)
        for style in styles(definition):
            found, curve = solving(results, task.name, style.name), results.curve(task.name, style.name)
            if found is not None and curve is not None:
                at = np.concatenate([[0], curve.steps])
                line = "--" if style.dashed else "-"
                axis.step(at, found.share(at), where="post", color=style.colour, linestyle=line, label=style.name)
        axis.set_title(task.name)
        axis.set_ylim(-0.02, 1.02)
        axis.set_xlabel("environment steps per seed")
        axis.set_ylabel("share of seeds that have solved it")
        axis.xaxis.set_major_formatter(lambda step, _: short(step))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    handles = {
        label: handle for axis in drawn.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    drawn.legend(handles.values(), handles.keys(), frameon=False, loc="outside lower center", ncols=4, fontsize="small")
    return drawn
