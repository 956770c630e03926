"""The command line of the benchmarks."""

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from self_imitation.cli.parse import parse
from self_imitation.storage import files


@dataclass(frozen=True)
class BenchArguments:
    what: tyro.conf.Positional[
        Literal["all", "replay", "train", "mujoco", "atari", "exploration", "startup", "ray"]
    ] = "all"
    """replay: sample from the replay buffer and update priorities; train: whole iterations on a grid world; mujoco:
    PPO+SIL on Hopper against EnvPool alone; atari: A2C+SIL on a game against its emulators alone; exploration: updates
    of the bonuses for images; startup: time to help and to the first logged step; all: these one after another; ray: an
    experiment on a Ray cluster against one process, and two workers against one."""
    seeds: int = 8
    """mujoco: seeds to train together."""
    json: str | None = None
    """Also write the results to this file."""


def main(arguments: Sequence[str]) -> int:
    """Measure speed on this machine, which should have nothing else to do."""
    given = parse(BenchArguments, "bench", arguments, summary=main.__doc__ or "")
    if given.json:
        files.require_writable(Path(given.json), "json")
    if given.what == "all":
        results = _measure_all(given.seeds)
    else:
        measure = importlib.import_module(f"benchmarks.{given.what}").measure
        results = {given.what: measure(given.seeds) if given.what == "mujoco" else measure()}
    if given.json:
        files.write_json(Path(given.json), results)
    return 0


def _measure_all(seeds: int) -> dict[str, Any]:
    """Each benchmark runs in its own process, since JAX is set up differently for each."""
    results: dict[str, Any] = {}
    for what in ("replay", "train", "mujoco", "atari", "exploration", "startup"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "result.json"
            flags = [what, "--seeds", str(seeds), "--json", str(file)]
            subprocess.run([sys.executable, "-m", "self_imitation", "bench", *flags], check=True)
            results |= json.loads(file.read_text(encoding="utf-8"))
    return results
