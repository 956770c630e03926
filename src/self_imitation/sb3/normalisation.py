"""`VecNormalize` between the environments and the policy.

The replay buffer stores what the environments gave. Sampled steps are brought to the scale of the policy's inputs and
values by the present statistics, so that R and V are always in the same units, however far the statistics moved since.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    unwrap_vec_normalize,
)

from self_imitation.errors import UsageError
from self_imitation.replay.buffer import REWARD
from self_imitation.sb3.memory import Memory


@dataclass(frozen=True)
class Normalisation:
    """What the environments of a model normalise."""

    env: VecEnv
    normaliser: VecNormalize | None

    @staticmethod
    def of(env: VecEnv) -> "Normalisation":
        own = Normalisation(env, unwrap_vec_normalize(env))
        if own.observations:
            _require_known_wrappers(env)
        return own

    @property
    def observations(self) -> bool:
        return self.normaliser is not None and self.normaliser.norm_obs

    @property
    def rewards(self) -> bool:
        return self.normaliser is not None and self.normaliser.norm_reward

    def raw_observation(self, observation: Any) -> Any:
        """The present observation as the environments gave it; `observation`: as the policy sees it."""
        return _original_observation(self.env) if self.observations else observation

    def raw_reward(self, reward: np.ndarray) -> np.ndarray:
        """The same for the reward of the latest step."""
        return reward if self.normaliser is None else self.normaliser.get_original_reward()

    def observation(self, stored: Any) -> Any:
        """What the policy would see."""
        if self.normaliser is None or not self.observations:
            return stored
        return self.normaliser.normalize_obs(jax.tree.map(np.asarray, stored))

    def returns(self, memory: Memory) -> np.ndarray | None:
        """Returns of all slots in the units of the values; None: those that are stored.

        Where `VecNormalize` clips rewards, they are computed anew from the clipped ones: a return that is merely
        divided would exceed what the values can ever learn.
        """
        if self.normaliser is None or not self.rewards:
            return None
        scale = float(1.0 / np.sqrt(self.normaliser.ret_rms.var + self.normaliser.epsilon))
        reward = np.asarray(memory.buffer.extras[REWARD])
        if np.abs(reward).max() * scale <= self.normaliser.clip_reward:
            return np.asarray(memory.buffer.returns) * np.float32(scale)
        return memory.rescaled_returns(self.normaliser.normalize_reward(reward), scale)


def _original_observation(env: Any) -> Any:
    if isinstance(env, VecNormalize):
        return env.get_original_obs()
    inner = _original_observation(env.venv)
    return env.transpose_observations(inner) if isinstance(env, VecTransposeImage) else inner


def _require_known_wrappers(env: Any) -> None:
    while not isinstance(env, VecNormalize):
        if not isinstance(env, VecTransposeImage | VecMonitor | VecCheckNan):
            name = type(env).__name__
            raise UsageError(f"env: {name} around VecNormalize is not supported; put VecNormalize around {name}")
        env = env.venv
