"""`sil reproduce`."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from self_imitation import devices
from self_imitation.cli.parse import parse
from self_imitation.cli.train import heeding_signals
from self_imitation.config import TrainConfig
from self_imitation.runs import files
from self_imitation.validation import validate

if TYPE_CHECKING:
    from self_imitation.runs.training import Listener


@dataclass(frozen=True)
class ReproduceArguments:
    figure: tyro.conf.Positional[Literal["grid-worlds"]]
    """grid-worlds: figure 2, four agents on Key-Door-Treasure and Apple-Key-Door-Treasure."""
    out: str | None = None
    """Where curves, table and picture go. None: results/ and the figure's name; with other steps or seeds than the
    default ones, report/ beside the runs."""
    runs: str | None = None
    """Where the runs are kept; those that are there already go on. None: runs/ and the figure's name."""
    steps: int = 2_000_000
    """Environment steps of each seed."""
    seeds: int = 16
    """Seeds of each agent."""
    seed: int = 0
    """The first seed."""


def reproduce(arguments: Sequence[str]) -> int:
    """A figure of the paper: train all that it shows, draw it, give the numbers with their intervals."""
    given = parse(ReproduceArguments, "reproduce", arguments, summary=reproduce.__doc__ or "")
    devices.prepare(validate(TrainConfig(steps=given.steps, seeds=given.seeds, seed=given.seed)))
    import jax

    from self_imitation.cli import progress
    from self_imitation.experiments import grid_worlds

    settings = grid_worlds.Settings(given.steps, given.seeds, given.seed)
    folder = Path(given.runs or f"runs/{given.figure}")
    usual = Path("results") / given.figure if settings == grid_worlds.Settings() else folder / "report"
    out = Path(given.out) if given.out else usual
    files.require_writable(out / "figure.png", "out", make_parents=True)

    def go(listener: "Listener", stop: Callable[[], bool]) -> bool:
        return grid_worlds.run_all(settings, folder, listener, stop)

    finished, status = heeding_signals(go, progress.listener)
    if not finished:
        print(f"Stopped; all is saved. Go on with: sil reproduce {shlex.join(arguments)}")
        return status
    try:
        lines = grid_worlds.report(settings, folder, out, jax.devices()[0].device_kind)
    except OSError as error:
        raise files.explain(error, out) from None
    print(grid_worlds.table(lines))
    print(f"Figure: {out / 'figure.png'}")
    return 0
