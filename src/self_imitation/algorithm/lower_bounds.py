"""Lower bounds of the optimal value, towards which self-imitation moves policy and value.

- Monte-Carlo (section 3): the return of the stored episode.
- n-step (Tang 2020): the rewards of n stored steps and the value of the state after them.
- With a temperature (section 4): either of them, with the entropy of the policy that acted as a reward.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from self_imitation.replay.buffer import ENTROPY_RETURN, LOG_PROB, STEPS_LEFT, Batch
from self_imitation.settings import SelfImitationConfig


def replay_extras(config: SelfImitationConfig) -> tuple[str, ...]:
    """What the replay buffer has to store beside the returns."""
    n_step = (STEPS_LEFT,) if config.bound == "n-step" else ()
    soft = (LOG_PROB, ENTROPY_RETURN) if config.temperature > 0 else ()
    return n_step + soft


def monte_carlo(batch: Batch, config: SelfImitationConfig) -> Float[Array, " batch"]:
    """R_t = r_t + sum_{k>t} gamma^(k-t) (r_k + alpha H_k), with H_k = -log mu(a_k|s_k) of the policy that acted."""
    return batch.returns + config.temperature * _entropy_after(batch, config)


def n_step(
    batch: Batch,
    later: Batch,
    exists: Bool[Array, " batch"],
    later_value: Float[Array, " batch"],
    config: SelfImitationConfig,
) -> Float[Array, " batch"]:
    """R_t = sum_{k<n} gamma^k r_{t+k} + gamma^n V(s_{t+n}), with the entropies before t+n where there is a temperature.

    `later`: the steps n after those of `batch`; `exists`: whether their episodes had them. Without them, the bound is
    the Monte-Carlo return. The rewards in between are the difference of the stored returns.
    """
    assert config.gamma is not None, "the learner's discount"
    power = config.gamma**config.n_steps
    later_return = later.returns
    if config.temperature > 0:
        later_return = later_return + config.temperature * later.extras[ENTROPY_RETURN]
    complete = monte_carlo(batch, config)
    return jnp.where(exists, complete + power * (jax.lax.stop_gradient(later_value) - later_return), complete)


def _entropy_after(batch: Batch, config: SelfImitationConfig) -> Float[Array, " batch"]:
    """sum_{k>t} gamma^(k-t) H_k: the stored sum without its first term."""
    if config.temperature == 0:
        return jnp.zeros_like(batch.returns)
    return batch.extras[ENTROPY_RETURN] + batch.extras[LOG_PROB]
