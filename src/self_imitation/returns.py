"""Returns of a rollout. A terminal state is worth nothing; a time limit merely cuts the episode."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from self_imitation.loops import over_steps


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

    _, targets = over_steps(backwards, last_value, (reward, ended, value_at_end), reverse=True)
    return targets


def generalised_advantages(
    reward: Float[Array, "T N"],
    ended: Bool[Array, "T N"],
    value: Float[Array, "T N"],
    value_at_end: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    discount: float,
    decay: float,
) -> Float[Array, "T N"]:
    """A_t = delta_t + discount decay A_t+1 with delta_t = r_t + discount V(s_t+1) - V(s_t) (Schulman et al. 2016).

    Where an episode ended, the sum stops and `value_at_end` takes the place of V(s_t+1), as in `n_step_returns`.
    """
    following = jnp.concatenate([value[1:], last_value[None]])
    delta = reward + discount * jnp.where(ended, value_at_end, following) - value

    def backwards(later: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        delta, ended = step
        advantage = delta + discount * decay * jnp.where(ended, 0.0, later)
        return advantage, advantage

    return over_steps(backwards, jnp.zeros_like(last_value), (delta, ended), reverse=True)[1]


def discounted_sums(
    reward: Float[Array, "T N"], ended: Bool[Array, "T N"], before: Float[Array, " N"], discount: float
) -> tuple[Float[Array, "T N"], Float[Array, " N"]]:
    """G_t = discount G_t-1 + r_t, from 0 in each episode; also where it stands after the last step.

    It looks back where a return looks ahead, and varies as much: what rewards are scaled by while episodes still run.
    """

    def forwards(before: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        reward, ended = step
        total = discount * before + reward
        return jnp.where(ended, 0.0, total), total

    after, totals = over_steps(forwards, before, (reward, ended))
    return totals, after


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
