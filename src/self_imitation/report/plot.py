"""Learning curves of runs, and a table of where they end: what `sil plot` and `self_imitation.plot` make."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from self_imitation.errors import UsageError, bad_value, unknown_name
from self_imitation.report import compared_runs, curves, statistics
from self_imitation.report.compared_runs import ComparedRun, XAxis
from self_imitation.report.curves import Curve
from self_imitation.report.tables import Cell, Estimate, Table
from self_imitation.storage import files, metrics_file, run_directory
from self_imitation.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES: dict[XAxis, str] = {
    "step": "environment steps per seed",
    "seconds": "seconds of training",
    "episodes": "episodes per seed",
}
MAX_COLUMNS = 4
"""Panels beside each other."""
FORMATS = (".png", ".pdf", ".svg")


def plot(
    *runs: Any,
    y: str = "return_mean",
    x: XAxis = "step",
    smooth: int = 1,
    show_seeds: bool = False,
    out: str | Path | None = None,
) -> "Figure":
    """Plot the learning curves of runs, with a panel for each environment.

    Args:
        *runs: runs, their paths, or directories with runs below them.
        y: a column of metrics.csv.
        x: `step`, `seconds` or `episodes`.
        smooth: plot the mean of this many latest rows.
        show_seeds: draw each seed as a thin line, too.
        out: also save the picture in this file, a .png, .pdf or .svg.

    Returns:
        The figure: means over seeds with 95 % intervals.

    Raises:
        UsageError: no run was given or found, or no run has the column.
    """
    if x not in AXES:
        raise bad_value("x", x, f"allowed: {', '.join(AXES)}")
    if not isinstance(smooth, int) or smooth < 1:
        raise bad_value("smooth", smooth, "allowed: an integer >= 1")
    if out is not None and Path(out).suffix.lower() not in FORMATS:
        raise bad_value("out", str(out), "allowed: a file name that ends in .png, .pdf or .svg")
    drawn = compared_runs.curves_of(read([getattr(run, "path", run) for run in runs], y), y, x, smooth)
    figure = draw(drawn, y, x, show_seeds)
    if out is not None:
        path = files.require_writable(Path(out), "out")
        with files.explain_failure(path), files.replacing(path) as partial:
            curves.save(figure, partial)
    return figure


def draw(drawn: Sequence[Curve], y: str, x: XAxis, show_seeds: bool) -> "Figure":
    if not drawn:
        raise UsageError(f"x: no run has a number in column {x!r}")
    measure = f"{'return' if y == 'return_mean' else y}, mean over seeds"
    return curves.figure(drawn, columns=MAX_COLUMNS, measure=measure, axis=AXES[x], show_seeds=show_seeds)


def read(paths: Sequence[str | Path], y: str, say: Callable[[str], None] = lambda _: None) -> list[ComparedRun]:
    """The runs that have the column `y`, each once. `say` is called with a message for each one that is left out."""
    if not paths:
        raise UsageError("runs: none given; allowed: one or more run directories")
    found: dict[Path, ComparedRun] = {}
    for path in paths:
        directories = run_directory.find_runs(path)
        for directory in directories:
            try:
                found[directory.path] = _read(directory)
            except UsageError as error:
                if len(directories) == 1:
                    raise
                say(f"Left out: {error}")
    if not found:
        raise UsageError(f"runs: none of those below {str(paths[0])!r} can be read")
    columns = {name for run in found.values() for name in run.rows[0]} - {"seed"}
    if y not in columns and y in metrics_file.EVALUATION:
        raise UsageError(f"y: no run has {y!r}, which is a result of evaluations in training (--eval-every)")
    if y not in columns:
        raise unknown_name("y", y, columns)
    for path, run in list(found.items()):
        if y not in run.rows[0]:
            say(f"Left out: {os.fspath(path)!r} has no column {y!r}")
            del found[path]
    return list(found.values())


def _read(directory: RunDirectory) -> ComparedRun:
    rows = metrics_file.read(directory.path)
    if not rows:
        raise UsageError(f"{os.fspath(directory.shown)!r} has no metrics yet")
    return ComparedRun(directory.path.name, directory.config(), rows)


def final_values(drawn: Sequence[Curve], y: str, x: XAxis) -> Table:
    """The last value of each curve: mean over seeds, 95 % interval, number of seeds."""
    columns = {"env": "environment", "agent": "agent", x: AXES[x], y: f"{y} (95 %)", "n": "n"}
    rows: list[dict[str, Cell]] = []
    for curve in drawn:
        last = curve.returns[-1][np.isfinite(curve.returns[-1])]
        estimate = None
        if len(last):
            with np.errstate(over="ignore", invalid="ignore"):  # values near the largest float
                mean, (low, high) = float(last.mean()), statistics.mean_interval(last)
            estimate = Estimate(mean, low, high, _digits(mean))
        row: dict[str, Cell] = {"env": curve.env, "agent": curve.label, x: round(curve.steps[-1]), y: estimate}
        rows.append({**row, "n": len(last)})
    return Table("final", f"Final {y}; mean over n seeds with Student's 95 % interval", columns, rows)


def _digits(value: float) -> int:
    """Decimal places for three significant digits, at least two for numbers above 1."""
    return (
        2
        if abs(value) >= 1 or not value or not math.isfinite(value)
        else min(8, 2 - math.floor(math.log10(abs(value))))
    )
