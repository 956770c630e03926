"""`sil plot` and `self_imitation.plot`: which runs they find, and what they write."""

import csv
import json

import jaxtyping
import pytest
from helpers import small_config
from matplotlib.figure import Figure

import self_imitation
from self_imitation.cli.main import main
from self_imitation.errors import UsageError
from self_imitation.storage import config_file

COLUMNS = ("seed", "step", "episodes", "return_mean", "return_best", "length_mean", "steps_per_second", "seconds")


def write_run(folder, agent="a2c", extra=(), **settings):
    """Two rows of each seed; return_mean is 10 * seed + row, return_best twice that."""
    folder.mkdir(parents=True)
    config = small_config(folder, agent=agent, **settings)
    (folder / "config.json").write_text(json.dumps(config_file.to_json(config)))
    lines = [[*COLUMNS, *extra]]
    for number in (1, 2):
        for seed in config.seed_numbers:
            value = 10 * seed + number
            lines.append([seed, 400 * number, 8 * number, value, 2 * value, 50, 1000, number, *[0.5 for _ in extra]])
    with open(folder / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows(lines)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two runs with the same settings, and one with self-imitation."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs/a", seed=0)
    write_run(tmp_path / "runs/more/b", seed=2)
    write_run(tmp_path / "runs/sil", agent="a2c+sil", extra=("sil_imitated",))
    return tmp_path


def plot(capsys, *arguments):
    status = main(["plot", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_all_runs_below_a_directory_are_plotted(capsys, folder):
    assert plot(capsys, "runs", "--out", "x.svg", "--csv", "x.csv", "--latex", "x.tex") == (0, "Curves: x.svg\n", "")
    drawing = (folder / "x.svg").read_text()
    assert "<!-- a2c (4 seeds) -->" in drawing
    assert "<!-- a2c+sil (2 seeds) -->" in drawing
    first, second = rows("x.csv")
    assert (first["env"], first["agent"], first["step"], first["n"]) == ("key-door-treasure", "a2c", "800", "4")
    assert float(first["return_mean"]) == 17.0
    # Student's interval of 2, 12, 22 and 32: 3.1824 standard errors of 6.455
    assert float(first["return_mean_low"]) == pytest.approx(17 - 20.543, abs=0.01)
    assert float(first["return_mean_high"]) == pytest.approx(17 + 20.543, abs=0.01)
    assert second["agent"] == "a2c+sil"
    assert "key-door-treasure & a2c & 800 & 17.00 ($-$3.54 to 37.54) & 4 \\\\" in (folder / "x.tex").read_text()


def test_a_run_that_is_named_twice_counts_once(capsys, folder):
    assert plot(capsys, "runs/a", "runs", "runs/a/", "--csv", "x.csv")[0] == 0
    assert [row["n"] for row in rows("x.csv")] == ["4", "2"]


def test_any_column_over_any_axis(capsys, folder):
    flags = ["--y", "return_best", "--x", "episodes", "--smooth", 2, "--show-seeds"]
    assert plot(capsys, "runs/a", *flags, "--csv", "x.csv", "--out", "x.svg")[0] == 0
    (row,) = rows("x.csv")
    assert (row["episodes"], float(row["return_best"])) == ("16", 2 * 6.5)
    drawing = (folder / "x.svg").read_text()
    assert "<!-- return_best, mean over seeds -->" in drawing
    assert "<!-- episodes per seed -->" in drawing


def test_runs_without_the_column_are_left_out_and_named(capsys, folder):
    status, out, _ = plot(capsys, "runs", "--y", "sil_imitated", "--csv", "x.csv")
    assert status == 0
    left_out, more, *_ = out.splitlines()
    assert left_out.endswith("runs/a' has no column 'sil_imitated'")
    assert more.endswith("runs/more/b' has no column 'sil_imitated'")
    assert [(row["agent"], row["sil_imitated"]) for row in rows("x.csv")] == [("a2c+sil", "0.5")]


def test_unusable_runs_below_a_directory_are_left_out_and_named(capsys, folder):
    (folder / "runs/a/metrics.csv").unlink()
    (folder / "runs/more/b/config.json").write_text("{}")
    status, out, _ = plot(capsys, "runs")
    assert status == 0
    assert "Left out: 'runs/a' has no metrics yet\n" in out
    assert "b/config.json is not the config of a run" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("runs --y eval_return_mean", "y: no run has 'eval_return_mean', which is a result of evaluations"),
        ("runs --y return", "y: 'return' is unknown; did you mean 'return_mean'? Known: episodes, length_mean, "),
        ("runs --x hours", "x: 'hours' is not allowed; allowed: 'step', 'seconds', 'episodes'"),
        ("runs --smooth 0", "smooth: 0 is not allowed; allowed: an integer >= 1"),
        ("runs --csv no/x.csv", "csv: 'no/x.csv' can't be written: No such file or directory"),
        ("runs --latex .", "latex: '.' can't be written: Is a directory"),
        ("empty", "no run (no config.json) in 'empty' or below it"),
        ("", "runs: none given; allowed: one or more run directories"),
    ],
)
def test_bad_input_is_one_line(capsys, folder, arguments, message):
    (folder / "empty").mkdir()
    status, _, err = plot(capsys, *arguments.split())
    assert status == 2
    assert message in err
    assert err.count("\n") == 1


def test_from_python_it_returns_the_figure(folder):
    figure = self_imitation.plot("runs", self_imitation.load(folder / "runs/a"), y="return_best", out="x.png")
    assert isinstance(figure, Figure)
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a2c (4 seeds)", "a2c+sil (2 seeds)"]
    assert (folder / "x.png").stat().st_size > 1000


@pytest.mark.parametrize(("name", "value"), [("x", "hours"), ("smooth", 0), ("out", "x.doc")])
def test_from_python_bad_values_are_named(folder, monkeypatch, name, value):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users
    with pytest.raises(UsageError, match=f"^{name}: .* is not allowed; allowed: "):
        self_imitation.plot("runs", **{name: value})
