"""What an experiment found: scores and differences with their intervals, and which claims they support."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from self_imitation.experiments.definition import Claim
from self_imitation.experiments.results import Results
from self_imitation.report import statistics
from self_imitation.report.tables import Estimate

FEW_TASKS = 3
"""Up to this many tasks, a claim's evidence has the numbers; the tables have them for all."""


class Mark(NamedTuple):
    """A short statement about a claim or an experiment."""

    kind: str
    """shown, undecided, opposite, missing or shortened; complete"""
    text: str


SHOWN = Mark("shown", "shown")
PARTLY = Mark("undecided", "shown in part")
NOT_SHOWN = Mark("undecided", "not shown")
OPPOSITE = Mark("opposite", "the opposite was found")
NOT_RUN = Mark("missing", "not run")


class Difference(NamedTuple):
    """Of the means of two agents on a task, the first minus the second; the intervals of all hold at once."""

    task: str
    first: str
    second: str
    estimate: Estimate | None
    """None if one of them was not run."""
    seeds: tuple[int, int]
    probability: float
    """That a seed of the first agent scores higher than one of the second; equal scores count half."""

    @property
    def verdict(self) -> str:
        if self.estimate is None:
            return "not run"
        if math.isnan(self.estimate.low):
            return "unknown"
        return "higher" if self.estimate.low > 0 else "lower" if self.estimate.high < 0 else "no difference detected"


@dataclass(frozen=True)
class Finding:
    """A claim, whether it holds here, and what was found."""

    text: str
    mark: Mark
    evidence: tuple[str, ...]


def score(results: Results, task: str, agent: str) -> Estimate | None:
    """Mean final score over seeds with Student's interval; None if it was not run."""
    return _mean(results, task, results.finals(task, agent))


def area(results: Results, task: str, agent: str) -> Estimate | None:
    """Mean area under the learning curve, likewise."""
    return _mean(results, task, results.areas(task, agent))


def _mean(results: Results, task: str, scores: np.ndarray) -> Estimate | None:
    if not len(scores):
        return None
    digits = results.definition.digits_of(results.definition.task(task))
    return Estimate(float(scores.mean()), *statistics.mean_interval(scores), digits)


def solved(results: Results, task: str, agent: str) -> tuple[int, int] | None:
    """Seeds that solve the task, and all; None if it was not run or has no level that counts as solved."""
    level, finals = results.definition.task(task).solved, results.finals(task, agent)
    return None if level is None or not len(finals) else (int((finals >= level).sum()), len(finals))


def differences(results: Results) -> list[Difference]:
    """One for each task and pair that the definition compares."""
    pairs = [(task, *pair) for task in results.definition.tasks for pair in results.definition.compare]
    samples = {(task.name, first, second): _samples(results, task.name, first, second) for task, first, second in pairs}
    read_together = sum(min(map(len, both)) > 0 for both in samples.values())
    found = []
    for task, first, second in pairs:
        both = samples[task.name, first, second]
        estimate, probability = None, math.nan
        if min(map(len, both)):
            interval = statistics.contrast_interval(both, [1, -1], comparisons=read_together)
            mean = float(both[0].mean() - both[1].mean())
            estimate = _with_enough_digits(Estimate(mean, *interval, results.definition.digits_of(task), signed=True))
            probability = statistics.probability_of_improvement(*both)
        found.append(Difference(task.name, first, second, estimate, (len(both[0]), len(both[1])), probability))
    return found


def _samples(results: Results, task: str, first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
    """The compared scores of two agents, over the steps that both have made."""
    until = min(results.steps(task, first), results.steps(task, second))
    return results.compared(task, first, until), results.compared(task, second, until)


def _with_enough_digits(estimate: Estimate) -> Estimate:
    """So many that an interval that excludes zero is seen to."""
    end = min(abs(estimate.low), abs(estimate.high))
    if not estimate.low * estimate.high > 0:
        return estimate
    return estimate._replace(digits=max(estimate.digits, math.ceil(-math.log10(end))))


def findings(results: Results) -> list[Finding]:
    """The definition's claims, compared with what was found."""
    compared = differences(results)
    return [_finding(results, claim, compared) for claim in results.definition.claims]


def _finding(results: Results, claim: Claim, compared: Iterable[Difference]) -> Finding:
    tasks = claim.tasks or tuple(task.name for task in results.definition.tasks)
    pairs = (*claim.higher, *claim.not_lower)
    relevant = [d for d in compared if d.task in tasks and (d.first, d.second) in pairs]
    marks = [_mark_of(d.verdict, d[1:3] in claim.not_lower) for d in relevant]
    shares = [*_shares(results, tasks, claim.solved, True), *_shares(results, tasks, claim.unsolved, False)]
    marks += [mark for mark, _ in shares]
    evidence = [line for pair in pairs for line in _in_words([d for d in relevant if d[1:3] == pair])]
    return Finding(claim.text, _overall(marks), (*evidence, *(line for _, line in shares)))


def _mark_of(verdict: str, need_not_be_higher: bool) -> Mark:
    no_difference = SHOWN if need_not_be_higher else NOT_SHOWN
    marks = {"higher": SHOWN, "lower": OPPOSITE, "not run": NOT_RUN, "no difference detected": no_difference}
    return marks.get(verdict, NOT_SHOWN)


def _shares(
    results: Results, tasks: Iterable[str], agents: Iterable[str], expected: bool
) -> Iterator[tuple[Mark, str]]:
    """Whether more than half of the seeds solve a task (or do not, unless `expected`), beyond doubt."""
    tasks = list(tasks)
    for task in tasks:
        for agent in agents:
            name = agent if len(tasks) == 1 else f"{agent} on {task}"
            counts = solved(results, task, agent)
            if counts is None:
                yield NOT_RUN, f"{name}: not run"
                continue
            low, high = statistics.fraction_interval(*counts)
            learnt = low > 0.5 if expected else high < 0.5
            contrary = high < 0.5 if expected else low > 0.5
            text = f"{name}: {counts[0]} of {counts[1]} seeds solve it ({100 * low:.0f} to {100 * high:.0f} %)"
            yield SHOWN if learnt else OPPOSITE if contrary else NOT_SHOWN, text


def _overall(marks: list[Mark]) -> Mark:
    """All must hold; what was not run leaves a claim shown in part at best."""
    ran = [mark for mark in marks if mark is not NOT_RUN]
    if not ran:
        return NOT_RUN
    if OPPOSITE in ran:
        return OPPOSITE
    if all(mark is SHOWN for mark in ran):
        return SHOWN if len(ran) == len(marks) else PARTLY
    return PARTLY if SHOWN in ran else NOT_SHOWN


def _in_words(compared: list[Difference]) -> Iterator[str]:
    """The differences of one pair: one line each if they are few, otherwise the tasks by what was found there."""
    ran = [difference for difference in compared if difference.estimate is not None]
    if len(ran) <= FEW_TASKS:
        for difference in ran:
            first, second = difference.seeds
            seeds = f"n = {first}" if first == second else f"n = {first} and {second}"
            name = f"{difference.first} minus {difference.second}"
            yield f"{difference.task}: {name} {difference.estimate}, {seeds}"
        ran = []
    kinds: dict[str, list[str]] = {}
    for difference in [*ran, *(d for d in compared if d.estimate is None)]:
        kinds.setdefault(difference.verdict, []).append(difference.task)
    for verdict, tasks in kinds.items():
        yield f"{compared[0].first} against {compared[0].second}: {verdict} on {', '.join(tasks)}"


def first_solved(results: Results, task: str, agent: str) -> int | None:
    """Steps after which the mean over seeds first reaches the level that counts as solved."""
    level, curve = results.definition.task(task).solved, results.curve(task, agent)
    if level is None or curve is None or not curve.values.size:
        return None
    reached = np.flatnonzero(curve.values.mean(axis=1) >= level)
    return int(curve.steps[reached[0]]) if len(reached) else None
