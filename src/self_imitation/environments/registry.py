"""The environments by name, with the settings that each one brings. Add your own with `register_environment`."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

import gymnasium

from self_imitation.environments.gymnasium import hopper_distance
from self_imitation.environments.gymnasium.make import is_registered
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.environments.jax.suites.xland import XLand
from self_imitation.errors import NEAR, UsageError, unknown, unknown_name
from self_imitation.types import Environment


@dataclass(frozen=True)
class Entry:
    """One environment: how it is made, and its default settings by dotted names."""

    name: str
    summary: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    component_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Over the defaults: for agents with this learner or bonus."""
    preset_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Over the preset's own settings: what the paper or the authors' code set for this environment alone."""
    search: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Settings that the paper tuned, with the values that it tried."""
    pure_jax: Callable[[], Environment] | None = None
    """Makes the environment, if it is written in JAX."""
    gym_id: str | None = None
    """Its Gymnasium id; of a pure-JAX environment, that of a twin that can be rendered."""
    envpool_id: str | None = None
    """Its id in EnvPool, where EnvPool may have it."""
    envpool_options: Mapping[str, object] = field(default_factory=dict)
    """Arguments for EnvPool that make it the environment of `gym_id`."""
    atari_rom: str | None = None
    """Of an Atari game: the name of its ROM."""
    in_python: bool = False
    """Whether it is made by Python code that the user passes."""

    @property
    def takes_arguments(self) -> bool:
        """Whether it is made with keyword arguments, and can be wrapped."""
        return self.in_python or (self.gym_id is not None and self.pure_jax is None)


# Paper, commented table of the grid worlds, and the authors' runs.
_GRID_WORLD: Mapping[str, object] = {
    "normalise.observations": False,
    "normalise.rewards": False,
    "sil.gamma": 0.99,
    "sil.priority_exponent": 0.6,
    "sil.importance_exponent": 0.4,
}
_GRID_WORLD_COMPONENTS: Mapping[str, Mapping[str, object]] = {
    "a2c": {"num_envs": 16, "num_steps": 5, "a2c.gamma": 0.95, "a2c.ent_coef": 0.03},
    "vtrace": {"num_envs": 16, "num_steps": 5, "vtrace.gamma": 0.95, "vtrace.ent_coef": 0.03},
    "acer": {"num_envs": 16, "num_steps": 20, "acer.gamma": 0.95, "acer.ent_coef": 0.03},
    "acper": {"num_envs": 16, "num_steps": 20, "acper.gamma": 0.95, "acper.ent_coef": 0.03},
    "ppo": {"num_envs": 16, "num_steps": 128, "ppo.gamma": 0.95, "ppo.ent_coef": 0.03},
    "simhash": {"simhash.scale": 1.0},  # as the count-based bonus there
}
_GRID_WORLD_PRESETS: Mapping[str, Mapping[str, object]] = {
    "authors": {
        "network.hidden": (64, 64),
        "network.shared": False,
        "sil.buffer_size": 100_000,
        "time_limit": "terminal",
    },
    "paper": {
        "network.hidden": (64,),
        "network.shared": True,
        "sil.buffer_size": 1000,
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
    "sil.buffer_size": 50_000,
    "sil.importance_exponent": 0.1,
    "sil.priority_exponent": 0.6,
}
_TIME_LIMITS: Mapping[str, Mapping[str, object]] = {
    "authors": {"time_limit": "terminal"},
    "paper": {"time_limit": "bootstrap"},
}
_MUJOCO_COMPONENTS: Mapping[str, Mapping[str, object]] = {
    # OpenAI's baselines, for these tasks. Deviation: the authors' script keeps the step size constant.
    "ppo": {
        "num_envs": 1,
        "num_steps": 2048,
        "ppo.update_epochs": 10,
        "ppo.num_minibatches": 32,
        "optimiser.schedule": "linear",
    },
}
_MUJOCO_SEARCH: Mapping[str, tuple[float, ...]] = {
    "optimiser.learning_rate": (3e-4, 1e-4, 5e-5, 3e-5),
    "sil.vf_coef": (0.005, 0.025),  # preset authors; the paper's 0.01 and 0.05 without the extra 1/2 of the code
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


def _mujoco_entries() -> Iterable[Entry]:
    for task, summary in _MUJOCO_TASKS.items():
        gym_id = f"{task}-v5"
        yield Entry(
            f"mujoco:{task}",
            f"MuJoCo: {summary} (Gymnasium's {gym_id})",
            _MUJOCO,
            _MUJOCO_COMPONENTS,
            _TIME_LIMITS,
            _MUJOCO_SEARCH,
            gym_id=gym_id,
            envpool_id=gym_id,
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
    "sil.buffer_size": 100_000,
    "sil.importance_exponent": 0.1,
    "sil.priority_exponent": 0.6,
    "checkpoint_seconds": 600.0,
}
# OpenAI's baselines, for these games.
_ATARI_COMPONENTS: Mapping[str, Mapping[str, object]] = {
    "a2c": {"num_envs": 16, "num_steps": 5},
    "acer": {"num_envs": 16, "num_steps": 20},
    "acper": {"num_envs": 16, "num_steps": 20},
    "ppo": {
        "num_envs": 8,
        "num_steps": 128,
        "ppo.update_epochs": 4,
        "ppo.num_minibatches": 4,
        "ppo.clip_coef": 0.1,
        "ppo.value_clip": 0.1,
        "ppo.ent_coef": 0.01,
        "optimiser.learning_rate": 2.5e-4,
        "optimiser.schedule": "linear",
    },
}

# Defaults for a user's environment must not fail silently: rewards of any size are scaled, and episodes are kept that
# can teach something, whether rewards are sparse, dense or negative.
_ANY: Mapping[str, object] = {"normalise.observations": True, "normalise.rewards": True}
# PPO's own defaults are those of the paper's MuJoCo table. Without an entropy bonus PPO stops exploring before it has
# seen a sparse reward, and PPO+SIL loses policies that were perfect for a while; a coefficient of 0.1 leaves
# self-imitation little to say where rewards are sparse.
_ANY_COMPONENTS: Mapping[str, Mapping[str, object]] = {"ppo": {"ppo.ent_coef": 0.01, "sil.loss_coef": 1.0}}
# Deviation: the authors store episodes with a reward above 0, and end stored returns at time limits. On other tasks
# rewards can be negative, and reaching the time limit is often a failure. They compare returns with V of the policy:
# where successes are rare, it is far below every return of a lucky episode.
_ANY_PRESETS: Mapping[str, Mapping[str, object]] = {
    "authors": {"sil.keep": "informative", "sil.truncated_returns": "continued", "sil.value": "own"}
}

_entries: dict[str, Entry] = {}


def register(entry: Entry) -> None:
    if entry.name in _entries:
        raise UsageError(f"name: {entry.name!r} is already registered")
    _entries[entry.name] = entry


def register_environment(
    name: str,
    make: Callable[[], Environment],
    summary: str = "a pure-JAX environment",
    defaults: Mapping[str, object] | None = None,
    render_id: str | None = None,
) -> None:
    """Make a pure-JAX environment available by name.

    Args:
        name: for `train(name)` and `sil train NAME`.
        make: returns the environment; a class will do.
        summary: for `sil list`.
        defaults: settings by dotted names, over the defaults for user environments.
        render_id: the Gymnasium id of a twin that `sil play` can draw.

    Raises:
        UsageError: the name is taken.
    """
    own = dict(defaults or {})
    components = {
        component: {key: value for key, value in usual.items() if key not in own}
        for component, usual in _ANY_COMPONENTS.items()
    }
    register(Entry(name, summary, {**_ANY, **own}, components, _ANY_PRESETS, pure_jax=make, gym_id=render_id))


def entries() -> Mapping[str, Entry]:
    """The environments with a name of their own."""
    return _entries


def find(name: str) -> Entry:
    """The entry of that name; for gym:ID, also without the prefix, one with the defaults for user environments."""
    if name in _entries:
        return _entries[name]
    prefix, _, rest = str(name).partition(":")
    if prefix == "gym" and rest:
        return Entry(name, "a Gymnasium environment", _ANY, _ANY_COMPONENTS, _ANY_PRESETS, gym_id=rest, envpool_id=rest)
    if prefix == "atari" and rest:
        return _atari_entry(rest)
    if prefix == "xland" and rest:
        make = partial(XLand, rest)
        return Entry(name, "an environment of XLand-MiniGrid", _ANY, _ANY_COMPONENTS, _ANY_PRESETS, pure_jax=make)
    if prefix == "python" and rest:
        return Entry(name, "passed from Python", _ANY, _ANY_COMPONENTS, _ANY_PRESETS, in_python=True)
    if ":" not in str(name) and is_registered(str(name)):
        return find(f"gym:{name}")
    raise _unknown(str(name))


def _unknown(name: str) -> UsageError:
    """Suggests the full name of a task, game or id, else the nearest name, if one is near."""
    tasks = {f"mujoco:{task}": task for task in _MUJOCO_TASKS}
    games = {f"atari:{game}": game for game in atari_games()}
    ids = {f"gym:{gym_id}": gym_id.rpartition("-v")[0] or gym_id for gym_id in reversed(gymnasium.registry)}
    prefix, _, rest = name.partition(":")
    if prefix not in FAMILIES and re.search(r"-v\d+$", rest):  # my_module:MyEnv-v0
        near = [f"gym:{rest}" if rest in gymnasium.registry else f"gym:{name}"]
    else:
        full = {**{known: known for known in _entries}, **tasks, **games, **ids}
        same = [known for known, own in full.items() if _letters(own) == _letters(name)]
        candidates = [*full, *full.values(), "gym:ID", "atari:GAME"]
        (nearest,) = difflib.get_close_matches(name[:100], candidates, n=1, cutoff=NEAR) or [""]
        near = same or [known for known, own in full.items() if nearest in (own, known)] or [nearest]
    known = sorted([*_entries, "atari:GAME", "gym:ID", "xland:ID"])
    return unknown("env", name, near[0], f"known: {', '.join(known)}")


FAMILIES = ("gym", "atari", "mujoco", "xland", "python")
"""Prefixes of names."""
MULTIPLAYER_GAMES = ("combat", "joust", "maze_craze", "warlords")


@cache
def atari_games() -> dict[str, str]:
    """Single-player games that ale-py ships: from the name used in the paper to the ROM. Empty without ale-py."""
    try:
        from ale_py import roms
    except ImportError:
        return {}
    names = {"".join(word.capitalize() for word in rom.split("_")): rom for rom in sorted(roms.get_all_rom_ids())}
    return {name: rom for name, rom in names.items() if rom not in MULTIPLAYER_GAMES}


def _atari_entry(game: str) -> Entry:
    """Accepts any spelling: MontezumaRevenge, montezuma_revenge."""
    games = atari_games() or {game: game}  # without ale-py, saved runs can still be read
    name = next(iter(_same_letters(game, games)), None)
    if _same_letters(game, MULTIPLAYER_GAMES):
        raise UsageError(f"env: 'atari:{game}' is a multiplayer game and can't be played by one agent")
    if name is None:
        raise unknown_name("env", f"atari:{game}", [f"atari:{name}" for name in games])
    return Entry(
        f"atari:{name}",
        "an Atari 2600 game",
        _ATARI,
        _ATARI_COMPONENTS,
        _TIME_LIMITS,
        envpool_id=f"{name}-v5",
        atari_rom=games[name],
    )


def _same_letters(name: str, names: Iterable[str]) -> list[str]:
    """The names that differ from this one in case and punctuation only."""
    return [known for known in names if _letters(known) == _letters(name)]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


for _entry in (
    Entry(
        "key-door-treasure",
        "grid world: fetch the key, open the door, reach the treasure in 50 steps; best return 7",
        _GRID_WORLD,
        _GRID_WORLD_COMPONENTS,
        _GRID_WORLD_PRESETS,
        pure_jax=KeyDoorTreasure,
        gym_id="self_imitation/KeyDoorTreasure-v0",
    ),
    Entry(
        "apple-key-door-treasure",
        "the same with two apples that distract; best return 9",
        _GRID_WORLD,
        _GRID_WORLD_COMPONENTS,
        _GRID_WORLD_PRESETS,
        pure_jax=lambda: KeyDoorTreasure(apples=True),
        gym_id="self_imitation/AppleKeyDoorTreasure-v0",
    ),
    *_mujoco_entries(),
    Entry(
        "hopper-distance",
        "MuJoCo: one leg hops forward and is paid once, at the end, for the distance in metres",
        {**_ANY, "delay": 1000},
        _ANY_COMPONENTS,
        _ANY_PRESETS,
        gym_id="self_imitation/HopperDistance-v0",
        envpool_id="Hopper-v5",
        envpool_options=hopper_distance.OPTIONS,
    ),
):
    register(_entry)
