"""Train on a Gymnasium environment of your own: python examples/custom_environment.py"""

import argparse

import gymnasium
import numpy as np

import self_imitation


class Corridor(gymnasium.Env):
    """Walk to the right end of a corridor. Only that pays, and each episode is cut after 100 steps."""

    action_space = gymnasium.spaces.Discrete(2)  # left, right

    def __init__(self, length: int = 10):
        self.length = length
        self.observation_space = gymnasium.spaces.Box(0.0, float(length), (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.time = 0
        return np.array([self.position], np.float32), {}

    def step(self, action):
        self.position, self.time = max(self.position + 2 * int(action) - 1, 0), self.time + 1
        reached = self.position == self.length
        return np.array([self.position], np.float32), float(reached), reached, self.time == 100, {}


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=60_000, help="environment steps of each seed")
run = self_imitation.train(Corridor, "ppo+sil", steps=parser.parse_args().steps, env_kwargs={"length": 15})
evaluation = run.evaluate(episodes=20)
print(f"{run.path}: mean return {evaluation.mean:.2f} in {evaluation.lengths.mean():.0f} steps")
