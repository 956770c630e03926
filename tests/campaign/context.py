"""What every kind of attack is given: directories, random numbers, and how much time it has."""

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from campaign.outcomes import Case, Failure


@dataclass
class Context:
    folder: Path
    """For temporary files."""
    bases: Path
    """The runs that are attacked, by name."""
    seed: int = 0
    scale: float = 1.0
    """Share of the full campaign's cases."""
    jobs: int = 2
    deadline: float = float("inf")
    """Of the present kind, in the seconds of `time.monotonic`."""
    verbose: bool = True
    seen: set[str] = field(default_factory=set)

    def random(self, kind: str) -> random.Random:
        return random.Random(f"{self.seed} {kind}")

    def count(self, full: int) -> int:
        return max(1, round(full * self.scale))

    def over(self) -> bool:
        return time.monotonic() > self.deadline

    def apart(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function in a process of its own, so that this one needs no JAX."""
        process = multiprocessing.get_context("spawn").Process(target=_quietly, args=(function, *arguments))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"{function.__name__} ended with status {process.exitcode}")

    def report(self, case: Case, failure: Failure | None) -> None:
        """Print the first failure of each signature."""
        if failure is not None and failure.signature not in self.seen:
            self.seen.add(failure.signature)
            if self.verbose:
                command = " ".join(case.command)[:120].encode("unicode_escape").decode()
                print(f"{case.kind}: {failure.signature}\n    sil {command}  ({case.about[:100]!r})", flush=True)


def _quietly(function: Callable[..., None], *arguments: object) -> None:
    """Without what it prints."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    function(*arguments)
