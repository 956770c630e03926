"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

import math
import os
import sys
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from self_imitation.cli import terminal
from self_imitation.errors import printable
from self_imitation.storage.metrics_file import Row
from self_imitation.training.callbacks import Callback
from self_imitation.training.context import Context


def first_line(context: Context) -> str:
    """What is trained, how and where to."""
    config = context.config
    first, last = config.seed_numbers[0], config.seed_numbers[-1]
    seeds = f"1 seed ({first})" if first == last else f"{config.seeds} seeds ({first}-{last})"
    start = f"from step {context.step:,} " if context.step else ""
    where = f"on {context.device}, in {context.shown}"
    line = f"{config.agent} on {config.env}: {seeds} {start}to {config.steps:,} steps each {where}"
    return line + (f" (note: {'; '.join(context.notes)})" if context.notes else "")


def mean_return(rows: Sequence[Row], column: str = "return_mean") -> float:
    """Mean over the seeds that finished an episode since their last row."""
    finite = [row[column] for row in rows if math.isfinite(row.get(column, math.nan))]
    return sum(finite) / len(finite) if finite else math.nan


class Lines(Callback):
    """One line per row of metrics, for logs and pipes."""

    closed = False
    """Whether the stream was closed by its reader."""

    def __init__(self, stream: IO[str] | None = None):
        self._stream = stream or sys.stdout

    def started(self, context: Context) -> None:
        if not context.finished:  # else it has said so
            self.message(first_line(context))

    def logged(self, context: Context, rows: Sequence[Row]) -> None:
        value, evaluated = mean_return(rows), mean_return(rows, "eval_return_mean")
        shown = f"{value:.3f}" if math.isfinite(value) else "-"
        evaluation = f"evaluation {evaluated:.3f}  " if math.isfinite(evaluated) else ""
        rate = f"{rows[0]['steps_per_second']:,.0f} steps/s"
        self.message(f"step {int(rows[0]['step']):,}  return {shown}  {evaluation}{rate}")

    def message(self, text: str) -> None:
        try:
            terminal.say(text, self._stream)
        except OSError:
            self.closed = True
            self._stream = open(os.devnull, "w")  # noqa: SIM115 (open until the process exits)
            if sys.stdout.fileno() == 1:
                os.dup2(self._stream.fileno(), 1)  # else Python complains again as it exits

    def close(self) -> None:
        pass


class Bar(Lines):
    """A progress bar with steps, steps per second, time remaining and mean return."""

    def __init__(self, console: Console):
        self._progress = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("return {task.fields[value]}"),
            console=console,
            expand=True,
            speed_estimate_period=20,
        )
        self._task = self._progress.add_task("", start=False)
        self._value, self._evaluation = "-", ""

    def started(self, context: Context) -> None:
        super().started(context)
        self._progress.reset(self._task, total=context.total_steps, completed=context.step, rate="", value="-")
        self._progress.start()

    def advanced(self, context: Context) -> None:
        self._progress.update(self._task, completed=context.step, rate=f"{context.steps_per_second:,.0f}/s")

    def logged(self, context: Context, rows: Sequence[Row]) -> None:
        value, evaluated = mean_return(rows), mean_return(rows, "eval_return_mean")
        if math.isfinite(value):
            self._value = f"{value:.2f}"
        if math.isfinite(evaluated):
            self._evaluation = f", evaluation {evaluated:.2f}"
        self._progress.update(self._task, value=self._value + self._evaluation)

    def message(self, text: str) -> None:
        self._progress.console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


def create() -> Lines:
    console = Console()
    return Bar(console) if console.is_terminal else Lines()
