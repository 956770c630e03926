"""Settings that are chosen from lists: every combination is tried on seeds that are not reported."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.errors import bad_value
from self_imitation.experiments import runs
from self_imitation.experiments.definition import Agent, Definition, file_name
from self_imitation.experiments.runs import Case

FIRST_SEED = 1000
Candidate = dict[str, Any]
"""Settings by name."""


def candidates(agent: Agent) -> list[Candidate]:
    """All combinations."""
    return [dict(zip(agent.search, values, strict=True)) for values in product(*agent.search.values())]


def configs(definition: Definition, case: Case, folder: Path) -> list[tuple[Candidate, TrainConfig]]:
    """The run of each candidate, under `folder`/search."""
    if definition.seed + definition.seeds > FIRST_SEED:
        raise bad_value("seeds", definition.seeds, f"a search uses the seeds from {FIRST_SEED}; allowed: seeds below")
    steps = min(definition.search_steps or definition.steps_of(case.task), definition.steps_of(case.task))
    place = folder / "search" / definition.directory(case.task, case.agent)
    found = []
    for candidate in candidates(case.agent):
        name = "_".join(f"{setting}={file_name(str(value))}" for setting, value in candidate.items())
        sizes = {"steps": steps, "seeds": definition.search_seeds, "seed": FIRST_SEED, "out": str(place / name)}
        found.append((candidate, runs.build_config(definition, case, sizes, candidate)))
    return found


def choose(definition: Definition, case: Case, folder: Path) -> dict[str, Any] | None:
    """The candidates with the final score of each seed, and the one with the highest mean; None before all are
    finished. This is an entry of choices.json.
    """
    tried = []
    for candidate, config in configs(definition, case, folder):
        if not runs.is_finished(config):
            return None
        rows = runs.metrics(runs.directory(config), definition.measure)
        latest = {int(row["seed"]): row[definition.measure] for row in rows}
        tried.append((candidate, [latest[seed] for seed in config.seed_numbers], config))
    means = [float(np.mean(scores)) for _, scores, _ in tried]
    best = max(range(len(tried)), key=lambda i: -math.inf if math.isnan(means[i]) else means[i])
    return {
        "task": case.task.name,
        "agent": case.agent.name,
        "seeds": list(tried[0][2].seed_numbers),
        "steps": tried[0][2].steps,
        "candidates": [{"settings": settings, "scores": _json(scores)} for settings, scores, _ in tried],
        "chosen": tried[best][0],
    }


def _json(scores: list[float]) -> list[float | None]:
    return [None if math.isnan(score) else score for score in scores]
