"""The file of a callback: settings, replay buffer and, if it has its own, optimiser and value, as safetensors.

Loading runs no code.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from self_imitation.errors import UsageError, first_line
from self_imitation.sb3.settings import checked
from self_imitation.settings import SelfImitationConfig
from self_imitation.storage import files

VERSION = 1
FORMAT, STATE = "self_imitation.sb3", "state"
"""Metadata of the file: its version; settings and counters as JSON."""
BUFFER, OPTIMISER, VALUE = "buffer.", "optimiser.", "value."
"""Prefixes of the arrays."""
COUNTERS = {"seed": int, "samples": int, "head": int, "largest_priority": float, "negative_seen": bool}


@dataclass(frozen=True)
class Stored:
    """What a file has."""

    source: str
    config: SelfImitationConfig
    counters: dict[str, Any]
    buffer: dict[str, np.ndarray]
    optimiser: dict[str, np.ndarray]
    value: dict[str, np.ndarray]
    """Of self-imitation's own value."""


def save(path: Path, stored: Stored) -> None:
    arrays = {BUFFER + name: array for name, array in stored.buffer.items()}
    arrays |= {OPTIMISER + name: array for name, array in stored.optimiser.items()}
    arrays |= {VALUE + name: array for name, array in stored.value.items()}
    state = json.dumps({"settings": dataclasses.asdict(stored.config), "counters": stored.counters})
    content = safetensors.numpy.save(arrays, {FORMAT: str(VERSION), STATE: state})
    with files.explain_failure(path, "path"):
        files.write_atomically(path, content)


def load(path: Path) -> Stored:
    try:
        with safetensors.safe_open(path, "numpy") as opened:
            metadata = opened.metadata() or {}
            if metadata.get(FORMAT) != str(VERSION):
                raise UsageError(f"path: {str(path)!r} is not a file that SelfImitation.save of this release wrote")
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no dictionary)
        state = json.loads(metadata[STATE])
        counters = {name: kind(state["counters"][name]) for name, kind in COUNTERS.items()}
        config = checked(SelfImitationConfig(**state["settings"]))
        buffer, optimiser, value = (
            {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            for prefix in (BUFFER, OPTIMISER, VALUE)
        )
        for name in ("returns", "weight"):
            if not np.isfinite(buffer[name]).all():
                raise ValueError(f"not all of {name} are finite")
        return Stored(str(path), config, counters, buffer, optimiser, value)
    except OSError as error:
        raise UsageError(f"path: {str(path)!r} can't be read: {error.strerror or first_line(error)}") from None
    except UsageError:
        raise
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"path: {str(path)!r} is damaged: {first_line(error)}") from None
