"""The campaign in short: inputs that failed once, a few random ones, and that it notices what it looks for."""

import os
import random
import signal
from pathlib import Path

import pytest
from campaign import commands, files, flags, outcomes
from campaign.outcomes import Case, Outcome, judge
from campaign.worker import perform

KEPT = {name: case for name, case in outcomes.kept().items() if case.base in ("", "grid")}
CHEAP = ("metrics", "policy")
"""Commands that take milliseconds."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    commands.train_bases(folder, "grid")
    return folder


def failure(case, folder, bases):
    command = flags.validating() if case.kind == "flags" else commands.sil()
    return judge(case, perform(case, folder / "sandbox", bases, command))


@pytest.mark.parametrize("name", KEPT)
def test_what_failed_once_does_not_fail_again(tmp_path, bases, name):
    assert failure(KEPT[name], tmp_path, bases) is None


def test_damaged_files_give_one_clear_line(tmp_path, bases):
    cases = [case for case in files.generate(random.Random(0), bases, 200) if case.command[0] in CHEAP]
    for case in cases:
        assert failure(case, tmp_path, bases) is None, case


def test_hostile_flags_give_one_clear_line(tmp_path, bases):
    for case in flags.generate(random.Random(0), 40):
        assert failure(case, tmp_path, bases) is None, case


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (Outcome(0, "Curves: curves.png\n"), None),
        (Outcome(2, stderr="sil: steps: 0 is not allowed\n"), None),
        (Outcome(2, stderr="sil: steps\nsil: 0 is not allowed\n"), "unclear message"),
        (Outcome(2, stderr="sil: \x1b[31mred\n"), "unclear message"),
        (Outcome(3), "unclear message"),
        (Outcome(0, ended=True), "unclear message"),
        (Outcome(1, traceback="Traceback (most recent call last):\nKeyError: 'step'\n"), "traceback"),
        (Outcome(-signal.SIGSEGV), "traceback"),
        (Outcome(None), "hang"),
        (Outcome(0, divergence="a cell differs"), "divergence"),
    ],
)
def test_outcomes_are_judged(found, kind):
    judged = judge(Case("files", ("plot",), about="metrics.csv"), found)
    assert (judged and judged.kind) == kind


def imports_a_module(_):
    import evil  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (lambda _: os.remove("../outside/notes.txt"), "touched outside"),
        (lambda _: Path("curves.png").touch(), "touched outside"),
        (lambda _: Path("../run/notes.txt").touch(), None),
        (imports_a_module, "code execution"),
        (lambda _: 1 / 0, "traceback"),
    ],
)
def test_a_sandbox_shows_what_a_command_did(tmp_path, bases, monkeypatch, command, kind):
    monkeypatch.syspath_prepend(tmp_path / "sandbox" / "cwd")
    found = perform(Case("files", (), "grid"), tmp_path / "sandbox", bases, lambda words: command(words) or 0)
    judged = judge(Case("files", ("plot",)), found)
    assert (judged and judged.kind) == kind


def test_kept_cases_are_read_as_they_were_written():
    cases = list(flags.generate(random.Random(1), 20))
    assert [outcomes.from_json(outcomes.to_json(case)) for case in cases] == cases
