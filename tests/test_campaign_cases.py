"""The campaign in short: inputs that failed once, a few random ones, and that it notices what it looks for."""

import os
import random
import re
import shutil
import signal
from pathlib import Path

import pytest
from campaign import commands, files, flags, outcomes, sandbox
from campaign.outcomes import Case, Change, Outcome, judge
from campaign.processes import difference
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
    cases = [case for case in files.generate(random.Random(0), bases, 100) if case.command[0] in CHEAP]
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


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change("delete", "notes.txt"), ""),
        (Change("delete", f"checkpoints/{commands.STEPS[-1]}"), "last checkpoint at [192], not [256]"),
        (Change("write", ".partial-config.json"), "half-written files are left: .partial-config.json"),
        (Change("write", "metrics.csv", content=b"seed,step\n0,64\n"), "metrics.csv has 1 rows"),
    ],
)
def test_runs_are_compared(tmp_path, bases, change, text):
    other = tmp_path / "other"
    shutil.copytree(bases / "grid", other)
    sandbox.apply(change, other)
    assert difference(bases / "grid", other)[: len(text) or None] == text


def test_one_bit_of_a_checkpoint_is_a_difference(tmp_path, bases):
    other = tmp_path / "other"
    shutil.copytree(bases / "grid", other)
    file = other / "checkpoints" / str(commands.STEPS[-1]) / "state.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert re.fullmatch("array .* differs", difference(bases / "grid", other))


def test_kept_cases_are_read_as_they_were_written():
    cases = list(flags.generate(random.Random(1), 20))
    assert [outcomes.from_json(outcomes.to_json(case)) for case in cases] == cases
