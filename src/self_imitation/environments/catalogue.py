"""The environments by name, with the settings that each one brings. No JAX is imported here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from self_imitation.errors import UsageError, unknown_name


@dataclass(frozen=True)
class Entry:
    """One environment: its name, one line about it, and its default settings by dotted names."""

    name: str
    summary: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    base_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Over the defaults: for agents with this base."""
    preset_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Over the preset's own settings: what the paper or the authors' code set for this environment alone."""
    host_id: str | None = None
    """Its Gymnasium id, where it runs on the host. None: on the device."""
    search: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Settings for which the paper says "best chosen from", with the values that it chose from."""


# Paper, commented table of the grid worlds, and the authors' runs.
_GRID_WORLD: Mapping[str, object] = {
    "normalise.observations": False,
    "normalise.rewards": False,
    "a2c.discount": 0.95,
    "a2c.entropy_weight": 0.03,
    "sil.discount": 0.99,
    "sil.priority_exponent": 0.6,
    "sil.bias_correction": 0.4,
}
_GRID_WORLD_BASES: Mapping[str, Mapping[str, object]] = {
    "a2c": {"envs": 16, "rollout": 5},
    "ppo": {"envs": 16, "rollout": 128, "ppo.entropy_weight": 0.03, "ppo.discount": 0.95},
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

# Paper, table of PPO+SIL hyperparameters, and the authors' runs.
_MUJOCO: Mapping[str, object] = {
    "steps": 1_000_000,
    "seeds": 5,
    "normalise.observations": True,
    "normalise.rewards": True,
    "network.hidden": (64, 64),
    "network.shared": False,
    "sil.capacity": 50_000,
    "sil.bias_correction": 0.1,
    "sil.priority_exponent": 0.6,
}
_TIME_LIMITS: Mapping[str, Mapping[str, object]] = {
    "authors": {"time_limit": "terminal"},
    "paper": {"time_limit": "bootstrap"},
}
_MUJOCO_BASES: Mapping[str, Mapping[str, object]] = {
    # OpenAI's baselines, for these tasks. Deviation: the authors' script keeps the step size constant.
    "ppo": {"envs": 1, "rollout": 2048, "ppo.epochs": 10, "ppo.minibatches": 32, "optimiser.schedule": "linear"},
}
_MUJOCO_SEARCH: Mapping[str, tuple[float, ...]] = {
    "optimiser.learning_rate": (3e-4, 1e-4, 5e-5, 3e-5),
    "sil.value_weight": (0.01, 0.05),
    "sil.priority_exponent": (0.6, 1.0),
}
_MUJOCO_TASKS: Mapping[str, str] = {
    "Hopper": "one leg hops forward",
    "Walker2d": "two legs walk forward",
    "HalfCheetah": "two legs and a body run forward",
    "Swimmer": "a chain of three links swims forward",
    "Ant": "four legs walk forward",
    "Humanoid": "a body with arms and legs walks forward",
}


def _mujoco_entries() -> tuple[Entry, ...]:
    return tuple(
        Entry(
            f"mujoco:{task}",
            f"MuJoCo: {summary} (Gymnasium's {task}-v5)",
            _MUJOCO,
            _MUJOCO_BASES,
            _TIME_LIMITS,
            host_id=f"{task}-v5",
            search=_MUJOCO_SEARCH,
        )
        for task, summary in _MUJOCO_TASKS.items()
    )


# Paper, table of A2C+SIL hyperparameters and section 5.3, and the authors' runs.
_ATARI: Mapping[str, object] = {
    "steps": 50_000_000,
    "seeds": 1,
    "rewards": "sign",
    "normalise.observations": False,
    "normalise.rewards": False,
    "network.hidden": (512,),
    "network.shared": True,
    "sil.capacity": 100_000,
    "sil.bias_correction": 0.1,
    "sil.priority_exponent": 0.6,
    "checkpoint_seconds": 600.0,
}
# OpenAI's baselines, for these games.
_ATARI_BASES: Mapping[str, Mapping[str, object]] = {
    "a2c": {"envs": 16, "rollout": 5},
    "ppo": {
        "envs": 8,
        "rollout": 128,
        "ppo.epochs": 4,
        "ppo.minibatches": 4,
        "ppo.clip": 0.1,
        "ppo.value_clip": 0.1,
        "ppo.entropy_weight": 0.01,
        "optimiser.learning_rate": 2.5e-4,
        "optimiser.schedule": "linear",
    },
}

# For a user's environment nothing must fail in silence: all episodes are kept, whatever the sign of their rewards, and
# rewards of any size are scaled.
_ANY: Mapping[str, object] = {"normalise.observations": True, "normalise.rewards": True}
_ANY_PRESETS: Mapping[str, Mapping[str, object]] = {"authors": {"sil.keep": "all"}}

ENTRIES: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "key-door-treasure",
            "grid world: fetch the key, open the door, reach the treasure in 50 steps; best return 7",
            _GRID_WORLD,
            _GRID_WORLD_BASES,
            _GRID_WORLD_PRESETS,
        ),
        Entry(
            "apple-key-door-treasure",
            "the same with two apples that distract; best return 9",
            _GRID_WORLD,
            _GRID_WORLD_BASES,
            _GRID_WORLD_PRESETS,
        ),
        *_mujoco_entries(),
    )
}


def find(name: str) -> Entry:
    """The entry of that name; for gym:ID, one with the defaults for a user's environment."""
    if name in ENTRIES:
        return ENTRIES[name]
    prefix, _, host_id = str(name).partition(":")
    if prefix == "gym" and host_id:
        return Entry(name, "any Gymnasium environment", _ANY, {}, _ANY_PRESETS, host_id)
    if prefix == "atari" and host_id:
        return _atari_entry(host_id)
    games = [f"atari:{game}" for game in _spelt(str(name), atari_games())]
    raise unknown_name("env", str(name), [*ENTRIES, *(games or ["atari:GAME"]), "gym:ID"])


FOR_SEVERAL_PLAYERS = ("combat", "joust", "maze_craze", "warlords")


@cache
def atari_games() -> dict[str, str]:
    """All that ale-py ships for one player: the game's name as in the paper, and that of its file. None without it."""
    try:
        from ale_py import roms
    except ImportError:
        return {}
    names = {"".join(word.capitalize() for word in rom.split("_")): rom for rom in sorted(roms.get_all_rom_ids())}
    return {name: rom for name, rom in names.items() if rom not in FOR_SEVERAL_PLAYERS}


def _atari_entry(game: str) -> Entry:
    """By any spelling: MontezumaRevenge, montezuma_revenge."""
    games = atari_games() or {game: game}  # an old run can be looked at without emulators
    name = next(iter(_spelt(game, games)), None)
    if _spelt(game, FOR_SEVERAL_PLAYERS):
        raise UsageError(f"env: 'atari:{game}' is a game for several players: its emulator has none for one")
    if name is None:
        raise unknown_name("env", f"atari:{game}", [f"atari:{name}" for name in games])
    rom = games[name]
    return Entry(f"atari:{name}", "an Atari 2600 game", _ATARI, _ATARI_BASES, _TIME_LIMITS, host_id=rom)


def _spelt(name: str, names: Iterable[str]) -> list[str]:
    """Those of the names that this one is another spelling of."""
    return [known for known in names if _letters(known) == _letters(name)]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
