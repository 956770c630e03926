"""`sil train` and `sil resume`."""

import dataclasses
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import tyro

from self_imitation import config as configuration
from self_imitation import registry
from self_imitation.cli import terminal
from self_imitation.cli.parse import parse, split_keywords
from self_imitation.config import Preset, TrainConfig
from self_imitation.errors import UsageError
from self_imitation.registry import SELF_IMITATION
from self_imitation.settings import flatten
from self_imitation.storage import metrics_file, run_directory, settings_file

if TYPE_CHECKING:
    from self_imitation.cli.progress import Lines
    from self_imitation.training.saved_run import Run

T = TypeVar("T")
C = TypeVar("C", bound=TrainConfig)

CLOSED_PIPE = 128 + signal.SIGPIPE

TRAIN_HELP = """\
Train an agent. Defaults depend on the environment, agent and preset.

Shown: the settings of {agent}. Others: sil train --agent {other} --help
"""


RESUME_HELP = """\
Resume a run, also with other settings. Shown: those of the run.

Settings that change what is trained or the shapes of its arrays are refused.
"""

ENV_KEYWORD = "--env."
NAMES = ("env", "agent", "preset")
"""Settings on which the defaults of the others depend."""


@dataclass(frozen=True)
class ResumeArguments:
    """Resume a run. Most settings of the run can be changed: sil resume RUN --help shows them."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    steps: int | None = None
    """New total of environment steps per seed. None: as configured."""
    trust: bool = False
    """Import the modules that an environment such as gym:my_module:MyEnv-v0 or a wrapper names, which runs their code.
    Without this, a terminal asks and anything else refuses."""


@dataclass(frozen=True, kw_only=True)
class TrainArguments(TrainConfig):
    """The settings of a run, and the file that they come from."""

    config: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A TOML file with settings, or the config.json of a run. Flags override it."""


@dataclass(frozen=True, kw_only=True)
class NamedArguments(TrainArguments):
    """As `TrainArguments`, with None for what is not given."""

    env: tyro.conf.Positional[str | None] = None  # type: ignore[assignment]
    agent: str | None = None  # type: ignore[assignment]
    preset: str | None = None  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class ChangeArguments(TrainConfig):
    """The settings of a run that is resumed."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    trust: bool = False
    """Import the modules that the run's environment and wrappers name, which runs their code. Without this, a terminal
    asks and anything else refuses."""
    env: tyro.conf.Suppress[str] = TrainConfig.env


def read_config(arguments: Sequence[str]) -> TrainConfig:
    """The settings of a run: the flags over a file over the defaults of the environment, agent and preset.

    Parses twice: first to learn those three, then with their defaults, which the help also shows.
    """
    arguments, keywords = split_keywords(arguments, ENV_KEYWORD)
    without_help = [argument for argument in arguments if argument not in ("-h", "--help")]
    untouched = _untouched()
    named = parse(_with_components(NamedArguments, untouched), "train", without_help)
    read = {} if named.config is None else settings_file.read(named.config, named.env, named.agent)
    chosen = read | {name: getattr(named, name) for name in NAMES if getattr(named, name) is not None}
    preset = chosen.get("preset", TrainConfig.preset)
    preset = preset if isinstance(preset, Preset) else settings_file.read_preset(preset)
    agent = {"agent": chosen["agent"]} if "agent" in chosen else {}
    defaults = configuration.resolve(str(chosen.get("env", TrainConfig.env)), preset, agent)
    read = {name: value for name, value in read.items() if name not in NAMES}
    start = _from_file(defaults, read, named.config)
    if len(without_help) < len(arguments):
        _print_help(start)
    config = _apply_flags(start, TrainArguments, "train", arguments)
    config = dataclasses.replace(
        config, preset=defaults.preset, wrappers=config.wrappers or start.wrappers, env_kwargs=start.env_kwargs
    )
    config = configuration.validate(configuration.override(config, {f"env.{k}": v for k, v in keywords.items()}))
    configuration.refuse_unused(config, defaults)
    return config


def _from_file(defaults: TrainConfig, settings: Mapping[str, object], file: str | None) -> TrainConfig:
    try:
        config = configuration.override(defaults, settings)
        configuration.check_values(config)
        return config
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


def _apply_flags(start: TrainConfig, kind: type[TrainConfig], command: str, arguments: Sequence[str]) -> TrainConfig:
    """The settings with those that flags name. Flags of components that the agent does not have are refused.

    Wrappers are those of the flags alone.
    """
    components = {**_untouched(), **start.components}
    full = _with_components(kind, components)
    defaults: dict[str, Any] = {**_fields(start), "wrappers": (), **({"run": ""} if kind is ChangeArguments else {})}
    given = parse(full, command, arguments, full(**defaults))
    own = {name: getattr(given, name) for name in start.components}
    config = TrainConfig(**{**_fields(given), "components": own})
    for name in components.keys() - own.keys():
        before, after = flatten(components[name]), flatten(getattr(given, name))
        changes = {f"{name}.{field}": value for field, value in after.items() if value != before[field]}
        configuration.override(config, changes)  # refuses them: the agent has no such component
    return config


def _print_help(config: TrainConfig) -> None:
    """Print the flags that this agent uses, with their defaults, and exit."""
    kind = _with_components(TrainArguments, config.components, _hidden(config))
    other = next(name for name in registry.learners() if name != config.parts.learner)
    text = TRAIN_HELP.format(agent=config.agent, other=f"{other}+{SELF_IMITATION}")
    parse(kind, "train", ["--help"], kind(**_fields(config)), text)


def _hidden(config: TrainConfig) -> Iterable[str]:
    return () if config.parts.self_imitation else (SELF_IMITATION,)


def _untouched() -> dict[str, Any]:
    """The settings of all components, as they are declared."""
    return {name: entry.component.Config() for name, entry in registry.components().items()}


def _with_components(kind: type[C], components: Mapping[str, Any], hidden: Iterable[str] = ()) -> type[C]:
    """With a field for each component, so that tyro offers its settings as flags. `hidden`: fields without flags."""
    fields: list[Any] = [(name, type(own), dataclasses.field(default=own)) for name, own in components.items()]
    for name in hidden:
        own = getattr(TrainConfig(), name)
        fields.append((name, tyro.conf.Suppress[type(own)], dataclasses.field(default=own)))  # type: ignore[misc]
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)


def _fields(config: TrainConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(TrainConfig)}


def train(arguments: Sequence[str]) -> int:
    config = read_config(arguments)
    from self_imitation.training import run as runs

    return _train(lambda progress, stop: runs.start(config, [progress], stop))


def resume(arguments: Sequence[str]) -> int:
    if set(arguments) & {"-h", "--help"} == set(arguments):
        parse(ResumeArguments, "resume", arguments)
    rest, keywords = split_keywords(arguments, ENV_KEYWORD)
    without_help = [argument for argument in rest if argument not in ("-h", "--help")]
    named = parse(_with_components(ChangeArguments, _untouched()), "resume", without_help)
    run = run_directory.open_run(named.run)
    config = run.config()
    if len(without_help) < len(rest):
        kind = _with_components(ChangeArguments, config.components, _hidden(config))
        parse(kind, "resume", ["--help"], kind(**_fields(config), run=named.run), RESUME_HELP)
    given = _apply_flags(config, ChangeArguments, "resume", rest)
    changed = flatten(dataclasses.replace(given, wrappers=given.wrappers or config.wrappers))
    before = flatten(config)
    changes = {name: value for name, value in changed.items() if value != before[name]}
    changes |= {f"env.{name}": value for name, value in keywords.items()}
    steps = given.steps if changes.pop("steps", None) else None

    from self_imitation.training import run as runs
    from self_imitation.training.trust import require_trust

    require_trust(config, run.path, named.trust or terminal.ask_to_import)  # before Ctrl-C gets another meaning
    return _train(
        lambda progress, stop: runs.continue_run(named.run, steps, [progress], stop, trust=True, settings=changes)
    )


def _train(go: Callable[["Lines", Callable[[], bool]], tuple["Run", bool]]) -> int:
    """Train and show progress, then print where the results are."""
    from self_imitation.cli import progress

    (run, finished), status = with_signal_handling(go, progress.create)
    shown = run.directory.shown
    path = shlex.quote(str(shown))
    if finished:
        next_command = "watch" if run.config.record else "play"
        board = shlex.quote(str(shown / metrics_file.TENSORBOARD))
        terminal.say(f"Run: {shown}\nCurve: {shown / run.directory.curve.name}\nMetrics: tensorboard --logdir {board}")
        terminal.say(f"Next: sil {next_command} {path}")
        return 0
    if status != CLOSED_PIPE:
        terminal.say(f"Stopped; progress saved. Resume with: sil resume {path}")
    return status


class Display(Protocol):
    """Shows progress until it is closed."""

    closed: bool
    """Whether its stream was closed by its reader."""

    def message(self, text: str) -> None: ...
    def close(self) -> None: ...


def with_signal_handling(go: Callable[..., T], make_progress: Callable[[], Display]) -> tuple[T, int]:
    """Return what `go(progress, stop)` returns, and the exit status of the signal that stopped it, else 0.

    The first Ctrl-C or SIGTERM requests a checkpoint and an orderly stop, as does a closed pipe. A second one quits
    immediately, which is safe: checkpoints are written atomically.
    """
    received: list[int] = []
    progress = make_progress()

    def handle(number: int, _: FrameType | None) -> None:
        if received:
            progress.close()  # restores the terminal's cursor
            os.write(2, b"sil: interrupted\n")
            os._exit(128 + number)
        received.append(number)
        progress.message("Saving a checkpoint before stopping. Press Ctrl-C again to quit immediately.")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = go(progress, lambda: bool(received) or progress.closed)
    finally:
        progress.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        return result, 128 + received[0]
    return result, CLOSED_PIPE if progress.closed else 0
