"""The environments by name, with the settings that each one brings. No JAX is imported here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from self_imitation.errors import unknown_name


@dataclass(frozen=True)
class Entry:
    """One environment: its name, one line about it, and its default settings by dotted names."""

    name: str
    summary: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    preset_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Over the preset's own settings: what the paper or the authors' code set for this environment alone."""


# Paper, commented table of the grid worlds, and the authors' runs.
_GRID_WORLD: Mapping[str, object] = {
    "envs": 16,
    "rollout": 5,
    "a2c.discount": 0.95,
    "a2c.entropy_weight": 0.03,
    "sil.discount": 0.99,
    "sil.priority_exponent": 0.6,
    "sil.bias_correction": 0.4,
}
_GRID_WORLD_PRESETS: Mapping[str, Mapping[str, object]] = {
    "authors": {
        "network.hidden": (64, 64),
        "network.shared": False,
        "sil.capacity": 100_000,
        "time_limit": "terminal",
    },
    "paper": {
        "network.hidden": (64,),
        "network.shared": True,
        "sil.capacity": 1000,
        "time_limit": "bootstrap",
    },
}

ENTRIES: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "key-door-treasure",
            "grid world: fetch the key, open the door, reach the treasure in 50 steps; best return 7",
            _GRID_WORLD,
            _GRID_WORLD_PRESETS,
        ),
        Entry(
            "apple-key-door-treasure",
            "the same with two apples that distract; best return 9",
            _GRID_WORLD,
            _GRID_WORLD_PRESETS,
        ),
    )
}


def find(name: str) -> Entry:
    if name not in ENTRIES:
        raise unknown_name("env", str(name), ENTRIES)
    return ENTRIES[name]
