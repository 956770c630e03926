"""A small experiment that trains in a second, and run directories as training leaves them."""

import csv
import json

from self_imitation.experiments import definition as definitions
from self_imitation.experiments import runs
from self_imitation.storage import config_file

SMALL = """
title = "A small experiment"
introduction = "What it is."
steps = 160
seeds = 2
measure = "return_mean"
compare = [["a2c+exp", "a2c"]]
settings = { log_every = 80, "network.hidden" = [8] }

[[task]]
name = "Maze"
env = "key-door-treasure"
solved = 6.65

[[agent]]
agent = "a2c"

[[agent]]
agent = "a2c+exp"
"""


def small(text=SMALL, name="small"):
    return definitions.parse(text, f"{name}.toml", name)


def write_runs(definition, folder, final=lambda place, seed: 100.0 * place + seed, steps=(2048, 4096)):
    """Run `place` of the definition ends with return_latest `final(place, seed)` and return_mean `place`."""
    for place, case in enumerate(runs.cases(definition)):
        config = runs.run_config(definition, case, folder)
        run = runs.directory(config).path
        run.mkdir(parents=True)
        (run / "config.json").write_text(json.dumps(config_file.to_json(config)))
        (run / "summary.json").write_text(json.dumps({"machines": ["a machine"]}))
        with open(run / "metrics.csv", "w", newline="") as file:
            names = ["seed", "step", "episodes", "return_mean", "return_best", "length_mean", "return_latest"]
            writer = csv.DictWriter(file, [*names, "steps_per_second", "seconds"], lineterminator="\n")
            writer.writeheader()
            for step in steps:
                for seed in config.seed_numbers:
                    row = dict.fromkeys(names, place) | {"seed": seed, "step": step, "steps_per_second": 10}
                    late = {"return_latest": final(place, seed) - (step != steps[-1]), "seconds": step / 1000}
                    writer.writerow(row | late | {"return_best": seed * step})
    return folder
