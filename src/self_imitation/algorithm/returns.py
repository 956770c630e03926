"""Returns and advantages of a rollout."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from self_imitation.arrays import require_same_shape, scan_unrolled


def n_step_returns(
    reward: Float[Array, "T N"],
    ended: Bool[Array, "T N"],
    bootstrap_value: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    discount: float,
) -> Float[Array, "T N"]:
    """V^n_t below Eq. 6: discounted rewards up to the end of the rollout, then the value of where it stopped.

    Where an episode ended inside the rollout, the sum stops there with `bootstrap_value`: 0 at a terminal state, the
    value of the state that was reached at a time limit.
    """

    def backwards(following: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        reward, ended, bootstrap_value = step
        target = reward + discount * jnp.where(ended, bootstrap_value, following)
        return target, target

    _, targets = scan_unrolled(backwards, last_value, (reward, ended, bootstrap_value), reverse=True)
    return targets


def generalised_advantages(
    reward: Float[Array, "T N"],
    ended: Bool[Array, "T N"],
    value: Float[Array, "T N"],
    bootstrap_value: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    discount: float,
    decay: float,
) -> Float[Array, "T N"]:
    """A_t = delta_t + discount decay A_t+1 with delta_t = r_t + discount V(s_t+1) - V(s_t) (Schulman et al. 2016).

    Where an episode ended, the sum stops and `bootstrap_value` takes the place of V(s_t+1), as in `n_step_returns`.
    """
    following = jnp.concatenate([value[1:], last_value[None]])
    delta = reward + discount * jnp.where(ended, bootstrap_value, following) - value

    def backwards(later: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        delta, ended = step
        advantage = delta + discount * decay * jnp.where(ended, 0.0, later)
        return advantage, advantage

    return scan_unrolled(backwards, jnp.zeros_like(last_value), (delta, ended), reverse=True)[1]


def discounted_sums(
    reward: Float[Array, "T N"], ended: Bool[Array, "T N"], before: Float[Array, " N"], discount: float
) -> tuple[Float[Array, "T N"], Float[Array, " N"]]:
    """G_t = discount G_t-1 + r_t, from 0 in each episode; also where it stands after the last step.

    It looks back where a return looks ahead and varies as much, so rewards can be scaled by it before episodes end.
    """

    def forwards(before: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        reward, ended = step
        total = discount * before + reward
        return jnp.where(ended, 0.0, total), total

    after, totals = scan_unrolled(forwards, before, (reward, ended))
    return totals, after


def retrace(
    ratio: Float[Array, "T N"],
    reward: Float[Array, "T N"],
    ended: Bool[Array, "T N"],
    action_value: Float[Array, "T N"],
    value: Float[Array, "T N"],
    bootstrap_value: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    gamma: float,
) -> Float[Array, "T N"]:
    """Q^ret_t = r_t + gamma (min(1, rho_t+1) (Q^ret_t+1 - Q(s_t+1, a_t+1)) + V(s_t+1)) (ACER, Eq. 5).

    `ratio`: rho = pi(a|s) / mu(a|s). Where an episode ended, `bootstrap_value` takes the place of all that follows.
    """
    require_same_shape(ratio=ratio, reward=reward, ended=ended, action_value=action_value, value=value)

    def backwards(following: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        reward, ended, bootstrap, truncated_ratio, action_value, value = step
        target = reward + gamma * jnp.where(ended, bootstrap, following)
        return truncated_ratio * (target - action_value) + value, target

    rows = reward, ended, bootstrap_value, jnp.minimum(ratio, 1.0), action_value, value
    return scan_unrolled(backwards, last_value, rows, reverse=True)[1]
