"""Returns of finished episodes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def discounted_returns(
    reward: Float[Array, " steps"], following: Float[Array, ""], discount: float
) -> Float[Array, " steps"]:
    """R_t = sum_k discount^(k-t) r_k (section 3), for rewards ordered from the last step to the first.

    `following` is the return of the step after these. One matrix product with a triangle of powers of the discount is
    much faster than a loop over single steps.
    """
    distance = jnp.arange(reward.shape[0])
    gap = distance[:, None] - distance[None, :]
    powers = jnp.where(gap >= 0, jnp.float32(discount) ** jnp.maximum(gap, 0), 0.0)
    own = jnp.dot(powers, reward, precision=jax.lax.Precision.HIGHEST)
    return own + jnp.float32(discount) ** (distance + 1) * following
