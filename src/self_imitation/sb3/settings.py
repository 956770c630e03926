"""Settings of the callback: those of `sil train gym:ID`, by the same names, for the algorithm of the model."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from self_imitation import config, settings
from self_imitation.errors import bad_value, unknown_name
from self_imitation.settings import SelfImitationConfig

ANY_ENVIRONMENT = "gym:any"
NOT_AVAILABLE = (
    *("updates_schedule", "bandit_window", "loss_coef_schedule", "kl_ratio"),
    *("temperature", "bound", "n_steps"),
)
"""What goes beyond self-imitation with a constant number of updates."""


def resolve(algorithm: str, preset: str, changes: Mapping[str, Any]) -> SelfImitationConfig:
    """The defaults for this algorithm (a2c or ppo) and preset, with some settings changed."""
    names = [field.name for field in dataclasses.fields(SelfImitationConfig)]
    for name, value in changes.items():
        if name in NOT_AVAILABLE:
            raise bad_value(name, value, "Stable-Baselines3's models don't have this setting, only `sil train` does")
        if name not in names:
            raise unknown_name("setting", name, set(names) - set(NOT_AVAILABLE))
    overrides = {"agent": f"{algorithm}+sil", **{f"sil.{name}": value for name, value in changes.items()}}
    return checked(config.resolve(ANY_ENVIRONMENT, preset, overrides).sil)


def checked(own: SelfImitationConfig) -> SelfImitationConfig:
    """The same settings, or a `UsageError` that names the first bad value."""
    settings.check(own)
    own.check_consistency()
    return own
