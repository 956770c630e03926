"""Self-imitation for the A2C and PPO of Stable-Baselines3.

    from self_imitation.sb3 import SelfImitation

    model.learn(1_000_000, callback=SelfImitation())

Stable-Baselines3 and PyTorch are imported at first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from self_imitation.sb3.callback import SelfImitation

__all__ = ["SelfImitation"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from self_imitation.sb3 import callback
    except ModuleNotFoundError as error:
        if error.name not in ("stable_baselines3", "torch"):
            raise
        message = f"{name} needs the package {error.name}: pip install 'self-imitation[sb3]'"
        raise ModuleNotFoundError(message, name=error.name) from None
    return getattr(callback, name)
