"""The command `sil`. Each command imports what it needs, so that help appears at once."""

import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import self_imitation
from self_imitation.cli import terminal
from self_imitation.errors import (
    DeviceMemoryError,
    FaultyEnvironmentError,
    NonFiniteError,
    RunsFailedError,
    UsageError,
    one_line,
    unknown_name,
)

COMMANDS = {
    "train": ("train:train", "train an agent; by default A2C+SIL on Key-Door-Treasure with 4 seeds"),
    "resume": ("train:resume", "resume a run"),
    "evaluate": ("runs:evaluate", "evaluate every seed's policy in fresh episodes and report the results"),
    "play": ("runs:play", "record an episode as a video or an animated GIF, with a summary as text"),
    "plot": ("plot:plot", "plot the learning curves of one or more runs"),
    "export": ("export:export", "write a policy as an ONNX model"),
    "watch": ("watch:watch", "show a run in the browser, also while it trains: what it remembers, imitates and does"),
    "list": ("listing:list_names", "list environments, learners and exploration bonuses"),
    "reproduce": ("reproduce:reproduce", "reproduce a figure of the paper: train, plot, and write a results page"),
    "tune": ("tune:tune", "search for good settings with Ray Tune, and write the best as a preset"),
    "status": ("status:status", "show how far the runs of an experiment are"),
    "report": ("report:report", "write a web page with the curves and tables of results"),
    "bench": ("main:bench", "measure speed on this machine (needs a source checkout)"),
}

HELP = """\
usage: sil COMMAND [OPTIONS]

Self-Imitation Learning: an agent imitates its own past decisions where they turned out better than expected.

commands:
{commands}

options:
  -h, --help     show this help; sil COMMAND --help describes a command
  --version      show the version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    _open_missing_streams()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that can't show an arrow shows a question mark
    try:
        with terminal.plain_warnings():
            return _dispatch(arguments)
    except UsageError as error:
        return _fail(error, status=2)
    except (NonFiniteError, FaultyEnvironmentError, DeviceMemoryError, RunsFailedError) as error:
        return _fail(error)
    except KeyboardInterrupt:
        print("sil: interrupted", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(130)  # JAX may crash in an orderly exit while it traces or compiles
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains again as it exits
        return 141
    except OSError as error:
        return _fail(error)


def _fail(error: Exception, status: int = 1) -> int:
    """Print an error as one line and return the exit status."""
    terminal.say(f"sil: {one_line(str(error))}", sys.stderr)
    return status


def _open_missing_streams() -> None:
    """Give closed standard streams the null device. Otherwise the next file to be opened takes their number, and what
    libraries print ends up in it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number: this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 (open until the process exits)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        rows = [f"  {name:{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
        print(HELP.format(commands="\n".join(rows)), end="")
        return 0
    if arguments[0] == "--version":
        print(f"self-imitation {self_imitation.__version__}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working directory was deleted; change to one that exists") from None
    module, function = COMMANDS[command][0].split(":")
    return getattr(importlib.import_module(f"self_imitation.cli.{module}"), function)(arguments[1:])


def bench(arguments: Sequence[str]) -> int:
    """Run the benchmarks of the source checkout: the current directory, or that of an editable install."""
    installed = Path(self_imitation.__file__).resolve().parents[2]
    checkouts = [root for root in (Path.cwd(), installed) if _is_checkout(root)]
    if not checkouts:
        raise UsageError("benchmarks come with the source checkout, not with the installed package: run this there")
    sys.path.insert(0, str(checkouts[0]))
    return importlib.import_module("benchmarks.command").main(arguments)


def _is_checkout(root: Path) -> bool:
    return (root / "benchmarks" / "command.py").is_file() and (root / "src" / "self_imitation").is_dir()
