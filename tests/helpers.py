"""Small runs that train in a second, and ways to look at what they left on disk."""

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import self_imitation
from self_imitation.config import TrainConfig, resolve, validate
from self_imitation.storage.metrics_file import TIMING
from self_imitation.training.callbacks import Callback
from self_imitation.training.run import start
from self_imitation.training.trainer import Trainer

SMALL = {
    "seeds": 2,
    "num_envs": 4,
    "network.hidden": (8,),
    "sil.batch_size": 32,
    "sil.buffer_size": 500,
    "sil.learning_starts": 20,
    "sil.keep": "all",
    "log_every": 400,
}
SMALL_FLAGS = [
    word
    for name, value in SMALL.items()
    for word in (f"--{name.replace('_', '-')}", *(map(str, value) if isinstance(value, tuple) else [str(value)]))
]


class Recorder(Callback):
    """Records what a run reports."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.notes: list[str] = []

    def started(self, context) -> None:
        self.notes = list(context.notes)

    def message(self, text: str) -> None:
        self.messages.append(text)


def small_config(out: Path, env: str = "key-door-treasure", **settings: object) -> TrainConfig:
    """Settings may contain dots: `**{"sil.updates": 2}`."""
    defaults = {"agent": "a2c+sil", "steps": 800, **SMALL, "out": str(out), **settings}
    if "sil" not in str(defaults["agent"]):
        defaults = {name: value for name, value in defaults.items() if not name.startswith("sil.")}
    return validate(resolve(env, "authors", defaults))


def small_run(out: Path, env: str = "key-door-treasure", **settings: object) -> "self_imitation.Run":
    return start(small_config(out, env, **settings), [])[0]


def interrupt_after(iterations: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """A `stop` that ends the next run after so many iterations, also in the middle of a row."""
    run, stopped = Trainer.run, []

    def run_some(trainer, wanted, stop, advanced) -> int:
        done = run(trainer, min(wanted, iterations), lambda: False, advanced)
        stopped.append(True)
        return done

    monkeypatch.setattr(Trainer, "run", run_some)
    return lambda: bool(stopped)


def sil(*arguments: object, module: str = "self_imitation", xla_flags: str = "") -> subprocess.Popen[str]:
    """The command in a process of its own, its output line by line.

    `module`: another one that takes the same arguments. `xla_flags`: by default it compiles as for users.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, "XLA_FLAGS": xla_flags}
    environment.pop("PJRT_NPROC", None)  # a process of its own chooses for itself
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def arrays(run: Path, step: int | str) -> dict[str, np.ndarray]:
    """Everything in a checkpoint, by name."""
    folder = run / "checkpoints" / str(step)
    parts = [safetensors.numpy.load_file(folder / f"{name}.safetensors") for name in ("policy", "state")]
    return {**parts[0], **parts[1]}


def assert_same_checkpoint(one: Path, other: Path, step: int | str) -> None:
    first, second = arrays(one, step), arrays(other, step)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def rows(run: Path) -> list[dict[str, str]]:
    """metrics.csv without the columns that measure time, as text: equal means equal to the last digit."""
    with open(run / "metrics.csv", newline="") as file:
        return [{k: v for k, v in row.items() if k not in (*TIMING, "eval_seconds")} for row in csv.DictReader(file)]
