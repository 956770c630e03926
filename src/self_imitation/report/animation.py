"""An episode as a video and as text."""

import importlib.util
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree
from PIL import Image, ImageDraw

from self_imitation.environments.jax import maze
from self_imitation.errors import bad_value

PAUSE_SECONDS = 1.5
"""How long the last frame is held, so that viewers see how the episode ended."""
CAPTION_HEIGHT, LINE_HEIGHT = 22, 14
NARROW = 260
"""Width in pixels below which the caption takes two lines."""
GIF_FRAMES, GIF_WIDTH = 300, 320
"""Limits of a GIF; larger ones grow to tens of megabytes."""
ARROWS = "↑→↓←"


class Episode(NamedTuple):
    """One episode, step by step."""

    observations: PyTree
    """As the network sees them, with one more entry than there are actions."""
    actions: np.ndarray
    """[steps, ...]"""
    rewards: np.ndarray
    """[steps]"""
    frames: dict[int, np.ndarray]
    """Pictures [height, width, 3] of uint8, by the number of steps made before; the last one shows the end."""
    steps_per_second: float
    """Real-time speed."""
    ended: bool = True
    """False if the episode was cut."""

    def __repr__(self) -> str:
        return f"Episode({len(self.rewards)} steps, return {self.rewards.sum():g})"

    @property
    def total(self) -> float:
        """The episode's return, undiscounted."""
        return float(self.rewards.sum())


def default_name() -> str:
    """MP4 if it can be written, else GIF."""
    return "play.mp4" if importlib.util.find_spec("imageio_ffmpeg") else "play.gif"


def require_format(path: Path) -> None:
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise bad_value("out", str(path), "allowed: a file name that ends in .gif or .mp4")
    if path.suffix.lower() == ".mp4" and not importlib.util.find_spec("imageio_ffmpeg"):
        raise bad_value("out", str(path), "MP4 needs a package: pip install 'self-imitation[video]'; allowed: .gif")


def save(episode: Episode, path: Path, title: str) -> None:
    """Write a GIF or an MP4, depending on the file name."""
    (_save_gif if path.suffix.lower() == ".gif" else _save_mp4)(episode, path, title)


def to_text(episode: Episode) -> str:
    """The rewards step by step, if they are few, and the return."""
    rewards = [f"step {step:2d}: reward {reward:g}" for step, reward in enumerate(episode.rewards, start=1) if reward]
    shown = rewards if len(rewards) <= 10 else []
    end = "" if episode.ended else "; stopped before the end of the episode, which is too long for a video"
    return "\n".join([*shown, f"{len(episode.rewards)} steps, return {episode.total:g}{end}"])


def maze_text(episode: Episode) -> str:
    """The path through a grid world as arrows on its map."""
    cells = maze.symbols(episode.observations[0])
    for observation, action in zip(episode.observations[:-1], episode.actions, strict=True):
        column, row = int(observation[0]), int(observation[1])
        if cells[row, column] in ".@↑→↓←":
            cells[row, column] = ARROWS[int(action)]
    return "\n".join("".join(line) for line in cells)


def _save_gif(episode: Episode, path: Path, title: str) -> None:
    steps = list(episode.frames)
    every = max(1, -(-len(steps) // GIF_FRAMES))
    shown = [*steps[:-1:every], steps[-1]]
    frames = list(_pictures(episode, title, shown, GIF_WIDTH))
    seconds = [(later - step) / episode.steps_per_second for step, later in itertools.pairwise(shown)]
    durations = [max(20, round(1000 * pause)) for pause in (*seconds, PAUSE_SECONDS)]
    frames[0].save(path, format="gif", save_all=True, append_images=frames[1:], duration=durations, loop=0)


def _save_mp4(episode: Episode, path: Path, title: str) -> None:
    import imageio_ffmpeg

    steps = list(episode.frames)
    every = steps[1] - steps[0]
    rate = episode.steps_per_second / every
    frames = list(_pictures(episode, title, steps, None))
    frames += frames[-1:] * round(PAUSE_SECONDS * rate)
    writer = imageio_ffmpeg.write_frames(str(path), frames[0].size, fps=rate, macro_block_size=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*os.fork.*", category=RuntimeWarning)  # it only starts ffmpeg
        writer.send(None)
    try:
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
    finally:
        writer.close()


def _pictures(episode: Episode, title: str, steps: list[int], width: int | None) -> Iterator[Image.Image]:
    """The pictures of these steps, each with a caption below."""
    totals = np.concatenate([[0.0], np.cumsum(episode.rewards)])
    for step in steps:
        picture = Image.fromarray(episode.frames[step])
        if width and picture.width > width:
            picture = picture.resize((width, round(picture.height * width / picture.width)))
        yield _captioned(picture, title, f"step {step}   return {totals[step]:g}")


def _captioned(picture: Image.Image, title: str, where: str) -> Image.Image:
    lines = [title, where] if picture.width < NARROW else [f"{title}   {where}"]
    width, height = picture.width + picture.width % 2, picture.height + CAPTION_HEIGHT + LINE_HEIGHT * (len(lines) - 1)
    image = Image.new("RGB", (width, height + height % 2), "white")  # MP4 needs even sides
    image.paste(picture, (0, 0))
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((6, picture.height + 5 + LINE_HEIGHT * number), line, fill=(40, 40, 40))
    return image
