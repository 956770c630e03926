"""Run the campaign: python -m campaign --minutes 30 --only files,flags --seed 1 --out table.md"""

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from campaign import commands, outcomes
from campaign.context import Context
from campaign.outcomes import FAILURES, Tally

KINDS = {"files": 25, "flags": 15, "environments": 12, "kills": 25, "crash_states": 7, "limits": 8, "races": 8}
"""Each kind with its share of the time in percent; what one does not use, later ones get."""
FULL_MINUTES = 30.0


def main() -> int:
    given = parser().parse_args()
    kinds = given.only.split(",") if given.only else list(KINDS)
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    os.environ.setdefault("SELF_IMITATION_CACHE", str(Path(tempfile.gettempdir()) / f"campaign-cache-{os.getuid()}"))
    os.environ.setdefault("MPLCONFIGDIR", str(folder / "matplotlib"))
    tallies = {}
    try:
        bases = folder / "bases"
        bases.mkdir()
        context = Context(folder, bases, given.seed, given.minutes / FULL_MINUTES, given.jobs)
        context.apart(commands.train_bases, bases)
        end = time.monotonic() + 60 * given.minutes
        for i, kind in enumerate(kinds):
            share = KINDS[kind] / sum(KINDS[other] for other in kinds[i:])
            tallies[kind] = _run(kind, context, share * (end - time.monotonic()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = table(tallies)
    print(text)
    if given.out:
        Path(given.out).write_text(text)
    return int(any(tally.failures for tally in tallies.values()))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, help="duration; also scales the number of cases")
    parser.add_argument("--only", default="", help=f"some of {','.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=0, help="of the random cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--out", help="also write the table to this Markdown file")
    parser.add_argument("--no-keep", action="store_true", help="don't write failing cases to tests/campaign/cases")
    return parser


def _run(kind: str, context: Context, seconds: float) -> Tally:
    begun = time.monotonic()
    context.deadline = begun + seconds
    print(f"{kind}: at most {seconds:.0f} s", flush=True)
    tally = importlib.import_module(f"campaign.{kind}").run(context)
    print(f"{kind}: {tally.cases} cases, {sum(tally.failures.values())} failures, {time.monotonic() - begun:.0f} s")
    if "--no-keep" not in sys.argv:
        for failure, case in tally.found.values():
            outcomes.keep(case, failure)
    return tally


def table(tallies: dict[str, Tally]) -> str:
    """Markdown: cases and failures of each kind, and what could not be tested here."""
    header = ["attack", "cases", *FAILURES]
    rows = [
        [kind.replace("_", " "), tally.cases, *(tally.failures[f] for f in FAILURES)] for kind, tally in tallies.items()
    ]
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, ["---"] * len(header), *rows)]
    notes = [f"- {kind.replace('_', ' ')}: {note}" for kind, tally in tallies.items() for note in tally.notes]
    return "\n".join(lines + ([""] if notes else []) + notes) + "\n"


if __name__ == "__main__":
    sys.exit(main())
