"""The results page of an experiment in Markdown, with its figure and its tables as CSV."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from self_imitation.errors import UsageError
from self_imitation.experiments import provenance
from self_imitation.experiments.results import BEST, Results
from self_imitation.report import curves, findings, over_tasks, results_tables, survival, tables
from self_imitation.report.charts import panel_title
from self_imitation.report.curves import Curve, short
from self_imitation.report.tables import Table
from self_imitation.storage import files

FINAL = {
    "return_mean": "each seed's mean return in its last logging interval",
    "return_latest": "each seed's mean return over its last 100 episodes",
}
FILES = """\
`experiment.toml` is the experiment, `scores.csv` has the scores of each seed, `curves.csv` the curves, and
`provenance.json` the versions and times of each run; `table.csv` and `contrasts.csv` have the tables above.
`sil report` makes a web page of them."""
FEWEST_TASKS = 3
"""With fewer, aggregates over tasks say less than the table of scores."""
AXIS = {"return_mean": "mean return", "return_latest": "mean return of the last 100 episodes"}


def write(results: Results, out: Path) -> None:
    """Write README.md, figure.png, figure.svg, table.csv and contrasts.csv beside the data that they are made from;
    where areas are compared, also solved.png.
    """
    scores, differences = results_tables.scores(results), results_tables.differences(results)
    files.write_text(out / "table.csv", tables.to_csv(scores))
    if differences:
        files.write_text(out / "contrasts.csv", tables.to_csv(differences))
    else:
        (out / "contrasts.csv").unlink(missing_ok=True)
    import matplotlib

    definition = results.definition
    figure = curves.figure(drawn_curves(results), columns=definition.columns, measure=AXIS[definition.measure])
    figure.savefig(out / "figure.png", dpi=130)
    with matplotlib.rc_context({"svg.hashsalt": definition.name}):  # the same file each time
        figure.savefig(out / "figure.svg", metadata={"Date": None})
    if _shows_solving(results):
        survival.figure(results).savefig(out / "solved.png", dpi=130)
    files.write_text(out / "README.md", text(results))


def _shows_solving(results: Results) -> bool:
    return results.definition.primary == "area" and survival.table(results) is not None


def drawn_curves(results: Results) -> list[Curve]:
    """The curves of the figure, with the best episodes where the experiment keeps them."""
    definition, drawn = results.definition, []
    for task, agent in results.cases():
        panel = panel_title(definition, definition.task(task), definition.agent(agent))
        for measure in (definition.measure, BEST):
            if curve := results.curve(task, agent, measure):
                label = agent if measure != BEST else f"{agent}, best episode of {short(definition.best_every or 0)}"
                drawn.append(Curve(label, panel, curve.seeds, curve.steps, curve.values))
    return drawn


def text(results: Results) -> str:
    """README.md."""
    definition = results.definition
    parts = [
        f"# {definition.title}",
        definition.introduction.strip(),
        "![Learning curves](figure.png)",
        _missing(results),
        *_with_caption(results_tables.scores(results)),
        _measured(results),
        *_with_caption(results_tables.others_of_the_paper(results)),
        *_claims(results),
        *_differences(results),
        *_solving(results),
        *_over_tasks(results),
        *_tasks(results),
        *_choices(results),
        definition.notes.strip(),
        _provenance(results),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _measured(results: Results) -> str:
    shares = (
        " Intervals of shares are Wilson's. Where some seeds solve a task and others don't, Student's intervals are "
        "too narrow, and the shares say more."
    )
    solvable = any(task.solved for task in results.definition.tasks)
    areas = (
        " Areas are means of these curves over the run; points at which no episode has ended yet take the first value."
        if results.definition.primary == "area"
        else ""
    )
    return f"Returns are means over seeds of {FINAL[results.definition.measure]}.{areas}{shares if solvable else ''}"


def summary(results: Results) -> str:
    """For the terminal: the table of scores, and what is missing."""
    return "\n".join(filter(None, [markdown(results_tables.scores(results)), _missing(results).replace("*", "")]))


def markdown(table: Table) -> str:
    rows = [[tables.text(row[name]) for name in table.columns] for row in table.rows]
    return _markdown(list(table.columns.values()), rows)


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (header, *rows))
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _with_caption(table: Table | None) -> list[str]:
    return [] if table is None else [f"{table.caption}:", markdown(table)]


def _missing(results: Results) -> str:
    """How much was shortened or not run; the table of scores names the runs."""
    runs, short, absent = len(list(results.cases())), len(results.shortened()), len(results.not_run())
    kinds = {"shorter than planned": short, "not run": absent}
    parts = [f"{count} of {runs} runs {'is' if count == 1 else 'are'} {kind}" for kind, count in kinds.items() if count]
    return f"**Not complete: {', '.join(parts)} (column *status*).**" if parts else ""


def _claims(results: Results) -> list[str]:
    found = findings.findings(results)
    rows = [(finding.text, finding.mark.text, "; ".join(finding.evidence)) for finding in found]
    return ["## Claims", _markdown(("claim", "here", "what was found"), rows)] if rows else []


def _differences(results: Results) -> list[str]:
    table = results_tables.differences(results)
    return ["## Differences between agents", *_with_caption(table)] if table else []


def _solving(results: Results) -> list[str]:
    if not _shows_solving(results):
        return []
    picture = "![Share of seeds that have solved each task, by steps](solved.png)"
    return ["## Steps until solved", picture, *_with_caption(survival.table(results))]


def _over_tasks(results: Results) -> list[str]:
    common = over_tasks.common_scores(results)
    if common is None or len(common.tasks) < FEWEST_TASKS:
        return []
    try:
        table, _ = over_tasks.aggregates(results, common)
    except UsageError as error:
        return [f"Not computed: {error}."]
    games = [over_tasks.human_normalised(results)[0]] if over_tasks.games(results) else []
    which = f"{len(common.tasks)} of {len(results.definition.tasks)} tasks have scores of all agents that were run."
    return ["## Over tasks", which, *(part for own in (table, *games) for part in _with_caption(own))]


def _tasks(results: Results) -> list[str]:
    tasks = results.definition.tasks
    if not any(task.about for task in tasks):
        return []
    rows = [
        (task.name, f"`{task.env}`", task.about, "" if task.solved is None else f"{task.solved:g}") for task in tasks
    ]
    return ["## Tasks", _markdown(("task", "environment", "what is rewarded", "solved at"), rows)]


def _choices(results: Results) -> list[str]:
    if not results.choices:
        return []
    rows = []
    for choice in results.choices:
        chosen = ", ".join(f"{name} {value}" for name, value in choice["chosen"].items())
        rows.append((choice["task"], choice["agent"], chosen, f"{len(choice['candidates'])}", f"{choice['steps']:,}"))
    first, last = results.choices[0]["seeds"][0], results.choices[0]["seeds"][-1]
    return [
        "## Chosen settings",
        f"The highest mean on seeds {first} to {last}, which are not reported; `choices.json` has all scores.",
        _markdown(("task", "agent", "chosen", "candidates", "steps"), rows),
    ]


def _provenance(results: Results) -> str:
    known, definition = results.provenance, results.definition
    seconds = known["wall_seconds"]
    seeds = sorted({score.seed for score in results.scores})
    sentences = [
        f"Preset `{definition.preset}`"
        + (f" with {json.dumps(dict(definition.settings))}" if definition.settings else "")
        + f", seeds {seeds[0]} to {seeds[-1]}, on {' and '.join(known['machines'])}.",
        f"Training took {results_tables.duration(seconds)} in total." if seconds else "",
        f"Version {known['version']}." if known["version"] else "",
        f"Commit {known['commit']}." if known["commit"] else "",
        f"{known['date'][:10]}." if known["date"] else "",
    ]
    return f"{_commands(known)}\n\n{' '.join(filter(None, sentences))}\n\n{FILES}"


def _commands(known: Mapping[str, Any]) -> str:
    commands = provenance.commands(known)
    if not commands:
        return "The commands that produced this were not recorded."
    unknown = 0 if known["command"] else sum(not run.get("command") for run in known["runs"])
    without = f" ({unknown} of {len(known['runs'])} runs: not recorded)" if unknown else ""
    return "\n".join([f"Produced by{without}\n", *(f"    {command}" for command in commands)])
