"""Whether a run fits into memory, and which settings need less of it."""

import math
import os
from typing import Any

import jax

from self_imitation import registry
from self_imitation.config import TrainConfig
from self_imitation.errors import DeviceMemoryError
from self_imitation.settings import flatten
from self_imitation.training.group import SeedGroup

COPIES_AT_START = 3
"""Of the states of learners and bonuses, in addition to the one that trains: they are initialised one by one, stacked,
and copied to the device.
"""


def check_host(group: SeedGroup, config: TrainConfig) -> None:
    """Raise a `DeviceMemoryError` if a run on the CPU needs more memory than the machine has.

    Linux grants more than there is, and then the machine stalls or kills the process.
    """
    if group.device.platform != "cpu" or not hasattr(os, "sysconf"):
        return
    state, _ = group.one_seed
    need = config.seeds * (_bytes(group.one_seed) + COPIES_AT_START * _bytes(state.components))
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        sizes = f"{need / 1e9:.0f} GB needed, {have / 1e9:.0f} GB available"
        raise DeviceMemoryError(f"out of memory: {sizes}; {what_to_lower(config)}")


def what_to_lower(config: TrainConfig) -> str:
    """Settings on which the memory of the run depends, with their values."""
    names = ["seeds"]
    for bonus in config.parts.bonuses:
        names += [f"{bonus}.{name}" for name in registry.bonuses()[bonus].component.memory_settings]
    for own in config.replay:
        names += [f"{own}.buffer_size", f"{own}.batch_size"]
    if not config.replay:
        names += ["num_envs", "num_steps"]
    values = flatten(config)
    *most, last = [f"{name} (now {values[name]:,})" for name in names]
    return f"lower {', '.join(most)} or {last}"


def _bytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
