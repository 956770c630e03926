"""Pseudo-counts (Bellemare et al. 2016): a density model of frames in place of a table of counts."""

import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_GAIN = 1e-10
"""Lower bound of the prediction gain: a model may learn a frame and still give it a lower probability."""


def pseudo_count(log_density: Float[Array, "*batch"], gain: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """N = rho (1 - rho') / (rho' - rho), with rho and rho' the probabilities of a frame before and after it is learnt.

    `log_density`: log rho'. `gain`: the prediction gain, log rho' - log rho.
    """
    return -jnp.expm1(log_density) / jnp.expm1(jnp.maximum(gain, MIN_GAIN))


def pseudo_count_bonus(count: Float[Array, "*batch"], scale: float) -> Float[Array, "*batch"]:
    """The reward beta / sqrt(N + 0.01); beta is the `scale`."""
    return scale / jnp.sqrt(count + 0.01)
