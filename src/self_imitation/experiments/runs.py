"""The runs of an experiment: their configs, training and resuming."""

import glob
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

from self_imitation import registry
from self_imitation.config import MAY_CHANGE, TrainConfig, override, refuse_unused, resolve, validate
from self_imitation.errors import UsageError, unknown_name
from self_imitation.experiments import provenance
from self_imitation.experiments.definition import Agent, Definition, Task
from self_imitation.registry import SELF_IMITATION
from self_imitation.settings import flatten
from self_imitation.storage import metrics_file
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import run as training
from self_imitation.training.callbacks import CallbackLike

P = TypeVar("P", Task, Agent)
FIELDS = ("env", "agent", "preset", "steps", "seeds", "seed", "out")
"""Settings that an experiment has fields of its own for."""


@dataclass(frozen=True)
class Case:
    """One agent on one task."""

    task: Task
    agent: Agent


def cases(definition: Definition, only: Sequence[str] = ()) -> list[Case]:
    """Those that match a selection: names or patterns (`*`) of tasks, of agents, or of both. Empty: all.

    A pattern that matches nothing raises a `UsageError`.
    """
    names = [*(task.name for task in definition.tasks), *(agent.name for agent in definition.agents)]
    for pattern in only:
        if not any(_matches(name, pattern) for name in names):
            raise unknown_name("only", pattern, names)
    tasks, agents = _selected(definition.tasks, only), _selected(definition.agents, only)
    return [Case(task, agent) for task in tasks for agent in agents]


def _selected(parts: Sequence[P], only: Sequence[str]) -> Sequence[P]:
    """The parts that match any of the patterns; all of them if none does."""
    return [part for part in parts if any(_matches(part.name, pattern) for pattern in only)] or parts


def _matches(name: str, pattern: str) -> bool:
    return fnmatch(name.lower(), pattern.lower())


def run_config(
    definition: Definition, case: Case, folder: Path, chosen: Mapping[str, object] | None = None
) -> TrainConfig:
    """The run of a case, in its directory under `folder`; `chosen`: settings found by a search."""
    batch = f"_seed-{definition.seed}" if definition.seed else ""
    out = folder / f"{definition.directory(case.task, case.agent)}{batch}"
    sizes = {"steps": definition.steps_of(case.task), "seeds": definition.seeds, "seed": definition.seed}
    return build_config(definition, case, {**sizes, "out": str(out)}, chosen)


def build_config(
    definition: Definition, case: Case, sizes: Mapping[str, object], chosen: Mapping[str, object] | None = None
) -> TrainConfig:
    """`sizes`: steps, seeds, first seed and directory. A bad setting raises a `UsageError` that names the case."""
    task, agent = case.task, case.agent
    try:
        defaults = resolve(task.env, definition.preset, {"agent": agent.agent, **sizes})
        shared = {**definition.settings, **task.settings}
        own = {**agent.settings, **(chosen or {})}
        for name in (*shared, *own):
            if name in FIELDS:
                raise UsageError(f"settings: {name!r} is a field of its own in an experiment")
        used = {name: value for name, value in shared.items() if _has(defaults, name)}
        config = validate(override(defaults, {**used, **own}))
        refuse_unused(config, defaults)
    except UsageError as error:
        raise UsageError(f"{definition.name}: task {task.name!r}, agent {agent.name!r}: {error}") from None
    return config


def _has(config: TrainConfig, name: str) -> bool:
    """Whether a setting of the whole experiment concerns this agent."""
    part = name.partition(".")[0]
    if part == SELF_IMITATION:
        return config.parts.self_imitation
    return part not in registry.components() or part in config.components


def check(definition: Definition) -> None:
    """Raise a `UsageError` for the first setting, environment or agent that is unknown or has no effect."""
    for case in cases(definition):
        grid = {name: values[0] for name, values in case.agent.search.items()}
        run_config(definition, case, Path("-"), grid)
    for place, settings in (("settings", definition.settings), *((t.name, t.settings) for t in definition.tasks)):
        for name in settings:
            configs = (run_config(definition, case, Path("-")) for case in cases(definition))
            if not any(_has(config, name) for config in configs):
                raise UsageError(f"{definition.name}: {place}: {name} has no effect with any agent of the experiment")


def train(config: TrainConfig, command: str, callbacks: Sequence[CallbackLike], stop: Callable[[], bool]) -> bool:
    """Train a run, or resume it; a finished one is left as it is. Returns whether it is finished."""
    run = directory(config)
    if not os.path.exists(run.config_file):
        done, finished = training.start(config, callbacks, stop)
    else:
        require_same(run, config)
        if is_finished(config):
            return True
        settings = {} if config.workers is None else {"workers": config.workers}
        done, finished = training.continue_run(
            run.path,
            config.steps,
            callbacks,
            stop,
            trust=True,
            settings=settings,  # trusted: it is named here
        )
    provenance.record(done.path, command)
    return finished


def metrics(run: RunDirectory, measure: str) -> list[dict[str, float]]:
    """The rows of its seeds; none if it was stopped before the first one. Raises a `UsageError` if a seed or the
    measure is missing.
    """
    seeds = run.config().seed_numbers
    rows = [row for row in metrics_file.read(run.path) if int(row["seed"]) in seeds]
    if rows and measure not in rows[0]:
        raise UsageError(f"runs: the metrics of {str(run.shown)!r} have no column {measure!r}")
    if rows and (missing := set(seeds) - {int(row["seed"]) for row in rows}):
        raise UsageError(f"runs: the metrics of {str(run.shown)!r} have no row of seed {min(missing)}")
    return rows


def directory(config: TrainConfig) -> RunDirectory:
    return RunDirectory(Path(str(config.out)))


def is_finished(config: TrainConfig) -> bool:
    """Whether it made its last step, or stopped early by the same limits."""
    run = directory(config)
    if run.finished_step() >= config.total_steps:
        return True
    found = run.config() if run.stopped_early() else None
    return found is not None and (found.stop_at, found.patience) == (config.stop_at, config.patience)


def require_same(run: RunDirectory, wanted: TrainConfig, but: Iterable[str] = ()) -> None:
    """Refuse an existing run with other seeds or settings. The engine may differ; a network that was left open was
    chosen when the run began. `but`: settings that may differ too.
    """
    found = flatten(run.config())
    for name, value in flatten(wanted).items():
        left_open = name.startswith("network.") and value is None
        if name in (*MAY_CHANGE, "engine", *but) or left_open or found[name] == value:
            continue
        hint = f"; add seeds with --seed {found['seeds']}" if name == "seeds" and found["seed"] == 0 else ""
        raise UsageError(f"runs: {str(run.shown)!r} has {name} = {found[name]!r}, not {value!r}{hint}")


def batches(definition: Definition, case: Case, folder: Path) -> list[RunDirectory]:
    """The runs of a case that exist: of the first seeds, and of seeds that were added."""
    name = definition.directory(case.task, case.agent)
    found = (folder / other for other in glob.glob(f"{glob.escape(name)}_seed-*", root_dir=folder))
    added = [path for path in found if path.name.rpartition("-")[2].isdigit()]
    added.sort(key=lambda path: int(path.name.rpartition("-")[2]))
    return [run for path in (folder / name, *added) if os.path.exists((run := RunDirectory(path)).config_file)]
