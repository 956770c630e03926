"""The optimiser of self-imitation: the policy's, or another one of the same kind."""

from typing import Any

import numpy as np
import torch as th

from self_imitation.errors import UsageError
from self_imitation.settings import SelfImitationConfig


class Optimiser:
    """`shared`: that of the model, whose learning rate SB3 keeps to its schedule. `own`: with a state of its own."""

    def __init__(self, policy: Any, config: SelfImitationConfig):
        self.policy, self._learning_rate = policy, config.learning_rate
        self._own: th.optim.Optimizer | None = None
        if config.optimiser == "own":
            rate = self._current_rate()
            self._own = policy.optimizer_class(policy.parameters(), lr=rate, **policy.optimizer_kwargs)

    def _current_rate(self) -> float:
        return self._learning_rate or self.policy.optimizer.param_groups[0]["lr"]

    def current(self) -> th.optim.Optimizer:
        """With the learning rate of the moment."""
        if self._own is None:
            return self.policy.optimizer
        for group in self._own.param_groups:
            group["lr"] = self._current_rate()
        return self._own

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The state of an own optimiser; the model has the other one."""
        if self._own is None:
            return {}
        return {
            f"{number}.{name}": th.as_tensor(value).cpu().numpy()
            for number, state in self._own.state_dict()["state"].items()
            for name, value in state.items()
            if value is not None
        }

    def restore(self, arrays: dict[str, np.ndarray], source: str) -> None:
        """`source` names the origin in errors."""
        if self._own is None:
            return
        shapes = [parameter.shape for group in self._own.param_groups for parameter in group["params"]]
        states: dict[int, dict[str, th.Tensor]] = {}
        for key, array in arrays.items():
            number, _, name = key.partition(".")
            if not number.isdecimal() or int(number) >= len(shapes) or array.shape not in ((), shapes[int(number)]):
                raise UsageError(f"{source!r} belongs to another policy; its optimiser differs in {key!r}")
            states.setdefault(int(number), {})[name] = th.tensor(array)
        self._own.load_state_dict({"state": states, "param_groups": self._own.state_dict()["param_groups"]})
