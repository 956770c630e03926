"""Messages stay one line of a sensible length, whatever they are about."""

import pytest

from self_imitation.cli.main import main
from self_imitation.errors import bad_value, one_line, shorten, unknown_name


class Hostile:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a", "'a'"), (10**5000, "<int>"), (Hostile(), "<Hostile>"), ("x\ny", r"'x\ny'")],
    ids=["text", "huge", "hostile", "lines"],
)
def test_values_are_written_as_python_writes_them(value, shown):
    assert shorten(value) == shown


def test_long_values_are_cut_in_the_middle():
    assert shorten("a" * 50 + "b" * 50, 60) == "'" + "a" * 39 + " ... " + "b" * 14 + "'"
    assert len(str(bad_value("steps", "9" * 10_000, "allowed: less"))) < 300
    assert len(str(unknown_name("env", "x" * 100_000, ["a", "b"]))) < 400


def test_a_message_is_one_line():
    assert one_line("settings unknown: two\nlines") == r"settings unknown: two\nlines"
    assert len(one_line("x" * 10_000)) <= 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--sil.vf-coef", "1" + "0" * 400],
        ["train", "--optimiser.learning-rate", "1e39"],
        ["train", "--seeds", "9" * 5000],
        ["train", "x" * 70_000],
        ["two\nlines"],
    ],
    ids=["digits", "beyond float32", "many digits", "long", "lines"],
)
def test_bad_values_of_any_length_give_one_line(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert len(error) < 1100
