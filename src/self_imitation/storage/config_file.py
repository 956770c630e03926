"""config.json: a run's settings on disk."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from self_imitation.config import MAY_CHANGE, TrainConfig, override, resolve, validate
from self_imitation.errors import UsageError, bad_value
from self_imitation.settings import flatten

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
}
"""Settings that earlier runs of this version don't have, and the values with which they go on as before."""


def to_json(config: TrainConfig) -> dict[str, object]:
    content = dataclasses.asdict(config)
    components = content.pop("components")
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
        return _from_dotted(_dotted(data))
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    except RecursionError:
        raise UsageError(f"{source}: nested too deeply") from None


def _dotted(data: Mapping[str, Any]) -> dict[str, Any]:
    dotted: dict[str, Any] = {}
    for name, value in data.items():
        dotted.update({f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value})
    return {name: value for name, value in ADDED.items() if name not in dotted} | dotted


def _from_dotted(dotted: dict[str, Any]) -> TrainConfig:
    del dotted["version"]
    config = resolve(dotted["env"], dotted["preset"], {"agent": dotted["agent"]})
    known = set(flatten(config))
    for what, names in {"missing": known - set(dotted), "unknown": set(dotted) - known}.items():
        if names:
            raise UsageError(f"settings {what}: {', '.join(sorted(names))}")
    return validate(override(config, {k: tuple(v) if isinstance(v, list) else v for k, v in dotted.items()}))


def fingerprint(config: TrainConfig) -> str:
    """Of all settings that determine a run's results; its checkpoints carry it."""
    settings = {
        name: value
        for name, value in flatten(config).items()
        if name not in MAY_CHANGE and not (name in ADDED and value == ADDED[name])
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
