"""Advantage actor-critic (Eq. 4-6)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.components import Exploration, Learner
from self_imitation.algorithm.returns import n_step_returns
from self_imitation.algorithm.rollouts import bootstrap_values, flatten_time
from self_imitation.arrays import masked_mean, require_same_shape
from self_imitation.settings import real, setting
from self_imitation.types import ActorCritic, Metrics, Params, Rollout, TrainState


@dataclass(frozen=True)
class A2CConfig:
    """Advantage actor-critic (Eq. 4-6)."""

    gamma: float = setting(0.99, real(0, 1))
    """Discount of the n-step returns (authors' code: 0.99, on grid worlds 0.95)."""
    ent_coef: float = setting(0.01, real(0))
    """alpha in Eq. 5 (paper: 0.01, in grid worlds 0.03)."""
    vf_coef: float = setting(0.5, real(0))
    """beta^a2c in Eq. 4 (authors' code: 0.5)."""


def a2c_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    target: Float[Array, " batch"],
    config: A2CConfig,
    bonus_advantage: Float[Array, " batch"] | None = None,
    valid: Bool[Array, " batch"] | None = None,
) -> tuple[Float[Array, ""], Metrics]:
    """Eq. 4: L = E[L_policy + beta L_value], with the n-step returns V^n as `target`.

    `bonus_advantage` is added to the advantage of the policy loss. Entries that are not `valid` count for nothing.
    """
    require_same_shape(log_prob=log_prob, entropy=entropy, value=value, target=target)
    advantage = jax.lax.stop_gradient(target - value)
    if bonus_advantage is not None:
        require_same_shape(advantage=advantage, bonus_advantage=bonus_advantage)
        advantage = advantage + bonus_advantage
    policy_loss = masked_mean(-log_prob * advantage, valid)  # Eq. 5, first term
    mean_entropy = masked_mean(entropy, valid)  # Eq. 5, second term
    value_loss = masked_mean(0.5 * jnp.square(value - jax.lax.stop_gradient(target)), valid)  # Eq. 6
    loss = policy_loss - config.ent_coef * mean_entropy + config.vf_coef * value_loss
    return loss, {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}


class A2C(Learner):
    """One gradient step on each rollout."""

    Config = A2CConfig
    tolerates_lag = True

    def update(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        state: None,
        train_state: TrainState,
        rollout: Rollout,
        exploration: Exploration,
        key: PRNGKeyArray,
    ) -> tuple[None, TrainState, Metrics]:
        reward = exploration.total_reward(rollout)
        target = self._targets(actor_critic, train_state.params, rollout, reward)
        valid, bonus = flatten_time((rollout.valid, exploration.advantage))

        def loss(params: Params) -> tuple[Float[Array, ""], Metrics]:
            distribution, value = actor_critic(params, flatten_time(rollout.observation))
            log_prob = distribution.log_prob(flatten_time(rollout.action))
            return a2c_loss(log_prob, distribution.entropy(), value, target.reshape(-1), self.config, bonus, valid)

        gradient, metrics = jax.grad(loss, has_aux=True)(train_state.params)
        return None, optimisers.apply_gradients(optimiser, train_state, gradient), metrics

    def _targets(
        self, actor_critic: ActorCritic, params: Params, rollout: Rollout, reward: Float[Array, "T N"]
    ) -> Float[Array, "T N"]:
        _, last_value = actor_critic(params, rollout.last_observation)
        bootstrap = bootstrap_values(actor_critic, params, rollout, None, last_value, self.bootstrap_time_limits)
        return n_step_returns(reward, rollout.ended, bootstrap, last_value, self.config.gamma)
