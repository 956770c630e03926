"""A Ray cluster of several nodes on this machine, and ways to hurt it."""

import contextlib
import os
import signal
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

EXPERIMENT = """
title = "A small experiment"
steps = {steps}
seeds = 2
measure = "return_mean"
settings = {{ log_every = 4000, checkpoint_seconds = {seconds}, workers = 1, "network.hidden" = [8] }}

[[task]]
name = "Maze"
env = "key-door-treasure"

[[task]]
name = "Apples"
env = "apple-key-door-treasure"

[[agent]]
agent = "a2c"

[[agent]]
agent = "a2c+exp"
"""


def experiment(folder: Path, steps: int = 8000, seconds: float = 0.2, more: str = "") -> Path:
    path = folder / "my.toml"
    path.write_text(EXPERIMENT.format(steps=steps, seconds=seconds) + more)
    return path


@contextlib.contextmanager
def nodes(count: int, **environment: str):
    """A head without CPUs, and nodes with one each. Workers start with these variables."""
    before = dict(os.environ)
    for name in ("XLA_FLAGS", "PJRT_NPROC"):  # each worker chooses for itself
        os.environ.pop(name, None)
    os.environ.update(environment)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def kill_workers(run: str) -> int:
    """Kill the workers that train this run, as the kernel does when memory runs out; returns how many."""
    found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _title(path) == f"ray::{run}"]
    for number in found:
        os.kill(number, signal.SIGKILL)
    return len(found)


def _title(path: Path) -> str:
    try:
        return path.read_bytes().partition(b"\0")[0].decode(errors="replace").strip()
    except OSError:
        return ""
