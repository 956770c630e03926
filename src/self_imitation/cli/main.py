"""The command `sil`. Each command imports what it needs, so that help comes at once."""

import importlib
import io
import os
import sys
from collections.abc import Sequence

from self_imitation.errors import DeviceMemoryError, FaultyEnvironmentError, NonFiniteError, UsageError, unknown_name

COMMANDS = {
    "train": ("train:train", "train an agent; with nothing given, A2C+SIL on Key-Door-Treasure with 4 seeds"),
    "resume": ("train:resume", "go on with a run where it stopped"),
    "evaluate": ("inspect:evaluate", "play fresh episodes with every seed's policy and tell how well it did"),
    "play": ("inspect:play", "watch an episode: a video or an animated GIF, and text in the terminal"),
    "plot": ("inspect:plot", "draw learning curves of one or more runs"),
    "list": ("inspect:list_names", "the environments and agents, one line each"),
    "reproduce": ("reproduce:reproduce", "a figure of the paper: train all that it shows, draw it, give the numbers"),
    "bench": ("bench:bench", "how fast the memory, the training and the start are on this machine"),
}

HELP = """\
usage: sil COMMAND [OPTIONS]

Self-Imitation Learning: an agent imitates its own past decisions where they turned out better than it expected.

commands:
{commands}

options:
  -h, --help     this text; sil COMMAND --help tells about a command
  --version      the version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a screen that lacks an arrow shows a question mark
    try:
        return _dispatch(arguments)
    except UsageError as error:
        print(f"sil: {error}", file=sys.stderr)
        return 2
    except (NonFiniteError, FaultyEnvironmentError, DeviceMemoryError) as error:
        print(f"sil: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sil: interrupted", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(130)  # what JAX was tracing or compiling may crash an orderly end
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away: nothing to tell
        return 141


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        rows = [f"  {name:{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
        print(HELP.format(commands="\n".join(rows)), end="")
        return 0
    if arguments[0] == "--version":
        import self_imitation

        print(f"self-imitation {self_imitation.__version__}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    module, function = COMMANDS[command][0].split(":")
    return getattr(importlib.import_module(f"self_imitation.cli.{module}"), function)(arguments[1:])
