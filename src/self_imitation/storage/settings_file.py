"""Files with settings that users write or keep: TOML, or the config.json of a run. docs/settings.md describes them."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from self_imitation import registry
from self_imitation.config import (
    HYPERPARAMETERS,
    PRESET_SUFFIX,
    PRESETS,
    Preset,
    TrainConfig,
    is_hyperparameter,
    shipped_preset,
)
from self_imitation.errors import UsageError, bad_value
from self_imitation.registry import SELF_IMITATION, parse_agent
from self_imitation.settings import flatten
from self_imitation.storage import config_file, files

MAX_BYTES = 1 << 20
NONE = "None"
"""Stands for None in TOML, which has no such value."""


def read(path: str, env: str | None = None, agent: str | None = None) -> dict[str, object]:
    """The settings in a TOML file or in the config.json of a run, by dotted names; `preset` is a `Preset`.

    `env`, `agent`: given by the user. What a run's config.json says about others is left out.
    """
    if path.endswith(".json"):
        return _from_run(path, env, agent)
    settings = read_toml(path)
    for name in ("env", "agent", "preset"):
        if not isinstance(settings.get(name, ""), str):
            raise bad_value(f"{path}: {name}", settings[name], "allowed: a name")
    if "preset" in settings:
        name = str(settings["preset"])
        own = name.endswith(PRESET_SUFFIX)
        settings["preset"] = read_preset(os.path.join(os.path.dirname(path), name) if own else name)
    return settings


def read_preset(name: object) -> Preset:
    """A shipped preset by its name, or a user's own by the path of its file."""
    if not isinstance(name, str | os.PathLike) or not str(name).endswith(PRESET_SUFFIX):
        return shipped_preset(name)
    path = str(name)
    settings = read_toml(path)
    base, agent = settings.pop("preset", "authors"), settings.pop("agent", None)
    if base not in PRESETS:
        raise bad_value(f"{path}: preset", base, f"allowed: {', '.join(PRESETS)}")
    if not isinstance(agent, str | None):
        raise bad_value(f"{path}: agent", agent, "allowed: a name")
    for setting in settings:
        if (setting in flatten(TrainConfig()) and not is_hyperparameter(setting)) or setting.startswith("env."):
            allowed = f"agent, {', '.join(HYPERPARAMETERS)}, and settings with a dot, such as sil.updates"
            raise UsageError(f"{path}: {setting!r} does not belong to a preset; allowed: {allowed}")
    return Preset(Path(path).name, base, settings, agent)  # type: ignore[arg-type]


def write_preset(
    path: Path,
    agent: str,
    env: str,
    settings: Mapping[str, object],
    comments: Iterable[str] = (),
    preset: str = "authors",
) -> None:
    """Write a preset that `read_preset` reads. `env` is mentioned only: a preset can be used with any environment.

    `comments`: lines above the settings.
    """
    tables: dict[str, Any] = {"agent": agent, "preset": preset}
    for name, value in settings.items():
        part, _, own = name.rpartition(".")
        table = tables.setdefault(part, {}) if part else tables
        table[own] = NONE if value is None else list(value) if isinstance(value, tuple) else value
    lines = [f"A preset for {agent} on {env}: sil train {env} --preset {path.name}", *comments]
    header = "".join(f"# {line}".rstrip() + "\n" for text in lines for line in text.splitlines() or [""])
    files.write_text(path, f"{header}\n{tomli_w.dumps(tables)}")


def _from_run(path: str, env: str | None, agent: str | None) -> dict[str, object]:
    try:
        data = files.read_json(files.absolute(path))
    except files.UnreadableError as error:
        raise UsageError(f"config: {path!r} can't be read: {error}") from None
    config = config_file.from_json(data, path)
    parts = config.parts if agent is None else parse_agent(agent)
    foreign = {*registry.components(), SELF_IMITATION} - {*parts.components, *[SELF_IMITATION] * parts.self_imitation}
    left_out = {"out"} if env is None else {"out", "engine", "env_kwargs", "wrappers"}
    settings = {
        name: value
        for name, value in flatten(config).items()
        if name not in left_out and name.partition(".")[0] not in foreign
    }
    base = config.preset if config.preset in PRESETS else "authors"  # of a file that need not exist any more
    return {**settings, "preset": Preset(config.preset, base)}  # type: ignore[arg-type]


def read_toml(path: str) -> dict[str, object]:
    """The values in a file by dotted names. Raises a `UsageError` if it can't be read."""
    text = files.read_named(path, MAX_BYTES)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply") from None
    named = {name.replace("-", "_"): value for name, value in config_file.dotted(data).items()}
    return {name: None if value == NONE else value for name, value in named.items()}
