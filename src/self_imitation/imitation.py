"""Self-imitation: imitate a past action only where its return beat the present value estimate (Eq. 1-3)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from self_imitation import memory as episodic_memory
from self_imitation import optimisation
from self_imitation.config import SelfImitationConfig
from self_imitation.memory import Batch, Memory
from self_imitation.shapes import require_one_shape
from self_imitation.types import ActorCritic, Learner, Metrics, Params


def self_imitation_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    returns: Float[Array, " batch"],
    weight: Float[Array, " batch"],
    config: SelfImitationConfig,
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    """Eq. 1: L = E[L_policy + beta L_value], each sample times its importance weight; also (R - V)+ of each.

    A weight of 0 marks a place in the batch that nothing fills.
    """
    require_one_shape(log_prob=log_prob, entropy=entropy, value=value, returns=returns, weight=weight)
    filled = weight > 0
    imitated = (returns > value) & filled
    gap = jnp.where(imitated, returns - value, 0.0)  # (R - V)+
    advantage = jax.lax.stop_gradient(gap if config.clip is None else jnp.minimum(gap, config.clip))

    # Eq. 2. Where nothing is imitated -log pi may be infinite (a masked action), and infinity times 0 is not 0.
    neg_log_prob = jnp.where(imitated, -log_prob, 0.0)
    policy_loss = _capped(neg_log_prob, config.max_neg_log_prob) * advantage
    # Eq. 3, 1/2 (R - V)+^2, where the gap is within the clip; beyond it the gradient stays at the clip.
    value_loss = advantage * (gap - 0.5 * advantage)
    bonus = jnp.where(imitated, entropy, 0.0)

    def average(x: Float[Array, " batch"]) -> Float[Array, ""]:
        return jnp.sum(weight * x) / _divisor(filled, imitated, config)

    policy, value_term, entropy_term = average(policy_loss), average(value_loss), average(bonus)
    loss = config.weight * (policy + config.value_weight * value_term - config.entropy_weight * entropy_term)
    count = jnp.maximum(jnp.sum(filled), 1)
    metrics = {
        "sil_loss": loss,
        "sil_policy_loss": policy,
        "sil_value_loss": value_term,
        "sil_advantage": jnp.sum(advantage) / count,
        "sil_imitated": jnp.sum(imitated) / count,
    }
    return loss, (advantage, metrics)


def _capped(neg_log_prob: Float[Array, " batch"], most: float | None) -> Float[Array, " batch"]:
    """The value capped, the gradient whole: a cap with its gradient would stop learning from rare good actions."""
    if most is None:
        return neg_log_prob
    unchanged = jax.lax.stop_gradient(neg_log_prob)
    return jnp.minimum(unchanged, most) + (neg_log_prob - unchanged)


def _divisor(filled: Bool[Array, " batch"], imitated: Bool[Array, " batch"], config: SelfImitationConfig) -> Array:
    if config.average == "imitated":
        return jnp.maximum(jnp.sum(imitated), config.min_imitated)
    return jnp.maximum(jnp.sum(filled), 1)


def imitate(
    actor_critic: ActorCritic,
    optimiser: optax.GradientTransformation,
    learner: Learner,
    memory: Memory,
    key: PRNGKeyArray,
    config: SelfImitationConfig,
    normalise: Callable[[Batch], Batch] = lambda batch: batch,
) -> tuple[Learner, Memory, Metrics]:
    """The last loop of Algorithm 1: M times draw a batch, take a gradient step, renew the drawn priorities.

    The memory is raw: `normalise` brings what is drawn to the scale of what the actor-critic sees and values.
    With `start_after` steps or fewer in the memory nothing happens: neither parameters nor optimiser move.
    """
    ready = memory.size > config.start_after

    def update(so_far: tuple[Learner, Memory], key: PRNGKeyArray) -> tuple:
        learner, memory = so_far
        batch = normalise(episodic_memory.draw(memory, key, config))
        learner, advantage, metrics = step(actor_critic, optimiser, learner, batch, config)
        return (learner, episodic_memory.reprioritise(memory, batch, advantage, config)), metrics

    keys = jax.random.split(key, config.updates)
    metrics: Metrics
    (learned, memory), metrics = jax.lax.scan(update, (learner, memory), keys)
    learner = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learned, learner)
    return learner, memory, jax.tree.map(jnp.mean, metrics)


def step(
    actor_critic: ActorCritic,
    optimiser: optax.GradientTransformation,
    learner: Learner,
    batch: Batch,
    config: SelfImitationConfig,
) -> tuple[Learner, Float[Array, " batch"], Metrics]:
    """One gradient step on Eq. 1; also (R - V)+ of each item."""
    gradient, (advantage, metrics) = jax.grad(loss_of_batch, has_aux=True)(learner.params, actor_critic, batch, config)
    return optimisation.descend(optimiser, learner, gradient), advantage, metrics


def loss_of_batch(
    params: Params, actor_critic: ActorCritic, batch: Batch, config: SelfImitationConfig
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    """Eq. 1 for a batch from the memory."""
    distribution, value = actor_critic(params, batch.observation)
    log_prob, entropy = distribution.log_prob(batch.action), distribution.entropy()
    return self_imitation_loss(log_prob, entropy, value, batch.returns, batch.weight, config)
