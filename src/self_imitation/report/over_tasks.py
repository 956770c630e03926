"""Statistics over the tasks of an experiment as tables and figures: aggregates of normalised scores, and for Atari
games the measures of the paper.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from self_imitation.experiments.definition import Task
from self_imitation.experiments.results import Results
from self_imitation.report import aggregate, findings
from self_imitation.report.charts import Style, styles
from self_imitation.report.figures import Bars, Profile, Series
from self_imitation.report.tables import Cell, Estimate, Number, Table

PAPER_COLOUR = "#8a8f98"
THRESHOLDS = 101
HIGHEST = 8.0
"""Threshold of performance profiles; a few Atari games have normalised scores far above it."""


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    summary: str
    drawing: Bars | Profile


@dataclass(frozen=True)
class Common:
    """Normalised scores of all agents that were run, on the tasks that all of them have."""

    tasks: Sequence[str]
    scores: dict[str, np.ndarray]
    """[seeds, tasks] by agent"""


def common_scores(results: Results) -> Common | None:
    """None with fewer than two such tasks."""
    definition = results.definition
    agents = [a.name for a in definition.agents if any(len(results.compared(t.name, a.name)) for t in definition.tasks)]
    tasks = [
        task
        for task in definition.tasks
        if task.normalise and all(np.isfinite(results.compared(task.name, a)).any() for a in agents)
    ]
    if len(tasks) < 2:
        return None
    return Common(
        [task.name for task in tasks],
        {agent: np.stack([*map(list, _equally_many(results, tasks, agent))], axis=1) for agent in agents},
    )


def _equally_many(results: Results, tasks: Sequence[Task], agent: str) -> list[np.ndarray]:
    """Normalised scores by task, of as many seeds as the task with the fewest has."""
    found = []
    for task in tasks:
        scores = results.compared(task.name, agent)
        assert task.normalise is not None
        found.append(aggregate.normalise(scores[np.isfinite(scores)], *task.normalise))
    return [own[: min(map(len, found))] for own in found]


def aggregates(results: Results, common: Common) -> tuple[Table, list[Figure]]:
    """Mean, median and interquartile mean by agent; performance profiles; probabilities of improvement."""
    rows: list[dict[str, Cell]] = []
    for agent, scores in common.scores.items():
        found = aggregate.aggregates(scores)
        cells = {name.lower(): Estimate(own.value, own.low, own.high, 2) for name, own in found.items()}
        rows.append({"agent": agent, **cells, "tasks": scores.shape[1], "seeds": scores.shape[0]})
    columns = {"agent": "agent", "iqm": "IQM (95 %)", "mean": "mean (95 %)", "median": "median (95 %)"}
    columns |= {"tasks": "tasks", "seeds": "seeds per task"}
    caption = "Normalised scores over tasks; stratified bootstrap intervals"
    name = results.definition.name
    table = Table(f"{name}-aggregates", caption, columns, rows)
    drawn = [style for style in styles(results.definition) if style.name in common.scores]
    return table, [_profile(name, common, drawn), *_improvement(results, common, drawn)]


def _profile(name: str, common: Common, drawn: Sequence[Style]) -> Figure:
    every = np.concatenate([scores.ravel() for scores in common.scores.values()])
    at = np.linspace(min(0.0, float(every.min())), min(max(1.0, float(every.max())), HIGHEST), THRESHOLDS)
    series = []
    for style in drawn:
        found = aggregate.performance_profile(common.scores[style.name], at)
        series.append(
            Series(style.name, style.colour, found.share, found.low, found.high, found.runs, dashed=style.dashed)
        )
    half = int(np.abs(at - 0.5).argmin())
    words = [f"{own.name} {own.values[half]:.0%}" for own in series]
    summary = f"Share of runs with a normalised score above 0.5, over {len(common.tasks)} tasks: {'; '.join(words)}."
    drawing = Profile(at, series, "normalised score", "share of runs above it")
    return Figure(f"{name}-profiles", "Performance profiles", summary, drawing)


def _improvement(results: Results, common: Common, drawn: Sequence[Style]) -> list[Figure]:
    pairs = [pair for pair in results.definition.compare if all(name in common.scores for name in pair)]
    if not pairs:
        return []
    found = [aggregate.probability_of_improvement(common.scores[one], common.scores[two]) for one, two in pairs]
    names = [f"{one} over {two}" for one, two in pairs]
    text = [str(Estimate(own.value, own.low, own.high, 2)) for own in found]
    series = Series(
        "probability",
        next(style.colour for style in drawn if style.name == pairs[0][0]),
        [own.value for own in found],
        [own.low for own in found],
        [own.high for own in found],
        text=text,
    )
    words = "; ".join(f"{name} {own}" for name, own in zip(names, text, strict=True))
    summary = f"Probability that a run of the first agent scores higher than one of the second: {words}."
    drawing = Bars(names, [series], "probability", reference=0.5)
    return [Figure(f"{results.definition.name}-improvement", "Probability of improvement", summary, drawing)]


def games(results: Results) -> list[Task]:
    """Atari games with the scores of a random and of a human player."""
    return [task for task in results.definition.tasks if task.env.startswith("atari:") and task.normalise]


def human_normalised(results: Results) -> tuple[Table, Table]:
    """Human-normalised scores by game, the paper's and ours; and their median and the games above human."""
    agents = [agent.name for agent in results.definition.agents]
    sources = {
        **{
            f"{agent}, paper": [_normalised(task, task.paper.get(agent)) for task in games(results)] for agent in agents
        },
        **{
            f"{agent}, here": [_normalised(task, _mean(results, task, agent)) for task in games(results)]
            for agent in agents
        },
    }
    known = {name: values for name, values in sources.items() if not all(map(math.isnan, values))}
    rows: list[dict[str, Cell]] = [
        {"game": task.name, **{name: Number(100 * values[at], 1) for name, values in known.items()}}
        for at, task in enumerate(games(results))
    ]
    name = results.definition.name
    headings = {"game": "game", **{name: name for name in known}}
    by_game = Table(f"{name}-human-normalised", "Human-normalised scores in per cent", headings, rows)
    summary: list[dict[str, Cell]] = []
    for source, values in known.items():
        finite = [value for value in values if not math.isnan(value)]
        median = Number(100 * float(np.median(finite)), 1)
        above = f"{aggregate.above_human(finite)} of {len(finite)}"
        summary.append({"scores": source, "median": median, "above": above})
    columns = {"scores": "scores", "median": "median, %", "above": "games above human"}
    return Table(f"{name}-summary", "Median human-normalised score and games above human", columns, summary), by_game


def _mean(results: Results, task: Task, agent: str) -> float | None:
    found = findings.score(results, task.name, agent)
    return found and found.mean


def _normalised(task: Task, score: float | None) -> float:
    assert task.normalise is not None
    return math.nan if score is None else float(aggregate.normalise(score, *task.normalise))


def relative(results: Results) -> Figure | None:
    """The paper's figure 4: the gain of the first agent that is compared over the second, by game.

    None if there is no such pair with the paper's scores.
    """
    pairs = results.definition.compare
    own = [task for task in games(results) if pairs and all(agent in task.paper for agent in pairs[0])]
    if len(own) < 2:
        return None
    first, second = pairs[0]
    paper = [100 * _relative(task, task.paper[first], task.paper[second]) for task in own]
    order = np.argsort(paper)[::-1]
    found = {difference.task: difference for difference in findings.differences(results) if difference[1:3] == pairs[0]}
    here = [_relative_estimate(task, found[task.name], _mean(results, task, second)) for task in own]
    series = [
        _relative_series(
            "paper", PAPER_COLOUR, [Estimate(value, math.nan, math.nan, 0, True) for value in paper], order
        ),
        _relative_series("here", next(s.colour for s in styles(results.definition) if s.name == first), here, order),
    ]
    improved = sum(value > 100 * aggregate.IMPROVED for value in paper)
    ran = [value for value in here if not math.isnan(value.mean)]
    gained = sum(value.mean > 100 * aggregate.IMPROVED for value in ran)
    summary = (
        f"Relative gain of {first} over {second} by game, in per cent (Wang et al. 2016). Above 1 % in the paper on "
        f"{improved} of {len(paper)} games; here on {gained} of the {len(ran)} games that were run. Intervals "
        "are those of the differences between agents."
    )
    drawing = Bars([own[at].name for at in order], series, "relative gain, %")
    return Figure(f"{results.definition.name}-relative", f"Relative gain of {first} over {second}", summary, drawing)


def _relative(task: Task, score: float, baseline: float) -> float:
    assert task.normalise is not None
    return aggregate.relative(score, baseline, *task.normalise)


def _relative_estimate(task: Task, difference: findings.Difference, baseline: float | None) -> Estimate:
    """The interval is that of the difference, with the baseline in the unit taken as known."""
    if difference.estimate is None or baseline is None:
        return Estimate(math.nan, math.nan, math.nan, 0, True)
    mean, low, high = (100 * _relative(task, baseline + part, baseline) for part in difference.estimate[:3])
    return Estimate(mean, low, high, 0, True)


def _relative_series(name: str, colour: str, values: Sequence[Estimate], order: np.ndarray) -> Series:
    mean, low, high = ([values[at][part] for at in order] for part in range(3))
    text = [f"{values[at]} %" if not math.isnan(values[at].mean) else "not run" for at in order]
    return Series(name, colour, mean, low, high, text=text)
