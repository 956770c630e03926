"""Python modules that environment ids and wrappers name, as in "my_module:MyEnv-v0". Importing one runs its code."""

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def module_of(name: str) -> str | None:
    """The module that is imported before the environment or the wrapper is looked up, if its name has one."""
    module, colon, _ = name.partition(":")
    return module if colon else None


def search_working_directory() -> None:
    """Find modules there too, after all others."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def locate(module: str) -> list[Path]:
    """The files and directories that importing a module would run or search, outermost package first.

    Empty if there is no such module. Unlike `importlib.util.find_spec`, this runs no code, not even that of the
    packages around the module.
    """
    search, found = [*sys.path, os.getcwd()], []
    for part in module.split("."):
        spec = PathFinder.find_spec(part, search)
        if spec is None:
            return []
        search = list(spec.submodule_search_locations or ())
        found += [Path(place).resolve() for place in (spec.origin, *search) if place]
    return found
