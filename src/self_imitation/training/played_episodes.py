"""Episodes that the present policy plays in a rendered copy of its environment: the content of record/played."""

import time
import warnings
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy
from self_imitation.config import TrainConfig
from self_imitation.environments.gymnasium import rendering
from self_imitation.environments.gymnasium.rendering import Player
from self_imitation.recording import films
from self_imitation.recording.films import Camera
from self_imitation.recording.remembered import rounded
from self_imitation.training import evaluation
from self_imitation.types import Observation

MAX_PICTURES, MIN_PICTURES = 48, 8
PICTURE_SECONDS = 2.0
"""Where a picture takes long, as many are taken as fit into this time."""
MAX_STEPS = 5000
"""A longer episode is cut."""


class PlayedEpisodes:
    """Plays episodes, one now and then."""

    def __init__(self, config: TrainConfig, agent: Agent):
        self._config = config
        self._choose: Any = jax.jit(partial(_choose, agent))

    @cached_property
    def _player(self) -> Player:
        return rendering.make_player(*evaluation.renderable(self._config), mujoco_pixels=films.WIDTH)

    def play(self, policies: Policy, index: int, key: int, expected_steps: float) -> dict[str, Any]:
        """One episode of one of several policies. Raises `UsageError` if the environment can't be rendered.

        `expected_steps`: a guess of its length.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rendering; the errors say enough
            return self._play(policies, index, key, expected_steps)

    def _play(self, policies: Policy, index: int, key: int, expected_steps: float) -> dict[str, Any]:
        player, rewards = self._player, list[float]()
        observation = player.reset(key)
        camera = Camera(player.picture, _affordable_pictures(player), expected_steps)
        camera.look(0)
        ended = False
        for step in evaluation.play_on(player, partial(self._choose, policies, index), observation, key):
            rewards.append(step.reward)
            ended = step.ended
            if ended or len(rewards) == MAX_STEPS:
                break
            camera.look(len(rewards))
        film = camera.film(np.array(rewards))
        return {"return": rounded(sum(rewards)), "length": len(rewards), "ended": ended, "film": film}

    def close(self) -> None:
        if "_player" in vars(self):
            self._player.close()


def _affordable_pictures(player: Player) -> int:
    """An even number."""
    player.picture()  # the first one takes longer
    begun = time.monotonic()
    player.picture()
    affordable = PICTURE_SECONDS / max(time.monotonic() - begun, 1e-6)
    return 2 * round(min(max(affordable, MIN_PICTURES), MAX_PICTURES) / 2)


def _choose(
    agent: Agent, policies: Policy, index: Int[Array, ""], observation: Observation, key: PRNGKeyArray
) -> Shaped[Array, "1 ..."]:
    policy = jax.tree.map(lambda leaf: leaf[index], policies)
    return evaluation.act(agent, False, policy, observation, key)
