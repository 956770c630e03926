"""Experiments on Ray: what the cluster costs one run, and what a second worker brings to two."""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.measuring import by_turns
from self_imitation.cluster.connect import require_ray

SIL = (sys.executable, "-m", "self_imitation")
ROUNDS = 2
STEPS = 800_000
"""A minute or more of PPO on Hopper, whose time is spent on simulation."""
EXPERIMENT = """
steps = {steps}
seeds = 1
settings = {{ workers = 1 }}
run_name = "{{task}}_{{agent}}"
[[task]]
name = "Hopper"
env = "mujoco:Hopper"
[[agent]]
agent = "ppo"
[[agent]]
name = "again"
agent = "ppo"
"""

COUNT = """
import time
end, count = time.monotonic() + 4, 0
while time.monotonic() < end:
    for _ in range(10_000):
        count += 1
print(count)
"""


def measure() -> dict[str, float]:
    """Seconds of whole commands, the best of several rounds, and ratios."""
    require_ray()
    print(f"ray: PPO on Hopper, one seed, {STEPS:,} steps a run, one CPU a run; best of {ROUNDS} rounds", flush=True)
    one, on_ray = ["--only", "ppo"], ["--engine", "ray", "--address", "local"]
    _seconds(one, steps=10_000)  # fills the compilation cache
    commands = {
        "one run in one process": partial(_seconds, one),
        "one run on Ray": partial(_seconds, [*one, *on_ray]),
        "two runs on Ray, two workers": partial(_seconds, on_ray),
    }
    found = {name: min(seconds) for name, seconds in by_turns(commands, ROUNDS).items()}
    for name, seconds in found.items():
        print(f"  {seconds:7.1f} s  {name}")
    alone, single, both = found.values()
    overhead, gain, most = single / alone - 1, 2 * single / both, _count(2) / _count(1)
    print(f"  overhead of Ray {overhead:.1%}; two workers make {gain:.2f} times the steps of one")
    print(f"  two processes that only count make {most:.2f} times the steps of one on this machine")
    return {**found, "overhead": overhead, "two workers to one": gain, "two counting processes to one": most}


def _count(processes: int) -> int:
    """How far processes count together in a few seconds."""
    running = [subprocess.Popen([sys.executable, "-c", COUNT], stdout=subprocess.PIPE) for _ in range(processes)]
    return sum(int(process.communicate()[0]) for process in running)


def _seconds(flags: list[str], steps: int = STEPS) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hopper.toml"
        file.write_text(EXPERIMENT.format(steps=steps), encoding="utf-8")
        begun = time.perf_counter()
        command = [*SIL, "reproduce", str(file), "--out", f"{folder}/results", "--runs", f"{folder}/runs", *flags]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "RAY_ADDRESS": ""})
        return time.perf_counter() - begun
