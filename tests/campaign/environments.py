"""Gymnasium environments that misbehave: each one trains, or ends in one line that names it; the run stays intact."""

from collections.abc import Callable, Iterator
from pathlib import Path

from campaign import commands
from campaign.context import Context
from campaign.outcomes import Case, DivergenceError, Tally
from campaign.worker import perform_all

STEPS, ROWS = 64, 8
"""Of each run; two seeds with a row every 16 steps."""
UNRELATED = {"DeletesTheRun", "DeletesCheckpoints", "DeletesMetrics", "ObservationHuge"}
"""Their errors are about files or losses; the environment is not known to be the cause."""
CHATTY = {"Prints", "PrintsMuch", "WarnsMuch", "ForksAProcess"}


def run(context: Context) -> Tally:
    from campaign.hostile import FAULTS

    tally = Tally()
    chosen = context.random("environments").sample(sorted(FAULTS), min(len(FAULTS), context.count(len(FAULTS))))
    for case, outcome in perform_all(
        generate(chosen), context.folder / "environments", None, training, context.over, context.jobs
    ):
        context.report(case, tally.add(case, outcome))
    return tally


def generate(names: list[str]) -> Iterator[Case]:
    for name in names:
        words = (
            "train",
            f"gym:campaign.hostile:{name}-v0",
            *commands.SMALL,
            "--steps",
            str(STEPS),
            "--log-every",
            "16",
        )
        named = "" if name in UNRELATED else f"{name}-v0"
        yield Case("environments", (*words, "--out", "../output/new"), about=name, names=named, chatty=name in CHATTY)


def training() -> Callable[[list[str]], int]:
    """`sil train`, followed by a look at what it left."""
    command = commands.sil()

    def train(arguments: list[str]) -> int:
        run = Path(arguments[-1]).resolve()
        status = command(arguments)
        _require_intact(run, status)
        return status

    return train


def _require_intact(run: Path, status: int) -> None:
    """All rows and the last checkpoint after success; otherwise a run that can be read, or nothing at all."""
    from self_imitation.errors import UsageError
    from self_imitation.storage import checkpoint
    from self_imitation.training.run import load

    try:
        if status == 0:
            rows, steps = load(run).metrics(), checkpoint.steps(run / "checkpoints")
            if len(rows) != ROWS or STEPS not in steps:
                raise DivergenceError(f"status 0 with {len(rows)} of {ROWS} rows and checkpoints at {steps}")
        if run.exists():
            load(run).policy()
    except UsageError:
        raise DivergenceError(f"status {status}, and the run can't be read") from None
