"""What is searched if the user names nothing: the paper's lists where it has them, else what matters most elsewhere."""

from collections.abc import Mapping

from self_imitation.config import BasePreset, TrainConfig
from self_imitation.settings import flatten

PAPER_LEARNING_RATES = [3e-4, 1e-4, 5e-5, 3e-5]
PAPER_VALUE_COEFFICIENTS: Mapping[BasePreset, list[float]] = {"authors": [0.005, 0.025], "paper": [0.01, 0.05]}
"""The authors' code has an extra factor of 1/2 in the value loss."""
PAPER_PRIORITY_EXPONENTS = [0.6, 1.0]


def space(config: TrainConfig, preset: BasePreset) -> dict[str, object]:
    """Values or a range by the name of the setting."""
    if config.env.startswith("mujoco:") and config.parts.learner == "ppo":
        return _paper(config, preset)
    return _general(config)


def _paper(config: TrainConfig, preset: BasePreset) -> dict[str, object]:
    """What the paper's table of PPO+SIL says is "best chosen from"."""
    found: dict[str, object] = {"optimiser.learning_rate": PAPER_LEARNING_RATES}
    if config.parts.self_imitation:
        found["sil.vf_coef"] = PAPER_VALUE_COEFFICIENTS[preset]
        found["sil.priority_exponent"] = PAPER_PRIORITY_EXPONENTS
    return found


def _general(config: TrainConfig) -> dict[str, object]:
    parts, known = config.parts, flatten(config)
    found: dict[str, object] = {
        "optimiser.learning_rate": "1e-4..3e-3:log",
        f"{parts.learner}.ent_coef": "1e-3..1e-1:log",
    }
    if parts.self_imitation:
        found |= {"sil.updates": [1, 2, 4, 8], "sil.priority_exponent": PAPER_PRIORITY_EXPONENTS}
    if parts.self_imitation and parts.learner == "ppo":
        # Beside PPO's many gradient steps, self-imitation hardly moves the policy with a shared optimiser.
        found["sil.optimiser"] = ["shared", "own"]
    for bonus in parts.bonuses:
        for name in (f"{bonus}.scale", f"{bonus}.coef"):
            usual = known.get(name)
            if isinstance(usual, float) and usual > 0:
                found[name] = f"{usual / 10:g}..{usual * 10:g}:log"
    return {name: values for name, values in found.items() if name in known}
