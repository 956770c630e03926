"""`sil bench`."""

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from self_imitation.training import devices
from self_imitation.cli.parse import parse
from self_imitation.config import TrainConfig, resolve
from self_imitation.storage import files

SIL = (sys.executable, "-m", "self_imitation")
CAPACITIES = (100_000, 1_000_000)


@dataclass(frozen=True)
class BenchArguments:
    what: tyro.conf.Positional[Literal["all", "replay", "train", "mujoco", "atari", "startup"]] = "all"
    """replay: the memory's draw and write-back; train: whole iterations on a grid world; mujoco: PPO+SIL on Hopper
    beside its environments alone; atari: A2C+SIL on a game beside its emulators alone (it wants a GPU); startup: what a
    user waits for; all: each of them."""
    json: str | None = None
    """Write the figures to this file too."""


def bench(arguments: Sequence[str]) -> int:
    """How fast the memory, the training and the start are on this machine. Give it the machine to itself."""
    given = parse(BenchArguments, "bench", arguments, summary=bench.__doc__ or "")
    if given.json:
        files.require_writable(Path(given.json), "json")
    if given.what == "all":
        return _each(given.json)
    devices.prepare(_measured(given.what))
    measures = {"replay": _replay, "train": _train, "mujoco": _mujoco, "atari": _atari, "startup": _startup}
    measure = measures[given.what]
    _write(given.json, {given.what: measure()})
    return 0


def _measured(what: str) -> TrainConfig:
    """What JAX is to be set up for."""
    if what == "mujoco":
        return TrainConfig(env="mujoco:Hopper", seeds=8)
    if what == "atari" and importlib.util.find_spec("ale_py"):
        return resolve("atari:MontezumaRevenge", "authors")
    return TrainConfig(seeds=1)


def _each(path: str | None) -> int:
    """One after another, each in a process of its own: JAX is set up differently for each."""
    results: dict[str, Any] = {}
    for what in ("replay", "train", "mujoco", "atari", "startup"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "result.json"
            status = subprocess.run([*SIL, "bench", what, "--json", str(file)], check=False).returncode
            if status:
                return status
            results |= json.loads(file.read_text(encoding="utf-8"))
    _write(path, results)
    return 0


def _write(path: str | None, results: dict[str, Any]) -> None:
    if path:
        try:
            files.write_atomically(Path(path), json.dumps(results, indent=2) + "\n")
        except OSError as error:
            raise files.explain(error, Path(path), "json") from None


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


def _mujoco() -> dict[str, Any] | None:
    if not (importlib.util.find_spec("envpool") or importlib.util.find_spec("mujoco")):
        print("mujoco: left out; it needs pip install 'self-imitation[mujoco,fast]'")
        return None
    from self_imitation.benchmarks import mujoco

    print("mujoco: PPO+SIL on Hopper, the paper's settings, 8 seeds at once (one environment each)", flush=True)
    result = mujoco.measure()
    rates, engine = result["steps_per_second"], result["engine"]
    print(f"  training                     {rates['training']:8,.0f} steps/s")
    for copies in (8, 16):
        alone = rates[f"environments_{copies}"]
        share = rates["training"] / alone
        print(f"  {engine} alone, {copies:2d} copies{'':7}{alone:8,.0f} steps/s   training is at {share:.0%} of it")
    other = result["stable_baselines3"]
    if other is None:
        print("  Stable-Baselines3 is not installed; with it, its PPO would be measured here too")
    else:
        print(
            f"  Stable-Baselines3's PPO      {other:8,.0f} steps/s   ours is {rates['training'] / other:.1f} x as fast"
        )
    return result


def _atari() -> dict[str, Any] | None:
    if not importlib.util.find_spec("ale_py"):
        print("atari: left out; it needs pip install 'self-imitation[atari]'")
        return None
    import jax

    from self_imitation.benchmarks import atari

    print("atari: A2C+SIL on Montezuma's Revenge, the paper's settings (16 x 5, M = 4, batch 512, memory 100,000)")
    results: dict[str, Any] = {}
    on_gpu = jax.default_backend() != "cpu"
    for seeds in (1, 8) if on_gpu else (1,):
        measured = results[f"runs_{seeds}"] = atari.measure(seeds)
        alone, training = measured["emulators"], measured["training"]
        shares = [ours / theirs for ours, theirs in zip(training, alone, strict=True)]
        runs = "1 run " if seeds == 1 else f"{seeds} runs"
        print(f"  {measured['copies']:3d} emulators alone {_rate(alone)}")
        print(f"  {runs} in training {_rate(training)}")
        low, usual, high = min(shares), statistics.median(shares), max(shares)
        print(f"  {usual:.0%} of the emulators alone, by turns; {low:.0%} to {high:.0%} in {len(shares)} rounds")
        print(f"   of an iteration's {sum(measured['host_ms'].values()):.2f} ms the host spends")
        _table(measured["host_ms"])
        if why := measured["acts_start_late"]:
            print(f"   not all acts are started before emulators have stepped: {why}")
    if not on_gpu:
        print("  eight runs at once are left out: that takes a GPU")
    results["alone"] = atari.alone()
    print("  by itself, the device idle before it, takes")
    _table(results["alone"])
    return results


def _rate(rounds: Sequence[float]) -> str:
    return f"{statistics.median(rounds):8,.0f} steps/s ({min(rounds):,.0f} to {max(rounds):,.0f})"


def _table(milliseconds: dict[str, float]) -> None:
    for name, value in milliseconds.items():
        print(f"    {value:8.2f} ms {name}", flush=True)


def _startup() -> dict[str, float]:
    from self_imitation.benchmarks import startup

    result = startup.measure()
    print("startup: best of three")
    print(f"  sil --help                   {result['help_seconds']:5.2f} s")
    print(f"  sil train, first step after  {result['first_step_seconds']:5.2f} s")
    return result
