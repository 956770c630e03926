"""One copy of a Gymnasium environment by its id."""

import importlib.util
from typing import Any

import gymnasium

from self_imitation.environments.gymnasium.checks import CheckedEnv
from self_imitation.environments.gymnasium.faults import TrapExits, in_words
from self_imitation.environments.gymnasium.modules import module_of, search_working_directory
from self_imitation.errors import UsageError, first_line

PACKAGES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""Packages that register ids with these prefixes when they are imported."""


def is_registered(gym_id: str) -> bool:
    """Whether Gymnasium knows the id, or its module is part of it. Imports the package that registers it, if known."""
    for prefix, package in PACKAGES.items():
        if gym_id.startswith(prefix) and importlib.util.find_spec(package):
            importlib.import_module(package)
    return module_of(gym_id) is not None or gym_id in gymnasium.registry


def make_env(gym_id: str, render_mode: str | None = None, **kwargs: Any) -> CheckedEnv:
    """`gym_id` may name a module that registers it, as in "my_module:MyEnv-v0"; the working directory is searched too.

    Raises `UsageError` if the environment can't be created or its spaces are not supported.
    """
    if module_of(gym_id) is not None:
        search_working_directory()
    if render_mode is not None:  # not every environment takes the argument
        kwargs["render_mode"] = render_mode
    is_registered(gym_id)
    try:
        with TrapExits():
            return CheckedEnv(gymnasium.make(gym_id, disable_env_checker=True, **kwargs), gym_id)
    except UsageError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        install = "pip install 'self-imitation[mujoco]'" if is_mujoco(gym_id) else first_line(error)
        raise UsageError(f"env: {gym_id!r} needs a package that is not installed: {install}") from None
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        hint = "; for Atari games use atari:GAME, as in atari:Pong" if gym_id.startswith("ALE/") else ""
        raise UsageError(
            f"env: {gym_id!r} can't be created; {first_line(error) or type(error).__name__}{hint}"
        ) from None
    except Exception as error:
        raise UsageError(f"env: {gym_id!r} can't be created; it {in_words(error)}") from error


def is_mujoco(gym_id: str) -> bool:
    """Whether this is one of Gymnasium's own MuJoCo tasks."""
    entry = gymnasium.registry.get(gym_id)
    return entry is not None and str(entry.entry_point).startswith("gymnasium.envs.mujoco")
