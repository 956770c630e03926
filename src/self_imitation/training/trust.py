"""Whether a run may import the modules that its environment and its wrappers name.

A run directory can come from a stranger. Its arrays and settings run no code when they are read, but an environment
such as gym:my_module:MyEnv-v0 or a wrapper such as my_module:MyWrapper is a module to import.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from self_imitation.config import TrainConfig
from self_imitation.environments.gymnasium.modules import locate, module_of
from self_imitation.environments.registry import find
from self_imitation.errors import UsageError

Trust: TypeAlias = bool | Callable[[str], bool]
"""Whether to import the module, or a function that decides. Its argument says what would be imported."""


def require_trust(config: TrainConfig, run: Path, trust: Trust) -> None:
    """Raise `UsageError` unless the modules that the run's environment and wrappers name may be imported.

    A module that this process has already imported needs no trust. One inside the run directory is never imported.
    """
    named = {module_of(name): f"wrapper: {name!r}" for name in reversed(config.wrappers)}
    if gym_id := find(config.env).gym_id:
        named[module_of(gym_id)] = f"env: {config.env!r}"
    for module, what in named.items():
        if module is not None and module not in sys.modules:
            _require_trust(what, module, run, trust)


def _require_trust(what: str, module: str, run: Path, trust: Trust) -> None:
    places = locate(module)
    where = str(places[-1]) if places else "not found"
    if any(place.is_relative_to(run.resolve()) for place in places):
        raise UsageError(f"{what} names a module inside the run directory, which is never imported: {where}")
    if not (trust(f"module {module!r} ({where})") if callable(trust) else trust):
        allow = "allow it with --trust, or trust=True in Python"
        raise UsageError(f"{what} of this run would import the module {module!r} ({where}); {allow}")
