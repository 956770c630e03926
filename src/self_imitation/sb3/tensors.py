"""From arrays of JAX and NumPy to tensors; on a CPU without a copy."""

from typing import Any

import jax
import torch as th
from gymnasium import spaces


def to_torch(arrays: Any, device: th.device) -> Any:
    """An array, or a dictionary of arrays, on that device."""
    if isinstance(arrays, dict):
        return {name: to_torch(array, device) for name, array in arrays.items()}
    tensor = th.from_dlpack(arrays) if isinstance(arrays, jax.Array) else th.as_tensor(arrays)
    return tensor.to(device)


def actions_to_torch(actions: Any, space: spaces.Space, device: th.device) -> th.Tensor:
    """As SB3's distributions take them: choices as integers, binary and continuous ones as floats."""
    choices = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    return to_torch(actions, device).to(th.long if choices else th.float32)
