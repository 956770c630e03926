"""A trained policy: observations in, actions out."""

import math
from functools import partial
from typing import Any

import jax
import numpy as np

from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy as PolicyState
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.errors import bad_value
from self_imitation.training import evaluation


class Policy:
    """One seed's policy. A batch of observations gives a batch of actions."""

    def __init__(self, agent: Agent, state: PolicyState, seed: int, spaces: Spaces | None):
        self.seed = seed
        self._state, self._spaces = state, spaces
        self._composite = spaces is not None and spaces.observation_space.shape is None
        self._shape = spaces.observation_space.shape or () if spaces else agent.spec.observation_shape
        self._act = jax.jit(partial(evaluation.act, agent), static_argnums=0)
        self._key = jax.random.key(seed)
        self._is_image = agent.spec.observation_kind == "image"

    def act(self, observation: Any, greedy: bool = False) -> np.ndarray:
        """The policy's action, sampled as in training or the most likely one, as the environment takes it.

        Dict and Tuple observations are single ones, not batches.
        """
        if self._composite:
            assert self._spaces is not None
            one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], observation)
            return np.asarray(self._spaces.action(self._choose(self._spaces.observation(one), greedy))[0])
        given = self._numbers(observation)
        several = given.shape[: given.ndim - len(self._shape)]
        if given.shape != (*several, *self._shape):
            raise bad_value("observation", given.shape, f"allowed: shape {self._shape}, or a batch of it")
        batch = given.reshape(math.prod(several), *self._shape)
        if not len(batch):  # compute one action, return none
            batch = np.zeros((1, *self._shape), given.dtype)
        actions = self._choose(self._spaces.observation(batch) if self._spaces else batch.astype(np.float32), greedy)
        taken = self._spaces.action(actions) if self._spaces else actions
        return taken[: math.prod(several)].reshape((*several, *taken.shape[1:]))

    def _choose(self, observation: Any, greedy: bool) -> np.ndarray:
        self._key, key = jax.random.split(self._key)
        return np.asarray(self._act(greedy, self._state, observation, key))

    def _numbers(self, observation: Any) -> np.ndarray:
        """The observation as an array, checked."""
        try:
            given = np.asarray(observation)
        except ValueError:  # ragged lists
            given = np.asarray(None)
        if given.dtype.kind not in "buif":
            raise bad_value("observation", given.dtype.name, f"allowed: numbers of shape {self._shape}")
        if self._is_image and given.dtype != np.uint8:
            if given.dtype.kind == "f" or (given.size and (given.min() < 0 or given.max() > 255)):
                raise bad_value("observation", given.dtype.name, "allowed: integers from 0 to 255")
        elif given.dtype.kind == "f" and not np.isfinite(given).all():
            raise bad_value("observation", float(given[~np.isfinite(given)][0]), "allowed: finite numbers")
        return given
