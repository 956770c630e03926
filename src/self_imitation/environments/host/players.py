"""One copy of an environment that can be watched."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.environments import catalogue
from self_imitation.environments.host import atari, engines
from self_imitation.errors import UsageError, first_line

FRAMES_PER_SECOND = 30.0
"""Where an environment does not say how fast it is."""


class Seen(NamedTuple):
    """What a step led to; `observation` [1, ...] as the environment gives it."""

    observation: np.ndarray
    reward: float
    ended: bool


@runtime_checkable
class Player(Protocol):
    steps_per_second: float
    """In life."""

    def reset(self, seed: int) -> np.ndarray: ...
    def step(self, action: np.ndarray) -> Seen:
        """`action` [1, ...] as the environment takes it."""

    def picture(self) -> np.ndarray:
        """[height, width, 3] of uint8."""

    def close(self) -> None: ...


def make(config: TrainConfig) -> Player:
    return AtariPlayer(config.env) if config.engine == "ale" else GymnasiumPlayer(config.env)


class GymnasiumPlayer:
    """Any environment that Gymnasium can draw."""

    def __init__(self, env: str):
        self.name = env
        self.env = engines.make_one(env, render_mode=_render_mode(env))
        self.steps_per_second = float(self.env.metadata.get("render_fps") or FRAMES_PER_SECOND)

    def reset(self, seed: int) -> np.ndarray:
        return np.asarray(self.env.reset(seed=seed)[0])[None]

    def step(self, action: np.ndarray) -> Seen:
        observation, reward, terminated, truncated, _ = self.env.step(action[0])
        return Seen(np.asarray(observation)[None], float(reward), bool(terminated or truncated))

    def picture(self) -> np.ndarray:
        try:
            picture = np.asarray(self.env.render(), np.uint8)
        except Exception as error:
            mujoco = self.name.startswith("mujoco:")
            hint = "; on a machine without a screen, set MUJOCO_GL=egl or osmesa" if mujoco else ""
            raise UsageError(
                f"env: {self.name!r} can't be drawn; {type(error).__name__}: {first_line(error)}{hint}"
            ) from error
        if picture.ndim != 3 or picture.shape[-1] != 3:
            shape = f"its picture has shape {picture.shape}, not height x width x 3"
            raise UsageError(f"env: {self.name!r} can't be drawn: {shape}")
        return picture

    def close(self) -> None:
        self.env.close()


class AtariPlayer:
    """Two emulators in step, with the same random numbers: one as the policy sees it, one in the game's own colours."""

    steps_per_second = 60 / atari.SKIP

    def __init__(self, env: str):
        game = catalogue.find(env).host_id
        assert game is not None
        height, width = atari.NATIVE
        self.seen = atari.make(game, 1, 1)
        self.shown = atari.make(game, 1, 1, img_height=height, img_width=width, stack_num=1, grayscale=False)
        self._picture = np.zeros((height, width, 3), np.uint8)

    def reset(self, seed: int) -> np.ndarray:
        observation, shown = (env.reset(seed=np.array([seed]))[0] for env in (self.seen, self.shown))
        self._picture = shown[0, -1]
        return observation

    def step(self, action: np.ndarray) -> Seen:
        chosen = action.astype(np.int32)
        observation, reward, terminated, truncated, info = self.seen.step(chosen)
        shown, _, _, _, about = self.shown.step(chosen)
        ended = bool(terminated[0] or truncated[0])
        last, last_shown = (_last(x, i, ended) for x, i in ((observation, info), (shown, about)))
        self._picture = last_shown[0, -1]
        return Seen(last, float(reward[0]), ended)

    def picture(self) -> np.ndarray:
        return self._picture.copy()

    def close(self) -> None:
        self.seen.close()
        self.shown.close()


def _last(observation: np.ndarray, info: Mapping[str, Any], ended: bool) -> np.ndarray:
    return info["final_obs"] if ended else observation


def _render_mode(name: str) -> str:
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures need no screen, and pygame no search for one
    env = engines.make_one(name)
    modes = env.metadata.get("render_modes") or []
    env.close()
    if "rgb_array" not in modes:
        offered = ", ".join(map(str, modes)) or "none"
        raise UsageError(f"env: {name!r} can't be drawn: it has no render mode 'rgb_array' (it has: {offered})")
    return "rgb_array"
