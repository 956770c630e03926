"""Statistics over the tasks of an experiment, from its results."""

import math

import numpy as np

from self_imitation.experiments.results import Results
from self_imitation.report import aggregate
from self_imitation.report.aggregate import Estimate


def normalised(results: Results) -> tuple[list[str], dict[str, np.ndarray]]:
    """The tasks that can be aggregated, and by agent the normalised scores [seeds, tasks].

    These are the tasks with a normalisation that all agents were run on, without agents that were run on none. All
    tasks count equally: each gives as many seeds as the one with fewest. Seeds that finished no episode are left out.
    """
    definition = results.definition
    known = {case: own[np.isfinite(own)] for case in results.cases() if len(own := results.finals(*case))}
    agents = [agent.name for agent in definition.agents if any(case[1] == agent.name for case in known)]
    tasks = [t for t in definition.tasks if t.normalise and all(len(known.get((t.name, a), ())) for a in agents)]
    scores = {}
    for agent in agents if tasks else ():
        seeds = min(len(known[task.name, agent]) for task in tasks)
        columns = [aggregate.normalise(known[t.name, agent][:seeds], *t.normalise) for t in tasks if t.normalise]
        scores[agent] = np.stack(columns, axis=1)
    return [task.name for task in tasks], scores


def paper_normalised(results: Results) -> dict[str, np.ndarray]:
    """By agent, the paper's normalised scores [1, tasks], for agents that have one on every task."""
    definition = results.definition
    named = [a.name for a in definition.agents if all(t.normalise and a.name in t.paper for t in definition.tasks)]
    return {
        agent: np.array([[aggregate.normalise(t.paper[agent], *t.normalise) for t in definition.tasks if t.normalise]])
        for agent in named
    }


def relative_gains(results: Results, first: str, second: str, paper: bool = False) -> dict[str, float]:
    """By task, the relative measure of Wang et al. 2016 of the first agent over the second one, of mean scores."""
    found = {}
    for task in results.definition.tasks:
        if paper:
            means = [task.paper.get(agent, math.nan) for agent in (first, second)]
        else:
            finals = [results.finals(task.name, agent) for agent in (first, second)]
            means = [float(own.mean()) if len(own) else math.nan for own in finals]
        if task.normalise and all(map(math.isfinite, means)):
            found[task.name] = aggregate.relative(means[0], means[1], *task.normalise)
    return found


def improvements(results: Results) -> dict[tuple[str, str], Estimate]:
    """The probability of improvement of each pair that the definition compares, where both were run."""
    _, scores = normalised(results)
    pairs = [pair for pair in results.definition.compare if set(pair) <= scores.keys()]
    return {pair: aggregate.probability_of_improvement(scores[pair[0]], scores[pair[1]]) for pair in pairs}
