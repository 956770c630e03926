"""SIGKILL at random moments, resumed until the end, compared with a run that was never interrupted."""

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from campaign import processes
from campaign.context import Context
from campaign.outcomes import Case, Outcome, Tally
from campaign.processes import EXACT, SYSTEMS, difference

FULL = 100
"""Kills of the full campaign."""
KILLS_PER_RUN = 7
ROWS = 120
AT_START = 0.2
"""Share of kills while the process starts; the others come after its first row."""


def run(context: Context) -> Tally:
    tally, random_, folder = Tally(), context.random("kills"), context.folder / "kills"
    folder.mkdir()
    kills = context.count(FULL)
    names = [list(SYSTEMS)[i % len(SYSTEMS)] for i in range(-(-kills // KILLS_PER_RUN))]
    with ThreadPoolExecutor(context.jobs) as threads:
        whole = dict(zip(SYSTEMS, threads.map(lambda name: _whole(name, folder), SYSTEMS), strict=True))
        for name, outcome in whole.items():
            if outcome.status != 0:
                tally.add(_case(name, "never interrupted"), outcome)
        numbered = [(i, name, random_.randrange(2**32)) for i, name in enumerate(names) if whole[name].status == 0]
        chains = [threads.submit(_chain, folder / str(i), name, seed, context) for i, name, seed in numbered]
        for (_, name, seed), chain in zip(numbered, chains, strict=True):
            outcomes = list(chain.result())
            for outcome in outcomes:
                context.report(_case(name, f"seed {seed}"), tally.add(_case(name, f"seed {seed}"), outcome))
    return tally


def _case(name: str, about: str) -> Case:
    return Case("kills", tuple(processes.train_words(name, ROWS)), about=f"{name}: {about}")


def _whole(name: str, folder: Path) -> Outcome:
    return processes.run(*processes.train_words(name, ROWS), "--out", folder / f"whole {name}")


def _chain(path: Path, name: str, seed: int, context: Context) -> list[Outcome]:
    """Train a run with kills, then to its end. One outcome per kill; the last one says whether the result is right."""
    random_, found = random.Random(seed), []
    command = [*processes.train_words(name, ROWS), "--out", path]
    saved = -1
    for _ in range(KILLS_PER_RUN):
        if context.over():
            return found
        process = processes.start(*command)
        _kill_at_random(process, random_)
        outcome = processes.finish(process)
        ended = outcome.status != -signal.SIGKILL
        outcome = processes.must_succeed(outcome) if ended else replace(outcome, status=0, stderr="")
        latest = _latest(path)
        if latest < saved:
            outcome = replace(outcome, divergence=f"the checkpoint at step {saved} was lost")
        saved = latest
        found.append(outcome)
        if ended:
            break
        command = ["resume", path] if (path / "config.json").exists() else command
    outcome = processes.must_succeed(processes.run(*command))
    if outcome.status == 0:
        whole = path.with_name(f"whole {name}")
        outcome = replace(outcome, divergence=difference(whole, path, exact=name in EXACT))
    return [*found[:-1], found[-1] if found[-1].divergence else outcome]


def _kill_at_random(process, random_: random.Random) -> None:
    if random_.random() < AT_START:
        time.sleep(random_.uniform(0, 4))
    elif processes.wait_for_row(process):
        time.sleep(random_.uniform(0, 0.5))
    processes.end(process)


def _latest(path: Path) -> int:
    folder = path / "checkpoints"
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)
