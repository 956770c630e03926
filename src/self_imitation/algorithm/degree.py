"""The degree of self-imitation: how many updates an iteration makes, and the coefficient of their loss.

The paper keeps both constant and asks for automatic control as future work (section 5.4). A schedule lowers them over
the run; the coefficient can follow the share of samples with R > V; the number of updates can be chosen by a bandit
whose reward is the progress of the episodes' returns.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from self_imitation.settings import SelfImitationConfig
from self_imitation.types import Rollout

ARMS = (0, 1, 2, 4, 8)
"""Numbers of updates that the bandit chooses from."""
FORGETTING = 0.95
"""Discount of the bandit's earlier experience at each choice: what helps changes in the course of training."""
SHARE_DECAY = 0.99
"""Decay of the running mean of the share with R > V, per iteration."""


class Degree(eqx.Module):
    """Of one iteration."""

    updates: Int[Array, ""]
    loss_coef: Float[Array, ""]


class Bandit(eqx.Module):
    """Discounted UCB (Garivier and Moulines 2008) over `ARMS`."""

    progress: Float[Array, " arms"]
    """Discounted sum of the progress under each arm."""
    plays: Float[Array, " arms"]
    """Discounted number of times that each arm was chosen."""
    arm: Int[Array, ""]
    iterations: Int[Array, ""]
    """Under the present arm."""
    return_sum: Float[Array, ""]
    """Of the episodes that ended under the present arm."""
    episodes: Float[Array, ""]
    last_mean: Float[Array, ""]
    """Mean return under the arm before; NaN at the start."""
    scale: Float[Array, ""]
    """Running mean of the absolute progress."""


class DegreeState(eqx.Module):
    iteration: Int[Array, ""]
    share: Float[Array, ""]
    """Running mean of the share of sampled steps with R > V."""
    bandit: Bandit | None


def init(config: SelfImitationConfig) -> DegreeState | None:
    """None where the degree is constant."""
    if config.constant_degree:
        return None
    zero = jnp.float32(0.0)
    bandit = Bandit(
        progress=jnp.zeros(len(ARMS)),
        plays=jnp.zeros(len(ARMS)),
        arm=jnp.int32(len(ARMS) - 1),
        iterations=jnp.int32(0),
        return_sum=zero,
        episodes=zero,
        last_mean=jnp.float32(jnp.nan),
        scale=zero,
    )
    return DegreeState(jnp.int32(0), jnp.float32(1.0), bandit if config.updates_schedule == "bandit" else None)


def current(state: DegreeState, config: SelfImitationConfig, iterations: int) -> Degree:
    """The degree of the present iteration; `iterations`: of the whole run."""
    remaining = jnp.maximum(1.0 - state.iteration / iterations, 0.0)
    updates = jnp.int32(config.updates)
    if config.updates_schedule == "linear":
        updates = jnp.round(config.updates * remaining).astype(jnp.int32)
    if state.bandit is not None:
        updates = jnp.array(ARMS, jnp.int32)[state.bandit.arm]
    factors = {"constant": jnp.float32(1.0), "linear": remaining, "share": state.share}
    return Degree(updates, config.loss_coef * factors[config.loss_coef_schedule])


def after_rollout(state: DegreeState, rollout: Rollout, config: SelfImitationConfig) -> DegreeState:
    """Count an iteration and its finished episodes."""
    bandit = None if state.bandit is None else _observe(state.bandit, rollout, config)
    return DegreeState(state.iteration + 1, state.share, bandit)


def after_imitation(state: DegreeState, imitated: Float[Array, ""], updated: Bool[Array, ""]) -> DegreeState:
    """Take the share of samples with R > V into account, where there were updates."""
    share = SHARE_DECAY * state.share + (1 - SHARE_DECAY) * imitated
    return dataclasses.replace(state, share=jnp.where(updated, share, state.share))


def _observe(bandit: Bandit, rollout: Rollout, config: SelfImitationConfig) -> Bandit:
    """Add the episodes that ended. After `bandit_window` iterations and at least one episode, choose anew."""
    ended = rollout.ended if rollout.valid is None else rollout.ended & rollout.valid
    bandit = dataclasses.replace(
        bandit,
        iterations=bandit.iterations + 1,
        return_sum=bandit.return_sum + jnp.sum(jnp.where(ended, rollout.episode_return, 0.0)),
        episodes=bandit.episodes + jnp.sum(ended),
    )
    due = (bandit.iterations >= config.bandit_window) & (bandit.episodes > 0)
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), choose(bandit), bandit)


def choose(bandit: Bandit) -> Bandit:
    """Reward the present arm with the change of the mean return, in units of its usual size; then the next arm: each
    one once, then the one with the highest mean progress plus a bonus for arms that were rarely chosen.
    """
    mean = bandit.return_sum / jnp.maximum(bandit.episodes, 1.0)
    known = ~jnp.isnan(bandit.last_mean)
    change = jnp.where(known, mean - bandit.last_mean, 0.0)
    scale = jnp.where(bandit.scale > 0, 0.9 * bandit.scale + 0.1 * jnp.abs(change), jnp.abs(change))
    reward = jnp.where(scale > 0, change / jnp.maximum(scale, 1e-8), 0.0)

    here = jnp.arange(len(ARMS)) == bandit.arm
    progress = FORGETTING * bandit.progress + jnp.where(here, reward, 0.0)
    plays = FORGETTING * bandit.plays + here
    bonus = jnp.sqrt(2.0 * jnp.log(jnp.maximum(jnp.sum(plays), 1.0)) / jnp.maximum(plays, 1e-8))
    score = jnp.where(plays > 0, progress / jnp.maximum(plays, 1e-8) + bonus, jnp.inf)
    return Bandit(
        progress=progress,
        plays=plays,
        arm=jnp.argmax(score).astype(jnp.int32),
        iterations=jnp.int32(0),
        return_sum=jnp.float32(0.0),
        episodes=jnp.float32(0.0),
        last_mean=mean,
        scale=scale,
    )
