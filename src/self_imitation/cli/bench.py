"""`sil bench`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from self_imitation import devices
from self_imitation.cli.parse import parse
from self_imitation.config import TrainConfig
from self_imitation.runs import files

CAPACITIES = (100_000, 1_000_000)


@dataclass(frozen=True)
class BenchArguments:
    what: tyro.conf.Positional[Literal["all", "replay", "train", "startup"]] = "all"
    """replay: the memory's draw and write-back; train: whole iterations; startup: what a user waits for; all."""
    json: str | None = None
    """Write the figures to this file too."""


def bench(arguments: Sequence[str]) -> int:
    """How fast the memory, the training and the start are on this machine. Give it the machine to itself."""
    given = parse(BenchArguments, "bench", arguments, summary=bench.__doc__ or "")
    if given.json:
        files.require_writable(Path(given.json), "json")
    devices.prepare(TrainConfig(seeds=1))
    results: dict[str, Any] = {}
    if given.what in ("all", "replay"):
        results["replay"] = _replay()
    if given.what in ("all", "train"):
        results["train"] = _train()
    if given.what in ("all", "startup"):
        results["startup"] = _startup()
    if given.json:
        try:
            files.write_atomically(Path(given.json), json.dumps(results, indent=2) + "\n")
        except OSError as error:
            raise files.explain(error, Path(given.json), "json") from None
    return 0


def _replay() -> list[dict[str, float]]:
    from self_imitation.benchmarks import replay

    results = []
    print("replay: draw 512 with importance weights and write back their priorities", flush=True)
    for capacity in CAPACITIES:
        result = replay.measure(capacity)
        ratio = result["naive_ms"] / result["tree_ms"]
        print(
            f"  {capacity:9,} items  {result['tree_ms']:6.3f} ms   "
            f"(naive cumulative sum {result['naive_ms']:6.3f} ms, {ratio:.0f} x)",
            flush=True,
        )
        results.append(result)
    return results


def _train() -> list[dict[str, Any]]:
    from self_imitation.benchmarks import training

    results = []
    print("train: one seed, 16 environments x 5 steps, M = 4, batch 512, memory 100,000", flush=True)
    for case in training.CASES:
        result = training.measure(case)
        rate = f"{result['steps_per_second']:11,.0f} steps/s"
        alone = f"its gradient steps alone {result['gradient_steps_ms']:.3f} ms ({result['gradient_share']:.0%})"
        print(f"  {case:28}  {rate}   {result['iteration_ms']:.3f} ms an iteration, {alone}", flush=True)
        results.append(result)
    return results


def _startup() -> dict[str, float]:
    from self_imitation.benchmarks import startup

    result = startup.measure()
    print("startup: best of three")
    print(f"  sil --help                   {result['help_seconds']:5.2f} s")
    print(f"  sil train, first step after  {result['first_step_seconds']:5.2f} s")
    return result
