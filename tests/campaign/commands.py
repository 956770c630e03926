"""What workers run: the command line's own entry, and parts of the Python interface that read a run."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

SMALL = shlex.split(
    "--seeds 2 --num-envs 2 --num-steps 4 --network.hidden 2 --sil.batch-size 8 --sil.buffer-size 40 "
    "--sil.learning-starts 5 --sil.keep all --log-every 64"
)
"""Settings of runs that train in a moment."""
BASES = {
    "grid": ["train", "key-door-treasure"],
    "gymnasium": ["train", "gym:CartPole-v1", "--engine", "gymnasium"],
}
"""The runs that are attacked: one inside the compiled program, one with the Python loop."""
LENGTH = ["--steps", "256", "--checkpoint-seconds", "0", "--checkpoints-kept", "2"]
STEPS = (192, 256)
"""Where they have checkpoints."""


def sil() -> Callable[[list[str]], int]:
    """`sil`, with `metrics` and `policy` as further commands; what they need is imported first."""
    from self_imitation.cli.main import main
    from self_imitation.training import run  # noqa: F401 (so that it counts as start-up, not as a slow case)

    return lambda arguments: _read(*arguments) if arguments[0] in ("metrics", "policy") else main(arguments)


def _read(what: str, path: str) -> int:
    """The Python interface, with errors and warnings printed as the command line prints them."""
    from self_imitation.cli import terminal
    from self_imitation.errors import UsageError, one_line
    from self_imitation.training.run import load

    try:
        run = load(path, warn=terminal.say)
        terminal.say(f"{run!r}: {len(run.metrics())} rows") if what == "metrics" else run.policy()
    except UsageError as error:
        terminal.say(f"sil: {one_line(str(error))}", sys.stderr)
        return 2
    return 0


def train_bases(folder: Path, *names: str) -> None:
    """Train the base runs, or those that are named, in this process."""
    from self_imitation.cli.main import main

    for name in names or BASES:
        assert main([*BASES[name], *SMALL, *LENGTH, "--out", str(folder / name)]) == 0
