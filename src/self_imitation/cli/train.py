"""`sil train` and `sil resume`."""

import os
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from self_imitation import config as configuration
from self_imitation import devices
from self_imitation.cli.parse import parse
from self_imitation.config import TrainConfig
from self_imitation.runs import directory
from self_imitation.validation import refuse_unread, validate

if TYPE_CHECKING:
    from self_imitation.cli.progress import Bar, Lines
    from self_imitation.runs.run import Run
    from self_imitation.runs.training import Listener

T = TypeVar("T")

CLOSED_PIPE = 128 + signal.SIGPIPE


@dataclass(frozen=True)
class ResumeArguments:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    steps: int | None = None
    """New total of environment steps of each seed. None: what the run was begun with."""


def read_config(arguments: Sequence[str]) -> TrainConfig:
    """The flags, over the preset's and the environment's defaults.

    Those depend on the flags themselves, so the line is read twice: once to learn environment and preset, then with
    the defaults that they bring, which is also what the help shows.
    """
    without_help = [argument for argument in arguments if argument not in ("-h", "--help")]
    named = parse(TrainConfig, "train", without_help)
    defaults = configuration.resolve(named.env, named.preset, {"agent": named.agent})
    config = parse(TrainConfig, "train", arguments, defaults, train.__doc__ or "")
    config = validate(config)
    refuse_unread(config, defaults)
    return config


def train(arguments: Sequence[str]) -> int:
    """Train an agent. Defaults are those of the environment and the preset that are named on the same line."""
    config = read_config(arguments)
    from self_imitation.environments.host import engines

    config = engines.settle(config)
    devices.prepare(config)
    from self_imitation.runs import run as runs

    return _watch(lambda listener, stop: runs.start(config, listener, stop))


def resume(arguments: Sequence[str]) -> int:
    """Go on with a run where it stopped."""
    given = parse(ResumeArguments, "resume", arguments, summary=resume.__doc__ or "")
    devices.prepare(directory.open_run(given.run).config())
    from self_imitation.runs import run as runs

    return _watch(lambda listener, stop: runs.go_on(given.run, given.steps, listener, stop))


def _watch(go: Callable[["Listener", Callable[[], bool]], tuple["Run", bool]]) -> int:
    """Train with progress shown, then say what is where."""
    from self_imitation.cli import progress

    (run, finished), status = heeding_signals(go, progress.listener)
    if finished:
        print(f"Run: {run.path}\nCurve: {run.directory.curve}\nNext: sil play {shlex.quote(str(run.path))}")
        return 0
    if status != CLOSED_PIPE:
        print(f"Stopped; all is saved. Go on with: sil resume {shlex.quote(str(run.path))}")
    return status


def heeding_signals(go: Callable[..., T], make_listener: Callable[[], "Bar | Lines"]) -> tuple[T, int]:
    """What `go(listener, stop)` gives, and the exit status of what stopped it, if anything did.

    The first Ctrl-C (or SIGTERM) asks for a checkpoint and an orderly end, as does a reader that goes away; a second
    Ctrl-C ends at once, which harms nothing: a checkpoint is there whole or not at all.
    """
    received: list[int] = []
    listener = make_listener()

    def note(number: int, _: FrameType | None) -> None:
        if received:
            listener.close()  # the terminal gets its cursor back
            os.write(2, b"sil: interrupted\n")
            os._exit(128 + number)
        received.append(number)
        listener.message("Stopping: a checkpoint is saved first. Once more ends at once.")

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = go(listener, lambda: bool(received) or listener.gone)
    finally:
        listener.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        return result, 128 + received[0]
    return result, CLOSED_PIPE if listener.gone else 0
