"""Typed command lines with tyro, whose boxed error messages are reduced to one line."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Sequence
from functools import cache, partial
from typing import TypeVar, get_type_hints

import docstring_parser
import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from self_imitation import settings
from self_imitation.errors import UsageError

T = TypeVar("T")

# tyro's messages, and ours: field, value, what is allowed.
_REWORDED = (
    (r"^Unrecognized options: ", "unknown options: "),
    (r"^Error parsing (\S+): ", r"\1: "),
    (r"invalid literal for int\(\) with base 10: (.*)$", r"\1 is not an integer"),
    (r"no type matching (.+?) could be instantiated from \[(.*?)\]\. Got errors.*$", r"\2 is not allowed; allowed: \1"),
    (r"allowed: \{None\}\|", "allowed: None or "),
    (r"\{\[INT \[INT \.\.\.\]\]\}", "integers"),
    (r"\bINT$", "an integer"),
    (r"\bFLOAT$", "a number"),
    (r"could not convert string to float: (.*)$", r"\1 is not a number"),
    (r"Could not find valid parse for arguments: \[(.*)\]$", r"\1 is not allowed"),
    (r"^invalid choice (.*) for argument '(.*)'\. Expected one of \((.*?),?\)$", r"\2: \1 is not allowed; allowed: \3"),
    (r"^Missing value for argument '(.*)'\. Expected \d+ values?$", r"\1: missing value"),
    (r"^Missing from sil \S+: \{(\S+)\} .*$", r"missing argument: one of \1"),
    (r"^Missing from sil \S+: (\S+) (.*?)\.? \(required\)$", r"missing argument \1: \2"),
)


def parse(
    kind: type[T], command: str, arguments: Sequence[str], default: T | None = None, summary: str | None = None
) -> T:
    """Fill the dataclass `kind` from the arguments. Help is printed; a mistake raises `UsageError`.

    `summary`: what the help says about the command, by default the docstring of `kind`.
    """
    errors = io.StringIO()
    start = tyro.MISSING_NONPROP if default is None else default
    program = f"sil {command}"
    try:
        with contextlib.redirect_stderr(errors):
            given = tyro.cli(
                kind, prog=program, args=list(arguments), description=summary, default=start, registry=_registry
            )
    except SystemExit as stopped:
        if not stopped.code:
            raise
        raise UsageError(f"{_one_line(errors.getvalue())} (see {program} --help)") from None
    settings.check(given)
    return given


def _one_line(box: str) -> str:
    """The first part of the message in tyro's box, and the most similar option if there is one.

    On terminals without box-drawing characters, the title is above a ruler instead of in the frame.
    """
    text = re.sub(r"\x1b\[[0-9;]*m|[│╰╮╯]", "", box)
    _, message, *rest = (" ".join(part.split()) for part in re.split("(?m)^(?:╭.*| *[─-]+ *)$", text))
    message = message.rstrip(". ")
    for theirs, ours in _REWORDED:
        message = re.sub(theirs, ours, message)
    nearest = re.search(r"Perhaps you meant: (\S+)", " ".join(rest))
    return message + (f"; did you mean {nearest[1]}?" if nearest else "")


_registry = ConstructorRegistry()


@_registry.struct_rule
def _dataclass(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Unlike this one, tyro's own rule keeps the line breaks of docstrings that continue on an indented line."""
    if not isinstance(info.type, type) or not dataclasses.is_dataclass(info.type):
        return None
    types = get_type_hints(info.type, include_extras=True)
    fields = []
    for field in dataclasses.fields(info.type):
        default = tyro.MISSING_NONPROP if field.default is dataclasses.MISSING else field.default
        if isinstance(info.default, info.type):
            default = getattr(info.default, field.name)
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        help_text = partial(_help_text, info.type, field.name)
        fields.append(StructFieldSpec(field.name, types[field.name], default, help_text))
    return StructConstructorSpec(info.type, tuple(fields))


def _help_text(kind: type, field: str) -> str | None:
    return next((docs[field] for docs in map(_docstrings, kind.__mro__[:-1]) if field in docs), None)


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Docstrings of a dataclass's fields, each on one line."""
    found = docstring_parser.parse_from_object(kind).params
    return {param.arg_name: " ".join((param.description or "").split()) for param in found}
