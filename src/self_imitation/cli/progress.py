"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

import math
import os
import sys
import time
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from self_imitation.config import TrainConfig
from self_imitation.storage.metrics_file import Row
from self_imitation.storage.run_directory import RunDirectory


def first_line(config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]) -> str:
    """What is trained, how and where to."""
    first, last = config.seed_numbers[0], config.seed_numbers[-1]
    seeds = f"1 seed ({first})" if first == last else f"{config.seeds} seeds ({first}-{last})"
    step = iteration * config.steps_per_iteration
    start = f"from step {step:,} " if step else ""
    line = f"{config.agent} on {config.env}: {seeds} {start}to {config.steps:,} steps each on {device}, in {run.path}"
    return line + (f" (note: {'; '.join(notes)})" if notes else "")


def mean_return(rows: list[Row]) -> float:
    """Mean over the seeds that finished an episode since their last row."""
    finite = [row["return_mean"] for row in rows if math.isfinite(row["return_mean"])]
    return sum(finite) / len(finite) if finite else math.nan


class Lines:
    """One line per row of metrics, for logs and pipes."""

    def __init__(self, stream: IO[str] | None = None):
        self._stream = stream or sys.stdout
        self.closed = False
        """Whether the stream was closed by its reader."""

    def started(
        self, config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]
    ) -> None:
        self._print(first_line(config, run, iteration, device, notes))

    def advanced(self, step: int, steps_per_second: float) -> None:
        pass

    def logged(self, rows: list[Row]) -> None:
        value = mean_return(rows)
        shown = f"{value:.3f}" if math.isfinite(value) else "-"
        rate = f"{rows[0]['steps_per_second']:,.0f} steps/s"
        self._print(f"step {int(rows[0]['step']):,}  return {shown}  {rate}")

    def message(self, text: str) -> None:
        self._print(text)

    def close(self) -> None:
        pass

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._stream, flush=True)
        except OSError:
            self.closed = True
            self._stream = open(os.devnull, "w")  # noqa: SIM115 (open until the process exits)
            if sys.stdout.fileno() == 1:
                os.dup2(self._stream.fileno(), 1)  # else Python complains again as it exits


class Bar:
    """A progress bar with steps, steps per second, time remaining and mean return."""

    closed = False

    def __init__(self, console: Console):
        self._console = console
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
        self._task: TaskID | None = None
        self._rate = 0.0
        self._shown = 0.0

    def started(
        self, config: TrainConfig, run: RunDirectory, iteration: int, device: str, notes: Sequence[str]
    ) -> None:
        self.message(first_line(config, run, iteration, device, notes))
        step = iteration * config.steps_per_iteration
        self._task = self._progress.add_task("", total=config.total_steps, completed=step, rate="", value="-")
        self._progress.start()

    def advanced(self, step: int, steps_per_second: float) -> None:
        if self._task is None:
            return
        self._rate = steps_per_second if not self._rate else 0.8 * self._rate + 0.2 * steps_per_second
        self._progress.update(self._task, completed=step)
        if time.monotonic() - self._shown > 0.5:
            self._progress.update(self._task, rate=f"{self._rate:,.0f}/s")
            self._shown = time.monotonic()

    def logged(self, rows: list[Row]) -> None:
        value = mean_return(rows)
        if self._task is not None and math.isfinite(value):
            self._progress.update(self._task, value=f"{value:.2f}")

    def message(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


def listener() -> Bar | Lines:
    console = Console()
    return Bar(console) if console.is_terminal else Lines()
