"""Kill workers, nodes and the driver of an experiment at random moments; nothing may be lost.

    PYTHONPATH=tests .venv-extras/bin/python -m cluster.kills --kills 20

Prints each kill, then the number of runs whose metrics differ from those of one process, and of finished runs that were
trained again. Both must be 0.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cluster.ray_cluster import experiment, kill_workers, nodes
from helpers import finish, rows, sil

from self_imitation.storage.run_directory import RunDirectory

RUNS = ("Maze_a2c", "Maze_a2c+exp", "Apples_a2c", "Apples_a2c+exp")


class Attack:
    """An experiment on a cluster of two nodes, and what was done to it."""

    def __init__(self, cluster, folder: Path, chance: random.Random):
        self.cluster, self.folder, self.chance = cluster, folder, chance
        self.kills: Counter[str] = Counter()
        self.finished: dict[str, int] = {}
        self.again: set[str] = set()
        self.driver = self.start()

    def start(self):
        flags = ["--engine", "ray", "--address", self.cluster.address, "--retries", "-1"]
        places = ["--runs", self.folder / "runs", "--out", self.folder / "results"]
        return sil("reproduce", self.folder / "my.toml", *flags, *places)

    def kill(self) -> str:
        """One of: a worker of some run, a node (another one joins), the driver (it is started again)."""
        kind = self.chance.choice(["worker", "node", "driver"])
        if kind == "worker":
            running = [name for name in RUNS if kill_workers(name)]
            kind = "worker" if running else "nothing"
        elif kind == "node":
            self.cluster.remove_node(self.chance.choice(self.cluster.list_all_nodes()[1:]), allow_graceful=False)
            self.cluster.add_node(num_cpus=1)
        else:
            self.driver.send_signal(signal.SIGKILL)
            finish(self.driver)
            self.driver = self.start()
        self.kills[kind] += 1
        return kind

    def look(self) -> None:
        """Finished runs stay as they are."""
        for name in RUNS:
            run = RunDirectory(self.folder / "runs" / name)
            if run.finished_step() > 0:
                written = (run.path / "metrics.csv").stat().st_mtime_ns
                if self.finished.setdefault(name, written) != written:
                    self.again.add(name)


def attack(kills: int, seed: int, steps: int) -> int:
    """Returns the number of losses."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        alone, folder = Path(temporary) / "alone", Path(temporary) / "attacked"
        alone.mkdir(), folder.mkdir()
        experiment(alone, steps), experiment(folder, steps)
        places = ["--runs", alone / "runs", "--out", alone / "results"]
        code, output = finish(sil("reproduce", alone / "my.toml", *places))
        assert code == 0, output
        rounds, total = 0, Counter()
        differ = again = 0
        while sum(total.values()) - total["nothing"] < kills:
            rounds += 1
            own = folder / str(rounds)
            own.mkdir()
            experiment(own, steps)
            with nodes(2) as cluster:
                attacked = Attack(cluster, own, chance)
                while attacked.driver.poll() is None:
                    time.sleep(chance.uniform(2, 12))
                    attacked.look()
                    if sum(total.values()) + sum(attacked.kills.values()) - total["nothing"] < kills:
                        print(f"round {rounds}: {attacked.kill()}", flush=True)
                code, output = finish(attacked.driver)
                attacked.look()
                print(f"round {rounds}: the driver ended with status {code}", flush=True)
                if code:
                    print(output)
            differ += sum(rows(own / "runs" / name) != rows(alone / "runs" / name) for name in RUNS)
            again += len(attacked.again)
            total += attacked.kills
    print(f"{dict(total)}: {differ} runs differ, {again} finished runs were trained again")
    return differ + again


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3_000_000)
    given = parser.parse_args()
    return min(1, attack(given.kills, given.seed, given.steps))


if __name__ == "__main__":
    sys.exit(main())
