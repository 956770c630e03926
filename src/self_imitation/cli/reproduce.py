"""`sil reproduce`."""

import dataclasses
import importlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from self_imitation.cli.parse import parse
from self_imitation.cli.train import with_signal_handling
from self_imitation.errors import bad_value
from self_imitation.storage import files

if TYPE_CHECKING:
    from self_imitation.training.loop import Listener


@dataclass(frozen=True)
class ReproduceArguments:
    experiment: tyro.conf.Positional[Literal["grid-worlds", "mujoco", "atari", "exploration"]]
    """grid-worlds: figure 2, four agents on Key-Door-Treasure and Apple-Key-Door-Treasure; mujoco: section 5.6, PPO and
    PPO+SIL on Hopper, Walker2d and Swimmer with normal and delayed rewards; atari: section 5.3, A2C and A2C+SIL on
    Freeway and Montezuma's Revenge (needs a GPU); exploration: beyond the paper, two exploration bonuses on the grid
    worlds."""
    out: str | None = None
    """Directory of the results page with its tables and figure. None: results/EXPERIMENT, or report/ beside the runs if
    steps or seeds differ from the defaults."""
    runs: str | None = None
    """Directory of the runs; existing ones are resumed. None: runs/EXPERIMENT."""
    steps: int | None = None
    """Environment steps per seed. None: 2,000,000 on grid worlds, 1,000,000 on MuJoCo, 5,000,000 on Atari (Freeway: at
    most 3,000,000)."""
    seeds: int | None = None
    """Seeds per agent. None: 16 for grid-worlds, 5 for mujoco, 3 for atari, 8 for exploration."""
    seed: int = 0
    """First seed."""
    jobs: int = 1
    """Runs to train at a time, each on its share of the cores and of a GPU's memory."""
    report_only: bool = False
    """Only plot existing runs, even unfinished ones."""


def reproduce(arguments: Sequence[str]) -> int:
    """Reproduce a figure of the paper: train, plot, and write a results page with tables and intervals."""
    given = parse(ReproduceArguments, "reproduce", arguments, summary=reproduce.__doc__ or "")
    if not 1 <= given.jobs <= 1024:
        raise bad_value("jobs", given.jobs, "allowed: an integer from 1 to 1024")
    for field, path in (("out", given.out), ("runs", given.runs)):
        if path == "":
            raise bad_value(field, path, "allowed: a directory")

    from self_imitation.cli import progress
    from self_imitation.experiments import campaign

    experiment: Any = importlib.import_module(f"self_imitation.experiments.{given.experiment.replace('-', '_')}")
    named = {"steps": given.steps, "seeds": given.seeds, "seed": given.seed}
    changes = {name: value for name, value in named.items() if value is not None}
    settings = dataclasses.replace(experiment.DEFAULTS, **changes)
    folder = Path(given.runs or f"runs/{given.experiment}")
    configs = experiment.configs(settings, folder)
    usual = Path("results") / given.experiment if settings == experiment.DEFAULTS else folder / "report"
    out = Path(given.out) if given.out else usual
    files.require_writable(out / "figure.png", "out", make_parents=True)

    def go(listener: "Listener", stop: Callable[[], bool]) -> bool:
        if given.jobs > 1:
            return campaign.train_in_parallel(configs, given.jobs, listener, stop)
        return campaign.train(configs, listener, stop)

    finished, status = (True, 0) if given.report_only else with_signal_handling(go, progress.listener)
    if not finished:
        print(f"Stopped; progress saved. Resume with: sil reproduce {shlex.join(arguments)}")
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
