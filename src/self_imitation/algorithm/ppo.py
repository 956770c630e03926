"""Proximal policy optimisation (Schulman et al. 2017): several epochs on each rollout with a clipped ratio."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.components import Exploration, Learner
from self_imitation.algorithm.returns import generalised_advantages
from self_imitation.algorithm.rollouts import bootstrap_values, flatten_time
from self_imitation.arrays import masked_mean, require_same_shape
from self_imitation.errors import bad_value
from self_imitation.settings import or_none, real, setting, whole
from self_imitation.types import ActorCritic, Metrics, Observation, Params, Rollout, TrainState

EPSILON = 1e-8


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation."""

    gamma: float = setting(0.99, real(0, 1))
    """Discount of the advantages (paper: 0.99)."""
    gae_lambda: float = setting(0.95, real(0, 1))
    """lambda of generalised advantage estimation (paper: 0.95)."""
    update_epochs: int = setting(10, whole(1, 10_000))
    """Passes over each rollout (paper: 10)."""
    num_minibatches: int = setting(32, whole(1, 65_536))
    """Minibatches per epoch (paper: 32, of 64 steps each). Leftover steps are skipped, different ones each epoch."""
    clip_coef: float = setting(0.2, real(0, above=True))
    """Clip range of the probability ratio (authors' code: 0.2)."""
    value_clip: float | None = setting(0.2, or_none(real(0, above=True)))
    """Clip range of the change in value (authors' code: 0.2). None: no clipping."""
    ent_coef: float = setting(0.0, real(0))
    """Coefficient of the entropy bonus (paper: 0)."""
    vf_coef: float = setting(0.5, real(0))
    """Coefficient of the value loss (authors' code: 0.5)."""


class Samples(eqx.Module):
    """The rollout as a batch, with log-probabilities and values from before the first gradient step."""

    observation: Observation
    action: Shaped[Array, "batch ..."]
    log_prob: Float[Array, " batch"]
    value: Float[Array, " batch"]
    advantage: Float[Array, " batch"]
    bonus_advantage: Float[Array, " batch"] | None
    valid: Bool[Array, " batch"] | None


def ppo_loss(
    log_prob: Float[Array, " batch"],
    entropy: Float[Array, " batch"],
    value: Float[Array, " batch"],
    old_log_prob: Float[Array, " batch"],
    old_value: Float[Array, " batch"],
    advantage: Float[Array, " batch"],
    config: PPOConfig,
    bonus_advantage: Float[Array, " batch"] | None = None,
    valid: Bool[Array, " batch"] | None = None,
) -> tuple[Float[Array, ""], Metrics]:
    """L = E[-min(r A, clip(r) A)] + beta E[1/2 (V - (V_old + A))^2] - alpha E[H], with r = pi / pi_old.

    `bonus_advantage` is added to A in the policy loss. Entries that are not `valid` count for nothing.
    """
    require_same_shape(
        log_prob=log_prob,
        entropy=entropy,
        value=value,
        old_log_prob=old_log_prob,
        old_value=old_value,
        advantage=advantage,
    )
    target = old_value + advantage
    normalised = _normalise(advantage if bonus_advantage is None else advantage + bonus_advantage, valid)
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped_ratio = jnp.clip(ratio, 1 - config.clip_coef, 1 + config.clip_coef)
    policy_loss = masked_mean(-jnp.minimum(ratio * normalised, clipped_ratio * normalised), valid)

    error = jnp.square(value - target)
    if config.value_clip is not None:
        clipped_value = old_value + jnp.clip(value - old_value, -config.value_clip, config.value_clip)
        error = jnp.maximum(error, jnp.square(clipped_value - target))
    value_loss = masked_mean(0.5 * error, valid)

    mean_entropy = masked_mean(entropy, valid)
    loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * mean_entropy
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": mean_entropy,
        "kl": masked_mean(ratio - 1 - (log_prob - old_log_prob), valid),
        "clipped": masked_mean((jnp.abs(ratio - 1) > config.clip_coef).astype(jnp.float32), valid),
    }


def _normalise(advantage: Float[Array, " batch"], valid: Bool[Array, " batch"] | None) -> Float[Array, " batch"]:
    centred = advantage - masked_mean(advantage, valid)
    return centred / (jnp.sqrt(masked_mean(jnp.square(centred), valid)) + EPSILON)


class PPO(Learner):
    """Epochs of minibatches on each rollout."""

    Config = PPOConfig
    defaults = {  # noqa: RUF012 (declared as a class variable in Learner)
        "num_envs": 8,
        "num_steps": 256,
        "optimiser.kind": "adam",
        "optimiser.learning_rate": 3e-4,
        "normalise.observations": True,
        "normalise.rewards": True,
        "sil.updates": 10,
        "sil.loss_coef": 0.1,
        "sil.buffer_size": 50_000,
        "sil.importance_exponent": 0.1,
    }
    # Deviation: no entropy term in the self-imitation loss. The authors pass it PPO's own coefficient, which is 0 on
    # their tasks; here PPO's is 0.01 for a user's environment, and that of self-imitation is 0 everywhere.
    preset_defaults = {"authors": {"sil.ent_coef": 0.0, "sil.max_neg_log_prob": 100.0}}  # noqa: RUF012

    @classmethod
    def check(cls, config: PPOConfig, num_envs: int, num_steps: int) -> None:
        if 2 * config.num_minibatches > num_envs * num_steps:  # the normalised advantage of one sample is always 0
            steps = f"{num_envs} envs x {num_steps} steps"
            raise bad_value("ppo.num_minibatches", config.num_minibatches, f"allowed: at most half of {steps}")

    @property
    def gradient_steps(self) -> int:
        return self.config.update_epochs * self.config.num_minibatches

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
        config: PPOConfig = self.config
        samples = self._samples(actor_critic, train_state.params, rollout, exploration)
        count = samples.value.shape[0]
        size = count // config.num_minibatches

        def loss(params: Params, batch: Samples) -> tuple[Float[Array, ""], Metrics]:
            distribution, value = actor_critic(params, batch.observation)
            log_prob, entropy = distribution.log_prob(batch.action), distribution.entropy()
            old = batch.log_prob, batch.value, batch.advantage
            return ppo_loss(log_prob, entropy, value, *old, config, batch.bonus_advantage, batch.valid)

        def minibatch(train_state: TrainState, chosen: Shaped[Array, " size"]) -> tuple[TrainState, Metrics]:
            batch = jax.tree.map(lambda column: column[chosen], samples)
            gradient, metrics = jax.grad(loss, has_aux=True)(train_state.params, batch)
            return optimisers.apply_gradients(optimiser, train_state, gradient), metrics

        def epoch(train_state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, dict[str, Array]]:
            """Each sample once, in a new order."""
            order = jax.random.permutation(key, count)[: size * config.num_minibatches]
            return jax.lax.scan(minibatch, train_state, order.reshape(config.num_minibatches, size))

        train_state, metrics = jax.lax.scan(epoch, train_state, jax.random.split(key, config.update_epochs))
        return None, train_state, jax.tree.map(jnp.mean, metrics)

    def _samples(
        self, actor_critic: ActorCritic, params: Params, rollout: Rollout, exploration: Exploration
    ) -> Samples:
        # Deviation: pi_old uses the running statistics after this rollout updated them, where the authors keep the
        # log-probabilities from acting. So the ratios begin at 1, and one update sees one scale.
        reward = exploration.total_reward(rollout)
        observation, action = flatten_time(rollout.observation), flatten_time(rollout.action)
        distribution, flat_value = actor_critic(params, observation)
        _, last_value = actor_critic(params, rollout.last_observation)
        value = flat_value.reshape(reward.shape)
        advantage = generalised_advantages(
            reward,
            rollout.ended,
            value,
            bootstrap_values(actor_critic, params, rollout, value, last_value, self.bootstrap_time_limits),
            last_value,
            self.config.gamma,
            self.config.gae_lambda,
        )
        advantage, bonus, valid = flatten_time((advantage, exploration.advantage, rollout.valid))
        return Samples(observation, action, distribution.log_prob(action), flat_value, advantage, bonus, valid)
