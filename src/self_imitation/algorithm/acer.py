"""Actor-critic with experience replay (ACER, Wang et al. 2016), and ACPER (section 5.5): the same with the prioritised
replay of self-imitation.

The network has a policy and action values; V = sum_a pi(a) Q(a). Each iteration learns from its rollout, then from
segments of stored episodes, corrected for the policy that acted:
- Retrace targets for Q, with importance weights truncated at 1;
- a policy gradient with importance weights truncated at c, and a correction of the bias over all actions;
- a trust region around an average of past policies, in the space of the action probabilities.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.components import Exploration, Learner
from self_imitation.algorithm.returns import retrace
from self_imitation.algorithm.rollouts import bootstrap_values, flatten_time
from self_imitation.arrays import masked_mean
from self_imitation.errors import UsageError
from self_imitation.networks.distributions import CategoricalWithValues
from self_imitation.replay import buffer as replay
from self_imitation.replay import segments
from self_imitation.replay.buffer import REWARD, STEPS_LEFT, Batch, ReplayBuffer
from self_imitation.replay.segments import TERMINAL, Segments
from self_imitation.settings import ReplayConfig, or_none, real, setting, whole
from self_imitation.types import (
    ActorCritic,
    Continuous,
    Discrete,
    Distribution,
    Metrics,
    Params,
    Rollout,
    Spec,
    TrainState,
)

LOG_PROBS = "log_probs"
"""Extra of a rollout: log mu(a|s) of every action, of the policy that acted."""
SMALLEST_PROBABILITY = 1e-6
"""Added where a probability divides (OpenAI's baselines)."""


@dataclass(frozen=True)
class ACERConfig(ReplayConfig):
    """ACER (Wang et al. 2016). Defaults: OpenAI's baselines, but a smaller buffer and a constant learning rate."""

    gamma: float = setting(0.99, real(0, 1))
    """Discount."""
    ent_coef: float = setting(0.01, real(0))
    """Coefficient of the entropy bonus."""
    q_coef: float = setting(0.5, real(0))
    """Coefficient of half the squared error of Q."""
    ratio_clip: float = setting(10.0, real(0, above=True))
    """c: importance weights of the policy gradient are truncated here, and the bias beyond it is corrected."""
    trust_region: float | None = setting(1.0, or_none(real(0, above=True)))
    """delta: bound of the linearised KL divergence from the average policy. None: no trust region."""
    average_decay: float = setting(0.99, real(0, 1))
    """alpha: decay of the average policy network, per gradient step."""
    replay_ratio: int = setting(4, whole(0, 1024))
    """Updates on replayed segments per iteration. Deviation: the ACER paper and OpenAI's baselines
    draw this number from a Poisson distribution."""
    batch_size: int = setting(16, whole(1, 2**20))
    """Replayed segments per update (as many as environments)."""
    segment_steps: int = setting(20, whole(1, 65_536))
    """Steps of a replayed segment (as many as in a rollout)."""
    learning_starts: int = setting(10_000, whole(0))
    """No replay until the buffer holds more than this many steps (OpenAI's baselines: this many from each
    environment)."""
    buffer_size: int = setting(50_000, whole(1, 10**8))
    """Capacity of the replay buffer in steps of finished episodes (OpenAI's baselines: this many for each
    environment)."""
    priority_exponent: float = setting(0.0, real(0, 4))
    """Sample segments in proportion to max((R - V)+, 1e-6) of their first step, to this power. 0: uniformly (ACER)."""
    importance_exponent: float = setting(0.0, real(0, 1))
    """Exponent of the importance weights (p / p_min)^-x of the prioritised sampling."""


@dataclass(frozen=True)
class ACPERConfig(ACERConfig):
    """ACPER (section 5.5): ACER with prioritised replay."""

    priority_exponent: float = setting(0.6, real(0, 4))
    """Sample segments in proportion to max((R - V)+, 1e-6) of their first step, to this power (as self-imitation)."""
    importance_exponent: float = setting(0.4, real(0, 1))
    """Exponent of the importance weights (p / p_min)^-x of the prioritised sampling (as self-imitation)."""


def policy_gradient(
    log_prob: Float[Array, "batch A"],
    behaviour: Float[Array, "batch A"],
    action: Int[Array, " batch"],
    target: Float[Array, " batch"],
    action_values: Float[Array, "batch A"],
    value: Float[Array, " batch"],
    config: ACERConfig,
) -> Float[Array, "batch A"]:
    """Direction of ascent in the space of the action probabilities f (ACER, Eq. 7 and 9), with the entropy's.

    min(c, rho(a_t)) (Q^ret - V) d log f(a_t) + sum_a [1 - c / rho(a)]+ (Q(a) - V) d f(a) + ent_coef d H

    with rho = pi / mu. `log_prob` and `behaviour` are log pi and log mu of every action.
    """
    ratio, probability = jnp.exp(log_prob - behaviour), jnp.exp(log_prob)
    taken = jax.nn.one_hot(action, probability.shape[-1])
    truncated = jnp.minimum(_taken(ratio, action), config.ratio_clip) * (target - value)
    own = taken * (truncated[:, None] / (probability + SMALLEST_PROBABILITY))
    beyond = jnp.maximum(1.0 - config.ratio_clip / jnp.maximum(ratio, config.ratio_clip), 0.0)
    correction = beyond * (action_values - value[:, None])
    entropy = -jnp.log(probability + SMALLEST_PROBABILITY) - 1.0
    return own + correction + config.ent_coef * entropy


def within_trust_region(
    gradient: Float[Array, "batch A"],
    probability: Float[Array, "batch A"],
    average: Float[Array, "batch A"],
    limit: float | None,
) -> tuple[Float[Array, "batch A"], Bool[Array, " batch"]]:
    """Projection g - max(0, (k . g - delta) / |k|^2) k with k = d KL(f_average || f) / d f (ACER, Eq. 12); also which
    rows of g it changed.
    """
    if limit is None:
        return gradient, jnp.zeros(len(gradient), bool)
    k = -average / (probability + SMALLEST_PROBABILITY)
    excess = jnp.maximum(jnp.sum(k * gradient, axis=-1) - limit, 0.0)
    return gradient - (excess / jnp.sum(jnp.square(k), axis=-1))[:, None] * k, excess > 0


class Transitions(eqx.Module):
    """T x N transitions with the states after them, from a rollout or from the replay buffer."""

    observation: Any
    """[T * N, ...]"""
    action: Int[Array, "T N"]
    reward: Float[Array, "T N"]
    behaviour: Float[Array, "T N A"]
    """log mu(a|s)"""
    ended: Bool[Array, "T N"]
    bootstrap_value: Float[Array, "T N"]
    last_value: Float[Array, " N"]
    weight: Float[Array, "T N"]
    """Importance weight of prioritised sampling; 0 for what is not a transition."""


def acer_loss(
    params: Params, average: Params, actor_critic: ActorCritic, data: Transitions, config: ACERConfig
) -> tuple[Float[Array, ""], Metrics]:
    """The gradient of this loss is ACER's: targets and directions are constants."""
    shape = data.reward.shape
    distribution = _policy(actor_critic, params, data.observation)
    average_logits = _policy(actor_critic, average, data.observation).logits
    fixed, average_policy = jax.lax.stop_gradient((distribution, jax.nn.softmax(average_logits)))
    log_prob, behaviour = jax.nn.log_softmax(fixed.logits), data.behaviour.reshape(fixed.logits.shape)
    action = data.action.reshape(-1)
    q_taken = _taken(distribution.action_values, action)

    ratio = jnp.exp(_taken(log_prob - behaviour, action))
    target = retrace(
        ratio.reshape(shape),
        data.reward,
        data.ended,
        jax.lax.stop_gradient(q_taken).reshape(shape),
        fixed.value().reshape(shape),
        data.bootstrap_value,
        data.last_value,
        config.gamma,
    ).reshape(-1)
    ascent = policy_gradient(log_prob, behaviour, action, target, fixed.action_values, fixed.value(), config)
    ascent, limited = within_trust_region(ascent, jnp.exp(log_prob), average_policy, config.trust_region)

    weight = data.weight.reshape(-1)
    valid = weight > 0
    policy_loss = masked_mean(-weight * jnp.sum(ascent * jax.nn.softmax(distribution.logits), axis=-1), valid)
    value_loss = masked_mean(weight * 0.5 * jnp.square(q_taken - target), valid)
    loss = policy_loss + config.q_coef * value_loss
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": masked_mean(fixed.entropy(), valid),
        "ratio": masked_mean(ratio, valid),
        "limited": masked_mean(limited.astype(jnp.float32), valid),
    }


def _policy(actor_critic: ActorCritic, params: Params, observation: Any) -> CategoricalWithValues:
    distribution, _ = actor_critic(params, observation)
    assert isinstance(distribution, CategoricalWithValues)
    return distribution


def _taken(per_action: Float[Array, "batch A"], action: Int[Array, " batch"]) -> Float[Array, " batch"]:
    return jnp.take_along_axis(per_action, action[:, None], axis=-1)[:, 0]


class ACER(Learner):
    """One gradient step on each rollout, then `replay_ratio` steps on replayed segments."""

    Config = ACERConfig
    name = "acer"
    defaults = {"num_steps": 20, "optimiser.max_grad_norm": 10.0}  # noqa: RUF012
    tolerates_lag = True
    action_values = True
    refuses_bonuses = "stored rewards have no bonus, so that Q would be trained on two reward functions"
    replay_extras = (REWARD, STEPS_LEFT, LOG_PROBS, TERMINAL)

    @classmethod
    def check(cls, config: ACERConfig, num_envs: int, num_steps: int) -> None:
        config.check_sizes(f"{cls.name}.")

    def check_spec(self, spec: Spec) -> None:
        if not isinstance(spec.actions, Discrete):
            found = "are continuous" if isinstance(spec.actions, Continuous) else "consist of several choices"
            raise UsageError(f"agent: {self.name!r} needs one discrete action per step; actions here {found}")

    @property
    def gradient_steps(self) -> int:
        return 1 + self.config.replay_ratio

    @property
    def replay(self) -> ReplayConfig | None:
        return self.config if self.config.replay_ratio else None

    def init(self, key: PRNGKeyArray, spec: Spec, params: Params) -> Params:
        """The average policy network."""
        return jax.tree.map(jnp.copy, params)

    def extras(
        self, distribution: Distribution, action: Shaped[Array, "N ..."], value: Float[Array, " N"]
    ) -> dict[str, Array]:
        assert isinstance(distribution, CategoricalWithValues)
        return {LOG_PROBS: jax.nn.log_softmax(distribution.logits)}

    def update(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        state: Params,
        train_state: TrainState,
        rollout: Rollout,
        exploration: Exploration,
        key: PRNGKeyArray,
    ) -> tuple[Params, TrainState, Metrics]:
        _, last_value = actor_critic(train_state.params, rollout.last_observation)
        bootstrap = bootstrap_values(
            actor_critic, train_state.params, rollout, None, last_value, self.bootstrap_time_limits
        )
        valid = jnp.ones_like(rollout.ended) if rollout.valid is None else rollout.valid
        data = Transitions(
            flatten_time(rollout.observation),
            rollout.action,
            rollout.reward,
            rollout.extras[LOG_PROBS],
            rollout.ended,
            bootstrap,
            last_value,
            valid.astype(jnp.float32),
        )
        return self._gradient_step(actor_critic, optimiser, state, train_state, data)

    def to_replay(self, rollout: Rollout) -> Rollout:
        terminal = rollout.terminated if self.bootstrap_time_limits else rollout.ended
        return dataclasses.replace(rollout, extras={**rollout.extras, TERMINAL: terminal})

    def update_off_policy(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        state: Params,
        train_state: TrainState,
        buffer: ReplayBuffer,
        key: PRNGKeyArray,
        normalise: Callable[[Batch], Batch],
    ) -> tuple[Params, TrainState, ReplayBuffer, Metrics]:
        ready = buffer.size > self.config.learning_starts

        def update(carry: _Carry, key: PRNGKeyArray) -> tuple[_Carry, Metrics]:
            start = replay.sample(carry.buffer, key, self.config)
            found = segments.from_batch(carry.buffer, start, self.config.segment_steps)
            found = dataclasses.replace(found, steps=normalise(found.steps))
            params = carry.train.params
            data, advantage = self._transitions(actor_critic, params, found)
            average, train, metrics = self._gradient_step(actor_critic, optimiser, carry.average, carry.train, data)
            after = _Carry(train, average, replay.update_priorities(carry.buffer, start, advantage, self.config))
            return after, metrics

        metrics: Metrics
        before = _Carry(train_state, state, buffer)
        after, metrics = jax.lax.scan(update, before, jax.random.split(key, self.config.replay_ratio))
        train_state, state = jax.tree.map(
            lambda new, old: jnp.where(ready, new, old), (after.train, after.average), (train_state, state)
        )
        replayed = {f"replay_{name}": jnp.mean(value) for name, value in metrics.items()}
        replayed["replay_size"] = after.buffer.size.astype(jnp.float32)
        return state, train_state, after.buffer, replayed

    def _transitions(
        self, actor_critic: ActorCritic, params: Params, found: Segments
    ) -> tuple[Transitions, Float[Array, " batch"]]:
        """Also (R - V)+ of the first step of each segment."""
        steps = found.steps
        _, flat_value = actor_critic(params, steps.observation)
        value = found.over_time(flat_value)
        last = jnp.concatenate([~found.valid[1:], jnp.ones_like(found.valid[:1])])
        data = Transitions(
            observation=jax.tree.map(
                lambda leaf: found.over_time(leaf)[:-1].reshape(-1, *leaf.shape[1:]), steps.observation
            ),
            action=found.over_time(steps.action)[:-1],
            reward=found.over_time(steps.extras[REWARD])[:-1],
            behaviour=found.over_time(steps.extras[LOG_PROBS])[:-1],
            ended=found.terminal | last,
            bootstrap_value=jnp.where(found.terminal, 0.0, value[1:]),
            last_value=value[-1],
            weight=jnp.where(found.valid, found.over_time(steps.weight)[:-1], 0.0),
        )
        return data, jnp.maximum(found.over_time(steps.returns)[0] - value[0], 0.0)

    def _gradient_step(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        average: Params,
        train_state: TrainState,
        data: Transitions,
    ) -> tuple[Params, TrainState, Metrics]:
        gradient, metrics = jax.grad(acer_loss, has_aux=True)(
            train_state.params, average, actor_critic, data, self.config
        )
        train_state = optimisers.apply_gradients(optimiser, train_state, gradient)
        decay = self.config.average_decay
        average = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, average, train_state.params)
        return average, train_state, metrics


class _Carry(eqx.Module):
    train: TrainState
    average: Params
    buffer: ReplayBuffer


class ACPER(ACER):
    Config = ACPERConfig
    name = "acper"
