"""`sil reproduce`."""

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import tyro

from self_imitation.cli.parse import parse
from self_imitation.cli.train import with_signal_handling
from self_imitation.settings import setting
from self_imitation.storage import files

DIRECTORY = (lambda v: v != "", "a directory")


@dataclass(frozen=True)
class ReproduceArguments:
    """Run an experiment of the paper, or one beyond it: train, plot, and write a results page with intervals."""

    experiment: tyro.conf.Positional[
        Literal["grid-worlds", "mujoco", "atari", "acper", "atari-bonuses", "systems", "sparse"]
    ]
    """grid-worlds: figure 2, four agents on Key-Door-Treasure and Apple-Key-Door-Treasure; mujoco: section 5.6, PPO and
    PPO+SIL, with one optimiser and with two, on six tasks with normal and delayed rewards; atari: section 5.3, A2C and
    A2C+SIL on Freeway and Montezuma's Revenge; acper: section 5.5, ACPER, A2C and A2C+SIL on four games; systems: all
    agents that can be used on Apple-Key-Door-Treasure, among them ACPER and lower-bound soft Q-learning (sections 5.5
    and 4). Beyond the paper: atari-bonuses: A2C+SIL with exploration bonuses on Montezuma's Revenge and Venture;
    sparse: six tasks that pay rarely, with the defaults for any Gymnasium environment. Atari games need a GPU."""
    out: str | None = setting(None, DIRECTORY)
    """Directory of the results page with its tables and figure. None: results/EXPERIMENT, or report/ beside the runs if
    steps or seeds differ from the defaults."""
    runs: str | None = setting(None, DIRECTORY)
    """Directory of the runs; existing ones are resumed. None: runs/EXPERIMENT."""
    steps: int | None = None
    """Environment steps per seed. None: 2,000,000 on grid worlds, 1,000,000 on MuJoCo, 5,000,000 on Atari (3,000,000
    for acper and on Freeway), 300,000 to 1,000,000 for sparse."""
    seeds: int | None = None
    """Seeds per agent. None: 16 for grid-worlds, 10 for mujoco, 3 for atari, 2 for acper and atari-bonuses, 8 for
    systems and sparse."""
    seed: int = 0
    """First seed."""
    report_only: bool = False
    """Only plot existing runs, even unfinished ones."""


def reproduce(arguments: Sequence[str]) -> int:
    given = parse(ReproduceArguments, "reproduce", arguments)
    from self_imitation.cli import progress
    from self_imitation.experiments import campaign
    from self_imitation.experiments.atari import ACPER, Atari, AtariBonuses
    from self_imitation.experiments.grid_worlds import GridWorlds
    from self_imitation.experiments.mujoco import Mujoco
    from self_imitation.experiments.sparse import Sparse
    from self_imitation.experiments.systems import Systems

    experiments = {kind.name: kind() for kind in (GridWorlds, Mujoco, Atari, ACPER, AtariBonuses, Systems, Sparse)}
    experiment = experiments[given.experiment]
    named = {"steps": given.steps, "seeds": given.seeds, "seed": given.seed}
    changes = {name: value for name, value in named.items() if value is not None}
    settings = dataclasses.replace(experiment.defaults, **changes)
    folder = files.absolute(given.runs or f"runs/{given.experiment}")
    configs = experiment.configs(settings, folder)
    usual = Path("results") / given.experiment if settings == experiment.defaults else folder / "report"
    shown = Path(given.out) if given.out else usual
    out = files.require_writable(shown / "figure.png", "out", make_parents=True).parent
    if not given.report_only:
        finished, status = with_signal_handling(partial(campaign.train, configs), progress.listener)
        if not finished:
            print(f"Stopped; progress saved. Resume with: sil reproduce {shlex.join(arguments)}")
            return status
    with files.explain_failure(out):
        lines = experiment.report(settings, folder, out)
    print(experiment.table(lines))
    print(f"Page: {shown / 'README.md'}\nFigure: {shown / 'figure.png'}")
    if missing := campaign.unfinished(configs):
        print(missing)
    return 0
