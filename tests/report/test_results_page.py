import json
import re
import sys

import pytest
import sample_results

from self_imitation.cli.main import main
from self_imitation.report import web_page


@pytest.fixture(scope="module")
def data(reported):
    text = (reported / "report.html").read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_figures_and_tables_are_files_beside_the_page(reported):
    names = {path.name for path in (reported / "report_files").iterdir()}
    figures = ("curves", "profiles", "improvement", "relative")
    tables = ("scores", "others", "differences", "aggregates", "summary", "human-normalised")
    assert {f"sample-{name}.{suffix}" for name in figures for suffix in ("png", "svg")} <= names
    assert {f"sample-{name}.{suffix}" for name in tables for suffix in ("csv", "tex")} <= names
    assert {"overview.csv", "overview.tex"} <= names


def test_the_page_links_the_files_that_exist(reported):
    links = re.findall(r'href="(report_files/[^"]*)"', (reported / "report.html").read_text())
    assert links
    assert all((reported / link).is_file() for link in links)


def test_links_to_files_of_the_results_directory_are_plain_text(reported):
    page = (reported / "report.html").read_text()
    assert 'in it, a file and a <a href="https://example.org">page</a>.' in page


def test_experiments_of_the_paper_without_results_are_listed_as_not_run(reported):
    page = (reported / "report.html").read_text()
    assert re.search(r"not run</span>\s*A2C\+SIL improves A2C on 35 of 49 Atari games", page)
    assert "49 Atari games (paper, table 2, figure 4 and appendix),0 of 147" in (
        reported / "report_files/overview.csv"
    ).read_text().replace('"', "")


def test_curves_of_the_page_are_those_of_the_results(data):
    (experiment,) = data["experiments"]
    assert len(experiment["panels"]) == 2, "the third task was not run"
    curve = experiment["panels"][0]["curves"][0]
    assert experiment["agents"][curve["agent"]]["name"] == "a2c"
    assert curve["steps"] == sample_results.STEPS.tolist()
    assert curve["seeds"][0][0] is None
    assert curve["n"][:2] == [2, 3]
    assert curve["mean"][-1] == 0.33333
    assert curve["low"][-1] < curve["mean"][-1] < curve["high"][-1]


def test_relative_gains_stand_beside_those_of_the_paper(data):
    bars = next(figure for figure in data["figures"] if figure["id"] == "sample-relative")
    paper, here = bars["series"]
    assert bars["names"] == [sample_results.FREEWAY, "Hero", "Venture"]
    assert paper["text"][0] == "+113 %", "(34 - 0) / (30 - 0)"
    assert here["text"][2] == "not run"
    assert here["values"][0] == pytest.approx(100 * (31 - 1 / 3) / 30, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such directory: 'nowhere'"),
        (["."], "'.' has no results: no experiment.toml in it or one level below"),
        ([".", "--out", "page.txt"], "out: 'page.txt' is not allowed; allowed: a file name that ends in .html"),
    ],
)
def test_mistakes_are_explained_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    assert capsys.readouterr().err == f"sil: {message}\n"


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["report", str(tmp_path)]) == 2
    assert "pip install 'self-imitation[report]'" in capsys.readouterr().err


def test_data_in_a_page_can_not_end_its_script():
    page = web_page.render_page("title", "", {"name": "</script><b>&\u2028"})
    assert r'{"name": "\u003c/script\u003e\u003cb\u003e\u0026\u2028"}' in page
