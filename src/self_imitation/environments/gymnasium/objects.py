"""Environments that a Python program passes as classes, functions or objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from self_imitation.environments.gymnasium.make import OURS
from self_imitation.errors import UsageError, bad_value
from self_imitation.settings import is_plain

ALLOWED = "allowed: a name, a class or function that makes an environment, or what gymnasium.make returns"


@dataclass(frozen=True)
class GivenEnv:
    """An environment by its name, and what else is needed to make it."""

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    factory: Callable[..., Any] | None = None


def from_object(env: object) -> GivenEnv:
    """A name, a class or function that makes an environment, or an environment that Gymnasium made.

    An object can't be copied, so copies are made from its spec. Raises `UsageError` if it has none.
    """
    if isinstance(env, str):
        return GivenEnv(env)
    if isinstance(env, gymnasium.Env):
        return _from_spec(env)
    if callable(env):
        return GivenEnv(f"python:{_name(env)}", factory=env)
    raise bad_value("env", env, ALLOWED)


def _from_spec(env: gymnasium.Env[Any, Any]) -> GivenEnv:
    spec, kind = env.spec, type(env).__name__
    advice = f"pass a function that makes it, such as env=lambda: {kind}(...)"
    if spec is None:
        raise UsageError(f"env: copies of this {kind} are needed, and it was not made by gymnasium.make; {advice}")
    unknown = [wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None]
    if unknown:
        raise UsageError(f"env: copies are needed, and Gymnasium can't copy its wrapper {unknown[0]}; {advice}")
    usual = gymnasium.registry.get(spec.id)
    kwargs = _changed_arguments(spec, usual) if usual is not None else {}
    if usual is not None and not spec.additional_wrappers and is_plain(kwargs):
        return GivenEnv(f"gym:{spec.id}", kwargs)
    names = "+".join([spec.id, *(wrapper.name for wrapper in spec.additional_wrappers)])
    return GivenEnv(f"python:{names}", factory=partial(_make_from_spec, spec))


def _changed_arguments(spec: EnvSpec, usual: EnvSpec) -> dict[str, Any]:
    """Arguments of `gymnasium.make` that were not the id's own."""
    changed = {
        name: value
        for name, value in spec.kwargs.items()
        if name not in OURS and not (name in usual.kwargs and usual.kwargs[name] == value)
    }
    if spec.max_episode_steps != usual.max_episode_steps:
        changed["max_episode_steps"] = -1 if spec.max_episode_steps is None else spec.max_episode_steps
    return changed


def _make_from_spec(spec: EnvSpec, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    return gymnasium.make(replace(spec, kwargs=kwargs), disable_env_checker=True)


def _name(make: Callable[..., Any]) -> str:
    """Of a function or a class; of other objects, that of what they call or of their class."""
    while isinstance(make, partial):
        make = make.func
    named = make if hasattr(make, "__qualname__") else type(make)
    return f"{named.__module__}.{named.__qualname__}"
