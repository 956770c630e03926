"""Many runs for one figure: trained in turn or several at once, and picked up where they stopped."""

import csv
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from self_imitation.training import devices
from self_imitation.config import TrainConfig, flatten, resolve
from self_imitation.errors import UsageError, bad_value
from self_imitation.report.curves import Curve
from self_imitation.storage import checkpoint
from self_imitation.storage import files
from self_imitation.training import run as runs
from self_imitation.storage.config_file import MAY_CHANGE
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training.run import Run
from self_imitation.training.loop import Listener


def train(configs: Sequence[TrainConfig], listener: Listener, stop: Callable[[], bool]) -> bool:
    """One after another; a run that was interrupted goes on. False if `stop` cut it short."""
    for config in configs:
        run = RunDirectory(Path(str(config.out)))
        if run.config_file.exists():
            require_same(run, config)
            _, finished = runs.go_on(run.path, config.steps, listener, stop)
        else:
            _, finished = runs.start(config, listener, stop)
        if not finished:
            return False
    return True


def train_at_once(configs: Sequence[TrainConfig], jobs: int, listener: Listener, stop: Callable[[], bool]) -> bool:
    """So many at a time, each a process of its own on its own share of the cores, its output beside its directory."""
    waiting = [config for config in configs if not _finished(config)]
    running: dict[subprocess.Popen[bytes], tuple[TrainConfig, set[int]]] = {}
    free = devices.shares(jobs)
    try:
        while (waiting or running) and not stop():
            while waiting and free:
                config, cores = waiting.pop(0), free.pop(0)
                listener.message(f"{config.out}: begins")
                running[_start(config, cores, jobs)] = (config, cores)
            time.sleep(0.2)
            for process in [process for process in running if process.poll() is not None]:
                config, cores = running.pop(process)
                free.append(cores)
                if process.returncode:
                    raise UsageError(f"runs: training of {config.out} failed; see {_log(config)}")
                listener.message(f"{config.out}: done")
    finally:
        for process in running:
            process.terminate()  # a run saves itself before it ends
        for process in running:
            process.wait()
    return not (waiting or running)


def require_same(run: RunDirectory, wanted: TrainConfig) -> None:
    """A run with other seeds or settings must not pass for this one. Any engine will do."""
    found, asked = flatten(run.config()), flatten(wanted)
    for name, value in asked.items():
        if name not in (*MAY_CHANGE, "engine") and found[name] != value:
            raise UsageError(f"runs: {str(run.path)!r} is a run with {name} = {found[name]!r}, not {value!r}")


def _finished(config: TrainConfig) -> bool:
    run = RunDirectory(Path(str(config.out)))
    if not run.config_file.exists():
        return False
    require_same(run, config)
    done = max(checkpoint.steps(run.checkpoints), default=-1)
    return done >= config.iterations * config.steps_per_iteration and run.summary.exists()


def _start(config: TrainConfig, cores: set[int], jobs: int) -> subprocess.Popen[bytes]:
    path = Path(str(config.out))
    path.parent.mkdir(parents=True, exist_ok=True)
    if (path / "config.json").exists():
        arguments = ["resume", str(path), "--steps", str(config.steps)]
    else:
        arguments = ["train", config.env, *_flags(config)]
    with open(_log(config), "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "self_imitation", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=devices.environment(jobs),
            start_new_session=True,  # Ctrl-C reaches us alone; we pass it on
        )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, cores)
    return process


def _flags(config: TrainConfig) -> list[str]:
    """What makes `sil train` of the environment's name train just this."""
    usual = flatten(resolve(config.env, config.preset, {"agent": config.agent}))
    changed = {name: value for name, value in flatten(config).items() if name != "env" and value != usual[name]}
    assert not any(isinstance(value, bool) for value in changed.values()), "a switch is spelt in another way"
    named = {"agent": config.agent, "preset": config.preset, **changed}
    words = [(name.replace("_", "-"), value if isinstance(value, tuple) else (value,)) for name, value in named.items()]
    return [word for name, values in words for word in (f"--{name}", *map(str, values))]


def _log(config: TrainConfig) -> str:
    return f"{config.out}.log"


def load(configs: Sequence[TrainConfig], column: str = "return_mean") -> list[Run]:
    """The runs of a figure that shows this column of their metrics, as far as they are."""
    return [_load(RunDirectory(Path(str(config.out))), config, column) for config in configs]


def _load(run: RunDirectory, config: TrainConfig, column: str) -> Run:
    if not run.config_file.exists():
        raise UsageError(f"runs: {str(run.path)!r} is not there yet; without --report-only it is trained")
    require_same(run, config)
    loaded = runs.load(run.path)
    rows, most = loaded.metrics(), config.iterations * config.steps_per_iteration
    if not rows:
        raise UsageError(f"runs: {str(run.path)!r} has no rows of metrics yet")
    if column not in rows[0]:
        raise UsageError(f"runs: the metrics of {str(run.path)!r} have no column {column!r}")
    if rows[-1]["step"] > most:
        made = int(rows[-1]["step"])
        raise bad_value("steps", config.steps, f"{str(run.path)!r} has made {made} already; allowed: that or more")
    return loaded


def final_returns(run: Run) -> np.ndarray:
    """Each seed's mean return of its last 100 episodes."""
    latest = {int(row["seed"]): row["return_latest"] for row in run.metrics()}
    return np.array([latest[seed] for seed in run.seeds])


def usual_rate(run: Run) -> float:
    """Steps per second of all seeds together."""
    return float(np.median([row["steps_per_second"] for row in run.metrics()]))


def write_curves(path: Path, drawn: Sequence[Curve]) -> None:
    """Step by agent and seed; returns with the four digits that a mean over some episodes carries."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env", "agent", "step", *(f"seed_{seed}" for seed in drawn[0].seeds)])
        for curve in drawn:
            for step, returns in zip(curve.steps, curve.returns, strict=True):
                writer.writerow([curve.env, curve.label, step, *(f"{value:.4g}" for value in returns)])


def write_table(path: Path, lines: Sequence[Any]) -> None:
    """A row for each of these dataclasses."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in dataclasses.fields(lines[0])])
        for line in lines:
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in dataclasses.astuple(line)])


def unfinished(loaded: Sequence[Run], configs: Sequence[TrainConfig]) -> str:
    """Which of the runs are not at their end, if any."""
    made = [int(run.metrics()[-1]["step"]) for run in loaded]
    named = [
        f"{run.path.name} ({steps:,} of {config.steps:,} steps)"
        for run, config, steps in zip(loaded, configs, made, strict=True)
        if steps < config.steps
    ]
    return f"Not at their end yet: {', '.join(named)}." if named else ""


def picture(loaded: Sequence[Run], configs: Sequence[TrainConfig]) -> str:
    """The figure on its page, and under it which of the runs are not at their end, if any."""
    missing = unfinished(loaded, configs)
    return "![Learning curves](figure.png)" + (f"\n\n**{missing}**" if missing else "")


def made_by(figure: str, settings: Any, loaded: Sequence[Run]) -> str:
    """The end of a page: by which command, with which settings, on what, in which time."""
    machines = [*dict.fromkeys(machine for run in loaded for machine in run.directory.machines())]
    if not all(run.directory.machines() for run in loaded):
        machines.append("a machine that is not named")
    seconds = sum(run.metrics()[-1]["seconds"] for run in loaded)
    spent = f"{seconds / 3600:.1f} hours" if seconds > 7200 else f"{seconds / 60:.1f} minutes"
    return f"""Made by

    {_command(figure, settings)}

with preset `authors` and seeds {settings.seed} to {settings.seed + settings.seeds - 1}, on
{" and ".join(machines)}. Training took {spent}, all runs added up."""


def _command(figure: str, settings: Any) -> str:
    """The settings that are not the default ones are named."""
    default = dataclasses.asdict(type(settings)())
    changed = {k: v for k, v in dataclasses.asdict(settings).items() if v != default[k]}
    return " ".join([f"sil reproduce {figure}", *(f"--{name} {value}" for name, value in changed.items())])


def write_page(path: Path, text: str) -> None:
    files.write_atomically(path, text)
