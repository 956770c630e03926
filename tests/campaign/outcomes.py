"""A case, what happened, and whether that is a failure. Failing cases are kept as files and run again by the tests."""

import base64
import hashlib
import json
import re
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAILURES = ("divergence", "traceback", "hang", "code execution", "touched outside", "unclear message")
CASES = Path(__file__).parent / "cases"
"""Inputs that failed once."""
KEPT = ("files", "flags")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL}
PROGRESS = re.compile(r"[\d,]+ of [\d,]+ episodes finished")
LONGEST_LINE = 2000


class DivergenceError(Exception):
    """Results are not what is promised; the message says how."""


@dataclass(frozen=True)
class Change:
    """One change to a file of a run, as data, so that a failing case can be kept.

    `do`: write, set, drop, seal, delete, link or folder; see `sandbox.apply`.
    """

    do: str
    file: str
    at: tuple[str | int, ...] = ()
    """Of `set` and `drop`: the place in a JSON document."""
    text: str = ""
    """Of `set`: JSON. Of `link`: its target. Of `folder`: the folder to copy."""
    content: bytes = b""
    """Of `write`."""


@dataclass(frozen=True)
class Case:
    kind: str
    command: tuple[str, ...]
    """Arguments of `sil`; {run}, {output} and {sandbox} become paths."""
    base: str = ""
    """The run that is copied to {run}; none if empty."""
    changes: tuple[Change, ...] = ()
    about: str = ""
    """What this case is, in a few words."""
    names: str = ""
    """If not empty, an error message must contain this."""
    chatty: bool = False
    """Whether its environment writes to the streams itself: then only lines that begin with "sil:" count."""


@dataclass(frozen=True)
class Outcome:
    """What a command did. `status` is None if it had to be killed, and negative if a signal ended it."""

    status: int | None
    stdout: str = ""
    stderr: str = ""
    traceback: str = ""
    """Of the exception that left the command, or of the place where it hung."""
    executed: bool = False
    touched: tuple[str, ...] = ()
    """Paths outside the run's directory that changed."""
    ended: bool = False
    """Whether its process ended with it, as by `os._exit`."""
    divergence: str = ""
    """How results differ from what is promised."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    kind: str
    signature: str
    """The same for the same defect."""
    detail: str


@dataclass
class Tally:
    """Results of one kind of attack."""

    cases: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    found: dict[str, tuple[Failure, Case]] = field(default_factory=dict)
    """The first case of each signature."""

    def add(self, case: Case, outcome: Outcome) -> Failure | None:
        self.cases += 1
        failure = judge(case, outcome)
        if failure is not None:
            self.failures[failure.kind] += 1
            self.found.setdefault(failure.signature, (failure, case))
        return failure


def judge(case: Case, outcome: Outcome) -> Failure | None:
    """None if the command did its work, or said in one clear line why not."""
    output = outcome.stdout + outcome.stderr
    if outcome.executed:
        return _failure("code execution", " ".join(case.command[:1]), output[-500:])
    if outcome.touched:
        return _failure("touched outside", " ".join(outcome.touched[:3]), ", ".join(outcome.touched))
    if outcome.status is None:
        return _failure("hang", _place(outcome.traceback), outcome.traceback)
    if outcome.traceback or "Traceback (most recent call last)" in output:
        text = outcome.traceback or output
        return _failure("traceback", _place(text), text[-3000:])
    if outcome.status in CRASHES:
        return _failure("traceback", signal.Signals(-outcome.status).name, output[-1000:])
    if outcome.divergence:
        return _failure("divergence", _plain(outcome.divergence), outcome.divergence)
    return _unclear(case, outcome)


def _unclear(case: Case, outcome: Outcome) -> Failure | None:
    output = outcome.stdout + outcome.stderr
    lines = [line for line in outcome.stderr.splitlines() if line.strip() and not PROGRESS.fullmatch(line)]
    if case.chatty:
        output, lines = "", [line for line in lines if re.match("sil:(?! warning:)", line)]
    if CONTROL.search(output):
        return _failure("unclear message", f"control characters ({_subject(case)})", repr(output[-500:]))
    if any(len(line) > LONGEST_LINE for line in lines):
        return _failure("unclear message", f"long line ({_subject(case)})", lines[-1][:300])
    if outcome.ended and outcome.status == 0:
        return _failure("unclear message", "the process ended with status 0", output[-500:])
    if outcome.status == 0:
        return _failure("unclear message", "with status 0: " + _plain(lines[0]), lines[0]) if lines else None
    if outcome.status not in (1, 2):
        return _failure("unclear message", f"status {outcome.status}", outcome.stderr[-500:])
    if len(lines) != 1 or not re.fullmatch(r"sil: \S.*", lines[0]):
        return _failure("unclear message", f"{len(lines)} lines ({_subject(case)})", outcome.stderr[-1000:])
    if case.names not in lines[0]:
        return _failure("unclear message", f"does not name {case.names}", lines[0])
    return None


def _subject(case: Case) -> str:
    return (case.about or case.kind).split()[0]


def _failure(kind: str, signature: str, detail: str) -> Failure:
    return Failure(kind, f"{kind}: {signature}"[:160], detail)


def _place(text: str) -> str:
    """The exception and the innermost function of the package in a traceback, or of any package."""
    frames = re.findall(r'File "([^"]*)", line \d+,? in (\S+)', text)
    if "most recent call first" in text:  # as faulthandler prints it
        frames = frames[::-1]
    own = [frame for frame in frames if "/self_imitation/" in frame[0]] or frames
    where = f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else "?"
    last = Path(frames[-1][0]).name if frames else "?"
    kinds = re.findall(r"(?m)^([A-Za-z_][\w.]*)(?::|$)", text)
    return f"{kinds[-1] if kinds else ''} in {where} ({last})"


def _plain(text: str) -> str:
    """Without what differs from case to case."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|/\S+", "_", text)
    return re.sub(r"\d+", "0", CONTROL.sub("?", text))[:80]


def keep(case: Case, failure: Failure) -> None:
    """Write a case that failed to `cases/`, one file per signature. Kinds without random inputs need no copies."""
    if case.kind not in KEPT:
        return
    slug = re.sub(r"[^a-z0-9]+", "-", failure.signature.lower()).strip("-")[:60]
    digest = hashlib.sha256(failure.signature.encode()).hexdigest()[:6]
    path = CASES / f"{case.kind}-{slug}-{digest}.json"
    if not path.exists():
        path.write_text(json.dumps({"failed_with": failure.signature, **to_json(case)}, indent=1) + "\n")


def kept() -> dict[str, Case]:
    """Cases by name."""
    return {path.stem: from_json(json.loads(path.read_text())) for path in sorted(CASES.glob("*.json"))}


def to_json(case: Case) -> dict[str, Any]:
    changes = [
        {name: value for name, value in {**vars(change), "content": _encode(change.content)}.items() if value}
        for change in case.changes
    ]
    return {name: value for name, value in {**vars(case), "changes": changes}.items() if value}


def from_json(data: dict[str, Any]) -> Case:
    changes = [
        Change(**{**change, "at": tuple(change.get("at", ())), "content": base64.b64decode(change.get("content", ""))})
        for change in data.get("changes", [])
    ]
    own = {name: value for name, value in data.items() if name != "failed_with"}
    return Case(**{**own, "command": tuple(data["command"]), "changes": tuple(changes)})


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()
