"""Experiments: training their runs, and writing a results page."""

import csv
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from self_imitation.config import MAY_CHANGE, TrainConfig, resolve, validate
from self_imitation.errors import UsageError, bad_value
from self_imitation.report import curves
from self_imitation.report.curves import Curve
from self_imitation.settings import flatten
from self_imitation.storage import files
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import run as runs
from self_imitation.training.loop import Listener
from self_imitation.training.run import Run

Line = dict[str, Any]
"""One row of table.csv, by column."""
NOT_RUN = "not run"


@dataclass(frozen=True)
class Variant:
    """An agent, with settings that differ from its defaults."""

    agent: str
    changes: Mapping[str, object] = field(default_factory=dict)


def variant_of(run: Run, variants: Mapping[str, Variant]) -> str:
    """The name of the variant that a run is of: the last one that fits, since the first ones change nothing."""
    settings = flatten(run.config)
    fitting = [
        name
        for name, variant in variants.items()
        if run.config.agent == variant.agent and all(settings[key] == value for key, value in variant.changes.items())
    ]
    return fitting[-1]


def file_name(variant: str) -> str:
    """The name of a variant as a part of the name of a directory."""
    return variant.replace(", ", "_").replace(" ", "-")


@dataclass(frozen=True)
class Settings:
    """The size of an experiment."""

    steps: int
    seeds: int
    seed: int = 0


class Experiment:
    """What the page of an experiment says; `report` puts it together."""

    name: str
    """On the command line."""
    title: str
    introduction = ""
    defaults: Settings
    figure: Mapping[str, Any] = {}
    """Options of `curves.draw`."""

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        raise NotImplementedError

    def line(self, run: Run) -> Line:
        raise NotImplementedError

    def table(self, lines: Sequence[Line]) -> str:
        """The lines as a Markdown table."""
        raise NotImplementedError

    def text(self, lines: Sequence[Line], loaded: Sequence[Run], settings: Settings) -> str:
        """The page between its table and how it was produced."""
        raise NotImplementedError

    def curves(self, loaded: Sequence[Run]) -> list[Curve]:
        return [run.curve for run in loaded]

    def tables(self, lines: Sequence[Line], loaded: Sequence[Run]) -> dict[str, Sequence[Line]]:
        """Tables by the name of their file."""
        return {"table.csv": lines}

    def report(self, settings: Settings, folder: Path, out: Path) -> list[Line]:
        """Write curves.csv, the tables, figure.png and README.md to `out`, from the runs in `folder`.

        Runs that are missing or unfinished are named. Raises `UsageError` if there is none at all.
        """
        wanted = self.configs(settings, folder)
        loaded = [load(config) for config in wanted if exists(config)]
        if not loaded:
            raise UsageError(f"runs: {str(folder)!r} has no run of this experiment; train without --report-only")
        lines, drawn, missing = [self.line(run) for run in loaded], self.curves(loaded), unfinished(wanted)
        parts = [
            f"# {self.title}",
            self.introduction,
            "![Learning curves](figure.png)",
            f"**{missing}**" if missing else "",
            self.table(lines),
            self.text(lines, loaded, settings),
            self._provenance(settings, loaded),
        ]
        out.mkdir(parents=True, exist_ok=True)
        _write_curves(out / "curves.csv", drawn)
        for name, table in self.tables(lines, loaded).items():
            _write_table(out / name, table)
        curves.draw(drawn, out / "figure.png", **self.figure)
        files.write_atomically(out / "README.md", ("\n\n".join(filter(None, parts)) + "\n").encode())
        return lines

    def _provenance(self, settings: Settings, loaded: Sequence[Run]) -> str:
        """Command, seeds, machines and training time."""
        machines = [*dict.fromkeys(machine for run in loaded for machine in run.directory.machines())]
        if not all(run.directory.machines() for run in loaded):
            machines.append("an unnamed machine")
        usual = dataclasses.asdict(self.defaults)
        flags = [f"--{flag} {value}" for flag, value in dataclasses.asdict(settings).items() if value != usual[flag]]
        seconds = sum(run.metrics()[-1]["seconds"] for run in loaded)
        spent = f"{seconds / 3600:.1f} hours" if seconds > 7200 else f"{seconds / 60:.1f} minutes"
        return f"""Produced by

    {" ".join([f"sil reproduce {self.name}", *flags])}

with preset `authors` and seeds {settings.seed} to {settings.seed + settings.seeds - 1}, on {" and ".join(machines)}.
Training took {spent} in total."""


def config(
    env: str, agent: str, settings: Settings, out: Path, changes: Mapping[str, object] | None = None
) -> TrainConfig:
    """One run, with preset `authors`."""
    named = {"agent": agent, "out": str(out), **dataclasses.asdict(settings), **(changes or {})}
    return validate(resolve(env, "authors", named))


def train(configs: Sequence[TrainConfig], listener: Listener, stop: Callable[[], bool]) -> bool:
    """Train one run after another; unfinished ones are resumed. Returns False if `stop` ended it early."""
    for config in configs:
        run = _directory(config)
        if not exists(config):
            _, finished = runs.start(config, listener, stop)
        else:
            _require_same(run, config)
            finished = run.finished_step() >= config.total_steps
            if not finished:
                _, finished = runs.continue_run(run.path, config.steps, listener, stop)
        if not finished:
            return False
    return True


def exists(config: TrainConfig) -> bool:
    return os.path.exists(_directory(config).config_file)


def load(config: TrainConfig) -> Run:
    """A run, finished or not. Raises `UsageError` if it is not the one that `config` describes."""
    run = _directory(config)
    _require_same(run, config)
    loaded = runs.load(run.path)
    rows = loaded.metrics()
    if not rows:
        raise UsageError(f"runs: {str(run.shown)!r} has no metrics yet")
    if missing := set(loaded.seeds) - {int(row["seed"]) for row in rows}:
        raise UsageError(f"runs: the metrics of {str(run.shown)!r} have no row of seed {min(missing)}")
    if "return_latest" not in rows[0]:
        raise UsageError(f"runs: the metrics of {str(run.shown)!r} have no column 'return_latest'")
    if (done := int(rows[-1]["step"])) > config.total_steps:
        raise bad_value("steps", config.steps, f"{str(run.shown)!r} is already at step {done}; allowed: that or more")
    return loaded


def _directory(config: TrainConfig) -> RunDirectory:
    return RunDirectory(Path(str(config.out)))


def _require_same(run: RunDirectory, wanted: TrainConfig) -> None:
    """Refuse an existing run with other seeds or settings. The engine may differ; a network that was left open was
    chosen when the run began.
    """
    found = flatten(run.config())
    for name, value in flatten(wanted).items():
        left_open = name.startswith("network.") and value is None
        if name not in (*MAY_CHANGE, "engine") and not left_open and found[name] != value:
            raise UsageError(f"runs: {str(run.shown)!r} has {name} = {found[name]!r}, not {value!r}")


def unfinished(configs: Sequence[TrainConfig]) -> str:
    """Sentences that name the unfinished and the missing runs, if any."""
    shortened, missing = [], []
    for config in configs:
        name = Path(str(config.out)).name
        if not exists(config):
            missing.append(name)
        elif (step := int(load(config).metrics()[-1]["step"])) < config.steps:
            shortened.append(f"{name} ({step:,} of {config.steps:,} steps)")
    kinds = {"Unfinished runs": shortened, "Not run": missing}
    return " ".join(f"{kind}: {', '.join(names)}." for kind, names in kinds.items() if names)


def final_returns(run: Run) -> np.ndarray:
    """Each seed's mean return over its latest 100 episodes."""
    latest = {int(row["seed"]): row["return_latest"] for row in run.metrics()}
    return np.array([latest[seed] for seed in run.seeds])


def median_rate(run: Run) -> float:
    """Steps per second of all seeds together."""
    return float(np.median([row["steps_per_second"] for row in run.metrics()]))


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _write_curves(path: Path, drawn: Sequence[Curve]) -> None:
    """A row for each agent and step, a column for each seed; returns with four digits."""
    seeds = [f"seed_{seed}" for seed in drawn[0].seeds]
    rows = [
        {"env": curve.env, "agent": curve.label, "step": step}
        | {seed: f"{value:.4g}" for seed, value in zip(seeds, returns, strict=True)}
        for curve in drawn
        for step, returns in zip(curve.steps, curve.returns, strict=True)
    ]
    _write_table(path, rows)


def _write_table(path: Path, lines: Sequence[Line]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        for line in lines:
            writer.writerow({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in line.items()})
