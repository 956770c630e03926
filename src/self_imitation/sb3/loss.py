"""The self-imitation loss and one update in PyTorch: the twin of `algorithm.self_imitation`."""

from collections.abc import Callable
from typing import Any

import torch as th

from self_imitation.arrays import require_same_shape
from self_imitation.settings import SelfImitationConfig

Metrics = dict[str, float]


def self_imitation_loss(
    log_prob: th.Tensor,
    entropy: th.Tensor,
    value: th.Tensor,
    returns: th.Tensor,
    weight: th.Tensor,
    config: SelfImitationConfig,
) -> tuple[th.Tensor, th.Tensor, Metrics]:
    """Eq. 1: L = E[L_policy + beta L_value], each sample times its importance weight; also (R - V)+ of each, metrics.

    A weight of 0 marks an empty entry of the batch.
    """
    require_same_shape(log_prob=log_prob, entropy=entropy, value=value, returns=returns, weight=weight)
    zero = th.zeros_like(value)
    filled = weight > 0
    imitated = (returns > value) & filled
    gap = th.where(imitated, returns - value, zero)  # (R - V)+
    advantage = gap.detach()
    if config.max_advantage is not None:
        advantage = advantage.clamp(max=config.max_advantage)

    # Eq. 2. Where nothing is imitated, -log pi may be infinite, and infinity times 0 is NaN.
    policy_loss = _capped(th.where(imitated, -log_prob, zero), config.max_neg_log_prob) * advantage
    # Eq. 3, 1/2 (R - V)+^2, where the gap is within the clip; beyond it the gradient stays at the clip.
    value_loss = advantage * (gap - 0.5 * advantage)
    bonus = th.where(imitated, entropy, zero)

    divisor = _divisor(filled, imitated, config)
    policy, value_term, entropy_term = ((weight * x).sum() / divisor for x in (policy_loss, value_loss, bonus))
    loss = config.loss_coef * (policy + config.vf_coef * value_term - config.ent_coef * entropy_term)
    count = filled.sum().clamp(min=1)
    return (
        loss,
        advantage,
        {
            "loss": loss.item(),
            "policy_loss": policy.item(),
            "value_loss": value_term.item(),
            "advantage": (advantage.sum() / count).item(),
            "imitated": (imitated.sum() / count).item(),
        },
    )


def _capped(neg_log_prob: th.Tensor, limit: float | None) -> th.Tensor:
    """Cap the value but not the gradient: otherwise nothing would be learnt from rare good actions."""
    if limit is None:
        return neg_log_prob
    unchanged = neg_log_prob.detach()
    return unchanged.clamp(max=limit) + (neg_log_prob - unchanged)


def _divisor(filled: th.Tensor, imitated: th.Tensor, config: SelfImitationConfig) -> th.Tensor:
    if config.average == "imitated":
        return imitated.sum().clamp(min=config.min_imitated)
    return filled.sum().clamp(min=1)


def gradient_step(
    policy: Any,
    optimiser: th.optim.Optimizer,
    observation: Any,
    action: th.Tensor,
    returns: th.Tensor,
    weight: th.Tensor,
    max_grad_norm: float,
    config: SelfImitationConfig,
    baseline: Callable[[Any], th.Tensor] | None = None,
) -> tuple[th.Tensor, Metrics]:
    """One step of the optimiser on Eq. 1, with SB3's `ActorCriticPolicy`; returns (R - V)+ of each sample, metrics.

    `baseline`: the value that returns are compared with, if not the policy's, which then does not learn.
    """
    value, log_prob, entropy = policy.evaluate_actions(observation, action)
    if baseline is not None:
        value = baseline(observation)
    if entropy is None:  # no closed form: SB3 estimates it in the same way
        entropy = -log_prob
    loss, advantage, metrics = self_imitation_loss(log_prob, entropy, value.flatten(), returns, weight, config)
    optimiser.zero_grad()
    loss.backward()
    th.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
    optimiser.step()
    return advantage, metrics
