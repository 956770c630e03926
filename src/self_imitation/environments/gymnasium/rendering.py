"""One copy of an environment that can be watched."""

import contextlib
import os
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import numpy as np

from self_imitation.environments import atari
from self_imitation.environments.gymnasium.checks import CheckedEnv
from self_imitation.environments.gymnasium.faults import TrapExits, in_words, wrap_env_errors
from self_imitation.environments.gymnasium.make import EnvSource, make_env
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.environments.gymnasium.vector import describe_atari, make_emulators
from self_imitation.errors import UsageError
from self_imitation.types import Observation

DEFAULT_STEPS_PER_SECOND = 30.0
"""Where an environment does not state its own rate."""
ATARI_HEIGHT, ATARI_WIDTH = 210, 160


def make_player(source: EnvSource | str | None, atari_rom: str | None, mujoco_pixels: int | None = None) -> "Player":
    """A Gymnasium environment by its source or id, or an Atari game by the name of its ROM.

    `mujoco_pixels`: height and width of MuJoCo's pictures, which take long to render without a GPU. None: as usual.

    Raises `UsageError` if the environment can't be rendered as an array.
    """
    if source is None:
        assert atari_rom is not None
        game = AtariInColour(atari_rom)
        return Player(game, game.spaces, EnvSource(f"atari:{atari_rom}"))
    source = EnvSource(source) if isinstance(source, str) else source
    env = _make_renderable(source, mujoco_pixels)
    return Player(env, env.spaces, source)


class Player:
    """One environment with batches of 1, and its picture after every reset and step."""

    def __init__(self, env: gymnasium.Env[Any, Any], spaces: Spaces, source: EnvSource):
        self.env, self.spaces, self.name, self._is_mujoco = env, spaces, source.name, source.is_mujoco
        self.steps_per_second = float(env.metadata.get("render_fps") or DEFAULT_STEPS_PER_SECOND)

    def reset(self, seed: int) -> Observation:
        with wrap_env_errors():
            return self._convert(self.env.reset(seed=seed)[0])

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool]:
        """Returns the observation, the reward and whether the episode ended; there is no automatic reset."""
        with wrap_env_errors():
            observation, reward, terminated, truncated, _ = self.env.step(self.spaces.action(action)[0])
            return self._convert(observation), float(reward), bool(terminated or truncated)

    def picture(self) -> np.ndarray:
        """uint8 [height, width, 3]. Raises `UsageError` if the environment can't be rendered."""
        try:
            with TrapExits():
                picture = np.array(self.env.render(), np.uint8)
        except Exception as error:
            hint = "; on a machine without a screen, set MUJOCO_GL=egl or osmesa" if self._is_mujoco else ""
            raise UsageError(f"env: {self.name!r} can't be rendered; it {in_words(error)}{hint}") from error
        if picture.ndim != 3 or picture.shape[-1] != 3:
            shape = f"its picture has shape {picture.shape}, not height x width x 3"
            raise UsageError(f"env: {self.name!r} can't be rendered; {shape}")
        return picture

    def close(self) -> None:
        """What goes wrong here is ignored: the episode has been played."""
        with contextlib.suppress(Exception), TrapExits():
            self.env.close()

    def _convert(self, raw: Any) -> Observation:
        return self.spaces.observation(jax.tree.map(lambda leaf: np.asarray(leaf)[None], raw))


class AtariInColour(gymnasium.Env[np.ndarray, Any]):
    """Two emulators in step, with the same seeds: one gives the policy's observations, one the picture in colour."""

    metadata = {  # noqa: RUF012 (Gymnasium declares it so)
        "render_modes": ["rgb_array"],
        "render_fps": 60 / atari.FRAME_SKIP,
    }

    def __init__(self, rom: str):
        colour = {"img_height": ATARI_HEIGHT, "img_width": ATARI_WIDTH, "stack_num": 1, "grayscale": False}
        self._emulators = [make_emulators(rom, 1, 1), make_emulators(rom, 1, 1, **colour)]
        self.spaces = describe_atari(self._emulators[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        observation, pictures = (emulator.reset(seed=np.array([seed]))[0][0] for emulator in self._emulators)
        self._picture = pictures[-1]
        return observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        result, shown = (emulator.step(np.array([action])) for emulator in self._emulators)
        self._picture = shown[0][0, -1]
        observation, reward, terminated, truncated = (array[0] for array in result[:4])
        return observation, float(reward), bool(terminated), bool(truncated), {}

    def render(self) -> Any:
        return self._picture

    def close(self) -> None:
        for emulator in self._emulators:
            emulator.close()


def _make_renderable(source: EnvSource, mujoco_pixels: int | None) -> CheckedEnv:
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame renders to arrays, without looking for a screen
    # The default camera of MuJoCo tasks stays behind while the body runs away.
    camera: dict[str, Any] = {"camera_name": "track"} if source.is_mujoco else {}
    if camera and mujoco_pixels is not None:
        camera |= {"width": mujoco_pixels, "height": mujoco_pixels}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*render_modes.*")
        try:
            env = make_env(source, render_mode="rgb_array", **camera)
        except UsageError:  # many environments refuse to be built with a render mode that they don't have
            _require_rgb_array(source.name, make_env(source).metadata)
            raise
    _require_rgb_array(source.name, env.metadata)
    if source.factory is not None and env.render_mode is None:
        raise UsageError(
            f"env: {source.name!r} can't be rendered; it is made without a render mode: "
            "pass a function that takes render_mode"
        )
    return env


def _require_rgb_array(gym_id: str, metadata: Mapping[str, Any]) -> None:
    modes = metadata.get("render_modes") or []
    if "rgb_array" not in modes:
        offered = ", ".join(map(str, modes)) or "none"
        raise UsageError(f"env: {gym_id!r} can't be rendered; it has no render mode 'rgb_array' (it has: {offered})")
