"""Experiments as data: tasks, agents, seeds and steps, read from TOML. docs/experiments.md describes the fields."""

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeVar

import tomli_w

from self_imitation.errors import UsageError, bad_value, unknown_name
from self_imitation.settings import Rule, check, one_of, or_none, real, setting, whole
from self_imitation.storage import files

T = TypeVar("T")
NUMBER = real(-1e300, 1e300)
TEXT: Rule = (lambda v: isinstance(v, str), "text")
NAME: Rule = (lambda v: isinstance(v, str) and v.strip() != "" and v.isprintable(), "a name on one line")
STEPS = whole(1, 10**15)


def table_of(values: Rule) -> Rule:
    """Values by name."""
    return (
        lambda v: isinstance(v, Mapping) and all(isinstance(name, str) and values[0](own) for name, own in v.items()),
        f"a table whose values are {values[1]}",
    )


def list_of(values: Rule, length: int | None = None) -> Rule:
    return (
        lambda v: isinstance(v, tuple) and len(v) == (length or len(v)) and all(map(values[0], v)),
        f"a list of {length or 'values, each'} {values[1]}",
    )


def _is_value(v: Any) -> bool:
    return isinstance(v, bool | int | float | str) or (isinstance(v, tuple) and all(isinstance(u, int) for u in v))


VALUE: Rule = (_is_value, "numbers, text, true or false, or lists of integers")
SETTINGS = table_of(VALUE)
CANDIDATES = table_of((lambda v: isinstance(v, tuple) and len(v) > 0 and all(map(_is_value, v)), "lists of values"))


def _table(rule: Rule) -> Any:
    """A field that is an empty table unless it is given."""
    return dataclasses.field(default_factory=dict, metadata={"allowed": rule})


@dataclass(frozen=True)
class Task:
    """An environment, and what is known about it."""

    name: str = setting("", NAME)
    env: str = setting("", NAME)
    steps: int | None = setting(None, or_none(STEPS))
    """Per seed. None: those of the experiment."""
    settings: Mapping[str, Any] = _table(SETTINGS)
    solved: float | None = setting(None, or_none(NUMBER))
    """A seed whose final score is at least this solves the task."""
    normalise: tuple[float, float] | None = setting(None, or_none(list_of(NUMBER, 2)))
    """Scores that count as 0 and as 1 in aggregates over tasks; for Atari those of a random and of a human player."""
    paper: Mapping[str, float] = _table(table_of(NUMBER))
    """Scores in the paper, by agent. Names that are not agents of the experiment get columns of their own."""
    about: str = setting("", TEXT)
    """What the task is, for the page."""
    digits: int | None = setting(None, or_none(whole(0, 9)))
    """Decimal places of its scores. None: those of the experiment."""


@dataclass(frozen=True)
class Agent:
    """An agent with its settings; several may use the same algorithm."""

    name: str = setting("", NAME)
    """None given: that of the algorithm."""
    agent: str = setting("", NAME)
    settings: Mapping[str, Any] = _table(SETTINGS)
    search: Mapping[str, tuple[Any, ...]] = _table(CANDIDATES)
    """Settings with candidate values. All combinations are tried on other seeds; the best one is used."""
    group: str = setting("", TEXT)
    """Panel of the figure. Empty: the panel of the task."""


@dataclass(frozen=True)
class Claim:
    """What the paper claims, in words and as what must hold; a report says whether it does."""

    text: str = setting("", NAME)
    tasks: tuple[str, ...] = setting((), list_of(NAME))
    """None given: all."""
    higher: tuple[tuple[str, str], ...] = setting((), list_of(list_of(NAME, 2)))
    """Pairs from `compare`: the first agent is better."""
    not_lower: tuple[tuple[str, str], ...] = setting((), list_of(list_of(NAME, 2)))
    """Pairs from `compare`: the first agent is not detectably worse."""
    solved: tuple[str, ...] = setting((), list_of(NAME))
    """Agents that solve the tasks with more than half of their seeds."""
    unsolved: tuple[str, ...] = setting((), list_of(NAME))
    """Agents that solve them with less than half."""


@dataclass(frozen=True)
class Definition:
    """An experiment: every agent is trained on every task."""

    name: str = setting("", NAME)
    """None given: that of the file."""
    title: str = setting("", NAME)
    introduction: str = setting("", TEXT)
    notes: str = setting("", TEXT)
    """For the page, after the tables."""
    steps: int = setting(1_000_000, STEPS)
    seeds: int = setting(5, whole(1, 65_536))
    seed: int = setting(0, whole(0, 2**32 - 1))
    preset: Literal["authors", "paper"] = setting("authors", one_of("authors", "paper"))
    settings: Mapping[str, Any] = _table(SETTINGS)
    """Of all tasks and agents that have them."""
    measure: Literal["return_mean", "return_latest"] = setting("return_latest", one_of("return_mean", "return_latest"))
    """Of curves and final scores: mean return of the episodes of a logging interval, or of the latest 100 episodes."""
    primary: Literal["final", "area"] = setting("final", one_of("final", "area"))
    """What differences compare: final scores, or areas under the learning curves (the mean of a curve over the run)."""
    best_every: int | None = setting(None, or_none(STEPS))
    """Also keep the best episode of each this many steps."""
    compare: tuple[tuple[str, str], ...] = setting((), list_of(list_of(NAME, 2)))
    """Pairs of agents: the first minus the second."""
    paper_steps: int | None = setting(None, or_none(STEPS))
    """Steps per seed in the paper, where the experiment makes fewer."""
    search_seeds: int = setting(4, whole(1, 65_536))
    search_steps: int | None = setting(None, or_none(STEPS))
    """Per seed and candidate. None: those of the task."""
    columns: int | None = setting(None, or_none(whole(1, 20)))
    """Panels of the figure side by side. None: all."""
    digits: int = setting(2, whole(0, 9))
    run_name: str = setting("{task}_{agent}", (lambda v: _is_template(v), "text with {task} and {agent}"))
    """Name of a run's directory."""
    tasks: tuple[Task, ...] = ()
    agents: tuple[Agent, ...] = ()
    claims: tuple[Claim, ...] = ()

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)

    def agent(self, name: str) -> Agent:
        return next(agent for agent in self.agents if agent.name == name)

    def steps_of(self, task: Task) -> int:
        return task.steps or self.steps

    def digits_of(self, task: Task) -> int:
        return self.digits if task.digits is None else task.digits

    def directory(self, task: Task, agent: Agent) -> str:
        """Name of the run's directory."""
        return self.run_name.format(task=file_name(task.name), agent=file_name(agent.name))


def file_name(name: str) -> str:
    """A name of a task or agent as a part of the name of a directory."""
    return re.sub(r"[^\w.+=-]+", "-", name.replace(", ", "_"))


def _is_template(value: Any) -> bool:
    if not isinstance(value, str) or "{task}" not in value or "{agent}" not in value:
        return False
    return "/" not in value and re.fullmatch(r"[^{}]*", value.replace("{task}", "").replace("{agent}", "")) is not None


def read(name: str) -> Definition:
    """A shipped experiment by its name, or a user's own by the path of its file."""
    if name.endswith(".toml") or "/" in name:
        return parse(files.read_named(name), name, files.absolute(name).stem)
    if name not in shipped():
        raise unknown_name("experiment", name, [*shipped(), "all", "FILE.toml"])
    return parse(_definitions().joinpath(f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml", name)


def shipped() -> list[str]:
    """Names of the experiments that come with the package."""
    return sorted(file.name.removesuffix(".toml") for file in _definitions().iterdir() if file.name.endswith(".toml"))


def _definitions() -> Any:
    return resources.files("self_imitation.experiments").joinpath("definitions")


def parse(text: str, source: str, name: str = "") -> Definition:
    """The experiment that a TOML text describes; a mistake raises a `UsageError` that begins with `source`.

    `name`: of an experiment that does not name itself.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not valid TOML: {error}") from None
    tasks, agents, claims = data.pop("task", []), data.pop("agent", []), data.pop("claim", [])
    definition = dataclasses.replace(
        _build(Definition, {"name": name, "title": data.get("name", name), **data}, f"{source}: "),
        tasks=tuple(_parts(Task, tasks, f"{source}: task")),
        agents=tuple(_parts(Agent, agents, f"{source}: agent")),
        claims=tuple(_parts(Claim, claims, f"{source}: claim")) if claims else (),
    )
    _check_names(definition, source)
    return definition


def _parts(kind: type[T], entries: Any, place: str) -> Iterable[T]:
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{place}: one or more tables [[{place.rpartition(' ')[2]}]] are needed")
    for number, entry in enumerate(entries, start=1):
        usual = {"name": entry["agent"]} if kind is Agent and "agent" in entry else {}
        yield _build(kind, {**usual, **entry}, f"{place} {number}: ")


def _build(kind: type[T], data: Mapping[str, Any], prefix: str) -> T:
    """A dataclass from a table, with lists as tuples; unknown fields and bad values raise a `UsageError`."""
    fields = {field.name: field for field in dataclasses.fields(kind) if "allowed" in field.metadata}  # type: ignore[arg-type]
    for name in data:
        if name not in fields:
            known = [*fields, *(("task", "agent", "claim") if kind is Definition else ())]
            raise UsageError(f"{prefix}{unknown_name('field', name, known)}")
    given = {name: _tuples(value) for name, value in data.items()}
    for name, field in fields.items():
        allowed, text = field.metadata["allowed"]
        if name in given and not allowed(given[name]):
            raise bad_value(prefix + name, given[name], f"allowed: {text}")
    built = kind(**given)
    check(built, prefix)
    return built


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {name: _tuples(own) for name, own in value.items()} if isinstance(value, dict) else value


def _check_names(definition: Definition, source: str) -> None:
    """Names are unique, also as names of directories, and comparisons use those of agents."""
    for kind, names in (("task", [t.name for t in definition.tasks]), ("agent", [a.name for a in definition.agents])):
        for name in names:
            if [file_name(other) for other in names].count(file_name(name)) > 1:
                raise UsageError(
                    f"{source}: {kind}: {name!r} is used twice; names that differ in punctuation only clash"
                )
    agents = [agent.name for agent in definition.agents]
    for pair in definition.compare:
        for name in pair:
            if name not in agents:
                raise UsageError(f"{source}: compare: {unknown_name('agent', name, agents)}")
    for claim in definition.claims:
        _check_claim(claim, definition, f"{source}: claim {claim.text!r}: ")
    for agent in definition.agents:
        if both := set(agent.search) & set(agent.settings):
            raise bad_value(f"{source}: agent {agent.name!r}: search", both.pop(), "it is one of its settings")


def _check_claim(claim: Claim, definition: Definition, prefix: str) -> None:
    tasks, agents = [task.name for task in definition.tasks], [agent.name for agent in definition.agents]
    pairs = [" > ".join(pair) for pair in definition.compare]
    known = {"tasks": tasks, "solved": agents, "unsolved": agents, "higher": pairs, "not_lower": pairs}
    used = {field: getattr(claim, field) for field in known}
    used |= {field: [" > ".join(pair) for pair in used[field]] for field in ("higher", "not_lower")}
    for field, names in used.items():
        for name in names:
            if name not in known[field]:
                raise UsageError(f"{prefix}{unknown_name(field, name, known[field])}")


def to_toml(definition: Definition) -> str:
    """As `parse` reads it; fields with their default value are left out."""
    data = _changed(definition)
    for plural, name in (("claims", "claim"), ("tasks", "task"), ("agents", "agent")):
        if parts := data.pop(plural, ()):
            data[name] = [_changed(part) for part in parts]
    return tomli_w.dumps(data, multiline_strings=True)


def _changed(part: Any) -> dict[str, Any]:
    defaults = type(part)()
    named = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: value for name, value in named.items() if value != getattr(defaults, name)}


def resized(
    definition: Definition,
    scale: float = 1.0,
    steps: int | None = None,
    seeds: int | None = None,
    seed: int | None = None,
) -> Definition:
    """With another number of steps or seeds. `steps` holds for all tasks that would make more; `scale` is a factor."""

    def scaled(own: int | None) -> int | None:
        return None if own is None else max(1, round(min(own, steps or own) * scale))

    tasks = [dataclasses.replace(task, steps=scaled(task.steps)) for task in definition.tasks]
    given = dataclasses.replace(
        definition,
        steps=definition.steps if steps is None else steps,
        seeds=definition.seeds if seeds is None else seeds,
        seed=definition.seed if seed is None else seed,
    )
    check(given)
    return dataclasses.replace(
        given,
        steps=max(1, round(given.steps * scale)),
        search_steps=scaled(definition.search_steps),
        tasks=tuple(tasks),
    )
