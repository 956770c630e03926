"""From image observations to small grey frames, for bonuses that count or model what is on the screen."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from self_imitation.algorithm.rollouts import flatten_time, reached_observation
from self_imitation.errors import UsageError
from self_imitation.types import Observation, Rollout, Spec


def require_images(spec: Spec, bonus: str) -> None:
    """Raise a `UsageError` if observations are not images."""
    if spec.observation_kind != "image":
        kind = "vectors of numbers" if spec.observation_kind == "numbers" else "categories"
        raise UsageError(f"agent: {bonus!r} models images; the observations of this environment are {kind}")


def newest_grey_frame(observation: Observation, spec: Spec) -> Float[Array, "batch height width"]:
    """The last frame of each stack, from 0 to 255; several channels become grey by their mean.

    Where numbers come beside an image, they are left out.
    """
    image = observation["image"] if spec.numbers_beside_image else observation
    channels = image.shape[-1] // spec.stack
    return jnp.mean(image[..., -channels:].astype(jnp.float32), axis=-1)


def downsample(frames: Float[Array, "batch height width"], side: int) -> Float[Array, "batch h w"]:
    """Means over areas, to `side` pixels in each direction; a direction that has no more than that stays as it is.

    The weights of pixels are whole numbers and the division comes last: at half the side, means of 2 x 2 pixels are
    exact.
    """
    height, width = frames.shape[1:]
    rows, columns = _overlaps(height, side), _overlaps(width, side)
    sums = jnp.einsum("ih,bhw,jw->bij", rows, frames, columns, precision=jax.lax.Precision.HIGHEST)
    return sums / (rows[0].sum() * columns[0].sum())


def _overlaps(size: int, side: int) -> Float[np.ndarray, "small large"]:
    """How much of each of `size` pixels lies in each of `side` areas of equal size, in units that make it whole."""
    side = min(side, size)
    pixel, area = np.arange(size), np.arange(side)[:, None]
    overlap = np.minimum((area + 1) * size, (pixel + 1) * side) - np.maximum(area * size, pixel * side)
    return (np.maximum(overlap, 0) // math.gcd(size, side)).astype(np.float32)


def quantise(frames: Float[Array, "*batch"], levels: int) -> Int[Array, "*batch"]:
    """Grey values from 0 to 255 as one of `levels` levels of equal width."""
    return jnp.floor(frames * (levels / 256)).astype(jnp.int32)


def frame_size(spec: Spec, side: int) -> tuple[int, int]:
    """Height and width of the frames that a model sees: at most `side`, and never more than the image has."""
    height, width = spec.observation_shape[:2]
    return min(side, height), min(side, width)


def frames_reached(spec: Spec, rollout: Rollout, side: int, levels: int) -> UInt8[Array, "frames height width"]:
    """The newest frame of the observation that each step reached, in order of time and then of environment.

    Frames are grey, down-sampled to `frame_size` and quantised to integers below `levels`.
    """
    grey = newest_grey_frame(flatten_time(reached_observation(rollout)), spec)
    return quantise(downsample(grey, side), levels).astype(jnp.uint8)
