"""`sil report`: one page from results directories, and its figures and tables as files beside it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from self_imitation.errors import UsageError
from self_imitation.experiments import results as results_directory
from self_imitation.experiments.definition import to_toml
from self_imitation.experiments.results import BEST, Results
from self_imitation.report import charts, curves, findings, results_tables, tables, web_page
from self_imitation.report.charts import Chart
from self_imitation.report.findings import Finding, Mark
from self_imitation.report.tables import Table
from self_imitation.storage import files

if TYPE_CHECKING:
    from markupsafe import Markup

FIGURE_FORMATS = ("png", "svg")
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
    """What the page shows of one experiment."""

    id: str
    title: str
    marks: Sequence[Mark]
    introduction: "Markup"
    notes: "Markup"
    agents: Sequence[charts.Style]
    panels: Sequence[Chart]
    has_seconds: bool
    best_label: str
    curves_note: str
    figure_files: Sequence[str]
    parts: Sequence[Part]
    provenance: Sequence[tuple[str, str]]
    definition: str
    findings: Sequence[Finding]


def find(directory: Path) -> list[Results]:
    """Results in this directory, or in those inside it."""
    if not directory.is_dir():
        raise UsageError(f"no such directory: {str(directory)!r}")
    if (directory / results_directory.DEFINITION).is_file():
        return [results_directory.read(directory)]
    inside = sorted(path.parent for path in directory.glob(f"*/{results_directory.DEFINITION}"))
    if not inside:
        raise UsageError(
            f"{str(directory)!r} has no results: no {results_directory.DEFINITION} in it or one level below"
        )
    return [results_directory.read(path) for path in inside]


def write(all_results: Sequence[Results], out: Path) -> None:
    """Write the page, and a folder beside it with every figure as PNG and SVG and every table as CSV and LaTeX."""
    folder = out.with_name(f"{out.stem}_files")
    folder.mkdir(parents=True, exist_ok=True)
    sections = [_section(results, folder) for results in all_results]
    overview = results_tables.overview(all_results)
    exported = [overview, *(table for section in sections for part in section.parts for table in part.tables)]
    texts = {table.name: {"csv": tables.to_csv(table), "tex": tables.to_latex(table)} for table in exported}
    for name, formats in texts.items():
        for suffix, text in formats.items():
            files.write_atomically(folder / f"{name}.{suffix}", text)
    files.write_atomically(out, _page(all_results, sections, overview, texts))


def _page(
    all_results: Sequence[Results],
    sections: Sequence[Section],
    overview: Table,
    texts: dict[str, dict[str, str]],
) -> str:
    title = all_results[0].definition.title if len(all_results) == 1 else "Self-Imitation Learning: results"
    body = web_page.render(
        "report.html", title=title, lead=_lead(all_results, sections), sections=sections, overview=overview
    )
    data = {
        "experiments": [
            {
                "id": section.id,
                "measure": "return, mean over seeds",
                "agents": [{"name": s.name, "colour": s.css, "dashed": s.dashed} for s in section.agents],
                "panels": [panel.data for panel in section.panels],
            }
            for section in sections
            if section.panels
        ],
        "figures": [figure.data for section in sections for part in section.parts for figure in part.figures],
        "tables": texts,
    }
    contents = [("overview", "What holds"), *((section.id, section.title) for section in sections)]
    return web_page.render_page(title, body, data, web_page.read("report.js"), web_page.read("report.css"), contents)


def _lead(all_results: Sequence[Results], sections: Sequence[Section]) -> str:
    cases = [results.steps(*case) for results in all_results for case in results.cases()]
    marks = [finding.mark for section in sections for finding in section.findings]
    claims = f"{marks.count(findings.SHOWN)} of {len(marks)} claims shown. " if marks else ""
    return f"{claims}{sum(map(bool, cases))} of {len(cases)} planned runs. What is missing or shortened is marked."


def _section(results: Results, folder: Path) -> Section:
    definition = results.definition
    identifier = f"experiment-{definition.name}"
    panels = charts.panels(results, identifier)
    own = [curve for panel in panels for curve in panel.data["curves"]]
    few = results_tables.differences(results)
    scores = [results_tables.scores(results), results_tables.others_of_the_paper(results)]
    parts = [Part("Scores", [table for table in scores if table])]
    parts += [Part("Differences between agents", [few])] if few else []
    best = definition.best_every and any(curve.measure == BEST for curve in results.curves)
    return Section(
        id=identifier,
        title=definition.title,
        marks=_marks(results),
        introduction=_markdown(definition.introduction),
        notes=_markdown(definition.notes),
        agents=charts.styles(definition),
        panels=panels,
        has_seconds=any(curve["seconds"] for curve in own),
        best_label=f"best episode of each {definition.best_every:,} steps" if best else "",
        curves_note=_curves_note(definition.measure),
        figure_files=_draw_curves(results, folder) if panels else (),
        parts=parts,
        provenance=_provenance(results),
        definition=to_toml(definition),
        findings=findings.findings(results),
    )


def _curves_note(measure: str) -> str:
    return (
        f"Lines are means over seeds of each seed's {MEASURES[measure]}; bands are Student's 95 % intervals. Agents with "
        "self-imitation have solid lines, others dashed ones. Smoothing changes the lines only, not the numbers shown "
        "beside them or in the tables."
    )


def _marks(results: Results) -> list[Mark]:
    """How complete the experiment is."""
    cases = list(results.cases())
    missing = [case for case in cases if not results.steps(*case)]
    states = {case: results_tables.status(results, *case) for case in cases if case not in missing}
    shortened = [state for state in states.values() if state]
    if len(missing) == len(cases):
        return [findings.NOT_RUN]
    marks = []
    if shortened:
        marks.append(Mark("shortened", f"{len(shortened)} of {len(cases)} runs shortened"))
    if missing:
        marks.append(Mark("missing", f"{len(missing)} of {len(cases)} runs not run"))
    longest, paper = max(results.steps(*case) for case in cases), results.definition.paper_steps
    if paper and longest < paper:
        marks.append(Mark("shortened", f"{curves.short(longest)} of the paper's {curves.short(paper)} steps"))
    return marks or [Mark("complete", "complete")]


def _draw_curves(results: Results, folder: Path) -> list[str]:
    """The whole figure for papers; returns its files, relative to the page."""
    definition = results.definition
    drawn = [
        curves.Curve(
            curve.agent,
            charts.panel_title(definition, definition.task(task), definition.agent(agent)),
            curve.seeds,
            curve.steps,
            curve.values,
        )
        for task, agent in results.cases()
        if (curve := results.curve(task, agent))
    ]
    paths = [folder / f"{definition.name}-curves.{suffix}" for suffix in FIGURE_FORMATS]
    for path in paths:
        curves.draw(drawn, path, columns=definition.columns)
    return [f"{folder.name}/{path.name}" for path in paths]


def _markdown(text: str) -> "Markup":
    """HTML in the text stays text."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def _provenance(results: Results) -> list[tuple[str, str]]:
    known = results.provenance
    definition = results.definition
    seconds = known.get("wall_seconds")
    rows: list[tuple[str, Any]] = [
        ("Command", known.get("command")),
        ("Date", known.get("date")),
        ("Commit", known.get("commit")),
        ("Version", known.get("version")),
        ("Packages", ", ".join(f"{name} {version}" for name, version in (known.get("versions") or {}).items())),
        ("Machines", "; ".join(known.get("machines") or ())),
        ("Wall time", None if seconds is None else results_tables.duration(seconds)),
        (
            "Settings",
            f"preset {definition.preset}"
            + (f", {json.dumps(dict(definition.settings))}" if definition.settings else ""),
        ),
    ]
    return [(term, str(value or "not recorded")) for term, value in rows]
