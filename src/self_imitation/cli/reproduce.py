"""`sil reproduce`."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from self_imitation.cli import terminal
from self_imitation.cli.cluster import ClusterArguments, refuse_cluster_flags
from self_imitation.cli.parse import parse
from self_imitation.cli.train import with_signal_handling
from self_imitation.cluster.connect import require_ray
from self_imitation.errors import RunsFailedError, UsageError
from self_imitation.settings import one_of, or_none, real, setting, whole
from self_imitation.storage import files, mirror

if TYPE_CHECKING:
    from self_imitation.experiments.definition import Definition
    from self_imitation.experiments.runs import Case

DIRECTORY = (lambda v: v != "", "a directory")
ALL = "all"


@dataclass(frozen=True)
class ExperimentArguments:
    """What to run."""

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME|FILE.toml")]
    """An experiment of the paper: montezuma (figure 1), grid-worlds (figure 2), hard-exploration (figure 3, table 1),
    atari-49 (table 2, figure 4), acper (section 5.5), mujoco and mujoco-delayed (figure 5), mujoco-tuned (the same with
    the paper's lists of hyperparameters), mujoco-ant (Ant for 10 M steps). Beyond the paper: mujoco-search (stronger
    self-imitation beside PPO), systems (all agents on one grid world), sparse (six tasks that pay rarely),
    kept-episodes (which episodes to store), own-value and own-value-bonus (what returns are compared with, without and
    with a bonus), atari-bonuses (self-imitation with exploration bonuses). Or all; or a file
    of your own (see docs/experiments.md). Atari games need a GPU."""
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
    seeds_per_run: int | None = setting(None, or_none(whole(1, 65_536)))
    """Divide the seeds of an agent among several runs. None: all of them are in one."""
    engine: Literal["local", "ray"] = setting("local", one_of("local", "ray"))
    """local: one run after another, in this process. ray: every run is a task of a Ray cluster. The options below are
    for ray."""


@dataclass(frozen=True)
class ReproduceArguments(ClusterArguments, ExperimentArguments):
    """Run an experiment: train its agents, and write a results page with intervals. Finished runs are not trained
    again, unfinished ones are resumed.
    """


@dataclass(frozen=True)
class Plan:
    planned: "Definition"
    """The experiment in its full length."""
    definition: "Definition"
    """As it is run here."""
    cases: "Sequence[Case]"
    folder: Path
    """Absolute: environments may change the working directory."""
    out: Path
    shown: Path
    """The same as the user wrote it."""
    url: str | None
    """Where the runs are stored, if not in the folder."""


def reproduce(arguments: Sequence[str]) -> int:
    given = parse(ReproduceArguments, "reproduce", arguments)
    if given.engine == "ray":
        require_ray()
    else:
        refuse_cluster_flags(given, "without --engine ray")
    plans = _plans(given)
    if given.dry_run:
        return _dry_run(plans, given.seeds_per_run)
    from self_imitation.experiments import collect, page, results

    command = f"sil reproduce {shlex.join(arguments)}"
    for plan in plans:
        files.require_writable(plan.out / "figure.png", "out", make_parents=True)
    failed = 0
    for plan in plans:
        if not given.report_only:
            finished, status, failures = (_train_on_ray if given.engine == "ray" else _train_here)(given, plan, command)
            failed += failures
            if not finished:
                terminal.say(f"Stopped; progress saved. Resume with: {command}")
                return status
        if given.report_only and not os.path.exists(plan.folder) and (plan.out / results.DEFINITION).exists():
            found = results.read(plan.out)
        else:
            found = collect.collect(plan.definition, plan.folder, plan.planned)
            if (plan.out / results.DEFINITION).exists():
                found = results.joined(results.read(plan.out), found)
        with files.explain_failure(plan.out):
            results.write(found, plan.out)
            page.write(found, plan.out)
        terminal.say(page.summary(found))
        terminal.say(f"Page: {plan.shown / 'README.md'}\n{_write_web_page(plan)}")
    if failed:
        raise RunsFailedError(f"{failed} run{'s' * (failed > 1)} failed; start them again with: {command}")
    return 0


def _train_here(given: ReproduceArguments, plan: Plan, command: str) -> tuple[bool, int, int]:
    """Returns whether all runs came to their end, the exit status if not, and how many failed."""
    from self_imitation.cli import progress
    from self_imitation.experiments import train

    go = partial(train.train, plan.definition, plan.cases, plan.folder, command, seeds_per_run=given.seeds_per_run)
    finished, status = with_signal_handling(lambda shown, stop: go([shown], stop), progress.create)
    return finished, status, 0


def _train_on_ray(given: ReproduceArguments, plan: Plan, command: str) -> tuple[bool, int, int]:
    """As `_train_here`."""
    from self_imitation.cli import run_table
    from self_imitation.cluster import driver
    from self_imitation.cluster.task import Place

    place = Place(str(plan.folder), plan.url)
    work = driver.Work(plan.definition, plan.cases, place, command, given.seeds_per_run)
    go = partial(driver.run, work, given.resources, given.address)
    (finished, found), status = with_signal_handling(go, run_table.report)
    return finished, status, found.count("failed")


def _write_web_page(plan: Plan) -> str:
    """Write report.html where its packages are installed. Returns a line that says where it is, or how to get it."""
    from self_imitation.report import results_page, web_page

    if not web_page.available():
        return f"Next: pip install 'self-imitation[report]', then sil report {shlex.quote(str(plan.shown))} --open"
    with files.explain_failure(plan.out):
        results_page.write(results_page.find(plan.out), plan.out / results_page.FILE)
    return f"Web page: {plan.shown / results_page.FILE}"


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
    url = None
    if given.storage and mirror.is_url(given.storage):
        url = f"{given.storage.rstrip('/')}/{own}"
    elif given.storage:
        folder = folder or Path(given.storage) / own
    folder = folder or Path("runs") / own
    shown = Path(out or (f"results/{own}" if definition == planned and not given.only else folder / "report"))
    folder = files.absolute(folder)
    for case in cases:
        if case.agent.search:
            search.configs(definition, case, folder)  # every candidate is checked before anything is trained
    return Plan(planned, definition, cases, folder, files.absolute(shown), shown, url)


def _dry_run(plans: Sequence[Plan], seeds_per_run: int | None) -> int:
    import jax

    from self_imitation.experiments import estimate

    gpu = jax.default_backend() != "cpu"
    for plan in plans:
        terminal.say(f"{plan.definition.title}, in {os.path.relpath(plan.folder)}:")
        terminal.say(estimate.in_words(estimate.expect(plan.definition, plan.cases, plan.folder, gpu, seeds_per_run)))
    return 0
