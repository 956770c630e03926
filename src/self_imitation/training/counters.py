"""What a run counts; saved with each checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from self_imitation.config import TrainConfig
from self_imitation.storage import checkpoint


@dataclass
class Counters:
    """Python integers, which do not overflow."""

    iteration: int = 0
    row_iteration: int = 0
    """Iteration at which the present row began."""
    seconds: float = 0.0
    row_seconds: float = 0.0
    episodes: list[int] = field(default_factory=list)
    metrics_bytes: int = 0
    device: str = ""

    @classmethod
    def from_json(cls, saved: Mapping[str, Any], config: TrainConfig, step: int) -> "Counters":
        """Those of a checkpoint. Raises `DamagedError` if they can't be those of this run at this step."""
        usual = vars(cls())
        sound = (
            saved.keys() == usual.keys()
            and all(type(saved[name]) is type(value) for name, value in usual.items())
            and len(saved["episodes"]) == config.seeds
            and all(
                type(number) is int and 0 <= number < 2**62 for number in (saved["metrics_bytes"], *saved["episodes"])
            )
            and 0 <= saved["row_iteration"] <= saved["iteration"]
            and saved["iteration"] * config.steps_per_iteration == step
            and 0 <= saved["row_seconds"] <= saved["seconds"] < math.inf
        )
        if not sound:
            raise checkpoint.DamagedError(f"{checkpoint.META}: counters are missing, unknown or out of range")
        return cls(**saved)
