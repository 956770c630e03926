"""A trained policy: observations in, actions out."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy as PolicyState
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.errors import bad_value
from self_imitation.storage import files
from self_imitation.training import evaluation


class Policy:
    """One seed's policy. A batch of observations gives a batch of actions."""

    def __init__(self, agent: Agent, state: PolicyState, seed: int, spaces: Spaces | None):
        self.seed = seed
        self._agent, self._state, self._spaces = agent, state, spaces
        self._composite = spaces is not None and spaces.observation_space.shape is None
        self._shape = spaces.observation_space.shape or () if spaces else agent.spec.observation_shape
        self._act = jax.jit(partial(evaluation.act, agent), static_argnums=0)
        self._key = jax.random.key(seed)
        self._is_image = agent.spec.observation_kind == "image"

    def act(self, observation: Any, greedy: bool = False) -> np.ndarray:
        """The policy's actions, as the environment takes them.

        Args:
            observation: one observation as the environment gives it, or an array `[..., *shape]` of several. Dict and
                Tuple observations are single ones, not batches.
            greedy: take the most likely action instead of a sampled one.

        Returns:
            One action, or an array `[..., *action shape]` of as many as there are observations.

        Raises:
            UsageError: the observation has another shape than the environment's, or is not finite.
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

    def export(self, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
        """Write an ONNX model: observations in; the most likely action, the distribution's parameters and the value
        out. docs/deployment.md describes inputs and outputs.

        Args:
            path: the file, which is replaced if it exists.
            metadata: properties of the model, in addition to the seed.

        Raises:
            UsageError: a package is missing, or the network can't be converted.
        """
        from self_imitation.export import onnx_model

        content = onnx_model.convert(
            self._agent, self._state, self._spaces, {**(metadata or {}), "seed": str(self.seed)}
        )
        target = files.absolute(path)
        with files.explain_failure(target):
            files.write_atomically(target, content)

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
