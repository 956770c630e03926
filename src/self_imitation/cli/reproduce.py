"""`sil reproduce`."""

import importlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from self_imitation.training import devices
from self_imitation.cli.parse import parse
from self_imitation.cli.train import heeding_signals
from self_imitation.config import resolve
from self_imitation.errors import bad_value
from self_imitation.storage import files
from self_imitation.validation import validate

if TYPE_CHECKING:
    from self_imitation.runs.training import Listener


EXAMPLES = {"grid-worlds": "key-door-treasure", "mujoco": "mujoco:Hopper", "atari": "atari:Freeway"}
"""For each figure, one of the environments that it takes."""


@dataclass(frozen=True)
class ReproduceArguments:
    figure: tyro.conf.Positional[Literal["grid-worlds", "mujoco", "atari"]]
    """grid-worlds: figure 2, four agents on Key-Door-Treasure and Apple-Key-Door-Treasure; mujoco: section 5.6, PPO and
    PPO+SIL on Hopper, Walker2d and Swimmer, with rewards as they come and delayed; atari: section 5.3, A2C and A2C+SIL
    on Freeway and Montezuma's Revenge (wants a GPU)."""
    out: str | None = None
    """Where curves, table and picture go. None: results/ and the figure's name; with other steps or seeds than the
    default ones, report/ beside the runs."""
    runs: str | None = None
    """Where the runs are kept; those that are there already go on. None: runs/ and the figure's name."""
    steps: int | None = None
    """Environment steps of each seed. None: 2,000,000 on the grid worlds, 1,000,000 on MuJoCo, 5,000,000 on Atari (on
    Freeway never more than 3,000,000)."""
    seeds: int | None = None
    """Seeds of each agent. None: 16 on the grid worlds, 5 on MuJoCo, 3 on Atari."""
    seed: int = 0
    """The first seed."""
    jobs: int = 1
    """Runs that are trained at a time, each on its own share of the cores and of a GPU's memory."""
    report_only: bool = False
    """Train nothing: draw the runs that are there, as far as they are."""


def reproduce(arguments: Sequence[str]) -> int:
    """A figure of the paper: train all that it shows, draw it, give the numbers with their intervals."""
    given = parse(ReproduceArguments, "reproduce", arguments, summary=reproduce.__doc__ or "")
    if not 1 <= given.jobs <= 1024:
        raise bad_value("jobs", given.jobs, "allowed: a whole number from 1 to 1024")
    named: dict[str, Any] = {k: v for k, v in (("steps", given.steps), ("seeds", given.seeds)) if v is not None}
    for field, path in (("out", given.out), ("runs", given.runs)):
        if path == "":
            raise bad_value(field, path, "allowed: a directory")
    devices.prepare(validate(resolve(EXAMPLES[given.figure], "authors", {"seed": given.seed, **named})))

    from self_imitation.cli import progress
    from self_imitation.experiments import campaign

    experiment: Any = importlib.import_module(f"self_imitation.experiments.{given.figure.replace('-', '_')}")
    settings = experiment.Settings(seed=given.seed, **named)
    folder = Path(given.runs or f"runs/{given.figure}")
    usual = Path("results") / given.figure if settings == experiment.Settings() else folder / "report"
    out = Path(given.out) if given.out else usual
    files.require_writable(out / "figure.png", "out", make_parents=True)
    configs = experiment.configs(settings, folder)

    def go(listener: "Listener", stop: Callable[[], bool]) -> bool:
        if given.jobs > 1:
            return campaign.train_at_once(configs, given.jobs, listener, stop)
        return campaign.train(configs, listener, stop)

    finished, status = (True, 0) if given.report_only else heeding_signals(go, progress.listener)
    if not finished:
        print(f"Stopped; all is saved. Go on with: sil reproduce {shlex.join(arguments)}")
        return status
    try:
        lines = experiment.report(settings, folder, out)
    except OSError as error:
        raise files.explain(error, out) from None
    print(experiment.table(lines))
    print(f"Page: {out / 'README.md'}\nFigure: {out / 'figure.png'}")
    if missing := campaign.unfinished(campaign.load(configs), configs):
        print(missing)
    return 0
