"""`sil status`."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from self_imitation.cli import terminal
from self_imitation.cli.parse import parse
from self_imitation.errors import UsageError
from self_imitation.storage import files, mirror

if TYPE_CHECKING:
    from self_imitation.experiments.status import Status

FOLLOW_SECONDS = 2.0


@dataclass(frozen=True)
class StatusArguments:
    """Show how far the runs of an experiment are, also from another terminal or machine."""

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR|URL")]
    """Directory of the runs of an experiment, such as runs/grid-worlds; or a URL, as given to --storage."""
    follow: bool = False
    """Show it again every two seconds, until all runs have ended."""


def status(arguments: Sequence[str]) -> int:
    given = parse(StatusArguments, "status", arguments)
    from rich.console import Console
    from rich.live import Live

    from self_imitation.cli import run_table

    console = Console()
    found = _read(given.directory)
    if not given.follow:
        console.print(run_table.table(found))
        terminal.say(f"{run_table.summary(found)}\n{_liveness(found)}")
        return 0
    with Live(console=console, auto_refresh=False) as live:
        while True:
            shown = run_table.table(found, max(3, console.height - 6))
            shown.caption, shown.caption_justify = run_table.summary(found), "left"
            live.update(shown, refresh=True)
            if not found.is_current():
                break
            time.sleep(FOLLOW_SECONDS)
            found = _read(given.directory)
    terminal.say(_liveness(found))
    return 0


def _read(place: str) -> "Status":
    from self_imitation.experiments import status as statuses

    if not mirror.is_url(place):
        files.absolute(place)  # refuses what is not a path
        return statuses.read(Path(place))
    with mirror.explain_failure(place):
        content = mirror.Mirror(place, Path()).read(statuses.FILE)
    if content is None:
        raise UsageError(f"{place!r} has no {statuses.FILE}: no experiment was started there")
    try:
        return statuses.from_json(json.loads(content), f"{place}/{statuses.FILE}")
    except ValueError:
        raise UsageError(f"{place}/{statuses.FILE} is damaged: not readable JSON") from None


def _liveness(found: "Status") -> str:
    from self_imitation.experiments import status as statuses

    where = f"process {found.pid} on {found.host}"
    if found.is_current():
        return f"Trained by {where}; updated {max(0.0, time.time() - found.updated):.0f} s ago"
    ended = "ended" if found.active is False else "has not updated it since and is taken for dead"
    if found.count("done") + found.count("stopped") == len(found.runs):
        return f"Complete since {statuses.when(found.updated)}"
    return f"Not being trained: {where} {ended} ({statuses.when(found.updated)}). Continue with: {found.command}"
