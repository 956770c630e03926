"""Proximal policy optimisation (Schulman et al. 2017): several epochs on each rollout, none too far from its policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from self_imitation import optimisation
from self_imitation.config import PPOConfig
from self_imitation.improvement.rollouts import flat, value_at_end
from self_imitation.returns import generalised_advantages
from self_imitation.shapes import require_one_shape
from self_imitation.types import ActorCritic, Learner, Metrics, Params, Rollout

EPSILON = 1e-8


class Samples(eqx.Module):
    """What the epochs go through, with log-probabilities and values as they were before the first step."""

    observation: Shaped[Array, "batch ..."]
    action: Shaped[Array, "batch ..."]
    log_prob: Float[Array, " batch"]
    value: Float[Array, " batch"]
    advantage: Float[Array, " batch"]


def ppo_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    old_log_prob: Float[Array, " batch"],
    old_value: Float[Array, " batch"],
    advantage: Float[Array, " batch"],
    config: PPOConfig,
) -> tuple[Float[Array, ""], Metrics]:
    """L = E[-min(r A, clip(r) A)] + beta E[1/2 (V - (V_old + A))^2] - alpha E[H], with r = pi / pi_old."""
    require_one_shape(
        log_prob=log_prob,
        entropy=entropy,
        value=value,
        old_log_prob=old_log_prob,
        old_value=old_value,
        advantage=advantage,
    )
    target = old_value + advantage
    normal = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + EPSILON)
    ratio = jnp.exp(log_prob - old_log_prob)
    within = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy_loss = jnp.mean(-jnp.minimum(ratio * normal, within * normal))

    error = jnp.square(value - target)
    if config.value_clip is not None:
        near = old_value + jnp.clip(value - old_value, -config.value_clip, config.value_clip)
        error = jnp.maximum(error, jnp.square(near - target))
    value_loss = jnp.mean(0.5 * error)

    mean_entropy = jnp.mean(entropy)
    loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * mean_entropy
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": mean_entropy,
        "kl": jnp.mean(ratio - 1 - (log_prob - old_log_prob)),
        "clipped": jnp.mean(jnp.abs(ratio - 1) > config.clip),
    }


class PPO:
    """Epochs of minibatches on each rollout."""

    def __init__(self, config: PPOConfig, bootstrap_time_limits: bool):
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
        samples = self._samples(actor_critic, learner.params, rollout, reward)
        size, count = samples.value.shape[0] // self.config.minibatches, samples.value.shape[0]

        def loss(params: Params, batch: Samples) -> tuple[Float[Array, ""], Metrics]:
            distribution, value = actor_critic(params, batch.observation)
            log_prob, entropy = distribution.log_prob(batch.action), distribution.entropy()
            return ppo_loss(log_prob, entropy, value, batch.log_prob, batch.value, batch.advantage, self.config)

        def minibatch(learner: Learner, chosen: Shaped[Array, " size"]) -> tuple[Learner, Metrics]:
            batch = jax.tree.map(lambda column: column[chosen], samples)
            gradient, metrics = jax.grad(loss, has_aux=True)(learner.params, batch)
            return optimisation.descend(optimiser, learner, gradient), metrics

        def epoch(learner: Learner, key: PRNGKeyArray) -> tuple[Learner, dict[str, Float[Array, " minibatches"]]]:
            """Each sample once, in a new order. What does not fill a minibatch sits this epoch out."""
            order = jax.random.permutation(key, count)[: size * self.config.minibatches]
            return jax.lax.scan(minibatch, learner, order.reshape(self.config.minibatches, size))

        learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, self.config.epochs))
        return learner, jax.tree.map(jnp.mean, metrics)

    def _samples(
        self, actor_critic: ActorCritic, params: Params, rollout: Rollout, reward: Float[Array, "T N"]
    ) -> Samples:
        # Deviation: pi_old is the policy through the running statistics of now, which have taken this rollout in, where
        # the authors keep what it was while acting. So the ratios begin at 1, and all of an update sees one scale.
        observation, action = flat(rollout.observation), flat(rollout.action)
        distribution, value = actor_critic(params, observation)
        _, last_value = actor_critic(params, rollout.last_observation)
        advantage = generalised_advantages(
            reward,
            rollout.ended,
            value.reshape(reward.shape),
            value_at_end(actor_critic, params, rollout, self.bootstrap_time_limits),
            last_value,
            self.config.discount,
            self.config.trace_decay,
        )
        return Samples(observation, action, distribution.log_prob(action), value, flat(advantage))
