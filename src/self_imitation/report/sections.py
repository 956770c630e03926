"""What the page of a report shows of one experiment."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from self_imitation.experiments import page, provenance
from self_imitation.experiments.definition import to_toml
from self_imitation.experiments.results import Results
from self_imitation.report import charts, curves, figures, findings, over_tasks, results_tables
from self_imitation.report.charts import Chart
from self_imitation.report.findings import Finding, Mark
from self_imitation.report.tables import Table

if TYPE_CHECKING:
    from markdown_it.token import Token
    from markupsafe import Markup

MEASURES = {
    "return_mean": "mean return of the episodes since the previous point",
    "return_latest": "mean return of the latest 100 episodes",
}


@dataclass(frozen=True)
class Part:
    """A subject within a section: figures and tables under a heading."""

    title: str
    tables: Sequence[Table]
    figures: Sequence[Chart] = ()
    text: str = ""


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    marks: Sequence[Mark]
    """How complete it is."""
    findings: Sequence[Finding]
    introduction: "Markup"
    notes: "Markup"
    agents: Sequence[charts.Style]
    panels: Sequence[Chart]
    few_seeds: bool
    """Each seed is drawn rather than intervals, unless the reader chooses otherwise."""
    has_seconds: bool
    best_label: str
    """What the second measure is; empty if there is none."""
    curves_note: str
    figure_files: Sequence[str]
    parts: Sequence[Part]
    provenance: Sequence[tuple[str, str]]
    definition: str


def build(results: Results, folder: Path) -> Section:
    """Also draws the section's figures for papers into the folder."""
    definition = results.definition
    identifier = f"experiment-{definition.name}"
    panels = charts.panels(results, identifier)
    own = [curve for panel in panels for curve in panel.data["curves"]]
    return Section(
        id=identifier,
        title=definition.title,
        marks=_marks(results),
        findings=findings.findings(results),
        introduction=_markdown(definition.introduction),
        notes=_markdown(definition.notes),
        agents=charts.styles(definition),
        panels=panels,
        few_seeds=all(len(curve["seeds"]) <= curves.FEW_SEEDS for curve in own),
        has_seconds=any(curve["seconds"] for curve in own),
        best_label=f"best episode of each {definition.best_every:,} steps" if any(c["best"] for c in own) else "",
        curves_note=_curves_note(results),
        figure_files=_draw_curves(results, folder) if panels else (),
        parts=_parts(results, folder),
        provenance=_provenance(results),
        definition=to_toml(definition),
    )


def _parts(results: Results, folder: Path) -> list[Part]:
    tables = [results_tables.scores(results), results_tables.others_of_the_paper(results)]
    parts = [Part("Scores", [table for table in tables if table])]
    if few := results_tables.differences(results):
        parts.append(Part("Differences between agents", [few]))
    if common := over_tasks.common_scores(results):
        table, drawn = over_tasks.aggregates(results, common)
        text = (
            f"Over the {len(common.tasks)} of {len(results.definition.tasks)} tasks on which all agents were run. "
            "The experiment's definition says which scores count as 0 and as 1."
        )
        parts.append(Part("Over all tasks", [table], [_chart(figure, folder) for figure in drawn], text))
    if gain := over_tasks.relative(results):
        parts.append(
            Part("Beside the paper, game by game", over_tasks.human_normalised(results), [_chart(gain, folder)])
        )
    if tried := results_tables.choices(results):
        parts.append(Part("How settings were chosen", [tried]))
    return parts


def _chart(figure: over_tasks.Figure, folder: Path) -> Chart:
    drawing = figure.drawing
    return Chart(
        figure.name,
        figure.title,
        drawing.kind,
        figure.summary,
        figure.name,
        {"id": figure.name, "kind": drawing.kind, **drawing.data()},
        drawing.table(figure.title),
        figures.save(drawing.figure(), folder, figure.name),
    )


def _marks(results: Results) -> list[Mark]:
    cases = list(results.cases())
    missing = [case for case in cases if not results.steps(*case)]
    shortened = [case for case in cases if case not in missing and results_tables.status(results, *case)]
    if len(missing) == len(cases):
        return [findings.NOT_RUN]
    marks = []
    if shortened:
        marks.append(Mark("shortened", f"{len(shortened)} of {len(cases)} runs shortened"))
    if missing:
        marks.append(Mark("missing", f"{len(missing)} of {len(cases)} runs not run"))
    longest, paper = max(results.steps(*case) for case in cases), results.definition.paper_steps
    if paper and longest < paper:
        steps = results_tables.about
        marks.append(Mark("shortened", f"{steps(longest)} of the paper's {steps(paper)} steps"))
    return marks or [Mark("complete", "complete")]


def _curves_note(results: Results) -> str:
    absent = [task.name for task in results.definition.tasks if not any(c.task == task.name for c in results.curves)]
    not_run = f" Not run: {', '.join(absent)}." if absent else ""
    return (
        f"Lines are means over seeds of each seed's {MEASURES[results.definition.measure]}; bands are Student's 95 % "
        "intervals. Agents with self-imitation have solid lines, others dashed ones. Smoothing changes the lines, not "
        f"the numbers shown beside them or in the tables.{not_run}"
    )


def _draw_curves(results: Results, folder: Path) -> list[str]:
    definition = results.definition
    drawn = curves.figure(page.drawn_curves(results), columns=definition.columns, measure=page.AXIS[definition.measure])
    return figures.save(drawn, folder, f"{definition.name}-curves")


def _markdown(text: str) -> "Markup":
    """Without relative links; HTML in the text stays text."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for block in tokens:
        block.children = _without_relative_links(block.children or [])
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _without_relative_links(tokens: "Sequence[Token]") -> "list[Token]":
    """They are relative to the results directory, where the page need not be; their text stays."""
    kept, inside = [], False
    for token in tokens:
        if token.type == "link_open":
            inside = not str(token.attrGet("href")).startswith(("https:", "http:"))
        if not (inside and token.type in ("link_open", "link_close")):
            kept.append(token)
    return kept


def _provenance(results: Results) -> list[tuple[str, str]]:
    known, definition = results.provenance, results.definition
    seconds = known.get("wall_seconds")
    settings = f", {json.dumps(dict(definition.settings))}" if definition.settings else ""
    rows: list[tuple[str, Any]] = [
        ("Commands", "; ".join(provenance.commands(known))),
        ("Date", known.get("date")),
        ("Commit", known.get("commit")),
        ("Version", known.get("version")),
        ("Packages", ", ".join(f"{name} {version}" for name, version in (known.get("versions") or {}).items())),
        ("Machines", "; ".join(known.get("machines") or ())),
        ("Wall time", None if seconds is None else results_tables.duration(seconds)),
        ("Settings", f"preset {definition.preset}{settings}"),
    ]
    return [(term, str(value or "not recorded")) for term, value in rows]
