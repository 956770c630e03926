"""Advantage actor-critic (Eq. 4-6)."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from self_imitation import optimisation
from self_imitation.config import A2CConfig
from self_imitation.improvement.rollouts import flat, value_at_end
from self_imitation.returns import n_step_returns
from self_imitation.shapes import require_one_shape
from self_imitation.types import ActorCritic, Learner, Metrics, Params, Rollout


def a2c_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    target: Float[Array, " batch"],
    config: A2CConfig,
) -> tuple[Float[Array, ""], Metrics]:
    """Eq. 4: L = E[L_policy + beta L_value], with the n-step returns V^n as `target`."""
    require_one_shape(log_prob=log_prob, entropy=entropy, value=value, target=target)
    advantage = jax.lax.stop_gradient(target - value)
    policy_loss = jnp.mean(-log_prob * advantage)  # Eq. 5, first term
    mean_entropy = jnp.mean(entropy)  # Eq. 5, second term
    value_loss = jnp.mean(0.5 * jnp.square(value - jax.lax.stop_gradient(target)))  # Eq. 6
    loss = policy_loss - config.entropy_weight * mean_entropy + config.value_weight * value_loss
    return loss, {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}


class A2C:
    """One gradient step on each rollout."""

    def __init__(self, config: A2CConfig, bootstrap_time_limits: bool):
        self.config = config
        self.bootstrap_time_limits = bootstrap_time_limits

    def improve(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        learner: Learner,
        rollout: Rollout,
        bonus: Float[Array, "T N"] | None,
        key: PRNGKeyArray,
    ) -> tuple[Learner, Metrics]:
        reward = rollout.reward if bonus is None else rollout.reward + bonus
        target = self._targets(actor_critic, learner.params, rollout, reward)

        def loss(params: Params) -> tuple[Float[Array, ""], Metrics]:
            distribution, value = actor_critic(params, flat(rollout.observation))
            log_prob = distribution.log_prob(flat(rollout.action))
            return a2c_loss(log_prob, distribution.entropy(), value, flat(target), self.config)

        gradient, metrics = jax.grad(loss, has_aux=True)(learner.params)
        return optimisation.descend(optimiser, learner, gradient), metrics

    def _targets(
        self, actor_critic: ActorCritic, params: Params, rollout: Rollout, reward: Float[Array, "T N"]
    ) -> Float[Array, "T N"]:
        _, last_value = actor_critic(params, rollout.last_observation)
        at_end = value_at_end(actor_critic, params, rollout, self.bootstrap_time_limits)
        return n_step_returns(reward, rollout.ended, at_end, last_value, self.config.discount)
