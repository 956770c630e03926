"""Self-Imitation Learning (Oh, Guo, Singh, Lee, ICML 2018): an agent imitates its own past good decisions.

    import self_imitation

    run = self_imitation.train("key-door-treasure", agent="a2c+sil", steps=800_000)
    run = self_imitation.load("runs/...")
    print(run.evaluate(episodes=100).mean)
    action = run.policy().act(observation)

JAX is imported at first use, so that this import is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from self_imitation.environments.gymnasium import hopper_distance
from self_imitation.environments.gymnasium import key_door_treasure as gymnasium_maze
from self_imitation.errors import DeviceMemoryError, FaultyEnvironmentError, NonFiniteError, UsageError

if TYPE_CHECKING:
    from self_imitation import replay
    from self_imitation.algorithm.imitation_value import fit_value
    from self_imitation.algorithm.self_imitation import imitate, self_imitation_loss
    from self_imitation.environments.registry import register_environment
    from self_imitation.networks.actor_critic import register_network
    from self_imitation.networks.distributions import Categorical, DiagonalGaussian, MultiCategorical
    from self_imitation.registry import register_bonus, register_learner
    from self_imitation.replay import Batch, ReplayBuffer
    from self_imitation.report.plot import plot
    from self_imitation.settings import SelfImitationConfig
    from self_imitation.training.callbacks import Callback
    from self_imitation.training.context import Context
    from self_imitation.training.evaluation import Evaluation
    from self_imitation.training.policy import Policy
    from self_imitation.training.run import load, resume, train
    from self_imitation.training.saved_run import Run
    from self_imitation.training.wandb_callback import WandbCallback
    from self_imitation.types import TrainState

__version__ = "0.2.0"
__all__ = [
    "Batch",
    "Callback",
    "Categorical",
    "Context",
    "DeviceMemoryError",
    "DiagonalGaussian",
    "Evaluation",
    "FaultyEnvironmentError",
    "MultiCategorical",
    "NonFiniteError",
    "Policy",
    "ReplayBuffer",
    "Run",
    "SelfImitationConfig",
    "TrainState",
    "UsageError",
    "WandbCallback",
    "fit_value",
    "imitate",
    "load",
    "plot",
    "register_bonus",
    "register_environment",
    "register_learner",
    "register_network",
    "replay",
    "resume",
    "self_imitation_loss",
    "train",
]
_MODULES = {
    "Batch": "replay",
    "Callback": "training.callbacks",
    "Categorical": "networks.distributions",
    "Context": "training.context",
    "DiagonalGaussian": "networks.distributions",
    "Evaluation": "training.evaluation",
    "MultiCategorical": "networks.distributions",
    "Policy": "training.policy",
    "ReplayBuffer": "replay",
    "Run": "training.saved_run",
    "SelfImitationConfig": "settings",
    "TrainState": "types",
    "WandbCallback": "training.wandb_callback",
    "fit_value": "algorithm.imitation_value",
    "imitate": "algorithm.self_imitation",
    "plot": "report.plot",
    "register_bonus": "registry",
    "register_environment": "environments.registry",
    "register_learner": "registry",
    "register_network": "networks.actor_critic",
    "self_imitation_loss": "algorithm.self_imitation",
}
"""Of names that are not in `training.run`."""

gymnasium_maze.register()
hopper_distance.register()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "replay":
        return importlib.import_module("self_imitation.replay")
    return getattr(importlib.import_module(f"self_imitation.{_MODULES.get(name, 'training.run')}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
