"""Hostile values for the flags of every command.

Most cases stop where the work would begin, so that many fit into the time; a small share really trains.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from campaign import commands, mutations
from campaign.context import Context
from campaign.outcomes import Case, Tally
from campaign.worker import perform_all

FULL, FULL_STARTED = 3_000, 60
"""Cases of the full campaign: all, and those among them that really start."""
NAMES = [
    text.replace("\ud800", "\udcff")  # what Python makes of an argument that is not UTF-8
    for text in mutations.STRINGS
    if "evil" not in text and "/" not in text and text not in ("~", ".", "..")
]
"""As names of files; a module that a user's own flag names may be imported."""
PATHS = (
    *(f"{{output}}/{name}" for name in NAMES),
    *("", "{output}", "{run}", "{run}/config.json", "{run}/config.json/x", "{output}/a/b/c"),
    *("/proc/nonexistent/x", "/dev/null/x", "{output}/" + "d/" * 3000, "{output}/" + "n" * 255, "\0", "{output}/a\0b"),
)
DIRECTORIES = (".", "..", "/", "{sandbox}", "{sandbox}/")
"""Where a file can't be; commands that would fill a directory are not given these."""
SYNTAX = (
    "--",
    "-",
    "---",
    "--=",
    "--=1",
    "-x",
    "--steps=",
    "--sil",
    "--sil.",
    "--.",
    "--no-",
    "--steps",
    "@file",
    "-1",
    "--s",
)
COMMANDS: dict[str, dict[str, str]] = {
    "resume": {"": "run", "--steps": "number"},
    "evaluate": {"": "run", "--episodes": "number", "--key": "number", "--greedy": "switch", "--json": "file"},
    "play": {"": "run", "--seed": "number", "--key": "number", "--greedy": "switch", "--out": "picture"},
    "plot": {
        "": "run",
        "--out!": "picture",
        "--y": "text",
        "--x": "text",
        "--smooth": "number",
        "--show-seeds": "switch",
        "--csv": "file",
        "--latex": "file",
    },
    "list": {"": "text"},
    "watch": {"": "path", "--port": "number"},
    "report": {"": "path", "--out!": "page"},
    "reproduce": {
        "": "experiment",
        "--out!": "path",
        "--runs!": "path",
        "--only": "text",
        "--scale": "number",
        "--steps": "number",
        "--seeds": "number",
        "--seed": "number",
        "--dry-run": "switch",
        "--report-only": "switch",
    },
    "bench": {"": "text", "--seeds": "number"},
}
"""Flags with the kind of value that each takes; "" is the positional argument.

With "!": always given, since without it the working directory is written to."""


def run(context: Context) -> Tally:
    tally, random_, folder = Tally(), context.random("flags"), context.folder / "flags"
    started = context.count(FULL_STARTED)
    cases = generate(random_, context.count(FULL) - started)
    for case, outcome in perform_all(cases, folder, context.bases, validating, context.over, context.jobs):
        context.report(case, tally.add(case, outcome))
    cases = (_started(random_) for _ in range(started))
    for case, outcome in perform_all(cases, folder, context.bases, commands.sil, context.over, context.jobs):
        context.report(case, tally.add(case, outcome))
    return tally


def generate(random_: random.Random, count: int) -> Iterator[Case]:
    settings = {agent: _settings(agent) for agent in _agents()}
    for _ in range(count):
        command = random_.choices(("train", *COMMANDS), (50, 8, 12, 8, 8, 3, 3, 3, 8, 2))[0]
        words = _train(random_, settings) if command == "train" else [command, *_words(COMMANDS[command], random_)]
        if random_.random() < 0.08:
            words.insert(random_.randrange(1, len(words) + 1), random_.choice((*SYNTAX, *NAMES)))
        yield Case("flags", tuple(words), "grid", about=command)


def _agents() -> list[str]:
    from self_imitation import registry

    return [name + extra for name in registry.learners() for extra in ("", "+sil")] + [
        f"a2c+sil+{bonus}" for bonus in registry.bonuses()
    ]


def _settings(agent: str) -> dict[str, Any]:
    """The settings that this agent has, from the parser's own source."""
    from self_imitation.config import resolve
    from self_imitation.settings import flatten

    settings = flatten(resolve("key-door-treasure", "authors", {"agent": agent}))
    del settings["wrappers"]  # a module that a user's own flag names may be imported
    return {**settings, "config": None}


def _train(random_: random.Random, settings: dict[str, dict[str, Any]]) -> list[str]:
    agent = random_.choice(list(settings))
    words = ["train", "--agent", agent, "--out", "{output}/new"]
    for name in random_.sample(list(settings[agent]), random_.choice((1, 1, 2, 4))):
        if name == "env":
            words.append(random_.choice(NAMES))
            continue
        written = "env.size" if name == "env_kwargs" else name
        flag = "--" + random_.choice((written, written.replace("_", "-")))
        default = settings[agent][name]
        if isinstance(default, bool) and random_.random() < 0.5:
            words.append(random_.choice((flag, flag.replace("--", "--no-", 1))))
        elif name in ("out", "config"):
            words += [flag, random_.choice(PATHS)]
        else:
            values = [_value(default, random_) for _ in range(random_.choice((1, 1, 1, 1, 0, 2)))]
            words += [flag, *values] if random_.random() < 0.8 else [f"{flag}={value}" for value in values]
    return words


def _value(default: object, random_: random.Random) -> str:
    """A hostile value, often one of the right type."""
    if isinstance(default, int | float) and random_.random() < 0.6:
        return random_.choice(mutations.NUMBERS)
    return random_.choice((*NAMES, *mutations.NUMBERS, str(default)))


def _words(flags: dict[str, str], random_: random.Random) -> list[str]:
    """The positional argument, and some of the flags."""
    words = [_of_kind(flags[""], random_)]
    for name in random_.sample(sorted(flags)[1:], len(flags) - 1):
        if name.endswith("!") or random_.random() < 0.4:
            words += [name.strip("!")] if flags[name] == "switch" else [name.strip("!"), _of_kind(flags[name], random_)]
    return words


def _of_kind(kind: str, random_: random.Random) -> str:
    match kind:
        case "run":
            return random_.choice(("{run}",) * 20 + PATHS + DIRECTORIES)
        case "number":
            return random_.choice((*mutations.NUMBERS, *NAMES[:20]))
        case "file":
            return random_.choice(PATHS + DIRECTORIES)
        case "path":
            return random_.choice(PATHS)
        case "picture":
            return _file(random_, ("", ".png", ".PDF", ".svg", ".gif", ".mp4", "/.png", "."))
        case "experiment":
            return random_.choice(("all", "grid-worlds", "mujoco", "sparse", "x.toml", *PATHS, *NAMES))
        case "page":
            return _file(random_, ("", ".html", ".HTM", "/.html", "."))
    return random_.choice(NAMES)


def _file(random_: random.Random, endings: tuple[str, ...]) -> str:
    """A file inside the directories that a command may write to: {output}.png would lie beside one of them."""
    path = random_.choice(PATHS)
    return path + ("/x" if path in ("{output}", "{run}") else "") + random_.choice(endings)


def _started(random_: random.Random) -> Case:
    """A training run of a few steps with a hostile output directory or an odd but allowed value."""
    choices = (
        ["--out", random_.choice(PATHS)],
        ["--seeds", random_.choice(("1", "3"))],
        ["--seed", random_.choice(("4294967294", "4294967295", "7"))],
        ["--num-envs", random_.choice(("1", "17"))],
        ["--num-steps", random_.choice(("1", "33"))],
        ["--sil.learning-rate", "1e-30", "--sil.optimiser", "own"],
        ["--optimiser.learning-rate", random_.choice(("1e-320", "1e30", "1e308"))],
        ["--optimiser.epsilon", "1e-320"],
        ["--sil.buffer-size", "8", "--sil.learning-starts", "0"],
        ["--sil.max-advantage", "1e-320"],
        ["--log-every", "1"],
        ["--workers", random_.choice(("1", "4096"))],
        ["--checkpoints-kept", "1000000"],
        ["--checkpoint-seconds", "1e308"],
        ["--no-compilation-cache"],
        ["--normalise.observations", "--normalise.clip", "1e-320"],
        ["--delay", "1000000"],
        ["--engine", random_.choice(("gymnasium", "processes", "envpool", "ale", "jax"))],
        ["--device", "gpu"],
    )
    words = random_.choices(choices, (8, *(1 for _ in choices[1:])))[0]
    out = [] if words[0] == "--out" else ["--out", "{output}/new"]
    return Case("flags", ("train", *commands.SMALL, "--steps", "64", *out, *words), "grid", about="training starts")


def validating() -> Callable[[list[str]], int]:
    """`sil`, which stops where training, resuming or long work would begin."""
    command = commands.sil()
    from self_imitation.experiments import train
    from self_imitation.training import run as runs
    from self_imitation.watch import server

    evaluate = runs.Run.evaluate

    def evaluate_briefly(self: Any, episodes: int = 100, *rest: Any) -> Any:
        return evaluate(self, min(episodes, 1), *rest)

    def stop(*_: Any) -> Any:
        raise SystemExit(0)

    def validate(arguments: list[str]) -> int:
        if arguments[:2] in _BENCHMARKS:
            return 0
        with (
            mock.patch.multiple(runs, start=stop, _train=stop),
            mock.patch.object(runs.Run, "evaluate", evaluate_briefly),
            mock.patch.object(train, "train", return_value=False),
            mock.patch.object(server.Pages, "serve_forever"),
        ):
            return command(arguments)

    return validate


_BENCHMARKS = [
    ["bench"],
    *(["bench", name] for name in ("--", "all", "replay", "train", "mujoco", "atari", "exploration", "startup")),
]
