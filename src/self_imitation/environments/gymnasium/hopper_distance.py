"""Gymnasium's Hopper, paid for nothing but the distance that it covers.

With the rewards of an episode paid at its end (`--delay 1000`, its time limit), only the distance reached counts.
"""

import gymnasium

SECONDS_PER_STEP = 0.008
OPTIONS = {"forward_reward_weight": SECONDS_PER_STEP, "healthy_reward": 0.0, "ctrl_cost_weight": 0.0}
"""The forward reward is a speed; times the duration of a step it is a distance in metres."""


def register() -> None:
    """Register it with Gymnasium; called when the package is imported."""
    gymnasium.register(
        "self_imitation/HopperDistance-v0",
        entry_point="gymnasium.envs.mujoco.hopper_v5:HopperEnv",
        max_episode_steps=1000,
        kwargs=OPTIONS,
    )
