"""The runs of an experiment: training them in turn or several at a time, loading them, and writing a results page."""

import csv
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from self_imitation.config import MAY_CHANGE, TrainConfig, resolve, validate
from self_imitation.errors import UsageError, bad_value
from self_imitation.report import curves
from self_imitation.report.curves import Curve
from self_imitation.settings import flatten
from self_imitation.storage import checkpoint, files
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import devices
from self_imitation.training import run as runs
from self_imitation.training.loop import Listener
from self_imitation.training.run import Run

SECONDS_BETWEEN_POLLS = 0.2


@dataclass(frozen=True)
class Settings:
    """The size of an experiment."""

    steps: int
    seeds: int
    seed: int = 0


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
        if _is_finished(config):
            continue
        if run.config_file.exists():
            _, finished = runs.continue_run(run.path, config.steps, listener, stop)
        else:
            _, finished = runs.start(config, listener, stop)
        if not finished:
            return False
    return True


def train_in_parallel(configs: Sequence[TrainConfig], jobs: int, listener: Listener, stop: Callable[[], bool]) -> bool:
    """Train `jobs` runs at a time, each in a process on its share of the cores, with a log beside its directory."""
    waiting = [config for config in configs if not _is_finished(config)]
    running: dict[subprocess.Popen[bytes], tuple[TrainConfig, set[int]]] = {}
    free = devices.share_cores(jobs)
    try:
        while (waiting or running) and not stop():
            while waiting and free:
                config, cores = waiting.pop(0), free.pop(0)
                listener.message(f"{config.out}: started")
                running[_start(config, cores, jobs)] = (config, cores)
            time.sleep(SECONDS_BETWEEN_POLLS)
            for process in [process for process in running if process.poll() is not None]:
                config, cores = running.pop(process)
                free.append(cores)
                if process.returncode:
                    raise UsageError(f"runs: training of {config.out} failed; see {_log(config)}")
                listener.message(f"{config.out}: finished")
    finally:
        for process in running:
            process.terminate()  # a run saves a checkpoint before it stops
        for process in running:
            process.wait()
    return not (waiting or running)


def require_same(run: RunDirectory, wanted: TrainConfig) -> None:
    """Refuse an existing run with other seeds or settings. The engine may differ."""
    found, asked = flatten(run.config()), flatten(wanted)
    for name, value in asked.items():
        if name not in (*MAY_CHANGE, "engine") and found[name] != value:
            raise UsageError(f"runs: {str(run.path)!r} has {name} = {found[name]!r}, not {value!r}")


def load(configs: Sequence[TrainConfig], column: str = "return_mean") -> list[Run]:
    """The runs, finished or not. A `UsageError` names the first that is missing or lacks the column of metrics."""
    return [_load(config, column) for config in configs]


def _directory(config: TrainConfig) -> RunDirectory:
    return RunDirectory(Path(str(config.out)))


def _is_finished(config: TrainConfig) -> bool:
    run = _directory(config)
    if not run.config_file.exists():
        return False
    require_same(run, config)
    step = max(checkpoint.steps(run.checkpoints), default=-1)
    return step >= config.total_steps and run.summary.exists()


def _start(config: TrainConfig, cores: set[int], jobs: int) -> subprocess.Popen[bytes]:
    path = Path(str(config.out))
    path.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["train", config.env, *_flags(config)]
    if _directory(config).config_file.exists():
        arguments = ["resume", str(path), "--steps", str(config.steps)]
    with open(_log(config), "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "self_imitation", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=devices.subprocess_environment(jobs),
            start_new_session=True,  # Ctrl-C reaches only this process, which passes it on
        )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, cores)
    return process


def _flags(config: TrainConfig) -> list[str]:
    """The flags with which `sil train ENV` trains this."""
    defaults = flatten(resolve(config.env, config.preset, {"agent": config.agent}))
    changed = {name: value for name, value in flatten(config).items() if name != "env" and value != defaults[name]}
    assert not any(isinstance(value, bool) for value in changed.values()), "a switch has another form"
    named = {"agent": config.agent, "preset": config.preset, **changed}
    words = [(name.replace("_", "-"), value if isinstance(value, tuple) else (value,)) for name, value in named.items()]
    return [word for name, values in words for word in (f"--{name}", *map(str, values))]


def _log(config: TrainConfig) -> str:
    return f"{config.out}.log"


def _load(config: TrainConfig, column: str) -> Run:
    run = _directory(config)
    if not run.config_file.exists():
        raise UsageError(f"runs: {str(run.path)!r} does not exist yet; train it without --report-only")
    require_same(run, config)
    loaded = runs.load(run.path)
    rows = loaded.metrics()
    if not rows:
        raise UsageError(f"runs: {str(run.path)!r} has no metrics yet")
    if column not in rows[0]:
        raise UsageError(f"runs: the metrics of {str(run.path)!r} have no column {column!r}")
    if (done := int(rows[-1]["step"])) > config.total_steps:
        raise bad_value("steps", config.steps, f"{str(run.path)!r} is already at step {done}; allowed: that or more")
    return loaded


def final_returns(run: Run) -> np.ndarray:
    """Each seed's mean return over its latest 100 episodes."""
    latest = {int(row["seed"]): row["return_latest"] for row in run.metrics()}
    return np.array([latest[seed] for seed in run.seeds])


def median_rate(run: Run) -> float:
    """Steps per second of all seeds together."""
    return float(np.median([row["steps_per_second"] for row in run.metrics()]))


def write_report(
    out: Path, drawn: Sequence[Curve], tables: Mapping[str, Sequence[Any]], page: str, **options: Any
) -> None:
    """Write curves.csv, the tables by file name, figure.png and README.md. `options` are those of `curves.draw`."""
    out.mkdir(parents=True, exist_ok=True)
    _write_curves(out / "curves.csv", drawn)
    for name, lines in tables.items():
        _write_table(out / name, lines)
    curves.draw(drawn, out / "figure.png", **options)
    files.write_atomically(out / "README.md", page)


def _write_curves(path: Path, drawn: Sequence[Curve]) -> None:
    """A row for each agent and step, a column for each seed; returns with four digits."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env", "agent", "step", *(f"seed_{seed}" for seed in drawn[0].seeds)])
        for curve in drawn:
            for step, returns in zip(curve.steps, curve.returns, strict=True):
                writer.writerow([curve.env, curve.label, step, *(f"{value:.4g}" for value in returns)])


def _write_table(path: Path, lines: Sequence[Any]) -> None:
    """A row for each of these dataclasses."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in dataclasses.fields(lines[0])])
        for line in lines:
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in dataclasses.astuple(line)])


def unfinished(loaded: Sequence[Run], configs: Sequence[TrainConfig]) -> str:
    """A sentence that names the unfinished runs, if any."""
    done = [int(run.metrics()[-1]["step"]) for run in loaded]
    named = [
        f"{run.path.name} ({steps:,} of {config.steps:,} steps)"
        for run, config, steps in zip(loaded, configs, done, strict=True)
        if steps < config.steps
    ]
    return f"Unfinished runs: {', '.join(named)}." if named else ""


def figure(loaded: Sequence[Run], configs: Sequence[TrainConfig]) -> str:
    """The figure on a page, followed by the unfinished runs, if any."""
    missing = unfinished(loaded, configs)
    return "![Learning curves](figure.png)" + (f"\n\n**{missing}**" if missing else "")


def provenance(name: str, settings: Settings, defaults: Settings, loaded: Sequence[Run]) -> str:
    """The end of a page: command, seeds, machines and training time."""
    machines = [*dict.fromkeys(machine for run in loaded for machine in run.directory.machines())]
    if not all(run.directory.machines() for run in loaded):
        machines.append("an unnamed machine")
    usual = dataclasses.asdict(defaults)
    flags = [f"--{flag} {value}" for flag, value in dataclasses.asdict(settings).items() if value != usual[flag]]
    seconds = sum(run.metrics()[-1]["seconds"] for run in loaded)
    spent = f"{seconds / 3600:.1f} hours" if seconds > 7200 else f"{seconds / 60:.1f} minutes"
    return f"""Produced by

    {" ".join([f"sil reproduce {name}", *flags])}

with preset `authors` and seeds {settings.seed} to {settings.seed + settings.seeds - 1}, on {" and ".join(machines)}.
Training took {spent} in total."""
