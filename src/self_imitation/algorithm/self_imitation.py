"""Self-imitation: imitate a past action only where its return beat the present value estimate (Eq. 1-3).

With a temperature: lower-bound soft Q-learning (section 4), of which self-imitation is the limit.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from self_imitation.algorithm import lower_bounds
from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.degree import Degree
from self_imitation.arrays import max_over_seeds, require_vectors
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import Batch, ReplayBuffer
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import ActorCritic, Metrics, Observation, Params, TrainState

Baseline = Callable[[Observation], Float[Array, " batch"]]
"""From observations [batch, ...] to the values that returns are compared with."""


def self_imitation_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    returns: Float[Array, " batch"],
    weight: Float[Array, " batch"],
    config: SelfImitationConfig,
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    """Eq. 1: L = E[L_policy + beta L_value], each sample times its importance weight.

    With a temperature alpha (section 4.3): R - alpha log pi in place of R, and L = E[alpha L_policy + L_value],
    whose gradient is that of 1/2 (R - Q)+^2 with Q = V + alpha log pi.

    Args:
        log_prob: log pi(a|s) of the stored actions under the present policy.
        entropy: of the present policy at the stored observations.
        value: V(s), the present estimate.
        returns: R, in the units of the values.
        weight: importance weights; 0 marks an empty entry of the batch.
        config: coefficients, clipping and averaging.

    Returns:
        The loss, and beside it (R - V)+ of each sample, clipped as configured, and metrics: the form that
            `jax.value_and_grad(..., has_aux=True)` takes.

    Raises:
        UsageError: an array is not a vector [batch].
    """
    require_vectors(log_prob=log_prob, entropy=entropy, value=value, returns=returns, weight=weight)
    filled = weight > 0
    policy_coef, vf_coef = 1.0, config.vf_coef
    if config.temperature > 0:
        policy_coef, vf_coef = config.temperature, 1.0
        returns = returns - config.temperature * jax.lax.stop_gradient(log_prob)
        filled = filled & jnp.isfinite(log_prob)  # a masked action can't be imitated
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
    loss = config.loss_coef * (policy_coef * policy + vf_coef * value_term - config.ent_coef * entropy_term)
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
    degree: Degree | None = None,
    baseline: Baseline | None = None,
) -> tuple[TrainState, ReplayBuffer, Metrics]:
    """The last loop of Algorithm 1: M times sample a batch, take a gradient step, update the sampled priorities.

    With `learning_starts` steps or fewer in the buffer, neither parameters nor optimiser change.

    Args:
        actor_critic: from parameters and observations [batch, ...] to a distribution with `log_prob(action)` and
            `entropy()`, and values [batch].
        optimiser: the Optax optimiser to which the state in `train_state` belongs.
        train_state: parameters and the state of their optimiser.
        buffer: made by `replay.create`, filled by `replay.insert`.
        key: for sampling.
        config: of the loss, the number M of updates, and sampling.
        normalise: brings a sampled batch, which is raw, to the scale of the actor-critic's inputs and values.
        degree: M and the coefficient of the loss, where they are not those of `config`.
        baseline: the value that returns are compared with, of normalised observations (see `imitation_value`). None:
            that of `actor_critic`, which then also learns from Eq. 3.

    Returns:
        The new train state, the buffer with new priorities, and metrics averaged over the updates, such as
            `sil_imitated`: the share of sampled steps with R > V.

    Raises:
        UsageError: while JAX traces it, if the values or log-probabilities are not vectors [batch].
    """
    ready = buffer.size > config.learning_starts
    if degree is not None:
        config = dataclasses.replace(config, loss_coef=degree.loss_coef)  # type: ignore[arg-type]

    def update(train_state: TrainState, buffer: ReplayBuffer, key: PRNGKeyArray) -> tuple:
        batch = normalise(replay.sample(buffer, key, config))
        value = baseline or (lambda observation: actor_critic(train_state.params, observation)[1])
        returns = _lower_bound(value, buffer, batch, config, normalise)
        batch = dataclasses.replace(batch, returns=returns)
        train_state, advantage, metrics = gradient_step(actor_critic, optimiser, train_state, batch, config, baseline)
        return train_state, batch, advantage, metrics

    def update_always(carry: tuple[TrainState, ReplayBuffer], key: PRNGKeyArray) -> tuple:
        train_state, batch, advantage, metrics = update(*carry, key)
        return (train_state, replay.update_priorities(carry[1], batch, advantage, config)), metrics

    if degree is None:
        keys = jax.random.split(key, config.updates)
        metrics: Metrics
        (updated, buffer), metrics = jax.lax.scan(update_always, (train_state, buffer), keys)
        metrics = jax.tree.map(jnp.mean, metrics)
    else:
        updated, buffer, metrics = _repeat(update, degree, train_state, buffer, key, config)
    train_state = jax.tree.map(lambda new, old: jnp.where(ready, new, old), updated, train_state)
    return train_state, buffer, metrics


class _Loop(eqx.Module):
    train_state: TrainState
    buffer: ReplayBuffer
    sums: Metrics


def _repeat(
    update: Callable[..., tuple],
    degree: Degree,
    train_state: TrainState,
    buffer: ReplayBuffer,
    key: PRNGKeyArray,
    config: SelfImitationConfig,
) -> tuple[TrainState, ReplayBuffer, Metrics]:
    """A number of updates that is only known while the program runs, and may differ between seeds."""
    shapes = jax.eval_shape(update, train_state, buffer, key)[-1]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(number: Int[Array, ""], loop: _Loop) -> _Loop:
        active = number < degree.updates  # seeds in one loop take as many iterations as the busiest of them
        after, batch, advantage, metrics = update(loop.train_state, loop.buffer, jax.random.fold_in(key, number))
        train_state = jax.tree.map(lambda new, old: jnp.where(active, new, old), after, loop.train_state)
        batch = dataclasses.replace(batch, weight=jnp.where(active, batch.weight, 0.0))
        buffer = replay.update_priorities(loop.buffer, batch, advantage, config)
        sums = jax.tree.map(lambda total, new: total + jnp.where(active, new, 0.0), loop.sums, metrics)
        return _Loop(train_state, buffer, sums)

    loop = jax.lax.fori_loop(0, max_over_seeds(degree.updates), body, _Loop(train_state, buffer, zeros))
    return loop.train_state, loop.buffer, jax.tree.map(lambda x: x / jnp.maximum(degree.updates, 1), loop.sums)


def _lower_bound(
    value: Baseline,
    buffer: ReplayBuffer,
    batch: Batch,
    config: SelfImitationConfig,
    normalise: Callable[[Batch], Batch],
) -> Float[Array, " batch"]:
    if config.bound == "monte-carlo":
        return lower_bounds.monte_carlo(batch, config)
    later, exists = replay.later(buffer, batch, config.n_steps)
    later = normalise(later)
    return lower_bounds.n_step(batch, later, exists, value(later.observation), config)


def gradient_step(
    actor_critic: ActorCritic,
    optimiser: optax.GradientTransformation,
    train_state: TrainState,
    batch: Batch,
    config: SelfImitationConfig,
    baseline: Baseline | None = None,
) -> tuple[TrainState, Float[Array, " batch"], Metrics]:
    """One gradient step on Eq. 1; also returns (R - V)+ of each sample."""
    gradient, (advantage, metrics) = jax.grad(batch_loss, has_aux=True)(
        train_state.params, actor_critic, batch, config, baseline
    )
    return optimisers.apply_gradients(optimiser, train_state, gradient), advantage, metrics


def batch_loss(
    params: Params,
    actor_critic: ActorCritic,
    batch: Batch,
    config: SelfImitationConfig,
    baseline: Baseline | None = None,
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    """Eq. 1 for a batch from the replay buffer. With a `baseline`, V does not learn: Eq. 3 is constant in `params`."""
    distribution, value = actor_critic(params, batch.observation)
    if baseline is not None:
        value = baseline(batch.observation)
    log_prob, entropy = distribution.log_prob(batch.action), distribution.entropy()
    return self_imitation_loss(log_prob, entropy, value, batch.returns, batch.weight, config)
