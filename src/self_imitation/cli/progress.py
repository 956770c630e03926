"""How a run shows itself while it trains: a bar on a terminal, plain lines elsewhere."""

import math
import os
import sys
import time
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from self_imitation.config import TrainConfig
from self_imitation.runs.directory import RunDirectory
from self_imitation.runs.metrics import Row


def announce(config: TrainConfig, run: RunDirectory, iteration: int, device: str) -> str:
    """What is trained and where it is written, in one line."""
    seeds = f"{config.seeds} seed{'s' * (config.seeds > 1)} ({_range(config)})"
    step = iteration * config.steps_per_iteration
    begun = f"from step {step:,} " if step else ""
    return f"{config.agent} on {config.env}: {seeds} {begun}to {config.steps:,} steps each on {device}, in {run.path}"


def mean_return(rows: list[Row]) -> float:
    """Over the seeds that finished an episode since their last row."""
    finite = [row["return_mean"] for row in rows if math.isfinite(row["return_mean"])]
    return sum(finite) / len(finite) if finite else math.nan


class Lines:
    """One line per row of metrics, for logs and pipes."""

    def __init__(self, stream: IO[str] | None = None):
        self._stream = stream or sys.stdout
        self.gone = False
        """Whether nobody can read the lines any more."""

    def started(self, config: TrainConfig, run: RunDirectory, iteration: int, device: str) -> None:
        self._print(announce(config, run, iteration, device))

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
            self.gone = True
            self._stream = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
            if sys.stdout.fileno() == 1:
                os.dup2(self._stream.fileno(), 1)  # else Python complains once more as it ends


class Bar:
    """Steps, steps per second, time left and mean return on one moving line."""

    def __init__(self, console: Console):
        self._console = console
        self.gone = False
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

    def started(self, config: TrainConfig, run: RunDirectory, iteration: int, device: str) -> None:
        self.message(announce(config, run, iteration, device))
        step = iteration * config.steps_per_iteration
        total = config.iterations * config.steps_per_iteration
        self._task = self._progress.add_task("", total=total, completed=step, rate="", value="-")
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
        self._console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._progress.stop()


def listener() -> Bar | Lines:
    console = Console()
    return Bar(console) if console.is_terminal else Lines()


def _range(config: TrainConfig) -> str:
    first, last = config.seed_numbers[0], config.seed_numbers[-1]
    return str(first) if first == last else f"{first}-{last}"
