"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

import math
import os
import sys
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from self_imitation.cli import terminal
from self_imitation.config import TrainConfig
from self_imitation.errors import printable
from self_imitation.storage.metrics_file import Row
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training.loop import Silent


def first_line(config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]) -> str:
    """What is trained, how and where to."""
    first, last = config.seed_numbers[0], config.seed_numbers[-1]
    seeds = f"1 seed ({first})" if first == last else f"{config.seeds} seeds ({first}-{last})"
    step = iteration * config.steps_per_iteration
    start = f"from step {step:,} " if step else ""
    line = f"{config.agent} on {config.env}: {seeds} {start}to {config.steps:,} steps each on {device}, in {run.shown}"
    return line + (f" (note: {'; '.join(notes)})" if notes else "")


def mean_return(rows: list[Row]) -> float:
    """Mean over the seeds that finished an episode since their last row."""
    finite = [row["return_mean"] for row in rows if math.isfinite(row["return_mean"])]
    return sum(finite) / len(finite) if finite else math.nan


class Lines(Silent):
    """One line per row of metrics, for logs and pipes."""

    closed = False
    """Whether the stream was closed by its reader."""

    def __init__(self, stream: IO[str] | None = None):
        self._stream = stream or sys.stdout

    def started(
        self, config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]
    ) -> None:
        self.message(first_line(config, run, iteration, device, notes))

    def logged(self, rows: list[Row]) -> None:
        value = mean_return(rows)
        shown = f"{value:.3f}" if math.isfinite(value) else "-"
        rate = f"{rows[0]['steps_per_second']:,.0f} steps/s"
        self.message(f"step {int(rows[0]['step']):,}  return {shown}  {rate}")

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

    def started(
        self, config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]
    ) -> None:
        super().started(config, run, iteration, device, notes)
        step = iteration * config.steps_per_iteration
        self._progress.reset(self._task, total=config.total_steps, completed=step, rate="", value="-")
        self._progress.start()

    def advanced(self, step: int, steps_per_second: float) -> None:
        self._progress.update(self._task, completed=step, rate=f"{steps_per_second:,.0f}/s")

    def logged(self, rows: list[Row]) -> None:
        value = mean_return(rows)
        if math.isfinite(value):
            self._progress.update(self._task, value=f"{value:.2f}")

    def message(self, text: str) -> None:
        self._progress.console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


def listener() -> Lines:
    console = Console()
    return Bar(console) if console.is_terminal else Lines()
