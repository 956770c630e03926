"""Episodes as films: some pictures of an episode in one image, with the rewards between them."""

import base64
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from self_imitation.recording.remembered import rounded

COLUMNS = 8
"""Pictures in a row of the image."""
WIDTH = 240
"""Of a picture, at most, in pixels."""
QUALITY = 70
"""Of the image, from 0 to 100."""


def chosen_steps(rewards: np.ndarray, most: int) -> np.ndarray:
    """Steps of an episode to show: the first, the last, those with rewards, and others evenly in between."""
    count = len(rewards)
    if count <= most:
        return np.arange(count)
    rewarded = np.flatnonzero(rewards)
    if len(rewarded) > most // 2:
        rewarded = rewarded[np.linspace(0, len(rewarded) - 1, most // 2).astype(int)]
    spread = np.linspace(0, count - 1, most - len(rewarded)).astype(int)
    return np.unique(np.concatenate([rewarded, spread]))


def to_json(pictures: np.ndarray, steps: np.ndarray, rewards: np.ndarray) -> dict[str, Any]:
    """A film for the page.

    Args:
        pictures: uint8 [pictures, height, width] in grey or [pictures, height, width, 3] in colour.
        steps: the step that each picture belongs to; the reward of that step is the first one after it.
        rewards: of all steps of the episode.
    """
    small = [_small(Image.fromarray(picture)) for picture in pictures]
    width, height = small[0].size
    rows = -(-len(small) // COLUMNS)
    sheet = Image.new(small[0].mode, (min(len(small), COLUMNS) * width, rows * height))
    for number, picture in enumerate(small):
        sheet.paste(picture, (number % COLUMNS * width, number // COLUMNS * height))
    file = io.BytesIO()
    sheet.save(file, "webp", quality=QUALITY, method=1)
    before = np.concatenate([[0.0], np.cumsum(rewards)])
    totals = before[np.append(steps[1:], len(rewards))]
    return {
        "image": f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}",
        "columns": min(len(small), COLUMNS),
        "width": width,
        "height": height,
        "steps": np.asarray(steps).tolist(),
        "rewards": rounded(np.diff(totals, prepend=0.0)),
        "returns": rounded(totals),
    }


def _small(picture: Image.Image) -> Image.Image:
    if picture.width <= WIDTH:
        return picture
    return picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), reducing_gap=2.0)


class Camera:
    """Takes pictures of an episode whose length is unknown, at even intervals, and keeps a bounded number of them."""

    def __init__(self, picture: Callable[[], np.ndarray], most: int, expected_steps: float):
        """`most`: pictures that are kept, besides the last; an even number. `expected_steps`: a guess of the length."""
        self._picture, self._most = picture, most
        self._every = max(1, math.ceil(expected_steps / most))
        self._pictures: dict[int, np.ndarray] = {}

    def look(self, step: int) -> None:
        """Before each step of the episode."""
        if step % self._every:
            return
        if len(self._pictures) == self._most:
            self._pictures = dict(list(self._pictures.items())[::2])
            self._every *= 2
        if step % self._every == 0:
            self._pictures[step] = self._picture()

    def film(self, rewards: np.ndarray) -> dict[str, Any]:
        """After the last step: the film, which ends with a picture of the end."""
        pictures = {**self._pictures, len(rewards): self._picture()}
        return to_json(np.stack(list(pictures.values())), np.array(list(pictures)), rewards)
