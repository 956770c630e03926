"""Wrappers around an environment, by names such as "my_module:MyWrapper"."""

import importlib
from collections.abc import Iterable
from functools import reduce
from typing import Any

import gymnasium

from self_imitation.environments.gymnasium.faults import in_words
from self_imitation.environments.gymnasium.modules import search_working_directory
from self_imitation.errors import UsageError, bad_value, first_line, unknown_name


def wrap(env: gymnasium.Env[Any, Any], names: Iterable[str]) -> gymnasium.Env[Any, Any]:
    """The environment in its wrappers, the first one innermost. Imports their modules, also from the working directory.

    Raises `UsageError` for a wrapper that does not exist, is not a `gymnasium.Wrapper` or can't be created.
    """
    for name in names:
        kind = _find(name)
        try:
            env = kind(env)
        except Exception as error:
            raise UsageError(f"wrapper: {name!r} can't be created; it {in_words(error)}") from error
    return env


def _find(name: str) -> Any:
    """Only classes of wrappers: a config must not be able to call anything else that is importable."""
    module, _, path = name.partition(":")
    search_working_directory()
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"wrapper: {name!r} can't be imported; {first_line(error)}") from None
    except Exception as error:
        raise UsageError(f"wrapper: {name!r} can't be imported; {module} {in_words(error)}") from error
    try:
        kind = reduce(getattr, path.split("."), found)
    except AttributeError:
        known = [own for own, value in vars(found).items() if _is_wrapper(value)]
        raise unknown_name("wrapper", name, [f"{module}:{own}" for own in known]) from None
    if not _is_wrapper(kind):
        raise bad_value("wrapper", name, "allowed: a subclass of gymnasium.Wrapper")
    return kind


def _is_wrapper(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, gymnasium.Wrapper)
