"""An episode as an animated picture and as text."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from self_imitation.environments import maze
from self_imitation.runs.evaluation import Episode

MILLISECONDS = 120
PAUSE = 12
"""Times the last frame is held, so that the eye sees how it ended."""
CAPTION_HEIGHT = 22
ARROWS = "↑→↓←"


def save_gif(episode: Episode, path: Path, title: str) -> None:
    totals = np.concatenate([[0.0], np.cumsum(episode.rewards)])
    frames = [
        _frame(observation, f"{title}   step {step}   return {total:g}")
        for step, (observation, total) in enumerate(zip(episode.observations, totals, strict=True))
    ]
    durations = [MILLISECONDS] * (len(frames) - 1) + [MILLISECONDS * PAUSE]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0)


def to_text(episode: Episode) -> str:
    """The way through the maze in one picture, then what happened step by step where something did."""
    cells = maze.symbols(episode.observations[0])
    for observation, action in zip(episode.observations[:-1], episode.actions, strict=True):
        column, row = int(observation[0]), int(observation[1])
        if cells[row, column] in ".@↑→↓←":
            cells[row, column] = ARROWS[int(action)]
    lines = ["".join(line) for line in cells]
    for step, reward in enumerate(episode.rewards, start=1):
        if reward:
            lines.append(f"step {step:2d}: reward {reward:g}")
    lines.append(f"{len(episode.rewards)} steps, return {episode.total:g}")
    return "\n".join(lines)


def _frame(observation: np.ndarray, caption: str) -> Image.Image:
    pixels = maze.to_pixels(observation)
    image = Image.new("RGB", (pixels.shape[1], pixels.shape[0] + CAPTION_HEIGHT), "white")
    image.paste(Image.fromarray(pixels), (0, 0))
    ImageDraw.Draw(image).text((6, pixels.shape[0] + 5), caption, fill=(40, 40, 40))
    return image
