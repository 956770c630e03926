"""`sil reproduce`."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from self_imitation.cli.parse import parse
from self_imitation.cli.train import with_signal_handling
from self_imitation.errors import UsageError
from self_imitation.settings import real, setting
from self_imitation.storage import files

if TYPE_CHECKING:
    from self_imitation.experiments.definition import Definition
    from self_imitation.experiments.runs import Case

DIRECTORY = (lambda v: v != "", "a directory")
ALL = "all"


@dataclass(frozen=True)
class ReproduceArguments:
    """Run an experiment: train its agents, and write a results page with intervals. Finished runs are not trained
    again, unfinished ones are resumed.
    """

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME|FILE.toml")]
    """An experiment of the paper: montezuma (figure 1), grid-worlds (figure 2), hard-exploration (figure 3, table 1),
    atari-49 (table 2, figure 4), acper (section 5.5), mujoco and mujoco-delayed (figure 5), mujoco-tuned (the same with
    the paper's lists of hyperparameters). Beyond the paper: systems (all agents on one grid world), sparse (six tasks
    that pay rarely), atari-bonuses (self-imitation with exploration bonuses). Or all; or a file of your own (see
    docs/experiments.md). Atari games need a GPU."""
    only: tuple[str, ...] = ()
    """Train only these tasks or agents; * stands for any letters. Empty: all."""
    scale: float = setting(1.0, real(0, 1, above=True))
    """Multiply the number of steps by this; 0.1 trains a tenth. Such runs have a directory of their own."""
    steps: int | None = None
    """Environment steps per seed, for tasks that would be trained for longer. None: those of the experiment."""
    seeds: int | None = None
    """Seeds per agent. None: those of the experiment."""
    seed: int | None = None
    """First seed. Seeds from another one on are added to those that exist. None: that of the experiment."""
    dry_run: bool = False
    """Only print what would be trained, and how long that takes by measured rates."""
    report_only: bool = False
    """Only report on existing runs, even unfinished ones; without runs, write the page of existing results anew."""
    runs: str | None = setting(None, DIRECTORY)
    """Directory of the runs. None: runs/NAME."""
    out: str | None = setting(None, DIRECTORY)
    """Directory of the results. None: results/NAME, or report/ beside the runs if they are not the whole experiment."""


@dataclass(frozen=True)
class Plan:
    planned: "Definition"
    """The experiment in its full length."""
    definition: "Definition"
    """As it is run here."""
    cases: "Sequence[Case]"
    folder: Path
    out: Path


def reproduce(arguments: Sequence[str]) -> int:
    given = parse(ReproduceArguments, "reproduce", arguments)
    plans = _plans(given)
    if given.dry_run:
        return _dry_run(plans)
    from self_imitation.cli import progress
    from self_imitation.experiments import collect, page, results, train

    command = f"sil reproduce {shlex.join(arguments)}"
    for plan in plans:
        files.require_writable(plan.out / "figure.png", "out", make_parents=True)
    for plan in plans:
        if not given.report_only:
            go = partial(train.train, plan.definition, plan.cases, plan.folder, command)
            finished, status = with_signal_handling(go, progress.listener)
            if not finished:
                print(f"Stopped; progress saved. Resume with: {command}")
                return status
        if given.report_only and not plan.folder.exists() and (plan.out / results.DEFINITION).exists():
            found = results.read(plan.out)
        else:
            found = collect.collect(plan.definition, plan.folder, plan.planned)
        with files.explain_failure(plan.out):
            results.write(found, plan.out)
            page.write(found, plan.out)
        print(page.summary(found))
        print(f"Page: {plan.out / 'README.md'}\nNext: sil report {shlex.quote(str(plan.out))} --open")
    return 0


def _plans(given: ReproduceArguments) -> list[Plan]:
    """One for each experiment. With `all`, experiments without the selected tasks and agents are left out."""
    from self_imitation.experiments import definition as definitions

    if given.experiment != ALL:
        return [_plan(given, given.experiment, Path(given.runs) if given.runs else None, given.out)]
    plans, refused = [], None
    for name in definitions.shipped():
        try:
            folder, out = (None if path is None else f"{path}/{name}" for path in (given.runs, given.out))
            plans.append(_plan(given, name, None if folder is None else Path(folder), out))
        except UsageError as error:
            refused = error
            if not given.only:
                raise
    if not plans and refused:
        raise refused
    return plans


def _plan(given: ReproduceArguments, experiment: str, folder: Path | None, out: str | None) -> Plan:
    from self_imitation.experiments import definition as definitions
    from self_imitation.experiments import runs, search

    planned = definitions.read(experiment)
    definition = definitions.resized(planned, given.scale, given.steps, given.seeds, given.seed)
    runs.check(definition)
    cases = runs.cases(definition, given.only)
    own = planned.name if given.scale == 1 else f"{planned.name}_scale-{given.scale:g}"
    folder = folder or Path("runs") / own
    for case in cases:
        if case.agent.search:
            search.configs(definition, case, folder)  # every candidate is checked before anything is trained
    whole = definition == planned and not given.only
    return Plan(planned, definition, cases, folder, Path(out or (f"results/{own}" if whole else folder / "report")))


def _dry_run(plans: Sequence[Plan]) -> int:
    import jax

    from self_imitation.experiments import estimate

    gpu = jax.default_backend() != "cpu"
    for plan in plans:
        print(f"{plan.definition.title}, in {plan.folder}:")
        print(estimate.in_words(estimate.expect(plan.definition, plan.cases, plan.folder, gpu)))
    return 0
