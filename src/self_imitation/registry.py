"""Learners and exploration bonuses by the names that an agent's name is made of. Add your own with `register_*`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from self_imitation.algorithm.a2c import A2C
from self_imitation.algorithm.acer import ACER, ACPER
from self_imitation.algorithm.components import Bonus, Learner
from self_imitation.algorithm.ppo import PPO
from self_imitation.algorithm.vtrace import VTrace
from self_imitation.errors import UsageError, unknown_name
from self_imitation.exploration.counts import CountBonus
from self_imitation.exploration.cts import CTSBonus
from self_imitation.exploration.pixelcnn import PixelCNNBonus
from self_imitation.exploration.rnd import RandomNetworkDistillation
from self_imitation.exploration.simhash import SimHash

SELF_IMITATION = "sil"
"""The part of an agent's name that adds self-imitation."""
RESERVED = (SELF_IMITATION, "network", "optimiser", "normalise", "components")
"""Names that settings have already."""


@dataclass(frozen=True)
class Entry:
    component: Any
    summary: str


_learners: dict[str, Entry] = {}
_bonuses: dict[str, Entry] = {}


def register_learner(name: str, learner: type[Learner], summary: str) -> None:
    """Make a learner available as the first part of an agent's name.

    Args:
        name: letters, digits and _; also the prefix of its settings.
        learner: the class.
        summary: for `sil list`.

    Raises:
        UsageError: the name is not allowed, or another component has it.
    """
    _register(_learners, name, learner, summary)


def register_bonus(name: str, bonus: type[Bonus], summary: str) -> None:
    """Make an exploration bonus available as a part of an agent's name.

    Args:
        name: letters, digits and _; also the prefix of its settings.
        bonus: the class.
        summary: for `sil list`.

    Raises:
        UsageError: the name is not allowed, or another component has it.
    """
    _register(_bonuses, name, bonus, summary)


def _register(registry: dict[str, Entry], name: str, component: Any, summary: str) -> None:
    if not name.isidentifier() or name in RESERVED:
        raise UsageError(
            f"name: {name!r} is not allowed; allowed: letters, digits and _, none of {', '.join(RESERVED)}"
        )
    other = _bonuses if registry is _learners else _learners
    known = registry.get(name) or other.get(name)
    if known is not None and known.component is not component:
        raise UsageError(f"name: {name!r} is already registered for {known.component.__name__}")
    registry[name] = Entry(component, summary)


def learners() -> Mapping[str, Entry]:
    return _learners


def bonuses() -> Mapping[str, Entry]:
    return _bonuses


def components() -> Mapping[str, Entry]:
    """Learners and bonuses by name."""
    return {**_learners, **_bonuses}


@dataclass(frozen=True)
class AgentName:
    """An agent's name, taken apart."""

    learner: str
    self_imitation: bool
    bonuses: tuple[str, ...]

    @property
    def components(self) -> tuple[str, ...]:
        return (self.learner, *self.bonuses)

    def __str__(self) -> str:
        return "+".join([self.learner, *[SELF_IMITATION] * self.self_imitation, *self.bonuses])


def parse_agent(name: str) -> AgentName:
    """`a2c+exp+sil` and `a2c+sil+exp` are the same agent. A `UsageError` names the part that is unknown."""
    learner, *rest = str(name).split("+")
    if learner not in _learners:
        raise unknown_name("agent", str(name), agents())
    for part in rest:
        if part != SELF_IMITATION and part not in _bonuses:
            raise unknown_name("agent", str(name), agents())
        if rest.count(part) > 1:
            raise UsageError(f"agent: {name!r} names {part!r} twice")
        if part != SELF_IMITATION and (reason := _learners[learner].component.refuses_bonuses):
            allowed = f"{learner}, {learner}+{SELF_IMITATION}"
            raise UsageError(f"agent: {name!r} is not allowed; {reason}; allowed: {allowed}")
    return AgentName(learner, SELF_IMITATION in rest, tuple(sorted(part for part in rest if part != SELF_IMITATION)))


def agents() -> Mapping[str, str]:
    """Names and summaries of the agents with at most one bonus."""
    names = {}
    for learner, entry in _learners.items():
        for imitates in (False, True):
            for bonus in (None, *(() if entry.component.refuses_bonuses else _bonuses)):
                name = AgentName(learner, imitates, () if bonus is None else (bonus,))
                parts = ["self-imitation"] * imitates + ([] if bonus is None else [_bonuses[bonus].summary])
                names[str(name)] = entry.summary + (f" with {' and '.join(parts)}" if parts else "")
    return names


register_learner("a2c", A2C, "advantage actor-critic")
register_learner("ppo", PPO, "proximal policy optimisation")
register_learner("vtrace", VTrace, "V-trace actor-critic (IMPALA)")
register_learner("acer", ACER, "actor-critic with experience replay")
register_learner("acper", ACPER, "actor-critic with prioritised experience replay")
register_bonus("exp", CountBonus, "a count-based bonus")
register_bonus("rnd", RandomNetworkDistillation, "random network distillation")
register_bonus("simhash", SimHash, "counts of hashed observations")
register_bonus("cts", CTSBonus, "pseudo-counts from a CTS density model")
register_bonus("pixelcnn", PixelCNNBonus, "pseudo-counts from a PixelCNN density model")
