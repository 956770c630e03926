"""One copy of a Gymnasium environment: by its id, or by Python code that the user passed."""

import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from self_imitation.environments.gymnasium import wrappers
from self_imitation.environments.gymnasium.checks import CheckedEnv
from self_imitation.environments.gymnasium.faults import TrapExits, in_words
from self_imitation.environments.gymnasium.modules import module_of, search_working_directory
from self_imitation.errors import UsageError, bad_value, first_line, shorten

PACKAGES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""Packages that register ids with these prefixes when they are imported."""
OURS = ("id", "render_mode", "disable_env_checker", "vectorization_mode")
"""Arguments of `gymnasium.make` that are not the user's."""


@dataclass(frozen=True)
class EnvSource:
    """Where copies of an environment come from."""

    name: str
    """Its Gymnasium id; with a factory, what errors call it."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()
    """MODULE:CLASS of each, the innermost first."""
    factory: Callable[..., Any] | None = None
    """Makes a copy from the keyword arguments."""

    def create(self, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        """A copy without its wrappers."""
        if self.factory is None:
            return gymnasium.make(self.name, disable_env_checker=True, **kwargs)
        env = self.factory(**kwargs)
        if not isinstance(env, gymnasium.Env):
            raise UsageError(f"env: {self.name!r} made {shorten(env, 60)}, not a gymnasium.Env")
        return env

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Those of what makes the environment; empty if they are not known."""
        try:
            return inspect.signature(self.factory or _creator(self.name)).parameters
        except (TypeError, ValueError):
            return {}

    @property
    def is_mujoco(self) -> bool:
        """Whether this is one of Gymnasium's own MuJoCo tasks."""
        entry = gymnasium.registry.get(self.name)
        return self.factory is None and entry is not None and str(entry.entry_point).startswith("gymnasium.envs.mujoco")


def is_registered(gym_id: str) -> bool:
    """Whether Gymnasium knows the id, or its module is part of it. Imports the package that registers it, if known."""
    for prefix, package in PACKAGES.items():
        if gym_id.startswith(prefix) and importlib.util.find_spec(package):
            importlib.import_module(package)
    return module_of(gym_id) is not None or gym_id in gymnasium.registry


def make_env(source: EnvSource | str, render_mode: str | None = None, **kwargs: Any) -> CheckedEnv:
    """A Gymnasium id stands for a source without arguments. It may name a module that registers it, as in
    "my_module:MyEnv-v0"; the working directory is searched too.

    `kwargs`: under those of the source.

    Raises `UsageError` if the environment can't be created or its spaces are not supported.
    """
    source = EnvSource(source) if isinstance(source, str) else source
    for name in source.kwargs:
        if name in OURS:
            raise bad_value(f"env.{name}", source.kwargs[name], "it is set by the program itself")
    if source.factory is None:
        if module_of(source.name) is not None:
            search_working_directory()
        is_registered(source.name)
    if render_mode is not None and (source.factory is None or "render_mode" in source.parameters):
        kwargs["render_mode"] = render_mode  # not every environment takes the argument
    try:
        with TrapExits():
            env = wrappers.wrap(source.create({**kwargs, **source.kwargs}), source.wrappers)
            return CheckedEnv(env, source.name)
    except UsageError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        install = "pip install 'self-imitation[mujoco]'" if source.is_mujoco else first_line(error)
        raise UsageError(f"env: {source.name!r} needs a package that is not installed: {install}") from None
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        hint = "; for Atari games use atari:GAME, as in atari:Pong" if source.name.startswith("ALE/") else ""
        raise UsageError(
            f"env: {source.name!r} can't be created; {first_line(error) or type(error).__name__}{hint}"
        ) from None
    except Exception as error:
        _refuse_unknown_keyword(source, error)
        raise UsageError(f"env: {source.name!r} can't be created; it {in_words(error)}") from error


def _refuse_unknown_keyword(source: EnvSource, error: Exception) -> None:
    """Raise a `UsageError` if the environment does not have one of its keyword arguments."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if not isinstance(error, TypeError) or found is None or found[1] not in source.kwargs:
        return
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [name for name, own in source.parameters.items() if own.kind in kinds and name not in OURS]
    allowed = f"allowed: {', '.join(known)}" if known else "it takes no keyword arguments"
    raise UsageError(f"env.{found[1]}: {source.name!r} has no such keyword argument; {allowed}") from None


def _creator(gym_id: str) -> Callable[..., Any]:
    entry_point = gymnasium.spec(gym_id).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point or (lambda: None)
