"""V-trace actor-critic (Espeholt et al. 2018, IMPALA): A2C whose targets correct for an older behaviour policy."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.components import Exploration, Learner
from self_imitation.algorithm.rollouts import bootstrap_values, flatten_time
from self_imitation.arrays import masked_mean, require_same_shape, scan_unrolled
from self_imitation.replay.buffer import LOG_PROB
from self_imitation.settings import real, setting
from self_imitation.types import ActorCritic, Distribution, Metrics, Params, Rollout, TrainState


@dataclass(frozen=True)
class VTraceConfig:
    """V-trace actor-critic."""

    gamma: float = setting(0.99, real(0, 1))
    """Discount (IMPALA: 0.99)."""
    rho_clip: float = setting(1.0, real(0, above=True))
    """Upper bound of the importance weight of each temporal difference (IMPALA: 1)."""
    c_clip: float = setting(1.0, real(0, above=True))
    """Upper bound of the importance weights in the trace (IMPALA: 1)."""
    ent_coef: float = setting(0.01, real(0))
    """Coefficient of the entropy bonus (IMPALA: 0.01)."""
    vf_coef: float = setting(0.5, real(0))
    """Coefficient of the value loss (IMPALA: 0.5)."""


class VTraceReturns(eqx.Module):
    """Targets of the value function, and advantages of the policy gradient without their importance weight."""

    target: Float[Array, "T N"]
    advantage: Float[Array, "T N"]


def vtrace_returns(
    log_ratio: Float[Array, "T N"],
    reward: Float[Array, "T N"],
    ended: Bool[Array, "T N"],
    value: Float[Array, "T N"],
    bootstrap_value: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    gamma: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> VTraceReturns:
    """v_t = V(s_t) + delta_t + gamma c_t (v_t+1 - V(s_t+1)), delta_t = rho_t (r_t + gamma V(s_t+1) - V(s_t)).

    `log_ratio` is log pi(a|s) - log mu(a|s); rho and c are its exponential, clipped from above. The advantage of the
    policy gradient is r_t + gamma v_t+1 - V(s_t). Where an episode ended, `bootstrap_value` replaces V(s_t+1) and
    v_t+1. On policy, with both clips at 1 or more, v_t is the n-step return.
    """
    require_same_shape(log_ratio=log_ratio, reward=reward, ended=ended, value=value, bootstrap_value=bootstrap_value)
    ratio = jnp.exp(log_ratio)
    rho, c = jnp.minimum(ratio, rho_clip), jnp.minimum(ratio, c_clip)
    next_value = jnp.where(ended, bootstrap_value, jnp.concatenate([value[1:], last_value[None]]))
    delta = rho * (reward + gamma * next_value - value)

    def backwards(correction: Float[Array, " N"], step: tuple) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        """The carry is v_t+1 - V(s_t+1)."""
        delta, c, ended = step
        correction = delta + gamma * c * jnp.where(ended, 0.0, correction)
        return correction, correction

    _, corrections = scan_unrolled(backwards, jnp.zeros_like(last_value), (delta, c, ended), reverse=True)
    target = value + corrections
    next_target = jnp.where(ended, bootstrap_value, jnp.concatenate([target[1:], last_value[None]]))
    return VTraceReturns(target, reward + gamma * next_target - value)


def vtrace_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    target: Float[Array, " batch"],
    weighted_advantage: Float[Array, " batch"],
    config: VTraceConfig,
    valid: Bool[Array, " batch"] | None = None,
) -> tuple[Float[Array, ""], Metrics]:
    """Policy gradient with advantages times rho, half the squared error to the V-trace targets, entropy bonus."""
    require_same_shape(log_prob=log_prob, value=value, target=target, weighted_advantage=weighted_advantage)
    policy_loss = masked_mean(-log_prob * weighted_advantage, valid)
    value_loss = masked_mean(0.5 * jnp.square(value - target), valid)
    mean_entropy = masked_mean(entropy, valid)
    loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * mean_entropy
    return loss, {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}


class VTrace(Learner):
    """One gradient step on each rollout, corrected for the policy that collected it."""

    Config = VTraceConfig
    tolerates_lag = True

    def extras(
        self, distribution: Distribution, action: Shaped[Array, "N ..."], value: Float[Array, " N"]
    ) -> dict[str, Array]:
        return {LOG_PROB: distribution.log_prob(action)}

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
        config: VTraceConfig = self.config
        reward = exploration.total_reward(rollout)
        observation, action = flatten_time(rollout.observation), flatten_time(rollout.action)
        _, last_value = actor_critic(train_state.params, rollout.last_observation)

        distribution, flat_value = actor_critic(train_state.params, observation)
        value = flat_value.reshape(reward.shape)
        log_ratio = distribution.log_prob(action).reshape(reward.shape) - rollout.extras[LOG_PROB]
        bootstrap = bootstrap_values(
            actor_critic, train_state.params, rollout, value, last_value, self.bootstrap_time_limits
        )
        returns = vtrace_returns(
            log_ratio, reward, rollout.ended, value, bootstrap, last_value, config.gamma, config.rho_clip, config.c_clip
        )
        advantage = returns.advantage if exploration.advantage is None else returns.advantage + exploration.advantage
        weighted = jnp.minimum(jnp.exp(log_ratio), config.rho_clip) * advantage

        def loss(params: Params) -> tuple[Float[Array, ""], Metrics]:
            distribution, value = actor_critic(params, observation)
            log_prob, entropy = distribution.log_prob(action), distribution.entropy()
            target, advantage, valid = flatten_time((returns.target, weighted, rollout.valid))
            return vtrace_loss(log_prob, entropy, value, target, advantage, config, valid)

        gradient, metrics = jax.grad(loss, has_aux=True)(train_state.params)
        ratio = masked_mean(jnp.exp(log_ratio), rollout.valid)
        return None, optimisers.apply_gradients(optimiser, train_state, gradient), {**metrics, "ratio": ratio}
