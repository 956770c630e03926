"""The space of a search: for each setting a list of values or a range, and settings drawn from it."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from self_imitation.config import (
    HYPERPARAMETERS,
    TrainConfig,
    check_values,
    is_hyperparameter,
    override,
    refuse_unused,
    validate,
)
from self_imitation.errors import UsageError, bad_value
from self_imitation.settings import flatten
from self_imitation.storage import settings_file

DIGITS = 3
"""Significant digits of numbers drawn from a range: enough to search, few enough to read."""
MAX_DRAWS = 1000
"""How often settings are drawn in vain before a space is taken for exhausted."""
FILE_SUFFIX, TABLE = ".toml", "search"
ALLOWED = "allowed: values such as 1,2,4, or a range such as 1e-4..1e-2 or 1e-4..1e-2:log"

Candidate = dict[str, Any]
"""Settings by their dotted names."""
Given = Mapping[str, object]
"""For each setting a list of values, one value, or text: values with commas between them, or a range."""


@dataclass(frozen=True)
class Choices:
    values: tuple[Any, ...]

    def sample(self, random: np.random.Generator) -> Any:
        return self.values[int(random.integers(len(self.values)))]

    def __str__(self) -> str:
        return ",".join(_text(value) for value in self.values)


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, both included; `log`: uniform in the logarithm."""

    low: float
    high: float
    log: bool
    whole: bool

    def sample(self, random: np.random.Generator) -> float:
        if self.whole and not self.log:
            return int(random.integers(int(self.low), int(self.high) + 1))
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = float(random.uniform(low, high))
        return self.rounded(math.exp(value) if self.log else value)

    def rounded(self, value: float) -> float:
        """With few digits, or as an integer, and inside the range."""
        value = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        return min(max(value, self.low), self.high)

    def __str__(self) -> str:
        return f"{_text(self.low)}..{_text(self.high)}{':log' * self.log}"


Space = Mapping[str, Choices | Range]


def read_words(words: Sequence[str], field: str) -> dict[str, object]:
    """NAME=VALUES from a command line, where a word that ends in .toml is a file (see `read_file`)."""
    given: dict[str, object] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals and word.endswith(FILE_SUFFIX):
            given |= read_file(word)
        elif not equals or not name or not text:
            raise bad_value(field, word, f"allowed: NAME=VALUES, or a file that ends in {FILE_SUFFIX}")
        else:
            given[_dotted(name)] = text
    return given


def read_file(path: str) -> dict[str, object]:
    """The table [search] of a TOML file; names have dots, or tables for their first parts."""
    found = settings_file.read_toml(path)
    names = {name: name.removeprefix(f"{TABLE}.") for name in found}
    if not found or any(name == own for name, own in names.items()):
        raise UsageError(f"{path}: allowed: one table, [{TABLE}], with values or a range for each setting")
    given: dict[str, object] = {}
    for name, own in names.items():
        inner = found[name]
        given |= {f"{own}.{part}": v for part, v in inner.items()} if isinstance(inner, dict) else {own: inner}
    return {_dotted(name): values for name, values in given.items()}


def build(config: TrainConfig, given: Given) -> Space:
    """Raises a `UsageError` for a setting that this agent does not have, and for values that are not allowed."""
    space = {}
    for name, values in given.items():
        override(config, {name: flatten(config).get(name)})  # refuses an unknown name
        if not is_hyperparameter(name):
            others = f"{', '.join(HYPERPARAMETERS)}, and settings with a dot, such as sil.updates"
            raise UsageError(f"search: {name!r} is not a hyperparameter; allowed: {others}")
        space[name] = _dimension(config, name, values)
    if not space:
        raise UsageError("search: no setting was named; allowed: one or more NAME=VALUES")
    return space


def read_settings(config: TrainConfig, words: Sequence[str]) -> Candidate:
    """NAME=VALUE from a command line, with values of the types that the settings have."""
    found = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or not text:
            raise bad_value("settings", word, "allowed: NAME=VALUE")
        found[_dotted(name)] = converted(config, _dotted(name), _value(text))
    return found


def draw(space: Space, random: np.random.Generator) -> Candidate:
    return {name: dimension.sample(random) for name, dimension in space.items()}


def draws(space: Space, seed: int) -> Iterator[Candidate]:
    """Settings at random, without end; the same ones for the same seed."""
    random = np.random.default_rng(seed)
    while True:
        yield draw(space, random)


def size(space: Space) -> float:
    """Number of combinations."""
    return math.prod(len(d.values) if isinstance(d, Choices) else _count(d) for d in space.values())


def apply(config: TrainConfig, candidate: Candidate) -> TrainConfig:
    """Raises a `UsageError` if these settings do not go together, or one of them has no effect."""
    changed = validate(override(config, candidate))
    refuse_unused(changed, config)
    return changed


def require_possible(config: TrainConfig, space: Space, seed: int) -> None:
    """Raise a `UsageError` if no combination of values can be trained."""
    refused = None
    for _, candidate in zip(range(MAX_DRAWS), draws(space, seed), strict=False):
        try:
            apply(config, candidate)
            return
        except UsageError as error:
            refused = error
    raise UsageError(f"search: no combination of these values is allowed: {refused}")


def converted(config: TrainConfig, name: str, value: Any) -> Any:
    """The value as the setting has it: an integer, or a list of them. Raises a `UsageError` if it is not allowed.

    Whether it goes together with other settings is only seen in combination.
    """
    one = isinstance(value, int) and not isinstance(value, bool)
    options = [tuple(value) if isinstance(value, list) else value, *([(value,)] if one else [])]
    refused = None
    for option in options:
        try:
            changed = override(config, {name: option})
            check_values(changed)
            return flatten(changed).get(name, option)
        except UsageError as error:
            refused = refused or error
    raise refused or UsageError(name)


def _dimension(config: TrainConfig, name: str, given: object) -> Choices | Range:
    if isinstance(given, str) and ".." in given:
        return _range(config, name, given)
    values = [_value(text) for text in given.split(",")] if isinstance(given, str) else given
    listed = list(values) if isinstance(values, list | tuple) else [values]
    if not listed:
        raise bad_value(f"search: {name}", given, ALLOWED)
    return Choices(tuple(dict.fromkeys(converted(config, name, value) for value in listed)))


def _range(config: TrainConfig, name: str, text: str) -> Range:
    matched = re.fullmatch(r"\s*(\S+?)\.\.([^:\s]+)(:log)?\s*", text)
    try:
        low, high = (float(matched[i]) for i in (1, 2)) if matched else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    if not matched or not math.isfinite(low) or not math.isfinite(high):
        raise bad_value(f"search: {name}", text, ALLOWED)
    if low >= high:
        raise bad_value(f"search: {name}", text, "allowed: a range whose first number is the smaller one")
    if matched[3] and low <= 0:
        raise bad_value(f"search: {name}", text, "allowed with :log: a range above 0")
    ends = [converted(config, name, end) for end in (low, high)]
    return Range(ends[0], ends[1], bool(matched[3]), all(isinstance(end, int) for end in ends))


def _count(dimension: Range) -> float:
    return dimension.high - dimension.low + 1 if dimension.whole else math.inf


def _dotted(name: str) -> str:
    return name.strip().removeprefix("--").replace("-", "_")


def _value(text: str) -> Any:
    """A value as a flag would have it; several words are a list of numbers."""
    words = text.split()
    if len(words) > 1:
        return [_value(word) for word in words]
    word = words[0] if words else ""
    named = {"None": None, "True": True, "False": False, "true": True, "false": False}
    if word in named:
        return named[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
