"""A small results directory: names with HTML, a task without runs, a shortened run, and scores of the paper."""

import math
from pathlib import Path

import numpy as np

from self_imitation.experiments import definition as definitions
from self_imitation.experiments import results
from self_imitation.experiments.results import Curve, Results, Score

HOSTILE = "<b>bold</b><img src=x onerror='window.hacked = 1'>"
TEXT = f"""
title = "Sample {HOSTILE}"
introduction = "An **introduction** with {HOSTILE} in it, a [file](there.md) and a [page](https://example.org)."
steps = 1000
seeds = 3
best_every = 500
compare = [["a2c+sil", "a2c"]]

[[claim]]
text = "A2C+SIL is better {HOSTILE}"
tasks = ["Freeway {HOSTILE}"]
higher = [["a2c+sil", "a2c"]]

[[claim]]
text = "A2C+SIL is better on a game that was not run"
tasks = ["Venture"]
higher = [["a2c+sil", "a2c"]]

[[claim]]
text = "A2C does not learn Hero, A2C+SIL does"
tasks = ["Hero"]
solved = ["a2c+sil"]
unsolved = ["a2c"]

[[task]]
name = "Freeway {HOSTILE}"
env = "atari:Freeway"
normalise = [0, 30]
paper = {{ a2c = 0, "a2c+sil" = 34, other = 30 }}

[[task]]
name = "Hero"
env = "atari:Hero"
normalise = [0, 100]
solved = 50
paper = {{ a2c = 20, "a2c+sil" = 90 }}

[[task]]
name = "Venture"
env = "atari:Venture"
normalise = [0, 10]
paper = {{ a2c = 0, "a2c+sil" = 0 }}

[[agent]]
agent = "a2c"

[[agent]]
agent = "a2c+sil"
"""
FREEWAY = f"Freeway {HOSTILE}"
FINALS = {
    (FREEWAY, "a2c"): (0.0, 0.0, 1.0),
    (FREEWAY, "a2c+sil"): (30.0, 31.0, 32.0),
    ("Hero", "a2c"): (10.0, 20.0, 15.0),
    ("Hero", "a2c+sil"): (20.0, 90.0, 95.0),
}
STEPS = np.arange(50, 1001, 50)


def sample() -> Results:
    """A2C+SIL was trained for half of the steps on Hero; Venture was not run."""
    definition = definitions.parse(TEXT, "sample.toml", "sample")
    curves, scores, runs = [], [], []
    for (task, agent), finals in FINALS.items():
        steps = STEPS[:10] if (task, agent) == ("Hero", "a2c+sil") else STEPS
        wiggle = np.sin(np.arange(len(steps)))[:, None]
        values = np.linspace(0, 1, len(steps))[:, None] * finals + wiggle * (steps < steps[-1])[:, None]
        values[0, 0] = math.nan
        curves.append(Curve(task, agent, "return_latest", (0, 1, 2), steps, steps * 0.5, values))
        curves.append(Curve(task, agent, "return_best", (0, 1, 2), steps, steps * 0.5, values + 5))
        scores += [Score(task, agent, seed, int(steps[-1]), final, math.nan) for seed, final in enumerate(finals)]
        runs.append(dict.fromkeys(results.RUN_KEYS) | {"task": task, "agent": agent, "planned_steps": 1000})
    provenance = {
        "command": f"sil reproduce sample {HOSTILE}",
        "commit": None,
        "version": "1.2.3",
        "versions": {"jax": "0.10"},
        "machines": ["a machine"],
        "wall_seconds": 600.0,
        "date": "2026-01-02T03:04:05",
        "runs": runs,
    }
    return Results(definition, scores, curves, provenance)


def write(folder: Path) -> Path:
    results.write(sample(), folder / "sample")
    return folder / "sample"
