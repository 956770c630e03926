"""Self-Imitation Learning (Oh, Guo, Singh, Lee, ICML 2018): an agent imitates its own past good decisions.

    import self_imitation

    run = self_imitation.train("key-door-treasure", agent="a2c+sil", steps=800_000)
    run = self_imitation.load("runs/...")
    print(run.evaluate(episodes=100).mean)
    action = run.policy().act(observation)

JAX is imported at first use, so that this import is quick.
"""

from typing import TYPE_CHECKING, Any

from self_imitation.environments.gymnasium import key_door_treasure as gymnasium_maze
from self_imitation.errors import NonFiniteError, UsageError

if TYPE_CHECKING:
    from self_imitation.training.run import Evaluation, Policy, Run, load, resume, train

__version__ = "0.1.0"
__all__ = ["Evaluation", "NonFiniteError", "Policy", "Run", "UsageError", "load", "resume", "train"]

gymnasium_maze.register()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from self_imitation.training import run

    return getattr(run, name)
