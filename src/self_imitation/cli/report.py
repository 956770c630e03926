"""`sil report`."""

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from self_imitation.cli import terminal
from self_imitation.cli.parse import parse
from self_imitation.settings import setting
from self_imitation.storage import files

PAGE = (lambda v: v is None or Path(v).suffix.lower() in (".html", ".htm"), "a file name that ends in .html")


@dataclass(frozen=True)
class ReportArguments:
    """Write a web page with the curves, tables and claims of results, which opens offline in any browser."""

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR")]
    """Results of an experiment, or a directory with several of them."""
    out: str | None = setting(None, PAGE)
    """File of the page. Figures (PNG, SVG) and tables (CSV, LaTeX) go to a folder beside it. None: DIR/report.html."""
    open: bool = False
    """Open the page in the browser."""


def report(arguments: Sequence[str]) -> int:
    given = parse(ReportArguments, "report", arguments)
    from self_imitation.report import results_page, web_page

    web_page.require_packages()
    files.absolute(given.directory)  # refuses what is not a path
    all_results = results_page.find(Path(given.directory))
    out = Path(given.out) if given.out else Path(given.directory) / results_page.FILE
    files.require_writable(out, "out", make_parents=True)
    with files.explain_failure(out):
        results_page.write(all_results, out)
    terminal.say(f"Page: {out}\nFigures and tables: {out.with_name(out.stem + '_files')}")
    if given.open:
        webbrowser.open(out.resolve().as_uri())
    return 0
