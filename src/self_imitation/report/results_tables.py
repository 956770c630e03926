"""The tables of a report."""

from collections.abc import Sequence

import numpy as np

from self_imitation.experiments.results import Results
from self_imitation.report import findings, statistics
from self_imitation.report.curves import short
from self_imitation.report.tables import Cell, Estimate, Number, Table, text


def scores(results: Results) -> Table:
    """Final scores beside the paper's, a row for every task and agent, also for those that were not run."""
    definition = results.definition
    columns = {"task": "task", "agent": "agent", "final": "final return (95 %)", "seeds": "n"}
    rows: list[dict[str, Cell]] = []
    for task, agent in results.cases():
        paper = definition.task(task).paper.get(agent)
        row: dict[str, Cell] = {
            "task": task,
            "agent": agent,
            "final": findings.score(results, task, agent),
            "area": findings.area(results, task, agent) if definition.primary == "area" else None,
            "seeds": len(results.finals(task, agent)) or None,
            "solved": _solved(results, task, agent),
            "solved_after": findings.first_solved(results, task, agent),
            "paper": None if paper is None else Number(paper, definition.digits_of(definition.task(task))),
            "steps": results.steps(task, agent) or None,
            "status": status(results, task, agent),
        }
        rows.append(row)
    steps = f", {about(definition.paper_steps)} steps" if definition.paper_steps else ""
    optional = {
        "area": "area under the curve (95 %)",
        "paper": f"paper{steps}",
        "solved": "seeds that solve it (95 %)",
        "solved_after": "mean solves it after (steps)",
        "steps": "steps per seed",
        "status": "status",
    }
    lengths = {row["steps"] for row in rows}
    after = ""
    if len(lengths) == 1:
        del optional["steps"]
        after = f" after {text(lengths.pop())} steps"
    columns |= {name: heading for name, heading in optional.items() if any(row[name] for row in rows)}
    beside = " beside those of the paper" if "paper" in columns else ""
    which = "Final returns and areas under the curves" if definition.primary == "area" else "Final returns"
    caption = f"{which}{after}{beside}; Student's intervals over n seeds"
    return Table(f"{definition.name}-scores", caption, columns, rows)


def status(results: Results, task: str, agent: str) -> str:
    """What is missing: "" if nothing is."""
    made, planned = results.steps(task, agent), results.planned_steps(task, agent)
    if not made:
        return "not run"
    seeds = len(results.finals(task, agent))
    parts = [f"{about(made)} of {about(planned)} steps"] if made < planned else []
    parts += [f"{seeds} of {results.definition.seeds} seeds"] if seeds < results.definition.seeds else []
    return f"shortened: {', '.join(parts)}" if parts else ""


def _solved(results: Results, task: str, agent: str) -> str | None:
    counts = findings.solved(results, task, agent)
    if counts is None:
        return None
    low, high = statistics.fraction_interval(*counts)
    return f"{counts[0]} of {counts[1]} ({100 * low:.0f} to {100 * high:.0f} %)"


def others_of_the_paper(results: Results) -> Table | None:
    """Scores that the paper, or another source, has for agents that the experiment does not train."""
    definition = results.definition
    own = {agent.name for agent in definition.agents}
    names = list(dict.fromkeys(name for task in definition.tasks for name in task.paper if name not in own))
    if not names:
        return None
    rows: list[dict[str, Cell]] = []
    for task in definition.tasks:
        digits = definition.digits_of(task)
        known = {name: Number(task.paper[name], digits) if name in task.paper else None for name in names}
        rows.append({"task": task.name, **known})
    columns = {"task": "task", **{name: name for name in names}}
    return Table(f"{definition.name}-others", "Published scores of other agents", columns, rows)


def differences(results: Results) -> Table | None:
    found = findings.differences(results)
    if not found:
        return None
    together = sum(difference.estimate is not None for difference in found)
    rows: list[dict[str, Cell]] = [
        {
            "task": difference.task,
            "pair": f"{difference.first} minus {difference.second}",
            "difference": difference.estimate,
            "seeds": None if difference.estimate is None else " and ".join(map(str, difference.seeds)),
            "probability": None if difference.estimate is None else Number(difference.probability, 2),
            "verdict": difference.verdict,
        }
        for difference in found
    ]
    columns = {
        "task": "task",
        "pair": "difference of",
        "difference": "means (95 %)",
        "seeds": "n",
        **({"probability": "P(first is higher)"} if results.definition.primary == "area" else {}),
        "verdict": "verdict",
    }
    what = "areas under the curves" if results.definition.primary == "area" else "final returns"
    caption = f"Differences of {what}; Welch's intervals, which hold for all {together} at once (Bonferroni)"
    if together < 2:
        caption = f"Difference of {what}, with Welch's interval"
    return Table(f"{results.definition.name}-differences", caption, columns, rows)


def choices(results: Results) -> Table | None:
    """Every candidate of the searches for settings, with its score on seeds that are not reported."""
    rows: list[dict[str, Cell]] = []
    for choice in results.choices:
        digits = results.definition.digits_of(results.definition.task(choice["task"]))
        for candidate in choice["candidates"]:
            known = np.array([score for score in candidate["scores"] if score is not None])
            estimate = Estimate(float(known.mean()), *statistics.mean_interval(known), digits) if len(known) else None
            rows.append(
                {
                    "task": choice["task"],
                    "agent": choice["agent"],
                    "settings": ", ".join(f"{name} {value}" for name, value in candidate["settings"].items()),
                    "score": estimate,
                    "seeds": f"{choice['seeds'][0]} to {choice['seeds'][-1]}",
                    "steps": choice["steps"],
                    "chosen": "chosen" if candidate["settings"] == choice["chosen"] else "",
                }
            )
    headings = ("task", "agent", "settings", "score (95 %)", "seeds", "steps", "choice")
    names = ("task", "agent", "settings", "score", "seeds", "steps", "chosen")
    caption = "Settings that were tried, on seeds that are not reported"
    return (
        Table(f"{results.definition.name}-choices", caption, dict(zip(names, headings, strict=True)), rows)
        if rows
        else None
    )


def overview(all_results: Sequence[Results]) -> Table:
    """What was run: a row for each experiment."""
    rows: list[dict[str, Cell]] = []
    for results in all_results:
        cases = list(results.cases())
        ran = [case for case in cases if results.steps(*case)]
        seeds = sorted({len(results.finals(*case)) for case in ran})
        steps = sorted({results.steps(*case) for case in ran})
        seconds = results.provenance.get("wall_seconds")
        rows.append(
            {
                "experiment": results.definition.title,
                "runs": f"{len(ran)} of {len(cases)}",
                "seeds": _range([str(count) for count in seeds]),
                "steps": _range([about(count) for count in steps]),
                "time": None if seconds is None else duration(seconds),
                "date": (results.provenance.get("date") or "")[:10] or None,
            }
        )
    columns = {
        "experiment": "experiment",
        "runs": "runs",
        "seeds": "seeds per run",
        "steps": "steps per seed",
        "time": "wall time",
        "date": "date",
    }
    return Table("overview", "What was run", columns, rows)


def _range(values: Sequence[str]) -> str | None:
    if not values:
        return None
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"


def about(steps: int) -> str:
    """To three digits."""
    return short(float(f"{steps:.3g}"))


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
