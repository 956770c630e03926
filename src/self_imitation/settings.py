"""Declaring settings: a default, what is allowed, and where the value comes from."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from self_imitation.errors import bad_value

T = TypeVar("T")
Rule = tuple[Callable[[Any], bool], str]
"""A test of a value, and what it allows in words."""


LARGEST = 3.4e38
"""In float32, in which settings are computed with."""


def setting(default: T, allowed: Rule) -> T:
    """A dataclass field with a default and a rule."""
    return dataclasses.field(default=default, metadata={"allowed": allowed})


def whole(least: int, most: int = 2**62) -> Rule:
    return (
        lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v <= most,
        f"an integer >= {least}" + ("" if most == 2**62 else f" and <= {most}"),
    )


def real(low: float, high: float = math.inf, *, above: bool = False) -> Rule:
    lower = "" if low == -math.inf else f" {'>' if above else '>='} {low:g}"
    text = f"a finite number{lower}" + ("" if high == math.inf else f" and <= {high:g}")

    def allowed(v: Any) -> bool:
        number = isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= LARGEST
        return number and (low < v if above else low <= v) and v <= high

    return allowed, text


def one_of(*choices: object) -> Rule:
    return lambda v: any(
        v is c or (v == c and type(v) is type(c)) for c in choices
    ), f"one of {', '.join(map(str, choices))}"


def or_none(rule: Rule) -> Rule:
    return lambda v: v is None or rule[0](v), f"{rule[1]}, or None"


BOOLEAN = one_of(True, False)


def check(config: Any, prefix: str = "") -> None:
    """Raise a `UsageError` for the first field of a dataclass whose value its rule does not allow."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            check(value, f"{prefix}{field.name}.")
        elif "allowed" in field.metadata:
            allowed, text = field.metadata["allowed"]
            if not allowed(value):
                raise bad_value(prefix + field.name, value, f"allowed: {text}")


def is_plain(value: object) -> bool:
    """Whether JSON has such values: finite numbers, text, booleans, None, lists and tables."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and is_plain(own) for name, own in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return isinstance(value, str | bool | int | None) or (isinstance(value, float) and math.isfinite(value))


def as_declared(config: Any, name: str, value: object) -> object:
    """The value for a field of a dataclass: a float such as 1e6 as an integer where only integers are allowed."""
    kind: type = type(config)
    kinds = _types(kind).get(name, ())
    if isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds:
        return int(value)
    return value


@cache
def _types(kind: type) -> dict[str, tuple[Any, ...]]:
    """The alternatives of each field's type."""
    return {name: get_args(hint) or (hint,) for name, hint in get_type_hints(kind).items()}


@dataclass(frozen=True)
class Change:
    """A setting that was changed when a run was resumed at this step."""

    step: int
    setting: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.setting} {self.before} -> {self.after}"


def flatten(config: Any) -> dict[str, object]:
    """The settings of a dataclass by dotted names, in the order of their declaration. Fields that don't count when
    configs are compared are no settings.
    """
    flat: dict[str, object] = {}
    for field in dataclasses.fields(config):
        if not field.compare:
            continue
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            flat.update({f"{field.name}.{name}": inner for name, inner in flatten(value).items()})
        elif isinstance(value, Mapping) and field.name == "components":
            for part, settings in value.items():
                flat.update({f"{part}.{name}": inner for name, inner in flatten(settings).items()})
        else:
            flat[field.name] = value
    return flat


def _layers(v: Any) -> bool:
    return isinstance(v, tuple) and len(v) > 0 and all(whole(1, 16_384)[0](units) for units in v)


@dataclass(frozen=True)
class NetworkConfig:
    """The actor-critic's network."""

    kind: str = setting("default", (lambda v: isinstance(v, str), "the name of a network"))
    """default: MLP for vectors, the Nature CNN for images; or the name of a network that you registered."""
    hidden: tuple[int, ...] | None = setting(None, or_none((_layers, "one or more integers from 1 to 16384")))
    """Units of each hidden layer, after the convolutions for images. None: 64 64 (as in the authors' code), or 512
    for images (as in the paper)."""
    shared: bool | None = setting(None, or_none(BOOLEAN))
    """Share hidden layers between policy and value. None: shared for images, separate otherwise (as in the authors'
    code)."""

    def resolved(self, images: bool) -> "NetworkConfig":
        """Replace None by the default for this kind of observation."""
        hidden = self.hidden if self.hidden is not None else (512,) if images else (64, 64)
        return dataclasses.replace(self, hidden=hidden, shared=images if self.shared is None else self.shared)


@dataclass(frozen=True)
class OptimiserConfig:
    """The optimiser of the on-policy updates and, unless it has its own, of self-imitation."""

    kind: Literal["rmsprop", "adam"] = setting("rmsprop", one_of("rmsprop", "adam"))
    """authors' code: rmsprop for A2C, adam for PPO."""
    learning_rate: float = setting(7e-4, real(0, above=True))
    """Initial learning rate (paper: 7e-4 for A2C+SIL; for PPO+SIL one of 3e-4, 1e-4, 5e-5, 3e-5)."""
    schedule: Literal["constant", "linear"] = setting("constant", one_of("constant", "linear"))
    """Keep the learning rate constant (authors' code), or decay it linearly to 0 (OpenAI's baselines, for PPO)."""
    decay: float = setting(0.99, real(0, 1))
    """RMSProp: decay of the running mean of squared gradients (authors' code: 0.99)."""
    epsilon: float = setting(1e-5, real(0, above=True))
    """RMSProp: added to the mean square inside the root; Adam: added to the root (authors' code: 1e-5)."""
    max_grad_norm: float = setting(0.5, real(0, above=True))
    """Clip gradients to this global norm (authors' code: 0.5)."""


@dataclass(frozen=True)
class NormaliseConfig:
    """Running normalisation of network inputs; rollouts and replay buffer stay raw."""

    observations: bool = setting(False, BOOLEAN)
    """Normalise observations to mean 0 and variance 1 (authors' code: for PPO only)."""
    rewards: bool = setting(False, BOOLEAN)
    """Divide rewards by the standard deviation of their discounted sum (authors' code: for PPO only)."""
    clip: float = setting(10.0, real(0, above=True))
    """Clip observations to ± this value, and scale rewards so that none exceeds it (authors' code: 10; it clips
    both)."""


@dataclass(frozen=True)
class ReplayConfig:
    """A replay buffer of finished episodes."""

    gamma: float | None = setting(0.99, or_none(real(0, 1)))
    """Discount of the stored returns. None: the learner's. A lower one makes R small beside V: little is imitated."""
    keep: Literal["all", "positive", "informative"] = setting("all", one_of("all", "positive", "informative"))
    """Episodes to store. all: every one (paper); positive: those with a reward above 0 (authors' code); informative:
    those with any reward other than 0, and every one as soon as a reward below 0 has been seen, since then a return of
    0 may be a good one."""
    buffer_size: int = setting(100_000, whole(1, 10**8))
    """Capacity of the replay buffer in steps of finished episodes; the oldest are overwritten (paper: 100000 on Atari,
    50000 on MuJoCo, 1000 in grid worlds)."""
    max_pending_steps: int | None = setting(None, or_none(whole(1, 10**8)))
    """Steps of an unfinished episode that wait for its end; a longer episode is stored in parts, the older half of
    these steps at a time. None: the time limit; without one, or with image observations, the buffer size divided by
    the number of environments."""
    batch_size: int = setting(512, whole(1, 2**20))
    """Steps sampled per update (paper: 512); fewer while the buffer holds less."""
    learning_starts: int = setting(100, whole(0))
    """No updates until the buffer holds more than this many steps (authors' code: 100)."""
    priority_exponent: float = setting(0.6, real(0, 4))  # above 4, the smallest priority underflows in float32
    """Sample in proportion to max((R - V)+, 1e-6) to this power (paper: 0.6; on MuJoCo 0.6 or 1)."""
    importance_exponent: float = setting(0.4, real(0, 1))
    """Exponent of the importance weights (p / p_min)^-x (paper: 0.4; 0.1 on hard exploration games
    and on MuJoCo)."""

    def check_sizes(self, prefix: str) -> None:
        """Raise a `UsageError` if the buffer is smaller than what is sampled from it."""
        for name in ("batch_size", "learning_starts"):
            value = getattr(self, name)
            if value > self.buffer_size - (name == "learning_starts"):
                limit = "at most" if name == "batch_size" else "less than"
                raise bad_value(f"{prefix}{name}", value, f"allowed: {limit} {prefix}buffer_size = {self.buffer_size}")


@dataclass(frozen=True)
class SelfImitationConfig(ReplayConfig):
    """Self-imitation (Eq. 1-3, Algorithm 1) and its replay buffer."""

    truncated_returns: Literal["as-is", "continued"] = setting("as-is", one_of("as-is", "continued"))
    """Returns of episodes that a time limit cuts off, or that are stored in parts. as-is: of the rewards seen (paper);
    continued: as if an episode whose mean reward is below 0 went on at that reward for ever. Otherwise, where steps
    cost, the last ones before a time limit would look better than the values, and failures would be imitated."""
    updates: int = setting(4, whole(1, 65_536))
    """M in Algorithm 1: self-imitation updates per iteration (paper: 4 with A2C, 10 with PPO)."""
    updates_schedule: Literal["constant", "linear", "bandit"] = setting(
        "constant", one_of("constant", "linear", "bandit")
    )
    """constant: M in every iteration (paper); linear: M falls to 0 over the run; bandit: a bandit chooses M among 0, 1,
    2, 4 and 8 by the progress of the returns. Beyond the paper."""
    bandit_window: int = setting(100, whole(1, 10**6))
    """Iterations between two choices of the bandit."""
    loss_coef: float = setting(1.0, real(0))
    """Coefficient of the whole loss (paper: 1 with A2C, 0.1 with PPO)."""
    loss_coef_schedule: Literal["constant", "linear", "share"] = setting(
        "constant", one_of("constant", "linear", "share")
    )
    """constant: the same coefficient throughout (paper); linear: it falls to 0 over the run; share: it is multiplied by
    the share of sampled steps with R > V. Beyond the paper."""
    optimiser: Literal["shared", "own"] = setting("shared", one_of("shared", "own"))
    """shared: the learner's, with its running statistics (authors' code); own: another one with the same settings.
    Beside PPO's many steps, a shared Adam hardly moves for self-imitation, whatever the coefficient of its loss."""
    learning_rate: float | None = setting(None, or_none(real(0, above=True)))
    """Learning rate of self-imitation, where it has an optimiser of its own. None: the learner's."""
    value: Literal["shared", "own"] = setting("shared", one_of("shared", "own"))
    """The value that R is compared with. shared: V of the actor-critic, which self-imitation pushes up to the returns
    (paper); own: another network, which learns the mean of the sampled returns, so that V is left to the learner.
    Beyond the paper."""
    value_learning_rate: float = setting(1e-3, real(0, above=True))
    """Learning rate of self-imitation's own value, with Adam."""
    kl_ratio: float | None = setting(None, or_none(real(0, 100, above=True)))
    """How far self-imitation moves the policy relative to the learner, as a ratio of KL divergences: the size of its
    steps follows. None: steps are as large as the optimiser makes them (paper)."""
    temperature: float = setting(0.0, real(0))
    """alpha of lower-bound soft Q-learning (paper, section 4), in the units of the values. 0: self-imitation. Above 0:
    returns include the entropy of the policy that acted, and the loss is that of section 4.3, with the policy term
    times alpha and the value term with coefficient 1."""
    bound: Literal["monte-carlo", "n-step"] = setting("monte-carlo", one_of("monte-carlo", "n-step"))
    """The lower bound of the optimal value. monte-carlo: the return of the episode (paper); n-step: the rewards of n
    steps and the value after them (Tang 2020)."""
    n_steps: int = setting(5, whole(1, 10**6))
    """n of the n-step bound (Tang 2020: 5)."""
    max_advantage: float | None = setting(None, or_none(real(0, above=True)))
    """Clip the advantage (R - V)+ to this value. None: no clipping (paper); 1: authors' code."""
    vf_coef: float = setting(0.01, real(0))
    """beta^sil in Eq. 1 (paper: 0.01, on MuJoCo 0.01 or 0.05; the authors' code halves it)."""
    ent_coef: float = setting(0.0, real(0))
    """Entropy bonus on the imitated samples (paper: none; authors' code: 0.01 with A2C)."""
    average: Literal["batch", "imitated"] = setting("batch", one_of("batch", "imitated"))
    """Divide the summed loss by the batch size (paper) or by the number of samples with R > V (authors' code)."""
    min_imitated: int = setting(64, whole(1))
    """Lower bound of the divisor with `average imitated` (authors' code: 64)."""
    max_neg_log_prob: float | None = setting(None, or_none(real(0, above=True)))
    """Cap on the reported -log pi; the gradient is unaffected (authors' code: 5, with PPO 100)."""

    @property
    def constant_degree(self) -> bool:
        """Whether the number of updates and the coefficient of the loss stay the same."""
        return self.updates_schedule == "constant" and self.loss_coef_schedule == "constant"

    def check_consistency(self) -> None:
        if self.learning_rate is not None and self.optimiser == "shared":
            raise bad_value("sil.learning_rate", self.learning_rate, "it has no effect with sil.optimiser = shared")
        if self.value == "own" and self.temperature > 0:
            why = "allowed with sil.value = own: 0; lower-bound soft Q-learning needs sil.value = shared"
            raise bad_value("sil.temperature", self.temperature, why)
        self.check_sizes("sil.")
