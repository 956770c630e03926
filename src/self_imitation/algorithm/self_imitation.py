"""Self-imitation: imitate a past action only where its return beat the present value estimate (Eq. 1-3)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.arrays import require_same_shape
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import Batch, ReplayBuffer
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import ActorCritic, Metrics, Params, TrainState


def self_imitation_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    returns: Float[Array, " batch"],
    weight: Float[Array, " batch"],
    config: SelfImitationConfig,
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    """Eq. 1: L = E[L_policy + beta L_value], each sample times its importance weight; also returns (R - V)+ of each.

    A weight of 0 marks an empty entry of the batch.
    """
    require_same_shape(log_prob=log_prob, entropy=entropy, value=value, returns=returns, weight=weight)
    filled = weight > 0
    imitated = (returns > value) & filled
    gap = jnp.where(imitated, returns - value, 0.0)  # (R - V)+
    advantage = jax.lax.stop_gradient(gap if config.max_advantage is None else jnp.minimum(gap, config.max_advantage))

    # Eq. 2. Where nothing is imitated, -log pi may be infinite (a masked action), and infinity times 0 is NaN.
    neg_log_prob = jnp.where(imitated, -log_prob, 0.0)
    policy_loss = _capped(neg_log_prob, config.max_neg_log_prob) * advantage
    # Eq. 3, 1/2 (R - V)+^2, where the gap is within the clip; beyond it the gradient stays at the clip.
    value_loss = advantage * (gap - 0.5 * advantage)
    bonus = jnp.where(imitated, entropy, 0.0)

    def average(x: Float[Array, " batch"]) -> Float[Array, ""]:
        return jnp.sum(weight * x) / _divisor(filled, imitated, config)

    policy, value_term, entropy_term = average(policy_loss), average(value_loss), average(bonus)
    loss = config.loss_coef * (policy + config.vf_coef * value_term - config.ent_coef * entropy_term)
    count = jnp.maximum(jnp.sum(filled), 1)
    metrics = {
        "sil_loss": loss,
        "sil_policy_loss": policy,
        "sil_value_loss": value_term,
        "sil_advantage": jnp.sum(advantage) / count,
        "sil_imitated": jnp.sum(imitated) / count,
    }
    return loss, (advantage, metrics)


def _capped(neg_log_prob: Float[Array, " batch"], limit: float | None) -> Float[Array, " batch"]:
    """Cap the value but not the gradient: otherwise nothing would be learnt from rare good actions."""
    if limit is None:
        return neg_log_prob
    unchanged = jax.lax.stop_gradient(neg_log_prob)
    return jnp.minimum(unchanged, limit) + (neg_log_prob - unchanged)


def _divisor(filled: Bool[Array, " batch"], imitated: Bool[Array, " batch"], config: SelfImitationConfig) -> Array:
    if config.average == "imitated":
        return jnp.maximum(jnp.sum(imitated), config.min_imitated)
    return jnp.maximum(jnp.sum(filled), 1)


def imitate(
    actor_critic: ActorCritic,
    optimiser: optax.GradientTransformation,
    train_state: TrainState,
    buffer: ReplayBuffer,
    key: PRNGKeyArray,
    config: SelfImitationConfig,
    normalise: Callable[[Batch], Batch] = lambda batch: batch,
) -> tuple[TrainState, ReplayBuffer, Metrics]:
    """The last loop of Algorithm 1: M times sample a batch, take a gradient step, update the sampled priorities.

    The replay buffer is raw: `normalise` brings batches to the scale of the actor-critic's inputs and values. With
    `learning_starts` steps or fewer in the buffer, neither parameters nor optimiser change.
    """
    ready = buffer.size > config.learning_starts

    def update(carry: tuple[TrainState, ReplayBuffer], key: PRNGKeyArray) -> tuple:
        train_state, buffer = carry
        batch = normalise(replay.sample(buffer, key, config))
        train_state, advantage, metrics = gradient_step(actor_critic, optimiser, train_state, batch, config)
        return (train_state, replay.update_priorities(buffer, batch, advantage, config)), metrics

    keys = jax.random.split(key, config.updates)
    metrics: Metrics
    (updated, buffer), metrics = jax.lax.scan(update, (train_state, buffer), keys)
    train_state = jax.tree.map(lambda new, old: jnp.where(ready, new, old), updated, train_state)
    return train_state, buffer, jax.tree.map(jnp.mean, metrics)


def gradient_step(
    actor_critic: ActorCritic,
    optimiser: optax.GradientTransformation,
    train_state: TrainState,
    batch: Batch,
    config: SelfImitationConfig,
) -> tuple[TrainState, Float[Array, " batch"], Metrics]:
    """One gradient step on Eq. 1; also returns (R - V)+ of each sample."""
    gradient, (advantage, metrics) = jax.grad(batch_loss, has_aux=True)(train_state.params, actor_critic, batch, config)
    return optimisers.apply_gradients(optimiser, train_state, gradient), advantage, metrics


def batch_loss(
    params: Params, actor_critic: ActorCritic, batch: Batch, config: SelfImitationConfig
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    """Eq. 1 for a batch from the replay buffer."""
    distribution, value = actor_critic(params, batch.observation)
    log_prob, entropy = distribution.log_prob(batch.action), distribution.entropy()
    return self_imitation_loss(log_prob, entropy, value, batch.returns, batch.weight, config)
