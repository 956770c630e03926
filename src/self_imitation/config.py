"""Every setting of a run, with its meaning and the source of its value.

Later layers override earlier ones: the defaults below, the learner's, the environment's, the preset's, the user's flags
(see `resolve`). The settings of learners and bonuses are declared beside them.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from self_imitation import registry, settings
from self_imitation.environments import registry as environments
from self_imitation.errors import UsageError, bad_value, unknown_name
from self_imitation.registry import SELF_IMITATION, AgentName, parse_agent
from self_imitation.settings import (
    BOOLEAN,
    Change,
    NetworkConfig,
    NormaliseConfig,
    OptimiserConfig,
    ReplayConfig,
    SelfImitationConfig,
    as_declared,
    flatten,
    is_plain,
    one_of,
    or_none,
    real,
    setting,
    whole,
)

BasePreset = Literal["authors", "paper"]
Engine = Literal["auto", "jax", "envpool", "ale", "gymnasium", "processes"]
PRESET_SUFFIX = ".toml"
"""Of files with a user's preset."""


def _is_preset(v: Any) -> bool:
    return isinstance(v, str) and (v in PRESETS or v.endswith(PRESET_SUFFIX))


def _are_keywords(v: Any) -> bool:
    return isinstance(v, Mapping) and all(isinstance(key, str) and is_plain(own) for key, own in v.items())


def _are_wrappers(v: Any) -> bool:
    return isinstance(v, tuple) and all(isinstance(own, str) and _WRAPPER.fullmatch(own) for own in v)


_WRAPPER = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class TrainConfig:
    """A run: agent, environment, duration and every hyperparameter."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[ENV]")] = "key-door-treasure"
    """Environment: a name from `sil list`, atari:GAME such as atari:Pong, xland:ID of XLand-MiniGrid, or gym:ID for any
    Gymnasium environment, such as gym:CartPole-v1 or gym:my_package:MyEnv-v0."""
    env_kwargs: Annotated[Mapping[str, Any], tyro.conf.arg(name="env.KEY", metavar="VALUE")] = field(
        default_factory=dict,
        metadata={"allowed": (_are_keywords, "numbers, text, booleans, lists and tables, by name")},
    )
    """Keyword argument KEY of a Gymnasium environment: a number, true, false or text. May be repeated."""
    wrappers: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(name="wrapper", metavar="MODULE:CLASS")
    ] = setting((), (_are_wrappers, "MODULE:CLASS for each"))
    """MODULE:CLASS of a Gymnasium wrapper around the environment. May be repeated: the first one is the innermost."""
    agent: str = "a2c+sil"
    """Parts of the agent: a learner, then +sil for self-imitation and + any exploration bonus (see `sil list`)."""
    preset: Annotated[str, tyro.conf.arg(metavar="authors|paper|FILE.toml")] = setting(
        "authors", (_is_preset, "authors, paper, or a file whose name ends in .toml")
    )
    """Where paper and published code differ: `authors` follows the code, `paper` the equations. Or FILE.toml, with
    settings of your own over one of them."""
    steps: int = setting(1_000_000, whole(1, 10**15))
    """Environment steps per seed, summed over its environments (rounded up to whole iterations)."""
    seeds: int = setting(4, whole(1, 65_536))
    """Independent agents trained at once, each with its own replay buffer and random numbers."""
    seed: int = setting(0, whole(0, 2**32 - 1))
    """First seed S: seeds S ... S+K-1 are trained."""
    out: str | None = setting(None, (lambda v: v is None or (isinstance(v, str) and bool(v)), "a path, or None"))
    """Run directory. None: a new one under runs/."""
    num_envs: int = setting(16, whole(1, 65_536))
    """Environments per seed (paper: 16 with A2C, 1 with PPO on MuJoCo)."""
    num_steps: int = setting(5, whole(1, 65_536))
    """Steps per environment and iteration; n of the n-step returns (paper: 5 with A2C, 2048 with PPO)."""
    delay: int = setting(1, whole(1, 10**6))
    """Pay the accumulated reward every this many steps and at the end of the episode (paper, section 5.6: 20). 1: every
    reward at once."""
    rewards: Literal["raw", "sign"] = setting("raw", one_of("raw", "sign"))
    """Train on rewards as they are or on their sign (paper: on Atari); reported returns are raw either way."""
    engine: Engine = setting("auto", one_of("auto", "jax", "envpool", "ale", "gymnasium", "processes"))
    """How environments are stepped. jax: pure JAX; envpool, ale: inside the compiled program; gymnasium: a Python loop;
    processes: a Python loop with one process per environment, for slow environments. auto: the fastest available."""
    workers: int | None = setting(None, or_none(whole(1, 4096)))
    """Threads that train groups of seeds side by side, on a CPU or on each GPU. None: one per core, one per GPU."""
    device: Literal["auto", "cpu", "gpu"] = setting("auto", one_of("auto", "cpu", "gpu"))
    """Where networks run. auto: on the CPU where querying a GPU for every action is slower than computing on the CPU,
    otherwise on the GPU if there is one."""
    devices: int | None = setting(None, or_none(whole(1, 4096)))
    """Number of GPUs to spread the seeds over, each with a group of them. None: all that JAX sees, at most one per
    seed."""
    time_limit: Literal["bootstrap", "terminal"] = setting("bootstrap", one_of("bootstrap", "terminal"))
    """How on-policy returns treat time limits: bootstrap from the value, or terminate (authors' code, on its tasks).
    With bootstrap, sil.truncated_returns says what stored returns do."""
    log_every: int = setting(20_000, whole(1, 10**15))
    """Steps per seed between rows of metrics.csv."""
    checkpoint_seconds: float = setting(60.0, real(0))
    """Seconds between checkpoints; one more is written at the end and on Ctrl-C."""
    checkpoints_kept: int = setting(3, whole(1, 10**6))
    """Number of latest checkpoints to keep."""
    eval_every: int | None = setting(None, or_none(whole(1, 10**15)))
    """Steps per seed between evaluations in fresh episodes (rounded to whole rows of metrics.csv); one more is made at
    the end. They don't change the training. The best policy of each seed is kept. None: no evaluation."""
    eval_episodes: int = setting(10, whole(1, 10**6))
    """Episodes per seed and evaluation."""
    eval_greedy: bool = setting(False, BOOLEAN)
    """Evaluate the most likely actions instead of sampling as in training."""
    stop_at: float | None = setting(None, or_none(real(-math.inf)))
    """Stop when the mean return of an evaluation, over all seeds, reaches this. None: train to the end."""
    patience: int | None = setting(None, or_none(whole(1, 10**6)))
    """Stop after this many evaluations in a row whose mean return, over all seeds, was not higher than before. None:
    train to the end."""
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
    wandb: bool = setting(False, BOOLEAN)
    """Also log to Weights & Biases, each seed as a run of one group. Needs the extra `wandb`."""
    wandb_project: str | None = setting(
        None, (lambda v: v is None or (isinstance(v, str) and bool(v)), "a name, or None")
    )
    """Project there. None: $WANDB_PROJECT, or self-imitation."""
    compilation_cache: bool = setting(True, BOOLEAN)
    """Keep compiled programs in the user's cache directory, for faster starts."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)
    sil: SelfImitationConfig = field(default_factory=lambda: SelfImitationConfig(gamma=None))
    components: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    """Settings of the agent's learner and bonuses, by name."""
    changes: tyro.conf.Suppress[tuple[Change, ...]] = field(default=(), compare=False)
    """Settings that had other values in earlier parts of the run."""
    make_env: tyro.conf.Suppress[Callable[..., Any] | None] = field(default=None, compare=False, repr=False)
    """Makes a copy of an environment that was passed from Python."""

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
    def iterations_per_evaluation(self) -> int | None:
        """A whole number of rows."""
        if self.eval_every is None:
            return None
        steps_per_row = self.iterations_per_row * self.steps_per_iteration
        return self.iterations_per_row * max(1, round(self.eval_every / steps_per_row))

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


@dataclass(frozen=True)
class Preset:
    """Settings over the defaults of the environment, under the user's own."""

    name: str
    base: BasePreset
    """The shipped preset that a user's own one extends."""
    settings: Mapping[str, object] = field(default_factory=dict)
    agent: str | None = None
    """The agent if the user names none."""


PRESETS: Mapping[BasePreset, Mapping[str, object]] = {
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

HYPERPARAMETERS = ("num_envs", "num_steps", "rewards", "time_limit", "precision", "overlap")
"""Settings that a preset may have, beside those of the network, the optimiser and the parts of the agent."""

MAY_CHANGE = (
    "steps",
    "out",
    "checkpoint_seconds",
    "checkpoints_kept",
    "workers",
    "devices",
    "compilation_cache",
    "stop_at",
    "patience",
    "wandb",
    "wandb_project",
)
"""Settings that don't change what is learned; they may differ between parts of a run."""


NO_EFFECT = (
    *((name, "eval_every", None) for name in ("eval_episodes", "eval_greedy", "stop_at", "patience")),
    ("wandb_project", "wandb", False),
    ("optimiser.decay", "optimiser.kind", "adam"),
    ("sil.n_steps", "sil.bound", "monte-carlo"),
    ("sil.truncated_returns", "time_limit", "terminal"),
    ("sil.vf_coef", "sil.value", "own"),
    ("sil.value_learning_rate", "sil.value", "shared"),
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


def resolve(env: str, preset: str | Preset, overrides: Mapping[str, object] | None = None) -> TrainConfig:
    """The settings of a run: all layers of defaults, then `overrides` by dotted names, which may name the agent."""
    overrides = dict(overrides or {})
    entry = environments.find(env)
    chosen = preset if isinstance(preset, Preset) else shipped_preset(preset)
    agent = parse_agent(str(overrides.pop("agent", chosen.agent or TrainConfig.agent)))
    components = {name: registry.components()[name].component.Config() for name in agent.components}
    config = TrainConfig(env=entry.name, preset=chosen.name, agent=str(agent), components=components)
    learner = registry.learners()[agent.learner].component
    layers = (
        learner.defaults,
        entry.defaults,
        *(entry.component_defaults.get(name, {}) for name in agent.components),
        PRESETS[chosen.base],
        learner.preset_defaults.get(chosen.base, {}),
        entry.preset_defaults.get(chosen.base, {}),
    )
    for layer in layers:
        config = override(config, layer)
    try:
        config = override(config, chosen.settings)
        if chosen.settings:
            check_values(config)
    except UsageError as error:
        raise UsageError(f"{chosen.name}: {error}") from None
    return override(config, overrides)


def shipped_preset(name: object) -> Preset:
    for known in PRESETS:
        if name == known:
            return Preset(known, known)
    raise unknown_name("preset", str(name), [*PRESETS, f"FILE{PRESET_SUFFIX}"])


def is_hyperparameter(name: str) -> bool:
    """Whether a preset may have this setting: not what is trained, for how long, and where."""
    return name in HYPERPARAMETERS or ("." in name and not name.startswith("env."))


def override(config: TrainConfig, changes: Mapping[str, object]) -> TrainConfig:
    """A copy of the config in which each dotted name has a new value. `env.KEY`: one keyword argument."""
    known = flatten(config)
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if head == "env" and rest:
            config = dataclasses.replace(config, env_kwargs={**config.env_kwargs, rest: value})
            continue
        if name not in known:
            _refuse_unknown(config, name, known)
        if not rest:
            config = dataclasses.replace(config, **{head: as_declared(config, head, value)})  # type: ignore[arg-type]
        elif head in config.components:
            part = config.components[head]
            changed = dataclasses.replace(part, **{rest: as_declared(part, rest, value)})
            config = dataclasses.replace(config, components={**config.components, head: changed})
        else:
            part = getattr(config, head)
            changed = dataclasses.replace(part, **{rest: as_declared(part, rest, value)})
            config = dataclasses.replace(config, **{head: changed})
    return config


def _refuse_unknown(config: TrainConfig, name: str, known: Mapping[str, object]) -> None:
    head, _, rest = name.partition(".")
    entry = registry.components().get(head)
    if entry is not None and rest in {f.name for f in dataclasses.fields(entry.component.Config)}:
        raise UsageError(f"{name} has no effect with agent {config.agent!r}")
    raise unknown_name("setting", name, known)


def check_values(config: TrainConfig) -> None:
    """Raise a `UsageError` for the first setting whose value its rule does not allow."""
    settings.check(config)
    for name, own in config.components.items():
        settings.check(own, f"{name}.")


def validate(config: TrainConfig) -> TrainConfig:
    """The config with canonical names of environment and agent, or a `UsageError` that names the first bad value."""
    entry, agent = environments.find(config.env), config.parts
    config = dataclasses.replace(config, env=entry.name, agent=str(agent))
    check_values(config)
    if (config.env_kwargs or config.wrappers) and not entry.takes_arguments:
        name, value = ("env_kwargs", config.env_kwargs) if config.env_kwargs else ("wrapper", config.wrappers)
        raise bad_value(name, value, f"{entry.name} takes neither keyword arguments nor wrappers")
    config.sil.check_consistency()
    learner = registry.learners()[agent.learner].component
    learner.check(config.components[agent.learner], config.num_envs, config.num_steps)
    if config.devices is not None and config.devices > config.seeds:
        raise bad_value("devices", config.devices, f"allowed: at most one per seed, with seeds = {config.seeds}")
    if config.eval_every is not None and config.eval_every < config.log_every:
        least = f"at least log_every = {config.log_every}; for more frequent rows, lower log_every"
        raise bad_value("eval_every", config.eval_every, f"allowed: {least}")
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
