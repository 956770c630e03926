"""Every setting of a run, with its meaning and the source of its value.

Later layers override earlier ones: the defaults below, the learner's, the environment's, the preset's, the user's flags
(see `resolve`). The settings of learners and bonuses are declared beside them.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from self_imitation import registry, settings
from self_imitation.environments import registry as environments
from self_imitation.errors import UsageError, bad_value, unknown_name
from self_imitation.registry import SELF_IMITATION, AgentName, parse_agent
from self_imitation.settings import (
    BOOLEAN,
    NetworkConfig,
    NormaliseConfig,
    OptimiserConfig,
    ReplayConfig,
    SelfImitationConfig,
    flatten,
    one_of,
    or_none,
    real,
    setting,
    whole,
)

Preset = Literal["authors", "paper"]
Engine = Literal["auto", "jax", "envpool", "ale", "gymnasium", "processes"]


@dataclass(frozen=True)
class TrainConfig:
    """A run: agent, environment, duration and every hyperparameter."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[ENV]")] = "key-door-treasure"
    """Environment: a name from `sil list`, atari:GAME such as atari:Pong, or gym:ID for any Gymnasium environment, such
    as gym:CartPole-v1 or gym:my_package:MyEnv-v0."""
    agent: str = "a2c+sil"
    """Parts of the agent: a learner, then +sil for self-imitation and + any exploration bonus (see `sil list`)."""
    preset: Preset = setting("authors", one_of("authors", "paper"))
    """Where paper and published code differ: `authors` follows the code, `paper` the equations."""
    steps: int = setting(1_000_000, whole(1, 10**15))
    """Environment steps per seed, summed over its environments (rounded up to whole iterations)."""
    seeds: int = setting(4, whole(1, 65_536))
    """Independent agents trained at once, each with its own replay buffer and random numbers."""
    seed: int = setting(0, whole(0, 2**32 - 1))
    """First seed S: seeds S ... S+K-1 are trained."""
    out: str | None = setting(None, (lambda v: v is None or (isinstance(v, str) and bool(v)), "a path, or None"))
    """Run directory. None: a new one under runs/."""
    num_envs: int = setting(16, whole(1, 65_536))
    """Environments per seed (paper, hyperparameter tables)."""
    num_steps: int = setting(5, whole(1, 65_536))
    """Steps per environment and iteration; n of the n-step returns (paper, hyperparameter tables)."""
    delay: int = setting(1, whole(1, 10**6))
    """Pay the accumulated reward every this many steps and at the end of the episode (paper, section 5.6: 20)."""
    rewards: Literal["raw", "sign"] = setting("raw", one_of("raw", "sign"))
    """Train on rewards as they are or on their sign (paper, Atari); reported returns are raw either way."""
    engine: Engine = setting("auto", one_of("auto", "jax", "envpool", "ale", "gymnasium", "processes"))
    """How environments are stepped. jax: pure JAX; envpool, ale: inside the compiled program; gymnasium: a Python loop;
    processes: a Python loop with one process per environment, for slow environments. auto: the fastest available."""
    workers: int | None = setting(None, or_none(whole(1, 4096)))
    """Threads that train groups of seeds side by side, on a CPU or on each GPU. None: one per core, one per GPU."""
    device: Literal["auto", "cpu", "gpu"] = setting("auto", one_of("auto", "cpu", "gpu"))
    """Where networks run. auto: on the CPU where querying a GPU for every action is slower than computing on the CPU,
    otherwise on the GPU if there is one."""
    time_limit: Literal["bootstrap", "terminal"] = setting("bootstrap", one_of("bootstrap", "terminal"))
    """How on-policy returns treat time limits: bootstrap from the value, or terminate (authors' code)."""
    log_every: int = setting(20_000, whole(1, 10**15))
    """Steps per seed between rows of metrics.csv."""
    checkpoint_seconds: float = setting(60.0, real(0))
    """Seconds between checkpoints; one more is written at the end and on Ctrl-C."""
    checkpoints_kept: int = setting(3, whole(1, 10**6))
    """Number of latest checkpoints to keep."""
    record: bool = setting(False, BOOLEAN)
    """Also write what `sil watch` shows: the episodes in the replay buffer, the policy, played episodes. Takes at most
    2 % of the training time and does not change the results."""
    precision: Literal["float32", "bfloat16"] = setting("float32", one_of("float32", "bfloat16"))
    """Precision of the network's hidden layers; parameters are always float32."""
    overlap: Literal["on", "off"] = setting("on", one_of("on", "off"))
    """Image observations with engine envpool: learn while the environments step, with a policy that acts one iteration
    behind (on), or keep the strict order of Algorithm 1 (off)."""
    deterministic: bool = setting(False, BOOLEAN)
    """Only use deterministic GPU operations (slower). Runs on a CPU are always deterministic."""
    compilation_cache: bool = setting(True, BOOLEAN)
    """Keep compiled programs in the user's cache directory, for faster starts."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)
    sil: SelfImitationConfig = field(default_factory=lambda: SelfImitationConfig(gamma=None))
    components: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    """Settings of the agent's learner and bonuses, by name."""

    @property
    def steps_per_iteration(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def iterations(self) -> int:
        return math.ceil(self.steps / self.steps_per_iteration)

    @property
    def total_steps(self) -> int:
        """Steps per seed, rounded up to whole iterations."""
        return self.iterations * self.steps_per_iteration

    @property
    def iterations_per_row(self) -> int:
        return max(1, round(self.log_every / self.steps_per_iteration))

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def parts(self) -> AgentName:
        return parse_agent(self.agent)

    @property
    def replay(self) -> dict[str, ReplayConfig]:
        """Settings of the agent's replay buffers, by the name of the component."""
        own = {SELF_IMITATION: self.sil} if self.parts.self_imitation else {}
        return own | {name: part for name, part in self.components.items() if isinstance(part, ReplayConfig)}


PRESETS: Mapping[Preset, Mapping[str, object]] = {
    "authors": {
        "sil.max_advantage": 1.0,
        "sil.vf_coef": 0.005,
        "sil.ent_coef": 0.01,
        "sil.average": "imitated",
        "sil.max_neg_log_prob": 5.0,
        "sil.keep": "positive",
    },
    "paper": {
        "sil.max_advantage": None,
        "sil.vf_coef": 0.01,
        "sil.ent_coef": 0.0,
        "sil.average": "batch",
        "sil.max_neg_log_prob": None,
        "sil.keep": "all",
    },
}

MAY_CHANGE = ("steps", "out", "checkpoint_seconds", "checkpoints_kept", "workers", "compilation_cache")
"""Settings that may change when a run is resumed."""


NO_EFFECT = (
    ("optimiser.decay", "optimiser.kind", "adam"),
    ("sil.n_steps", "sil.bound", "monte-carlo"),
    ("sil.bandit_window", "sil.updates_schedule", "constant"),
    ("sil.bandit_window", "sil.updates_schedule", "linear"),
    ("sil.updates", "sil.updates_schedule", "bandit"),
    ("simhash.learning_rate", "simhash.hash", "static"),
    ("simhash.renew_steps", "simhash.hash", "static"),
    *(
        (f"{learner}.{name}", f"{learner}.replay_ratio", 0)
        for learner in ("acer", "acper")
        for name in ("buffer_size", "batch_size", "segment_steps", "learning_starts")
    ),
)
"""A setting, and the value of another one with which it has no effect."""


def resolve(env: str, preset: Preset, overrides: Mapping[str, object] | None = None) -> TrainConfig:
    """The settings of a run: all layers of defaults, then `overrides` by dotted names, which may name the agent."""
    overrides = dict(overrides or {})
    entry = environments.find(env)
    if not isinstance(preset, str) or preset not in PRESETS:
        raise unknown_name("preset", str(preset), PRESETS)
    agent = parse_agent(str(overrides.pop("agent", TrainConfig.agent)))
    components = {name: registry.components()[name].component.Config() for name in agent.components}
    config = TrainConfig(env=entry.name, preset=preset, agent=str(agent), components=components)
    learner = registry.learners()[agent.learner].component
    layers = (
        learner.defaults,
        entry.defaults,
        *(entry.component_defaults.get(name, {}) for name in agent.components),
        PRESETS[preset],
        learner.preset_defaults.get(preset, {}),
        entry.preset_defaults.get(preset, {}),
        overrides,
    )
    for layer in layers:
        config = override(config, layer)
    return config


def override(config: TrainConfig, changes: Mapping[str, object]) -> TrainConfig:
    """A copy of the config in which each dotted name has a new value."""
    known = flatten(config)
    for name, value in changes.items():
        if name not in known:
            _refuse_unknown(config, name, known)
        head, _, rest = name.partition(".")
        if not rest:
            config = dataclasses.replace(config, **{head: value})  # type: ignore[arg-type]
        elif head in config.components:
            changed = dataclasses.replace(config.components[head], **{rest: value})
            config = dataclasses.replace(config, components={**config.components, head: changed})
        else:
            config = dataclasses.replace(config, **{head: dataclasses.replace(getattr(config, head), **{rest: value})})
    return config


def _refuse_unknown(config: TrainConfig, name: str, known: Mapping[str, object]) -> None:
    head, _, rest = name.partition(".")
    entry = registry.components().get(head)
    if entry is not None and rest in {f.name for f in dataclasses.fields(entry.component.Config)}:
        raise UsageError(f"{name} has no effect with agent {config.agent!r}")
    raise unknown_name("setting", name, known)


def validate(config: TrainConfig) -> TrainConfig:
    """The config with canonical names of environment and agent, or a `UsageError` that names the first bad value."""
    entry, agent = environments.find(config.env), config.parts
    config = dataclasses.replace(config, env=entry.name, agent=str(agent))
    settings.check(config)
    for name, own in config.components.items():
        settings.check(own, f"{name}.")
    config.sil.check_consistency()
    learner = registry.learners()[agent.learner].component
    learner.check(config.components[agent.learner], config.num_envs, config.num_steps)
    if config.seed + config.seeds > 2**32:
        raise bad_value("seeds", config.seeds, f"allowed: seed + seeds at most 2**32, with seed = {config.seed}")
    return config


def refuse_unused(config: TrainConfig, defaults: TrainConfig) -> None:
    """Settings that the agent would silently ignore are errors."""
    before, after = flatten(defaults), flatten(config)
    changed = [name for name, value in after.items() if value != before.get(name, value)]
    for name in changed:
        if name.startswith(f"{SELF_IMITATION}.") and not config.parts.self_imitation:
            raise UsageError(f"{name} has no effect with agent {config.agent!r}")
    if environments.find(config.env).atari_rom and config.normalise.observations:
        raise bad_value("normalise.observations", True, "allowed for Atari games: False (pixels are scaled to [0, 1])")
    for name, other, value in NO_EFFECT:
        if name in changed and after.get(other) == value:
            raise bad_value(name, after[name], f"it has no effect with {other} = {value}")
    for name, own in config.replay.items():
        field_name = f"{name}.importance_exponent"
        if field_name in changed and own.priority_exponent == 0:
            raise bad_value(field_name, own.importance_exponent, f"it has no effect with {name}.priority_exponent = 0")
    if "sil.vf_coef" in changed and config.sil.temperature > 0:
        raise bad_value("sil.vf_coef", config.sil.vf_coef, "it has no effect with sil.temperature above 0")
