"""Typed command lines with tyro, whose boxed error messages are reduced to one line."""

import contextlib
import dataclasses
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cache, partial
from typing import Any, TypeVar, get_origin, get_type_hints

import docstring_parser
import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from self_imitation import settings
from self_imitation.errors import UsageError

T = TypeVar("T")

# tyro's messages, and ours: field, value, what is allowed.
_REWORDED = (
    (r"^Unrecognized options: ", "unknown options: "),
    (r"^Error parsing (\S+): ", r"\1: "),
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


def split_keywords(arguments: Sequence[str], prefix: str) -> tuple[list[str], dict[str, object]]:
    """The arguments without flags such as --env.KEY VALUE, with the prefix "--env.", and the values of those by KEY."""
    rest, found, words = list[str](), dict[str, object](), iter(arguments)
    for word in words:
        if not word.startswith(prefix):
            rest.append(word)
            continue
        name, equals, text = word.partition("=")
        value = text if equals else next(words, None)
        if value is None or (not equals and value.startswith("--")):
            raise UsageError(f"{name}: missing value; write {name}=VALUE if it begins with --")
        found[name.removeprefix(prefix).replace("-", "_")] = to_value(value)
    return rest, found


PYTHON_VALUES = {"True": True, "False": False, "None": None}


def to_value(text: str) -> object:
    """A number, boolean or list as in TOML, True, False or None as in Python, or else the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return PYTHON_VALUES.get(text, text)
    return value["value"] if value.keys() == {"value"} and settings.is_plain(value) else text


def to_integer(text: str) -> int:
    """An integer in digits, also with underscores or as 1e6; nothing is rounded. Raises `ValueError`."""
    try:
        number = Decimal(text)
        if number.is_finite() and number.adjusted() < MAX_DIGITS and number == int(number):
            return int(number)
    except InvalidOperation:
        pass
    raise ValueError(f"{text!r} is not an integer")


MAX_DIGITS = 1000


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


@_registry.primitive_rule
def _integer(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Unlike this one, tyro's own rule does not know 1e6."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: to_integer(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


@_registry.primitive_rule
def _keywords(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Mapping[str, Any]] | None:
    """For the help only: such flags are taken by `split_keywords`."""
    if get_origin(info.type) is not Mapping:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="VALUE",
        instance_from_str=lambda words: {},
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: [" ".join(f"{name}={own}" for name, own in value.items()) or "none"],
    )


def _help_text(kind: type, field: str) -> str | None:
    return next((docs[field] for docs in map(_docstrings, kind.__mro__[:-1]) if field in docs), None)


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Docstrings of a dataclass's fields, each on one line."""
    found = docstring_parser.parse_from_object(kind).params
    return {param.arg_name: " ".join((param.description or "").split()) for param in found}
