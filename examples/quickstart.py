"""Train an agent, evaluate it, and let it act: python examples/quickstart.py"""

import argparse

import gymnasium

import self_imitation

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300_000, help="environment steps of each seed")
steps = parser.parse_args().steps

run = self_imitation.train("key-door-treasure", agent="a2c+sil+exp", steps=steps, seeds=2)
evaluation = run.evaluate(episodes=100)
print(f"{run.path}: mean return {evaluation.mean:.2f} of 7")

policy = run.policy()  # of the best seed
env = gymnasium.make("self_imitation/KeyDoorTreasure-v0", render_mode="ansi")
observation, _ = env.reset()
ended, total = False, 0.0
while not ended:
    observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
    ended, total = terminated or truncated, total + float(reward)
print(env.render())
print(f"return of this episode: {total:g}")
