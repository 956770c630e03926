"""The command `sil` in processes of its own, and what they leave on disk, compared bit by bit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from campaign import commands
from campaign.outcomes import Outcome

TESTS = Path(__file__).parents[1]
LIMIT = 240.0
"""Seconds after which a process hangs. Other processes may use the machine."""


def start(
    *arguments: object,
    prepare: Callable[[], None] | None = None,
    stdout: IO[Any] | int = subprocess.PIPE,
    **options: Any,
) -> subprocess.Popen[str]:
    """`sil` with unbuffered output, in a session of its own. `prepare` is called in the new process."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "self_imitation", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=prepare,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
        **options,
    )


def finish(process: subprocess.Popen[str], limit: float = LIMIT) -> Outcome:
    begun = time.monotonic()
    try:
        stdout, stderr = process.communicate(timeout=limit)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        status = None
    return Outcome(status, stdout or "", stderr or "", seconds=time.monotonic() - begun)


def run(*arguments: object, **options: Any) -> Outcome:
    return finish(start(*arguments, **options))


def must_succeed(outcome: Outcome) -> Outcome:
    """Where nothing is wrong with the input, even a clear refusal is a failure."""
    if outcome.status == 0:
        return outcome
    return replace(outcome, divergence=outcome.divergence or f"refused: {outcome.stderr.strip()[-100:]}")


def end(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def wait_for_row(process: subprocess.Popen[str]) -> bool:
    """Whether a row was printed before the process ended. What is read here is no longer in its output."""
    assert process.stdout is not None
    return any(line.startswith("step") for line in iter(process.stdout.readline, ""))


def train_words(system: str, rows: int) -> list[str]:
    """The command that trains a system for some rows, with a checkpoint after each, but for --out."""
    return ["train", *SYSTEMS[system], *commands.SMALL, "--steps", str(64 * rows), *CHECKPOINTS]


CHECKPOINTS = ["--checkpoint-seconds", "0", "--checkpoints-kept", "2"]
SYSTEMS = {
    "pure JAX": ["key-door-treasure", "--agent", "a2c+sil+exp"],
    "Gymnasium": ["mujoco:Hopper", "--engine", "gymnasium", "--agent", "a2c+sil"],
    "EnvPool": ["gym:CartPole-v1", "--engine", "envpool", "--agent", "a2c+sil"],
}
"""One per kind of environment backend."""
EXACT = ("pure JAX", "Gymnasium")
"""Whose environments can be saved: a resumed run ends bit-identical."""


def difference(one: Path, other: Path, exact: bool = True) -> str:
    """How two finished runs differ, in words; empty if they don't.

    `exact`: in any bit of the last checkpoint or in any cell but those that measure time; otherwise in what there is.
    """
    from helpers import arrays, rows

    from self_imitation.storage import checkpoint, files

    steps = [checkpoint.steps(path / "checkpoints")[-1:] for path in (one, other)]
    if steps[0] != steps[1]:
        return f"last checkpoint at {steps[1]}, not {steps[0]}"
    if left := [path.name for path in other.rglob(f"{files.PARTIAL}*")]:
        return f"half-written files are left: {left[0]}"
    first, second = rows(one), rows(other)
    if [(row["seed"], row["step"]) for row in first] != [(row["seed"], row["step"]) for row in second]:
        return f"metrics.csv has {len(second)} rows, not the {len(first)} of an uninterrupted run"
    if not exact:
        return ""
    if first != second:
        return "a cell of metrics.csv differs"
    saved = [arrays(path, steps[0][0]) for path in (one, other)]
    if saved[0].keys() != saved[1].keys():
        return "the last checkpoints have different arrays"
    changed = [name for name, array in saved[0].items() if array.tobytes() != saved[1][name].tobytes()]
    return f"array {changed[0]} differs" if changed else ""
