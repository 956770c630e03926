"""Compare settings over several seeds, with curves and intervals: python examples/sweep.py"""

import argparse

import self_imitation

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300_000, help="environment steps of each seed")
parser.add_argument("--seeds", type=int, default=4)
arguments = parser.parse_args()

runs = []
for updates in (1, 4, 8):
    settings = {"sil.updates": updates, "log_every": arguments.steps // 20}
    run = self_imitation.train(
        "key-door-treasure", "a2c+sil+exp", steps=arguments.steps, seeds=arguments.seeds, settings=settings
    )
    evaluation = run.evaluate(episodes=50)
    low, high = evaluation.interval  # of the mean over seeds, 95 %
    print(f"{updates} updates: {evaluation.mean:.2f} ({low:.2f} to {high:.2f})")
    runs.append(run)

self_imitation.plot(*runs, show_seeds=True, out="sweep.png")  # labelled by the settings that differ
print("curves: sweep.png")
