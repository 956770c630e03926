"""Pseudo-counts (Bellemare et al. 2016): a density model of frames in place of a table of counts."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from self_imitation.algorithm.rollouts import flatten_time, following_observation
from self_imitation.types import Rollout, Spec

MIN_GAIN = 1e-10
"""Lower bound of the prediction gain: a model may learn a frame and still give it a lower probability."""


def pseudo_count(log_density: Float[Array, "*batch"], gain: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """N = rho (1 - rho') / (rho' - rho), with rho and rho' the probabilities of a frame before and after it is learnt.

    `log_density`: log rho'. `gain`: the prediction gain, log rho' - log rho.
    """
    return -jnp.expm1(log_density) / jnp.expm1(jnp.maximum(gain, MIN_GAIN))


def count_bonus(count: Float[Array, "*batch"], scale: float) -> Float[Array, "*batch"]:
    """The reward beta / sqrt(N + 0.01); beta is the `scale`."""
    return scale / jnp.sqrt(count + 0.01)


def frame_size(spec: Spec, side: int) -> tuple[int, int]:
    """Height and width of the frames that a model sees: at most `side`, and never more than the image has."""
    height, width = spec.observation_shape[:2]
    return min(side, height), min(side, width)


def frames_reached(spec: Spec, rollout: Rollout, side: int, levels: int) -> UInt8[Array, "frames height width"]:
    """The newest frame of the observation that each step reached, in order of time and then of environment.

    Frames are grey, down-sampled to `frame_size` and quantised to integers below `levels`.
    """
    reached = rollout.next_observation
    if reached is None:
        reached = following_observation(rollout)
    image = flatten_time(reached["image"] if spec.numbers_beside_image else reached)
    channels = spec.observation_shape[-1] // spec.stack
    grey = jnp.mean(image[..., -channels:].astype(jnp.float32), axis=-1)
    return (downsample(grey, *frame_size(spec, side)) * (levels / 256)).astype(jnp.uint8)


def downsample(
    images: Float[Array, "batch full_height full_width"], height: int, width: int
) -> Float[Array, "batch height width"]:
    """Means over equal blocks of pixels; between pixels where blocks do not fit, with antialiasing."""
    batch, full_height, full_width = images.shape
    if full_height % height or full_width % width:
        return jax.image.resize(images, (batch, height, width), "linear")
    return images.reshape(batch, height, full_height // height, width, full_width // width).mean(axis=(2, 4))
