"""The runs of an experiment as a table, and how a command that trains them on a cluster follows them."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from self_imitation.cli import terminal
from self_imitation.errors import printable
from self_imitation.experiments.status import RunStatus, Status
from self_imitation.report.results_tables import duration

SECONDS_BETWEEN_LINES = 60.0
"""How often the progress is reported where there is no terminal."""


def table(found: Status, most: int | None = None) -> Table:
    """All runs, or the `most` interesting ones: failed, running, waiting, done, stopped."""
    order = ("failed", "running", "waiting", "done", "stopped")
    listed = found.runs
    if most is not None and len(listed) > most:
        listed = tuple(sorted(listed, key=lambda run: order.index(run.state))[:most])
    shown = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in ("run", "state"):
        shown.add_column(name, overflow="fold")
    for name in ("steps per seed", "steps/s", "time left"):
        shown.add_column(name, justify="right", no_wrap=True)
    for run in listed:
        shown.add_row(printable(run.name), _state(run), _steps(run), _rate(run), _left(run))
    return shown


def _state(run: RunStatus) -> str:
    again = f" (start {run.attempts})" if run.attempts > 1 and run.state == "running" else ""
    return run.state + again + (f": {printable(run.error)}" if run.error else "")


def _steps(run: RunStatus) -> str:
    return f"{run.made:,} of {run.steps:,}"


def _rate(run: RunStatus) -> str:
    return f"{run.rate:,.0f}" if run.rate and run.state == "running" else ""


def _left(run: RunStatus) -> str:
    return duration(run.left / run.rate) if run.rate and run.state == "running" else ""


def summary(found: Status) -> str:
    """All runs in one line."""
    counts = ", ".join(f"{found.count(state)} {state}" for state in ("waiting", "running", "done", "failed"))
    counts += f", {found.count('stopped')} stopped early" if found.count("stopped") else ""
    left = found.seconds_left
    time_left = f"; about {duration(left)} left" if left else ""
    return f"{counts}; {found.rate:,.0f} steps/s together{time_left}"


class LineReport:
    """Lines, for logs and pipes."""

    def __init__(self) -> None:
        self._latest = time.monotonic()

    def progress(self, found: Status) -> None:
        if time.monotonic() - self._latest >= SECONDS_BETWEEN_LINES:
            self._latest = time.monotonic()
            self.say(summary(found))

    def messages(self, name: str, texts: Sequence[str]) -> None:
        for text in texts:
            self.say(f"{name}: {text}")

    def done(self, name: str, result: str = "") -> None:
        self.say(f"{name}: done" + (f", {result}" if result else ""))

    def stopped(self, name: str, step: int) -> None:
        self.say(f"{name}: stopped early after {step:,} steps")

    def failed(self, name: str, cause: str) -> None:
        self.say(f"{name}: failed: {cause}")

    def say(self, text: str) -> None:
        terminal.say(text)

    def message(self, text: str) -> None:
        self.say(text)

    closed = False

    def close(self) -> None:
        pass


class TableReport(LineReport):
    """A table that is drawn anew, on a terminal."""

    def __init__(self, console: Console):
        super().__init__()
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def progress(self, found: Status) -> None:
        shown = table(found, max(3, self._console.height - 6))
        shown.caption, shown.caption_justify = summary(found), "left"
        self._live.update(shown, refresh=True)

    def say(self, text: str) -> None:
        self._console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def report() -> LineReport:
    console = Console()
    return TableReport(console) if console.is_terminal else LineReport()
