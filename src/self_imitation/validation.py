"""What each setting may be, and what is refused. No JAX is imported here."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from self_imitation.config import PARTS, TrainConfig, agent_parts, flatten
from self_imitation.environments import catalogue
from self_imitation.errors import bad_value


def _whole(least: int, most: int = 2**62) -> tuple[Callable[[Any], bool], str]:
    return (
        lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v <= most,
        f"a whole number of {least} or more" + ("" if most == 2**62 else f", at most {most}"),
    )


def _real(low: float, high: float = math.inf, *, above: bool = False) -> tuple[Callable[[Any], bool], str]:
    text = f"a finite number {'above' if above else 'of'} {low:g}{' or more' if not above else ''}"
    text += "" if high == math.inf else f" and at most {high:g}"

    def allowed(v: Any) -> bool:
        number = isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
        return number and (low < v if above else low <= v) and v <= high

    return allowed, text


def _one_of(*choices: object) -> tuple[Callable[[Any], bool], str]:
    return lambda v: v in choices, f"one of {', '.join(map(str, choices))}"


def _or_none(rule: tuple[Callable[[Any], bool], str]) -> tuple[Callable[[Any], bool], str]:
    return lambda v: v is None or rule[0](v), f"{rule[1]}, or None"


def _layers(v: Any) -> bool:
    return isinstance(v, tuple) and len(v) > 0 and all(_whole(1, 16_384)[0](units) for units in v)


_TRUTH = _one_of(True, False)
RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "preset": _one_of("authors", "paper"),
    "steps": _whole(1, 10**15),
    "seeds": _whole(1, 65_536),
    "seed": _whole(0, 2**32 - 1),
    "out": (lambda v: v is None or (isinstance(v, str) and bool(v)), "a path, or None"),
    "envs": _whole(1, 65_536),
    "rollout": _whole(1, 65_536),
    "delay": _whole(1, 10**6),
    "engine": _one_of("auto", "envpool", "gymnasium", "processes", "ale"),
    "rewards": _one_of("raw", "sign"),
    "precision": _one_of("float32", "bfloat16"),
    "overlap": _one_of("on", "off"),
    "lanes": _or_none(_whole(1, 4096)),
    "device": _one_of("auto", "cpu", "gpu"),
    "time_limit": _one_of("bootstrap", "terminal"),
    "log_every": _whole(1, 10**15),
    "checkpoint_seconds": _real(0),
    "checkpoints_kept": _whole(1, 10**6),
    "deterministic": _TRUTH,
    "network.hidden": _or_none((_layers, "one or more whole numbers from 1 to 16384")),
    "network.shared": _or_none(_TRUTH),
    "optimiser.kind": _one_of("rmsprop", "adam"),
    "optimiser.learning_rate": _real(0, above=True),
    "optimiser.schedule": _one_of("constant", "linear"),
    "optimiser.decay": _real(0, 1),
    "optimiser.epsilon": _real(0, above=True),
    "optimiser.max_gradient_norm": _real(0, above=True),
    "normalise.observations": _TRUTH,
    "normalise.rewards": _TRUTH,
    "normalise.clip": _real(0, above=True),
    "a2c.discount": _real(0, 1),
    "a2c.entropy_weight": _real(0),
    "a2c.value_weight": _real(0),
    "ppo.discount": _real(0, 1),
    "ppo.trace_decay": _real(0, 1),
    "ppo.epochs": _whole(1, 10_000),
    "ppo.minibatches": _whole(1, 65_536),
    "ppo.clip": _real(0, above=True),
    "ppo.value_clip": _or_none(_real(0, above=True)),
    "ppo.entropy_weight": _real(0),
    "ppo.value_weight": _real(0),
    "sil.updates": _whole(1, 65_536),
    "sil.batch": _whole(1, 2**20),
    "sil.weight": _real(0),
    "sil.discount": _real(0, 1),
    "sil.clip": _or_none(_real(0, above=True)),
    "sil.value_weight": _real(0),
    "sil.entropy_weight": _real(0),
    "sil.average": _one_of("batch", "imitated"),
    "sil.min_imitated": _whole(1),
    "sil.max_neg_log_prob": _or_none(_real(0, above=True)),
    "sil.keep": _one_of("all", "positive"),
    "sil.capacity": _whole(1, 10**8),
    "sil.memory": _one_of("device", "host"),
    "sil.room": _or_none(_whole(1, 10**8)),
    "sil.start_after": _whole(0),
    "sil.priority_exponent": _real(0, 4),  # beyond, the smallest priority to that power leaves the range of float32
    "sil.bias_correction": _real(0, 1),
    "exp.scale": _real(0),
}


ON_THE_HOST_ALONE = {
    "delay": 1,
    "rewards": "raw",
    "engine": "auto",
    "lanes": None,
    "overlap": "on",
    "sil.memory": "device",
}
"""Settings for environments on the host, and what they must be for others."""


def validate(config: TrainConfig) -> TrainConfig:
    """The config itself, with the agent's name in its canonical order, or a `UsageError` that names the first fault."""
    entry = catalogue.find(config.env)
    config = dataclasses.replace(config, env=entry.name, agent="+".join(agent_parts(config.agent)))
    for name, value in flatten(config).items():
        allowed, text = RULES.get(name, (lambda _: True, ""))
        if not allowed(value):
            raise bad_value(name, value, f"allowed: {text}")
    if config.sil.batch > config.sil.capacity:
        raise bad_value("sil.batch", config.sil.batch, f"at most sil.capacity = {config.sil.capacity}")
    if config.sil.start_after >= config.sil.capacity:
        raise bad_value("sil.start_after", config.sil.start_after, f"less than sil.capacity = {config.sil.capacity}")
    if "ppo" in agent_parts(config.agent) and 2 * config.ppo.minibatches > config.steps_per_iteration:
        steps = f"{config.envs} envs x {config.rollout} steps"  # the normalised advantage of one sample is always 0
        raise bad_value("ppo.minibatches", config.ppo.minibatches, f"at most one for every two steps of {steps}")
    if entry.host_id is None:
        given = flatten(config)
        for name, usual in ON_THE_HOST_ALONE.items():
            if given[name] != usual:
                raise bad_value(name, given[name], f"{entry.name} runs on the device; allowed: {usual}")
    if config.seed + config.seeds > 2**32:
        raise bad_value("seeds", config.seeds, f"seed + seeds at most 2**32, with seed = {config.seed}")
    return config


def refuse_unread(config: TrainConfig, defaults: TrainConfig) -> None:
    """A setting of a part that the agent does not have would be ignored in silence: say so instead."""
    parts = agent_parts(config.agent)
    before = flatten(defaults)
    for name, value in flatten(config).items():
        part = name.partition(".")[0]
        if part in PARTS and part not in parts and value != before[name]:
            raise bad_value(name, value, f"agent {config.agent!r} has no part {part!r} that would read it")
    if config.env.startswith("atari:") and config.normalise.observations:
        raise bad_value("normalise.observations", True, "pixels have a scale of their own; allowed for games: False")
    decay = config.optimiser.decay
    if config.optimiser.kind == "adam" and decay != defaults.optimiser.decay:
        raise bad_value("optimiser.decay", decay, "Adam does not read it; allowed: with optimiser.kind = rmsprop")
