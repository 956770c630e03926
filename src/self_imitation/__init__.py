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
from self_imitation.errors import NonFiniteError, UsageError

if TYPE_CHECKING:
    from self_imitation.environments.registry import register_environment
    from self_imitation.networks.actor_critic import register_network
    from self_imitation.registry import register_bonus, register_learner
    from self_imitation.training.run import Evaluation, Policy, Run, load, resume, train

__version__ = "0.2.0"
__all__ = [
    "Evaluation",
    "NonFiniteError",
    "Policy",
    "Run",
    "UsageError",
    "load",
    "register_bonus",
    "register_environment",
    "register_learner",
    "register_network",
    "resume",
    "train",
]
_REGISTRIES = {
    "register_bonus": "self_imitation.registry",
    "register_environment": "self_imitation.environments.registry",
    "register_learner": "self_imitation.registry",
    "register_network": "self_imitation.networks.actor_critic",
}

gymnasium_maze.register()
hopper_distance.register()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_REGISTRIES.get(name, "self_imitation.training.run")), name)
