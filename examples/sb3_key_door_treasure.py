"""Stable-Baselines3's A2C on Key-Door-Treasure, alone and with self-imitation.

    pip install 'self-imitation[sb3]'
    python examples/sb3_key_door_treasure.py --steps 800000 --seeds 8 --out results/sb3

The settings are those of the paper's authors for this maze; A2C's others are Stable-Baselines3's defaults.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env

from self_imitation.report.statistics import contrast_interval, mean_interval
from self_imitation.sb3 import SelfImitation

INTERVAL = 20_000
"""Steps over which returns are averaged."""


class Returns(BaseCallback):
    """Mean return of the episodes that end in each interval of steps."""

    def __init__(self):
        super().__init__()
        self.episodes: dict[int, list[float]] = {}

    def _on_step(self) -> bool:
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.episodes.setdefault((self.num_timesteps - 1) // INTERVAL, []).extend(ended)
        return True

    def curve(self) -> list[tuple[int, float]]:
        return [((number + 1) * INTERVAL, float(np.mean(returns))) for number, returns in self.episodes.items()]


def train(agent: str, seed: int, steps: int) -> list[tuple[int, float]]:
    env = make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=16, seed=seed)
    model = A2C("MlpPolicy", env, n_steps=5, gamma=0.95, ent_coef=0.03, seed=seed, device="cpu")
    returns = Returns()
    callbacks = [returns]
    if agent == "a2c+sil":
        callbacks.append(SelfImitation(gamma=0.99, keep="positive", value="shared"))  # as in the authors' runs
    model.learn(steps, callback=CallbackList(callbacks))
    return returns.curve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=800_000, help="environment steps per seed")
    parser.add_argument("--seeds", type=int, default=8, help="seeds 0, 1, ...")
    parser.add_argument("--out", type=Path, help="directory for curves.csv and scores.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # tiny networks: more threads are slower

    curves, scores = [], []
    for seed in range(arguments.seeds):
        for agent in ("a2c", "a2c+sil"):
            start = time.monotonic()
            curve = train(agent, seed, arguments.steps)
            final, mean = curve[-1][1], float(np.mean([value for _, value in curve]))
            scores.append((agent, seed, arguments.steps, final, mean, round(time.monotonic() - start, 1)))
            curves += [(agent, seed, step, value) for step, value in curve]
            print(f"{agent:8} seed {seed}: final return {final:.2f}, mean {mean:.2f}, {scores[-1][-1]} s", flush=True)
            if arguments.out:
                write(arguments.out / "curves.csv", ("agent", "seed", "step", "mean_return"), curves)
                write(arguments.out / "scores.csv", ("agent", "seed", "steps", "final", "mean", "seconds"), scores)
    summarise("final return", scores, 3)
    summarise("mean return of the whole run", scores, 4)


def write(path: Path, header: tuple[str, ...], rows: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *([f"{x:.5g}" if isinstance(x, float) else x for x in r] for r in rows)])


def summarise(name: str, scores: list, column: int) -> None:
    """Means with Student's 95 % intervals, and the difference with Welch's."""
    samples = {agent: np.array([row[column] for row in scores if row[0] == agent]) for agent in ("a2c", "a2c+sil")}
    for agent, sample in samples.items():
        low, high = mean_interval(sample)
        print(f"{name}, {agent}: {sample.mean():.2f} ({low:.2f} to {high:.2f}), n = {len(sample)}")
    both = [samples["a2c+sil"], samples["a2c"]]
    low, high = contrast_interval(both, [1, -1])
    print(f"{name}, difference: {both[0].mean() - both[1].mean():+.2f} ({low:+.2f} to {high:+.2f})")


if __name__ == "__main__":
    main()
