"""Returns of a rollout. A terminal state is worth nothing; a time limit merely cuts the episode."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def n_step_returns(
    reward: Float[Array, "T N"],
    ended: Bool[Array, "T N"],
    value_at_end: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    discount: float,
) -> Float[Array, "T N"]:
    """V^n_t below Eq. 6: discounted rewards up to the end of the rollout, then the value of where it stopped.

    Where an episode ended inside the rollout, the sum stops there with `value_at_end`: 0 at a terminal state, the
    value of the state that was cut off at a time limit.
    """

    def backwards(following: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        reward, ended, value_at_end = step
        target = reward + discount * jnp.where(ended, value_at_end, following)
        return target, target

    _, targets = jax.lax.scan(backwards, last_value, (reward, ended, value_at_end), reverse=True)
    return targets


def discounted_returns(
    reward: Float[Array, " steps"], following: Float[Array, ""], discount: float
) -> Float[Array, " steps"]:
    """R_t = sum_k discount^(k-t) r_k (section 3), for rewards ordered from the last step to the first.

    `following` is the return of the step after these. One product with a triangle of powers of the discount: as a
    loop of single steps it would take as many times longer as there are steps.
    """
    distance = jnp.arange(reward.shape[0])
    gap = distance[:, None] - distance[None, :]
    powers = jnp.where(gap >= 0, jnp.float32(discount) ** jnp.maximum(gap, 0), 0.0)
    own = jnp.dot(powers, reward, precision=jax.lax.Precision.HIGHEST)
    return own + jnp.float32(discount) ** (distance + 1) * following
