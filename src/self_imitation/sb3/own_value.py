"""Self-imitation's own value in PyTorch: the twin of `algorithm.imitation_value`."""

from typing import Any

import numpy as np
import torch as th

from self_imitation.errors import UsageError
from self_imitation.settings import SelfImitationConfig


class OwnValue:
    """The value output of another network like the policy, which learns the mean of the sampled returns."""

    def __init__(self, policy: Any, config: SelfImitationConfig):
        with th.random.fork_rng(devices=[]):  # the model's random numbers stay as they are without it
            self.network = type(policy)(**policy._get_constructor_parameters()).to(policy.device)
        self.network.set_training_mode(False)
        self._optimiser = th.optim.Adam(self.network.parameters(), lr=config.value_learning_rate)

    def __call__(self, observation: Any) -> th.Tensor:
        with th.no_grad():
            return self.network.predict_values(observation).flatten()

    def gradient_step(self, observation: Any, returns: th.Tensor, weight: th.Tensor) -> float:
        """One step on E[1/2 (R - V)^2]; returns it. A weight of 0 marks an empty entry of the batch."""
        filled = weight > 0
        error = th.where(filled, returns - self.network.predict_values(observation).flatten(), 0.0)
        loss = 0.5 * error.square().sum() / filled.sum().clamp(min=1)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return loss.item()

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Parameters and the state of their optimiser, by name."""
        arrays = {f"network.{name}": own.cpu().numpy() for name, own in self.network.state_dict().items()}
        for number, state in self._optimiser.state_dict()["state"].items():
            arrays |= {f"adam.{number}.{name}": th.as_tensor(own).cpu().numpy() for name, own in state.items()}
        return arrays

    def restore(self, arrays: dict[str, np.ndarray], source: str) -> None:
        """`source` names the origin in errors."""
        expected = self.network.state_dict()
        for name, own in expected.items():
            array = arrays.get(f"network.{name}")
            if array is None or array.shape != tuple(own.shape):
                raise UsageError(f"{source!r} belongs to another policy; its value differs in {name!r}")
        self.network.load_state_dict({name: th.tensor(arrays[f"network.{name}"]) for name in expected})
        states: dict[int, dict[str, th.Tensor]] = {}
        for key, array in arrays.items():
            kind, _, rest = key.partition(".")
            if kind == "adam":
                number, _, name = rest.partition(".")
                states.setdefault(int(number), {})[name] = th.tensor(array)
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": states, "param_groups": groups})
