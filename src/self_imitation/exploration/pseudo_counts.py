"""Pseudo-counts (Bellemare et al. 2016): a density model of frames in place of a table of counts."""

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from self_imitation.algorithm.rollouts import flatten_time, reached_observation
from self_imitation.exploration.frames import downsample, newest_grey_frame, quantise
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
    grey = newest_grey_frame(flatten_time(reached_observation(rollout)), spec)
    return quantise(downsample(grey, side), levels).astype(jnp.uint8)
