"""Text from outside never controls the terminal."""

import io
import warnings

import pytest
from rich.console import Console

from self_imitation.cli import progress, terminal
from self_imitation.cli.main import main
from self_imitation.errors import printable

BELL = "\x1b]0;title\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a \x1b[2J\x07b", r"a \x1b[2J\x07b"),
        ("\x9b31m \u202e \ud800", r"\x9b31m \u202e \ud800"),
        ("two\nlines\tα – ü", "two\nlines\tα – ü"),
    ],
)
def test_control_characters_are_shown_as_escapes(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize("arguments", [["evaluate", BELL], ["train", f"gym:{BELL}"], ["train", BELL], [BELL]])
def test_errors_are_plain_text(arguments, capsys):
    assert main(arguments) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_messages_of_a_run_are_plain_text(capsys):
    screen = io.StringIO()
    progress.Bar(Console(file=screen, force_terminal=True, color_system=None)).message(f"trained on {BELL}")
    progress.Lines().message(f"trained on {BELL}")
    assert r"\x1b]0;title" in screen.getvalue()
    assert "\x1b" not in capsys.readouterr().out


def test_warnings_are_one_plain_line():
    with terminal.plain_warnings():
        shown = warnings.formatwarning(f"\x1b[33mWARN: {BELL}\nx\x1b[0m", UserWarning, "file.py", 3)
    assert shown == "sil: warning: WARN: \\x1b]0;title\\x07 x\n"


def test_a_stream_that_an_environment_closed_is_left_alone():
    closed = io.StringIO()
    closed.close()
    terminal.say("hello", closed)


def test_a_stream_that_an_environment_replaced_gets_the_text():
    class Poor:
        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    stream = Poor()
    terminal.say("hello", stream)
    assert stream.text == "hello\n"
