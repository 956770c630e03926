"""Random network distillation (Burda et al. 2019): novelty is the error of a network that predicts another one.

A fixed random network embeds each next observation; a predictor is trained towards it on what was visited, so its
error falls there and stays elsewhere. The error is divided by the standard deviation of its discounted sum. A value
function of its own, without ends of episodes, turns it into advantages that are added to those of the learner.
"""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from self_imitation.algorithm.components import Bonus, Exploration
from self_imitation.algorithm.normalisation import Moments
from self_imitation.algorithm.returns import discounted_sums, generalised_advantages
from self_imitation.algorithm.rollouts import flatten_time, reached_observation
from self_imitation.arrays import masked_mean
from self_imitation.networks.actor_critic import Body, Linear, encode
from self_imitation.settings import real, setting, whole
from self_imitation.types import Metrics, Observation, Rollout, Spec

MAX_DEVIATION = 5.0
"""Embedded observations are normalised and clipped to ± this value (RND paper, section 2.4)."""


@dataclass(frozen=True)
class RNDConfig:
    """Random network distillation. Defaults: RND paper, table 5, where it gives a value."""

    coef: float = setting(1.0, real(0))
    """Coefficient of the intrinsic advantage (1; that of the extrinsic one is 2)."""
    gamma: float = setting(0.99, real(0, 1))
    """Discount of the intrinsic returns."""
    gae_lambda: float = setting(0.95, real(0, 1))
    """lambda of the intrinsic advantages."""
    learning_rate: float = setting(1e-4, real(0, above=True))
    """Adam's learning rate for predictor and intrinsic value."""
    features: int = setting(64, whole(1, 4096))
    """Size of the embedding (512 on Atari in the paper)."""
    hidden: int = setting(64, whole(1, 16_384))
    """Units of the hidden layers."""


class Embedding(eqx.Module):
    body: Body
    head: Linear

    def __init__(self, spec: Spec, hidden: tuple[int, ...], outputs: int, generator: np.random.Generator):
        self.body = Body(spec, hidden, generator)
        self.head = Linear(hidden[-1], outputs, 1.0, generator)

    def __call__(self, encoded: Float[Array, "batch ..."]) -> Float[Array, "batch outputs"]:
        return self.head(self.body(encoded))


class Trained(eqx.Module):
    """Networks trained by gradient."""

    predictor: Embedding
    value: Embedding


class RNDState(eqx.Module):
    target: Embedding
    trained: Trained
    optimiser_state: optax.OptState
    observation: Moments
    """Of the encoded observations."""
    sums: Moments
    """Of the discounted sums of raw intrinsic rewards."""
    running: Float[Array, " N"]
    """Discounted sum of each environment's intrinsic rewards so far."""


class RandomNetworkDistillation(Bonus):
    Config = RNDConfig

    def __init__(self, config: RNDConfig, spec: Spec):
        super().__init__(config, dataclasses.replace(spec, numbers_beside_image=0))
        self._beside_image = spec.numbers_beside_image > 0
        self.optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(config.learning_rate))

    def init(self, key: PRNGKeyArray, num_envs: int) -> RNDState:
        one = jax.ShapeDtypeStruct((1, *self.spec.observation_shape), self.spec.observation_dtype)
        shape = jax.eval_shape(lambda observation: encode(self.spec, observation), one).shape[1:]
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
        layers = (self.config.hidden,) * 2
        target, predictor, value = (
            Embedding(self.spec, layers, outputs, generator)
            for outputs in (self.config.features, self.config.features, 1)
        )
        trained = Trained(predictor, value)
        return RNDState(
            target,
            trained,
            self.optimiser.init(trained),
            Moments.create(shape),
            Moments.create(()),
            jnp.zeros(num_envs),
        )

    def update(self, state: RNDState, rollout: Rollout, key: PRNGKeyArray) -> tuple[RNDState, Exploration, Metrics]:
        reached, valid = flatten_time(reached_observation(rollout)), flatten_time(rollout.valid)
        moments = state.observation.update(encode(self.spec, self._seen(reached)), valid)
        inputs, current = (self._inputs(moments, x) for x in (reached, flatten_time(rollout.observation)))

        raw = self._error(state.trained.predictor, state.target, inputs).reshape(rollout.reward.shape)
        reward, sums, running = self._normalise(state, raw, rollout.valid)
        advantage, targets = self._advantages(
            state.trained.value, current, self._inputs(moments, rollout.last_observation), reward
        )

        def loss(trained: Trained) -> tuple[Float[Array, ""], Metrics]:
            error = masked_mean(self._error(trained.predictor, state.target, inputs), valid)
            value = trained.value(current)[:, 0]
            value_loss = masked_mean(0.5 * jnp.square(value - targets), valid)
            return error + 0.5 * value_loss, {"rnd_error": error, "rnd_value_loss": value_loss}

        gradient, metrics = jax.grad(loss, has_aux=True)(state.trained)
        updates, optimiser_state = self.optimiser.update(gradient, state.optimiser_state)
        trained = optax.apply_updates(state.trained, updates)
        state = RNDState(state.target, trained, optimiser_state, moments, sums, running)
        metrics |= {"rnd_bonus": masked_mean(reward, rollout.valid)}
        return state, Exploration(advantage=self.config.coef * advantage), metrics

    def novelty(self, state: RNDState, observation: Observation) -> Float[Array, " batch"]:
        """The raw intrinsic reward of reaching each observation."""
        return self._error(state.trained.predictor, state.target, self._inputs(state.observation, observation))

    def _inputs(self, moments: Moments, observation: Observation) -> Float[Array, "batch ..."]:
        return moments.normalise(encode(self.spec, self._seen(observation)), MAX_DEVIATION)

    def _seen(self, observation: Observation) -> Shaped[Array, "batch ..."]:
        """Where numbers come beside an image, novelty is that of the image."""
        return observation["image"] if self._beside_image else observation

    def _error(self, predictor: Embedding, target: Embedding, inputs: Array) -> Float[Array, " batch"]:
        return jnp.mean(jnp.square(predictor(inputs) - jax.lax.stop_gradient(target(inputs))), axis=-1)

    def _normalise(
        self, state: RNDState, raw: Float[Array, "T N"], valid: Bool[Array, "T N"] | None
    ) -> tuple[Float[Array, "T N"], Moments, Float[Array, " N"]]:
        """Novelty is not episodic: its sum continues across episodes."""
        raw = raw if valid is None else jnp.where(valid, raw, 0.0)
        totals, running = discounted_sums(raw, jnp.zeros_like(raw, bool), state.running, self.config.gamma)
        sums = state.sums.update(totals.reshape(-1), flatten_time(valid))
        return raw / jnp.sqrt(sums.variance + 1e-8), sums, running

    def _advantages(
        self,
        network: Embedding,
        current: Float[Array, "batch ..."],
        last: Float[Array, "N ..."],
        reward: Float[Array, "T N"],
    ) -> tuple[Float[Array, "T N"], Float[Array, " batch"]]:
        """Advantages of the intrinsic reward, and targets of its value function."""
        value = network(current)[:, 0].reshape(reward.shape)
        last_value = network(last)[:, 0]
        never = jnp.zeros_like(reward, bool)
        advantage = generalised_advantages(
            reward, never, value, jnp.zeros_like(reward), last_value, self.config.gamma, self.config.gae_lambda
        )
        return advantage, (value + advantage).reshape(-1)
