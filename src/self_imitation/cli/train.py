"""`sil train` and `sil resume`."""

import dataclasses
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from self_imitation import config as configuration
from self_imitation import registry
from self_imitation.cli import terminal
from self_imitation.cli.parse import parse
from self_imitation.config import TrainConfig
from self_imitation.registry import SELF_IMITATION
from self_imitation.settings import flatten
from self_imitation.storage import run_directory

if TYPE_CHECKING:
    from self_imitation.cli.progress import Lines
    from self_imitation.training.loop import Listener
    from self_imitation.training.run import Run

T = TypeVar("T")

CLOSED_PIPE = 128 + signal.SIGPIPE

TRAIN_HELP = """\
Train an agent. Defaults depend on the environment, agent and preset.

Shown: the settings of {agent}. Others: sil train --agent {other} --help
"""


@dataclass(frozen=True)
class ResumeArguments:
    """Resume a run."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    steps: int | None = None
    """New total of environment steps per seed. None: as configured."""
    trust: bool = False
    """Import the module that an environment such as gym:my_module:MyEnv-v0 names, which runs its code. Without this, a
    terminal asks and anything else refuses."""


def read_config(arguments: Sequence[str]) -> TrainConfig:
    """The settings of a run: the flags over the defaults of the environment, agent and preset that they name.

    Parses twice: first to learn those three, then with their defaults, which the help also shows.
    """
    without_help = [argument for argument in arguments if argument not in ("-h", "--help")]
    untouched = {name: entry.component.Config() for name, entry in registry.components().items()}
    named = parse(_arguments_type(untouched), "train", without_help)
    defaults = configuration.resolve(named.env, named.preset, {"agent": named.agent})
    if len(without_help) < len(arguments):
        _print_help(defaults)
    components = {**untouched, **defaults.components}
    kind = _arguments_type(components)
    given = parse(kind, "train", arguments, kind(**_fields(defaults)))
    own = {name: getattr(given, name) for name in defaults.components}
    config = TrainConfig(**{**_fields(given), "components": own})
    for name in components.keys() - own.keys():
        before, after = flatten(components[name]), flatten(getattr(given, name))
        changes = {f"{name}.{field}": value for field, value in after.items() if value != before[field]}
        configuration.override(config, changes)  # refuses them: the agent has no such component
    config = configuration.validate(config)
    configuration.refuse_unused(config, defaults)
    return config


def _print_help(config: TrainConfig) -> None:
    """Print the flags that this agent uses, with their defaults, and exit."""
    hidden = () if config.parts.self_imitation else (SELF_IMITATION,)
    kind = _arguments_type(config.components, hidden)
    other = next(name for name in registry.learners() if name != config.parts.learner)
    text = TRAIN_HELP.format(agent=config.agent, other=f"{other}+{SELF_IMITATION}")
    parse(kind, "train", ["--help"], kind(**_fields(config)), text)


def _arguments_type(components: Mapping[str, Any], hidden: Iterable[str] = ()) -> type[TrainConfig]:
    """`TrainConfig` with a field for each component, so that tyro offers its settings as flags.

    `hidden`: fields without flags.
    """
    fields: list[Any] = [(name, type(own), dataclasses.field(default=own)) for name, own in components.items()]
    for name in hidden:
        own = getattr(TrainConfig(), name)
        fields.append((name, tyro.conf.Suppress[type(own)], dataclasses.field(default=own)))  # type: ignore[misc]
    return dataclasses.make_dataclass("TrainArguments", fields, bases=(TrainConfig,), frozen=True)


def _fields(config: TrainConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(TrainConfig)}


def train(arguments: Sequence[str]) -> int:
    config = read_config(arguments)
    from self_imitation.training import run as runs

    return _train(lambda listener, stop: runs.start(config, listener, stop))


def resume(arguments: Sequence[str]) -> int:
    given = parse(ResumeArguments, "resume", arguments)
    from self_imitation.training import run as runs
    from self_imitation.training.trust import require_trust

    run = run_directory.open_run(given.run)
    require_trust(run.config(), run.path, given.trust or terminal.ask_to_import)  # before Ctrl-C gets another meaning
    return _train(lambda listener, stop: runs.continue_run(given.run, given.steps, listener, stop, trust=True))


def _train(go: Callable[["Listener", Callable[[], bool]], tuple["Run", bool]]) -> int:
    """Train and show progress, then print where the results are."""
    from self_imitation.cli import progress

    (run, finished), status = with_signal_handling(go, progress.listener)
    shown = run.directory.shown
    path = shlex.quote(str(shown))
    if finished:
        next_command = "watch" if run.config.record else "play"
        terminal.say(f"Run: {shown}\nCurve: {shown / run.directory.curve.name}\nNext: sil {next_command} {path}")
        return 0
    if status != CLOSED_PIPE:
        terminal.say(f"Stopped; progress saved. Resume with: sil resume {path}")
    return status


def with_signal_handling(go: Callable[..., T], make_listener: Callable[[], "Lines"]) -> tuple[T, int]:
    """Return what `go(listener, stop)` returns, and the exit status of the signal that stopped it, else 0.

    The first Ctrl-C or SIGTERM requests a checkpoint and an orderly stop, as does a closed pipe. A second one quits
    immediately, which is safe: checkpoints are written atomically.
    """
    received: list[int] = []
    listener = make_listener()

    def handle(number: int, _: FrameType | None) -> None:
        if received:
            listener.close()  # restores the terminal's cursor
            os.write(2, b"sil: interrupted\n")
            os._exit(128 + number)
        received.append(number)
        listener.message("Saving a checkpoint before stopping. Press Ctrl-C again to quit immediately.")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = go(listener, lambda: bool(received) or listener.closed)
    finally:
        listener.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        return result, 128 + received[0]
    return result, CLOSED_PIPE if listener.closed else 0
