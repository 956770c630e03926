"""`sil report`: one page from results directories, and its figures and tables as files beside it."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from self_imitation.errors import UsageError
from self_imitation.experiments import definition as definitions
from self_imitation.experiments import results as results_directory
from self_imitation.experiments.results import Results
from self_imitation.report import findings, results_tables, sections, tables, web_page
from self_imitation.report.sections import Section
from self_imitation.report.tables import Table
from self_imitation.storage import files

FILE = "report.html"
"""Name of the page, unless another one is asked for."""
PAPER = (
    "grid-worlds",
    "montezuma",
    "hard-exploration",
    "atari-49",
    "acper",
    "mujoco",
    "mujoco-delayed",
    "mujoco-tuned",
    "mujoco-ant",
)
"""Experiments of the paper, in its order; others follow."""


def find(directory: Path) -> list[Results]:
    """Results in this directory; or in those inside it, with the paper's experiments of which there are none there."""
    if not os.path.isdir(directory):  # unlike Path.is_dir, also False for names that are too long
        raise UsageError(f"no such directory: {str(directory)!r}")
    if (directory / results_directory.DEFINITION).is_file():
        return [_read(directory)]
    inside = sorted(path.parent for path in directory.glob(f"*/{results_directory.DEFINITION}"))
    if not inside:
        raise UsageError(
            f"{str(directory)!r} has no results: no {results_directory.DEFINITION} in it or one level below"
        )
    found = {own.definition.name: own for own in map(_read, inside)}
    absent = [definitions.read(name) for name in PAPER if name not in found]
    found |= {own.name: Results(own, (), (), {"runs": []}) for own in absent}
    order = [*PAPER, *(name for name in found if name not in PAPER)]
    return sorted(found.values(), key=lambda own: order.index(own.definition.name))


def _read(directory: Path) -> Results:
    """With the name of the directory, in which no other one has it, for files and links."""
    found = results_directory.read(directory)
    name = definitions.file_name(directory.resolve().name)
    return dataclasses.replace(found, definition=dataclasses.replace(found.definition, name=name))


def write(all_results: Sequence[Results], out: Path) -> None:
    """Write the page, and a folder beside it with every figure as PNG and SVG and every table as CSV and LaTeX."""
    folder = out.with_name(f"{out.stem}_files")
    folder.mkdir(parents=True, exist_ok=True)
    shown = [sections.build(results, folder) for results in all_results if results.scores]
    overview = results_tables.overview(all_results)
    exported = [overview, *(table for section in shown for part in section.parts for table in part.tables)]
    texts = {table.name: {"csv": tables.to_csv(table), "tex": tables.to_latex(table)} for table in exported}
    for name, formats in texts.items():
        for suffix, text in formats.items():
            files.write_text(folder / f"{name}.{suffix}", text)
    files.write_text(out, _page(all_results, shown, overview, texts))


def _page(
    all_results: Sequence[Results], shown: Sequence[Section], overview: Table, texts: dict[str, dict[str, str]]
) -> str:
    title = all_results[0].definition.title if len(all_results) == 1 else "Self-Imitation Learning: results"
    claims = [(finding, section) for section in shown for finding in section.findings]
    not_run = [own for results in all_results if not results.scores for own in findings.findings(results)]
    body = web_page.render(
        "report.html",
        title=title,
        lead=_lead(all_results, [finding for finding, _ in claims] + not_run),
        claims=claims,
        not_run=not_run,
        sections=shown,
        overview=overview,
    )
    data = {
        "experiments": [
            {
                "id": section.id,
                "measure": "return",
                "agents": [{"name": s.name, "colour": s.css, "dashed": s.dashed} for s in section.agents],
                "panels": [panel.data for panel in section.panels],
            }
            for section in shown
            if section.panels
        ],
        "figures": [figure.data for section in shown for part in section.parts for figure in part.figures],
        "tables": texts,
    }
    contents = [("overview", "What holds"), *((section.id, section.title) for section in shown)]
    return web_page.render_page(title, body, data, web_page.read("report.js"), web_page.read("report.css"), contents)


def _lead(all_results: Sequence[Results], found: Sequence[findings.Finding]) -> str:
    cases = [results.steps(*case) for results in all_results for case in results.cases()]
    marks = [finding.mark for finding in found]
    claims = f"{marks.count(findings.SHOWN)} of {len(marks)} claims shown, " if marks else ""
    return (
        f"{claims}{sum(map(bool, cases))} of {len(cases)} planned runs made. What was shortened or not run is marked."
    )
