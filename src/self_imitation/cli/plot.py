"""`sil plot`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from self_imitation.cli import terminal
from self_imitation.cli.parse import parse
from self_imitation.settings import one_of, setting, whole
from self_imitation.storage import files

PICTURE = (lambda v: Path(v).suffix.lower() in (".png", ".pdf", ".svg"), "a file name that ends in .png, .pdf or .svg")


@dataclass(frozen=True)
class PlotArguments:
    """Plot the learning curves of one or more runs, with 95 % confidence bands.

    Runs that differ in their seeds only are one curve; others are labelled by the settings in which they differ.
    """

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run directories, or directories with runs below them; runs of the same environment share a panel."""
    y: str = "return_mean"
    """Column of metrics.csv to plot, such as return_best or sil_imitated."""
    x: Literal["step", "seconds", "episodes"] = setting("step", one_of("step", "seconds", "episodes"))
    """What it is plotted against."""
    smooth: int = setting(1, whole(1, 10**9))
    """Plot the mean of this many latest rows."""
    show_seeds: bool = False
    """Draw each seed as a thin line, too; up to five seeds are always drawn, in place of the band."""
    out: str = setting("curves.png", PICTURE)
    """Picture file: .png, .pdf or .svg."""
    csv: str | None = None
    """Also write the final values with their 95 % intervals to this file."""
    latex: str | None = None
    """The same as a LaTeX table (booktabs)."""


def plot(arguments: Sequence[str]) -> int:
    given = parse(PlotArguments, "plot", arguments)
    from self_imitation.report import compared_runs, curves, tables
    from self_imitation.report import plot as plots

    out = files.require_writable(Path(given.out), "out")
    named = {"csv": (given.csv, tables.to_csv), "latex": (given.latex, tables.to_latex)}
    written = {
        field: (files.require_writable(Path(name), field), form) for field, (name, form) in named.items() if name
    }
    drawn = compared_runs.curves_of(plots.read(given.runs, given.y, terminal.say), given.y, given.x, given.smooth)
    figure = plots.draw(drawn, given.y, given.x, given.show_seeds)
    with files.explain_failure(out), files.replacing(out) as partial:
        curves.save(figure, partial)
    table = plots.final_values(drawn, given.y, given.x)
    for field, (path, form) in written.items():
        with files.explain_failure(path, field):
            files.write_text(path, form(table))
    terminal.say(f"Curves: {given.out}")
    return 0
