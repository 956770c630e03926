"""Every setting of a run, with its meaning and the source of its value.

This module imports no JAX, so that the command line starts at once. What holds in the end: the defaults below, over
them the environment's, over them the preset's, over them the user's flags (see `resolve`).
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from self_imitation.environments import catalogue
from self_imitation.errors import unknown_name

Preset = Literal["authors", "paper"]
Engine = Literal["auto", "envpool", "gymnasium", "processes", "ale"]


@dataclass(frozen=True)
class NetworkConfig:
    """The actor-critic's network."""

    hidden: tuple[int, ...] | None = None
    """Units of each hidden layer (authors' code: 64 64; paper, commented grid-world table: 64); after the convolutions,
    where observations are images (paper: 512). None: 64 64, or for images 512."""
    shared: bool | None = None
    """One body for policy and value; otherwise each has a network of its own, as in the authors' grid-world runs. None:
    one for images, otherwise two."""

    def filled(self, images: bool) -> "NetworkConfig":
        """With what None stands for."""
        hidden = self.hidden if self.hidden is not None else (512,) if images else (64, 64)
        return NetworkConfig(hidden, images if self.shared is None else self.shared)


@dataclass(frozen=True)
class OptimiserConfig:
    """One optimiser, shared by the on-policy and the self-imitation updates (authors' code)."""

    kind: Literal["rmsprop", "adam"] = "rmsprop"
    """RMSProp for A2C, Adam for PPO (authors' code)."""
    learning_rate: float = 7e-4
    """Step size, at first (paper: 7e-4 for A2C+SIL; for PPO+SIL the best of a list)."""
    schedule: Literal["constant", "linear"] = "constant"
    """The step size stays, or falls to 0 in a straight line by the end of the run (OpenAI's baselines, for MuJoCo)."""
    decay: float = 0.99
    """RMSProp: decay of the running mean of squared gradients (authors' code)."""
    epsilon: float = 1e-5
    """RMSProp: added to that mean inside the root, the mean starts at 1; Adam: added to the root (authors' code)."""
    max_gradient_norm: float = 0.5
    """The gradient is scaled down to this global norm (authors' code)."""


@dataclass(frozen=True)
class A2CConfig:
    """Advantage actor-critic (Eq. 4-6)."""

    discount: float = 0.99
    """gamma of the n-step returns (authors' code; 0.95 on the grid worlds)."""
    entropy_weight: float = 0.01
    """alpha in Eq. 5 (paper, hyperparameter tables; 0.03 on the grid worlds)."""
    value_weight: float = 0.5
    """beta^a2c in Eq. 4 (authors' code)."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation."""

    discount: float = 0.99
    """gamma of the advantages (paper, table of PPO+SIL hyperparameters)."""
    trace_decay: float = 0.95
    """lambda of generalised advantage estimation (paper, table of PPO+SIL hyperparameters)."""
    epochs: int = 10
    """Passes over each rollout (paper, table of PPO+SIL hyperparameters)."""
    minibatches: int = 32
    """Gradient steps of each pass: a rollout of 2048 in minibatches of 64 (paper, table of PPO+SIL hyperparameters).
    Steps that don't fill another minibatch sit the pass out, others each time."""
    clip: float = 0.2
    """How far the ratio of probabilities counts, up or down from 1 (authors' code)."""
    value_clip: float | None = 0.2
    """How far a value counts that moved away from what it was (authors' code). None: without limit."""
    entropy_weight: float = 0.0
    """Factor of the entropy bonus (paper, table of PPO+SIL hyperparameters)."""
    value_weight: float = 0.5
    """Factor of the value loss (authors' code)."""


@dataclass(frozen=True)
class NormaliseConfig:
    """Running normalisation of what the networks see; rollouts and memory stay raw."""

    observations: bool = False
    """Observations to mean 0 and variance 1, by all that was seen so far (authors' code, for PPO)."""
    rewards: bool = False
    """Rewards divided by the standard deviation of their discounted sums (authors' code, for PPO)."""
    clip: float = 10.0
    """Both are cut off beyond this (authors' code)."""


@dataclass(frozen=True)
class SelfImitationConfig:
    """Self-imitation (Eq. 1-3, Algorithm 1) and its memory."""

    updates: int = 4
    """M in Algorithm 1: self-imitation updates per iteration (paper, hyperparameter tables)."""
    batch: int = 512
    """Items drawn for one update (paper, hyperparameter tables); all that is stored, while that is less."""
    weight: float = 1.0
    """Factor of the whole loss (paper, hyperparameter tables)."""
    discount: float = 0.99
    """gamma of the stored returns (authors' code, also where A2C uses another)."""
    clip: float | None = None
    """Largest advantage (R - V)+ that counts. None: as it is (paper); 1: authors' code."""
    value_weight: float = 0.01
    """beta^sil in Eq. 1 (paper: 0.01; authors' code has an extra 1/2, so 0.005)."""
    entropy_weight: float = 0.0
    """Entropy bonus on the imitated samples (paper: none; authors' code: 0.01)."""
    average: Literal["batch", "imitated"] = "batch"
    """Divide the summed loss by the size of the batch (paper) or by the number of samples with R > V (authors)."""
    min_imitated: int = 64
    """With `average imitated`, divide by at least this (authors' code)."""
    max_neg_log_prob: float | None = None
    """Cap on -log pi as reported; its gradient is untouched (authors' code: 5)."""
    keep: Literal["all", "positive"] = "all"
    """Store all finished episodes (paper) or those with at least one reward > 0 (authors' code)."""
    capacity: int = 100_000
    """Finished steps that the memory holds; the oldest leave first (paper, hyperparameter tables)."""
    memory: Literal["device", "host"] = "device"
    """Where the memory lives: with the networks, or in the host's own memory, for GPUs that have little (slower).
    Frames take 0.7 GB for 100 000 steps, and as much again for unfinished episodes."""
    room: int | None = None
    """Latest steps kept of each unfinished episode. None: the environment's time limit; where there is none, or where
    frames would take too much room, the capacity divided by the number of environments."""
    start_after: int = 100
    """No update until the memory holds more than this many steps (authors' code)."""
    priority_exponent: float = 0.6
    """Drawn in proportion to max((R - V)+, 1e-6) to this power (paper, hyperparameter tables)."""
    bias_correction: float = 0.4
    """beta of the importance weights (p / p_min)^-beta (paper: 0.1 on hard exploration games, else 0.4)."""


@dataclass(frozen=True)
class CountConfig:
    """Count-based exploration: beta / sqrt(N(s')) added to the on-policy reward."""

    scale: float = 1.0
    """beta, the bonus at the first visit of a state (authors' code)."""


@dataclass(frozen=True)
class TrainConfig:
    """A run: what is trained, on what, for how long, and every hyperparameter."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[ENV]")] = "key-door-treasure"
    """The environment: a name that `sil list` shows, atari: and a game, as in atari:Pong, or gym: and any Gymnasium id,
    as in gym:CartPole-v1 or gym:my_package:MyEnv-v0."""
    agent: str = "a2c+sil"
    """What the agent is made of: a2c or ppo, then +sil, +exp or both."""
    preset: Preset = "authors"
    """Where paper and published code differ: `authors` as the code does it, `paper` by the letter of its equations."""
    steps: int = 1_000_000
    """Environment steps of each seed, over all of its environments (rounded up to whole iterations)."""
    seeds: int = 4
    """Independent agents trained at once, each with its own memory, counts and random numbers."""
    seed: int = 0
    """The first seed: seeds S ... S+K-1 are trained."""
    out: str | None = None
    """Directory of the run. None: a new one under runs/."""
    envs: int = 16
    """Environments that each agent acts in at once (paper, hyperparameter tables)."""
    rollout: int = 5
    """Steps in each environment per iteration; n of the n-step returns (paper, hyperparameter tables)."""
    delay: int = 1
    """Pay the sum of the rewards every this many steps and at the end (paper, section 5.6: 20). 1: as they come."""
    rewards: Literal["raw", "sign"] = "raw"
    """What is learnt from: the rewards, or their signs (paper, Atari); returns are reported as they are either way."""
    engine: Engine = "auto"
    """What runs an environment on the host: envpool (fast, an extra), gymnasium, processes (Gymnasium, one process for
    each environment: for slow ones) or ale (for atari: games, and for them alone). auto: ale for these, envpool for
    mujoco: tasks if it is installed, else gymnasium."""
    lanes: int | None = None
    """Processes among which the seeds are shared out, where the environment is on the host and the networks on the CPU.
    None: one for each core. 1: all in the one process, for a debugger."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where networks run. auto: on the CPU if they are small and the environment is on the host, where to ask a GPU
    for each action takes longer than to work it out; else on the GPU if there is one."""
    time_limit: Literal["bootstrap", "terminal"] = "bootstrap"
    """What a time limit is to the on-policy returns: a cut (bootstrap) or an end (terminal, authors' code)."""
    log_every: int = 20_000
    """Steps of each seed between two rows of metrics.csv."""
    checkpoint_seconds: float = 60.0
    """Seconds between two checkpoints; one more is written at the end and on Ctrl-C."""
    checkpoints_kept: int = 3
    """Checkpoints that stay on disk, the latest ones."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Numbers that the network computes with; parameters are float32 either way."""
    overlap: Literal["on", "off"] = "on"
    """A2C on images from the host: act and learn at the same time, with the policy as it was one iteration ago (on), or
    in the strict order of Algorithm 1, with the newest (off). PPO keeps to the strict order."""
    deterministic: bool = False
    """On a GPU: only operations that give the same bits each time (slower). On a CPU it always holds."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)
    a2c: A2CConfig = field(default_factory=A2CConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    sil: SelfImitationConfig = field(default_factory=SelfImitationConfig)
    exp: CountConfig = field(default_factory=CountConfig)

    @property
    def steps_per_iteration(self) -> int:
        return self.envs * self.rollout

    @property
    def iterations(self) -> int:
        return math.ceil(self.steps / self.steps_per_iteration)

    @property
    def iterations_per_row(self) -> int:
        return max(1, round(self.log_every / self.steps_per_iteration))

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.seeds))


PRESETS: Mapping[Preset, Mapping[str, object]] = {
    "authors": {
        "sil.clip": 1.0,
        "sil.value_weight": 0.005,
        "sil.entropy_weight": 0.01,
        "sil.average": "imitated",
        "sil.max_neg_log_prob": 5.0,
        "sil.keep": "positive",
    },
    "paper": {
        "sil.clip": None,
        "sil.value_weight": 0.01,
        "sil.entropy_weight": 0.0,
        "sil.average": "batch",
        "sil.max_neg_log_prob": None,
        "sil.keep": "all",
    },
}

PARTS = ("a2c", "ppo", "sil", "exp")
AGENTS: Mapping[str, str] = {
    "a2c": "advantage actor-critic (Eq. 4-6)",
    "a2c+exp": "A2C with a count-based exploration bonus",
    "a2c+sil": "A2C with self-imitation (Algorithm 1)",
    "a2c+sil+exp": "A2C with self-imitation and the exploration bonus",
    "ppo": "proximal policy optimisation",
    "ppo+exp": "PPO with a count-based exploration bonus",
    "ppo+sil": "PPO with self-imitation (section 5.6)",
    "ppo+sil+exp": "PPO with self-imitation and the exploration bonus",
}

# What the base algorithm brings, under the environment's settings (paper, hyperparameter tables; authors' code).
BASES: Mapping[str, Mapping[str, object]] = {
    "a2c": {},
    "ppo": {
        "envs": 8,
        "rollout": 256,
        "optimiser.kind": "adam",
        "optimiser.learning_rate": 3e-4,
        "normalise.observations": True,
        "normalise.rewards": True,
        "sil.updates": 10,
        "sil.weight": 0.1,
        "sil.capacity": 50_000,
        "sil.bias_correction": 0.1,
    },
}
BASE_PRESETS: Mapping[tuple[str, Preset], Mapping[str, object]] = {
    ("ppo", "authors"): {"sil.entropy_weight": 0.0, "sil.max_neg_log_prob": 100.0},
}


def agent_parts(agent: str) -> tuple[str, ...]:
    """`a2c+exp+sil` and `a2c+sil+exp` are the same agent; the base comes first."""
    parts = str(agent).split("+")
    ordered = "+".join(sorted(set(parts), key=lambda part: PARTS.index(part) if part in PARTS else len(PARTS)))
    if ordered not in AGENTS or len(set(parts)) != len(parts):
        raise unknown_name("agent", str(agent), AGENTS)
    return tuple(ordered.split("+"))


def resolve(env: str, preset: Preset, overrides: Mapping[str, object] | None = None) -> TrainConfig:
    """Defaults, over them those of the agent's base, over them the environment's, over them the preset's, over them
    `overrides` (dotted names), which may name the agent.
    """
    entry = catalogue.find(env)
    if preset not in PRESETS:
        raise unknown_name("preset", str(preset), PRESETS)
    config = TrainConfig(env=entry.name, preset=preset)
    base = agent_parts(str((overrides or {}).get("agent", config.agent)))[0]
    layers = (
        BASES[base],
        entry.defaults,
        entry.base_defaults.get(base, {}),
        PRESETS[preset],
        BASE_PRESETS.get((base, preset), {}),
        entry.preset_defaults.get(preset, {}),
        overrides or {},
    )
    for layer in layers:
        config = override(config, layer)
    return config


def override(config: Any, changes: Mapping[str, object]) -> Any:
    """A copy of the dataclass in which each dotted name has its new value."""
    known = flatten(config)
    for name, value in changes.items():
        if name not in known:
            raise unknown_name("setting", name, known)
        head, _, rest = name.partition(".")
        if rest:
            value = override(getattr(config, head), {rest: value})
        config = dataclasses.replace(config, **{head: value})
    return config


def flatten(config: Any) -> dict[str, object]:
    """The settings by their dotted names, in the order in which they are declared."""
    flat: dict[str, object] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if dataclasses.is_dataclass(value):
            flat.update({f"{f.name}.{name}": inner for name, inner in flatten(value).items()})
        else:
            flat[f.name] = value
    return flat
