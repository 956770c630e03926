"""config.json: a run's settings on disk."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from self_imitation.config import MAY_CHANGE, PRESETS, TrainConfig, override, resolve, validate
from self_imitation.errors import UsageError, bad_value
from self_imitation.settings import Change, flatten, is_plain

VERSION = 3
"""Of config.json and checkpoints; runs of other versions are refused."""
ADDED: Mapping[str, object] = {
    "sil.updates_schedule": "constant",
    "sil.bandit_window": 100,
    "sil.loss_coef_schedule": "constant",
    "sil.temperature": 0.0,
    "sil.bound": "monte-carlo",
    "sil.n_steps": 5,
    "record": False,
    "devices": None,
    "env_kwargs": {},
    "wrappers": (),
    "eval_every": None,
    "eval_episodes": 10,
    "eval_greedy": False,
    "stop_at": None,
    "patience": None,
    "wandb": False,
    "wandb_project": None,
    "sil.truncated_returns": "as-is",
    "sil.value": "shared",
    "sil.value_learning_rate": 1e-3,
    "sil.kl_ratio": None,
}
"""Settings that earlier runs of this version don't have, and the values with which they go on as before."""


def to_json(config: TrainConfig) -> dict[str, object]:
    content = dataclasses.asdict(dataclasses.replace(config, make_env=None))
    components = content.pop("components")
    del content["make_env"]  # code is not stored
    if not config.changes:
        del content["changes"]
    return {"version": VERSION, **content, **components}


def from_json(data: object, source: str) -> TrainConfig:
    """The config that `to_json` wrote; `source` names the file in an error."""
    if not isinstance(data, dict) or "version" not in data:
        raise UsageError(f"{source} is not the config of a run")
    try:
        if data["version"] != VERSION:
            raise bad_value("version", data["version"], f"this release reads version {VERSION}")
        for name in ("env", "agent", "preset"):
            if not isinstance(data.get(name), str):
                raise bad_value(name, data.get(name), "allowed: a name")
        changes = _changes(data.get("changes", []))
        settings = {name: value for name, value in data.items() if name not in ("version", "changes")}
        return dataclasses.replace(_from_dotted(dotted(settings)), changes=changes)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    except RecursionError:
        raise UsageError(f"{source}: nested too deeply") from None


def dotted(data: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of settings as settings by dotted names, lists as tuples."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        is_table = isinstance(value, dict) and name != "env_kwargs"
        flat.update({f"{name}.{own}": inner for own, inner in value.items()} if is_table else {name: value})
    return {name: tuple(value) if isinstance(value, list) else value for name, value in flat.items()}


def _from_dotted(given: Mapping[str, Any]) -> TrainConfig:
    given = {**ADDED, **given}
    preset = given["preset"] if given["preset"] in PRESETS else "authors"  # all settings are given: a file is not read
    config = resolve(given["env"], preset, {"agent": given["agent"]})
    known = set(flatten(config))
    for what, names in {"missing": known - set(given), "unknown": set(given) - known}.items():
        if names:
            raise UsageError(f"settings {what}: {', '.join(sorted(names))}")
    return validate(override(config, given))


def _changes(data: object) -> tuple[Change, ...]:
    names = {field.name for field in dataclasses.fields(Change)}

    def sound(entry: object) -> bool:
        return (
            isinstance(entry, dict)
            and entry.keys() == names
            and type(entry["step"]) is int
            and entry["step"] >= 0
            and isinstance(entry["setting"], str)
            and is_plain(entry["before"])
            and is_plain(entry["after"])
        )

    if not isinstance(data, list) or not all(map(sound, data)):
        raise bad_value("changes", data, f"allowed: a list of tables with {', '.join(sorted(names))}")
    return tuple(Change(**entry) for entry in data)


def fingerprint(config: TrainConfig) -> str:
    """Of all settings that determine a run's results, as they were when it began; its checkpoints carry it."""
    settings = flatten(config)
    for change in reversed(config.changes):
        settings[change.setting] = change.before
    settings = {
        name: value
        for name, value in settings.items()
        if name not in MAY_CHANGE and not (name in ADDED and value == ADDED[name])
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
