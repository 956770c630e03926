"""Hook of MkDocs: tables of settings, from the dataclasses that declare them.

A page asks for one with a line such as `<!-- settings: self_imitation.settings.NetworkConfig network. -->`: the
dataclass, and what its settings' names begin with.
"""

import dataclasses
import importlib
import inspect
import re
from functools import cache
from typing import Any

import griffe

REQUEST = re.compile(r"^<!-- settings: (\S+)\.(\w+)(?: (\S+))? -->$", re.M)


def on_page_markdown(markdown: str, **_: object) -> str:
    return REQUEST.sub(_requested, markdown)


def _requested(found: re.Match[str]) -> str:
    module, name, prefix = found.groups()
    return _table(getattr(importlib.import_module(module), name), prefix or "")


def _table(kind: Any, prefix: str) -> str:
    lines = ["| setting | default | allowed | |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        value = field.default_factory() if field.default is dataclasses.MISSING else field.default
        if not field.compare or field.name == "components" or dataclasses.is_dataclass(value):
            continue
        allowed = field.metadata["allowed"][1] if "allowed" in field.metadata else ""
        cells = (f"`{prefix}{field.name}`", f"`{value}`", allowed, _docstring(kind, field.name))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _docstring(kind: type, name: str) -> str:
    """What follows the declaration of a field, as one line."""
    owner = next(base for base in kind.__mro__ if name in inspect.get_annotations(base))
    docstring = _package()[f"{owner.__module__}.{owner.__name__}.{name}".split(".", 1)[1]].docstring
    return " ".join(docstring.value.split()) if docstring else ""


@cache
def _package() -> Any:
    return griffe.load("self_imitation")
