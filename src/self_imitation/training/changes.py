"""Settings that change when a run is resumed: which ones can, and what is recorded about them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from self_imitation.config import MAY_CHANGE, TrainConfig, override, refuse_unused, validate
from self_imitation.errors import bad_value
from self_imitation.settings import Change, flatten
from self_imitation.storage.trees import by_name
from self_imitation.training import agents
from self_imitation.training.group import SeedGroup
from self_imitation.types import Spec

ANOTHER_RUN = "it says which run this is; start a new one with sil train"
SHAPES = "the arrays in the checkpoints depend on it"
FIXED: Mapping[str, str] = {
    **dict.fromkeys(("env", "env_kwargs", "wrappers", "delay", "agent", "seed", "seeds"), ANOTHER_RUN),
    "preset": "it only sets the defaults of a new run",
    "out": "move the directory instead",
    "eval_every": "the columns of its metrics depend on it",
    **dict.fromkeys(("num_envs", "num_steps", "network.kind", "network.hidden", "network.shared"), SHAPES),
    **dict.fromkeys(("engine", "overlap"), "the state of the environments in the checkpoints depends on it"),
}
"""Settings that can't change, and why."""


def apply(config: TrainConfig, settings: Mapping[str, object]) -> TrainConfig:
    """The config with other settings, and with those that change the results recorded in `changes`.

    Their step is -1 until it is known at which step the run continues (see `begin_at`). Raises `UsageError` for a
    setting that can't change.
    """
    changed = override(config, settings)
    before, after = flatten(config), flatten(changed)
    names = [name for name, value in after.items() if value != before[name]]
    for name in names:
        if name in FIXED:
            raise bad_value(name, after[name], f"the run has {before[name]!r}: {FIXED[name]}")
    changed = validate(changed)
    refuse_unused(changed, config)
    recorded = [Change(-1, name, before[name], after[name]) for name in names if name not in MAY_CHANGE]
    return dataclasses.replace(changed, changes=(*config.changes, *recorded))


def require_same_arrays(before: TrainConfig, after: TrainConfig, spec: Spec) -> None:
    """Raise a `UsageError` if the state of the run would consist of other arrays."""
    changed = [change for change in after.changes if change.step < 0]
    if not changed or _arrays(before, spec) == _arrays(after, spec):
        return
    for change in changed:  # name the one that is to blame, where it is one
        if _arrays(override(before, {change.setting: change.after}), spec) != _arrays(before, spec):
            raise bad_value(change.setting, change.after, f"the run has {change.before!r}: {SHAPES}")
    raise bad_value("settings", ", ".join(change.setting for change in changed), SHAPES)


def begin_at(config: TrainConfig, step: int) -> TrainConfig:
    """With the step at which the run continues. Changes after it begin here: what followed it is trained again."""
    moved = [
        dataclasses.replace(change, step=step) if change.step < 0 or change.step > step else change
        for change in config.changes
    ]
    return dataclasses.replace(config, changes=tuple(moved))


def _arrays(config: TrainConfig, spec: Spec) -> dict[str, Any]:
    """Shapes and dtypes of one seed's state by name."""
    group = SeedGroup(config, agents.build(config, spec), config.seed_numbers, jax.devices()[0])
    return {name: (leaf.shape, str(leaf.dtype)) for name, leaf in by_name(group.one_seed).items()}
