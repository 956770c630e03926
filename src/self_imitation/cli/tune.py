"""`sil tune`."""

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from self_imitation import config as configuration
from self_imitation.cli import terminal
from self_imitation.cli.cluster import ADDRESS, PLACE, ClusterArguments
from self_imitation.cli.parse import parse
from self_imitation.cli.train import with_signal_handling
from self_imitation.cluster.connect import require_ray
from self_imitation.errors import RunsFailedError, UsageError, bad_value, printable
from self_imitation.settings import one_of, or_none, real, setting, whole
from self_imitation.storage import files, mirror, settings_file

if TYPE_CHECKING:
    from self_imitation.tuning.trials import Log, Outcome, Search

SHOWN = 10
"""Trials in the table at the end; all of them are in the file."""
FIELDS = ("env", "agent", "preset", "steps", "seeds", "seed", "out", "stop_at", "patience")
"""Settings that have flags of their own, or are decided by the search."""


@dataclass(frozen=True)
class SearchArguments:
    """What to search."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment, as for `sil train`."""
    agent: str | None = None
    """Parts of the agent, as for `sil train`. None: that of the preset, or a2c+sil."""
    preset: Annotated[str, tyro.conf.arg(metavar="authors|paper|FILE.toml")] = "authors"
    """The preset whose settings are changed."""
    search: tuple[str, ...] = ()
    """What to search: NAME=VALUES for each setting. Values are a list such as sil.updates=1,2,4,8, or a range such as
    optimiser.learning-rate=1e-4..1e-2:log (without :log, uniform). Or FILE.toml, with the same in a table [search].
    Empty: the paper's lists on MuJoCo with PPO, otherwise what matters most for the agent."""
    settings: tuple[str, ...] = ()
    """Settings of all trials: NAME=VALUE, such as delay=20 num-envs=8."""
    algorithm: Literal["random", "asha", "optuna"] = setting("asha", one_of("random", "asha", "optuna"))
    """random: settings drawn at random, every trial trained to its end; asha: the same, but weak trials are stopped
    early; optuna: settings suggested by Optuna from the scores so far, weak trials stopped early."""
    trials: int = setting(16, whole(1, 100_000))
    """Number of settings to try; fewer if the space has fewer combinations."""
    steps: int | None = setting(None, or_none(whole(1, 10**15)))
    """Environment steps per seed of a trial. None: those of the environment."""
    seeds: int = setting(2, whole(1, 65_536))
    """Seeds of a trial, from 1000 on, so that a search uses none of the seeds that are reported."""
    measure: Literal["return_latest", "return_mean"] = setting("return_latest", one_of("return_latest", "return_mean"))
    """The score of a trial, a mean over its seeds: the return of the latest 100 episodes, or of those in the last row
    of metrics."""
    grace_period: int | None = setting(None, or_none(whole(1, 10**15)))
    """Steps per seed before a trial can be stopped early. None: a tenth of the steps."""
    reduction_factor: float = setting(3.0, real(1, 1000, above=True))
    """One of so many trials goes on at each decision; the next one is after so many times the steps."""
    search_seed: int = setting(0, whole(0, 2**32 - 1))
    """Seed of the random numbers that draw settings."""
    name: str | None = setting(None, or_none((lambda v: v not in ("", ".", "..") and "/" not in v, "a name")))
    """The trials are in runs/tune/NAME. None: environment and agent."""
    dry_run: bool = False
    """Only print what would be searched."""


@dataclass(frozen=True, kw_only=True)
class TuneArguments(ClusterArguments, SearchArguments):
    """Search for good settings with Ray Tune, and write the best ones as a preset for `sil train --preset FILE`. The
    same command continues a search that was stopped.
    """

    address: str | None = setting(None, ADDRESS)
    """Of a Ray cluster: HOST:PORT, auto for the one on this machine, or local for a new one on this machine that ends
    with the command. None: that of the variable RAY_ADDRESS, or local."""
    storage: str | None = setting(None, PLACE)
    """A directory that every node of the cluster sees, in which the trials are stored. None: runs/tune."""


def tune(arguments: Sequence[str]) -> int:
    given = parse(TuneArguments, "tune", arguments)
    search = _search(given)
    if given.dry_run:
        terminal.say(_describe(search))
        return 0
    require_ray("sil tune")
    if given.algorithm == "optuna":
        _require_optuna()
    terminal.say(_describe(search))
    from self_imitation.cli import run_table
    from self_imitation.tuning import tuner

    command = f"sil tune {shlex.join(arguments)}"
    go = partial(tuner.run, search, given.resources, given.address, command)
    (finished, log), status = with_signal_handling(go, run_table.report)
    return _conclude(log, finished, status, command)


def _search(given: TuneArguments) -> "Search":
    """Everything is checked here, before Ray is started."""
    from self_imitation.tuning import defaults, trials
    from self_imitation.tuning import space as spaces

    if given.storage and mirror.is_url(given.storage):
        raise bad_value("storage", given.storage, "allowed for sil tune: a directory that every node sees")
    if given.address and given.address.startswith("ray://"):
        raise bad_value("address", given.address, "allowed for sil tune: HOST:PORT, auto or local")
    preset = settings_file.read_preset(given.preset)
    usual = configuration.resolve(given.env, preset, {"agent": given.agent} if given.agent else {})
    base = trials.base_config(usual, given.steps or usual.steps, given.seeds)
    settings = spaces.read_settings(base, given.settings)
    for name in (*settings, *(words := spaces.read_words(given.search, "search"))):
        if name in FIELDS:
            raise UsageError(f"{name!r} can't be set or searched; allowed: hyperparameters, such as sil.updates")
    config = spaces.apply(base, settings)
    space = spaces.build(config, words or defaults.space(config, preset.base))
    if both := [name for name in settings if name in space]:
        raise UsageError(f"settings: {both[0]!r} is searched as well; allowed: one of the two")
    spaces.require_possible(config, space, given.search_seed)
    grace = given.grace_period or max(1, config.steps // 10)
    if grace > config.steps:
        raise bad_value("grace_period", grace, f"allowed: at most the steps of a trial, {config.steps}")
    return trials.Search(
        config=config,
        preset=preset.base,
        settings={**preset.settings, **settings},
        space=space,
        folder=_folder(given, config.agent),
        algorithm=given.algorithm,
        measure=given.measure,
        trials=int(min(given.trials, spaces.size(space))),
        grace_period=grace,
        reduction_factor=given.reduction_factor,
        seed=given.search_seed,
    )


def _folder(given: TuneArguments, agent: str) -> Path:
    from self_imitation.experiments.definition import file_name

    name = given.name or file_name(f"{given.env}_{agent}")
    return files.absolute(Path(given.storage or "runs/tune") / name)


def _require_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UsageError("algorithm: 'optuna' needs the package optuna: pip install 'self-imitation[ray]'") from None


def _describe(search: "Search") -> str:
    config = search.config
    seeds = f"{config.seeds} seed{'s' * (config.seeds > 1)} from {config.seed}"
    count = f"{search.trials} trial{'s' * (search.trials > 1)}"
    lines = [f"{config.agent} on {config.env}: {count} of {config.steps:,} steps, {seeds}, each"]
    lines += [f"  {name}: {dimension}" for name, dimension in search.space.items()]
    return "\n".join([*lines, f"in {os.path.relpath(search.folder)}"])


def _conclude(log: "Log", finished: bool, status: int, command: str) -> int:
    from self_imitation.tuning import trials

    search, found = log.search, trials.outcomes(log)
    shown = Path(os.path.relpath(search.folder))
    with files.explain_failure(search.folder):
        trials.write_table(search, found)
        _print_table(log, found)
        terminal.say(f"All trials: {shown / trials.TABLE}")
        if not finished:
            terminal.say(f"Stopped; progress saved. Continue with: {command}")
            return status
        winner = trials.best(found)
        if winner is None:
            raise RunsFailedError(f"no trial has a score: {found[0].error if found else 'none was started'}")
        trials.write_best(search, winner, found, command)
    preset = shlex.quote(str(shown / trials.PRESET))
    terminal.say(f"Best: {winner.name}\nNext: sil train {shlex.quote(search.config.env)} --preset {preset}")
    if log.failed:
        count = len(log.failed)
        raise RunsFailedError(f"{count} trial{'s' * (count > 1)} failed; start them again with: {command}")
    return 0


def _print_table(log: "Log", found: "Sequence[Outcome]") -> None:
    """The best trials."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trial", "state", "steps", log.search.measure, *log.search.space):
        table.add_column(name, justify="left" if name in ("trial", "state") else "right", no_wrap=True)
    for own in found[:SHOWN]:
        score = "" if math.isnan(own.score) else f"{own.score:.4g}"
        values = [printable(str(own.settings[name])) for name in log.search.space]
        table.add_row(own.name, own.state, f"{own.step:,}", score, *values)
    console = Console()
    console.print(table, width=None if console.is_terminal else 200)
