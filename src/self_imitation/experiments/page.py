"""The results page of an experiment in Markdown, with its figure and its tables as CSV."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from self_imitation.errors import UsageError
from self_imitation.experiments.results import BEST, Results
from self_imitation.report import curves, findings, over_tasks, results_tables, tables
from self_imitation.report.charts import panel_title
from self_imitation.report.curves import Curve, short
from self_imitation.report.tables import Table
from self_imitation.storage import files

FINAL = {
    "return_mean": "each seed's mean return in its last logging interval",
    "return_latest": "each seed's mean return over its last 100 episodes",
}
AXIS = {"return_mean": "mean return", "return_latest": "mean return of the last 100 episodes"}


def write(results: Results, out: Path) -> None:
    """Write README.md, figure.png, figure.svg, table.csv and contrasts.csv beside the data that they are made from."""
    scores, differences = results_tables.scores(results), results_tables.differences(results)
    files.write_atomically(out / "table.csv", tables.to_csv(scores))
    if differences:
        files.write_atomically(out / "contrasts.csv", tables.to_csv(differences))
    definition = results.definition
    figure = curves.figure(drawn_curves(results), columns=definition.columns, measure=AXIS[definition.measure])
    for suffix in ("png", "svg"):
        figure.savefig(out / f"figure.{suffix}", dpi=130)
    files.write_atomically(out / "README.md", text(results))


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
        markdown(results_tables.scores(results)),
        f"Scores are means over seeds of {FINAL[definition.measure]}, with Student's intervals over n seeds; intervals "
        "of shares are Wilson's.",
        *_optional(results_tables.others_of_the_paper(results)),
        *_claims(results),
        *_differences(results),
        *_over_tasks(results),
        *_tasks(results),
        *_choices(results),
        definition.notes.strip(),
        _provenance(results),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def summary(results: Results) -> str:
    """For the terminal: the table of scores, and what is missing."""
    return "\n".join(filter(None, [markdown(results_tables.scores(results)), _missing(results).strip("*")]))


def markdown(table: Table) -> str:
    rows = [[tables.text(row[name]) for name in table.columns] for row in table.rows]
    return _markdown(list(table.columns.values()), rows)


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (header, *rows))
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _optional(table: Table | None) -> list[str]:
    return [] if table is None else [f"{table.caption}:", markdown(table)]


def _missing(results: Results) -> str:
    """What was shortened and what was not run."""
    shortened = [
        f"{task} {agent} ({made:,} of {planned:,} steps)"
        for (task, agent), (made, planned) in results.shortened().items()
    ]
    absent = [f"{task} {agent}" for task, agent in results.not_run()]
    kinds = {"Shortened": shortened, "Not run": absent}
    sentences = [f"{kind}: {'; '.join(names)}." for kind, names in kinds.items() if names]
    return f"**{' '.join(sentences)}**" if sentences else ""


def _claims(results: Results) -> list[str]:
    found = findings.findings(results)
    rows = [(finding.text, finding.mark.text, "; ".join(finding.evidence)) for finding in found]
    return ["## The paper's claims", _markdown(("claim", "here", "what was found"), rows)] if rows else []


def _differences(results: Results) -> list[str]:
    table = results_tables.differences(results)
    return ["## Differences between agents", f"{table.caption}.", markdown(table)] if table else []


def _over_tasks(results: Results) -> list[str]:
    common = over_tasks.common_scores(results)
    if common is None:
        return []
    try:
        table, _ = over_tasks.aggregates(results, common)
    except UsageError as error:
        return [f"Not computed: {error}."]
    games = [over_tasks.human_normalised(results)[0]] if over_tasks.games(results) else []
    return ["## Over all tasks", *(part for own in (table, *games) for part in _optional(own))]


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
    files_text = (
        "`experiment.toml` is the experiment, `scores.csv` has the scores of each seed, `curves.csv` the curves, "
        "`provenance.json` the versions and times of each run; `table.csv` and `contrasts.csv` have the tables above. "
        "`sil report` makes a web page of them."
    )
    command = known["command"] or "a command that was not recorded"
    return f"Produced by\n\n    {command}\n\n{' '.join(filter(None, sentences))}\n\n{files_text}"
