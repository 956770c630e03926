"""A value function of self-imitation's own: the mean of the sampled returns.

The policy gradient needs V of the present policy. Self-imitation needs what stored episodes made of a state. Where
successes are rare, V of the policy is near 0, so every action of a lucky episode has R > V, and imitating all of them
hardly changes the policy that chose them. Relative to the returns that are sampled, R says which actions led there
sooner. Nor can V of the policy be pushed up to the best returns: then it is no baseline for the policy gradient.

With prioritised sampling, returns above the value are sampled most often, so it is nearer to the best stored return of
a state than to the average one. On uniform samples it learnt the average, and nearly everything was imitated.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.arrays import masked_mean, require_vectors
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import Batch, ReplayBuffer
from self_imitation.settings import SelfImitationConfig
from self_imitation.types import Metrics, Observation, Params, TrainState

ValueFunction = Callable[[Params, Observation], Float[Array, " batch"]]
"""From parameters and observations [batch, ...] to values."""


def value_loss(
    value: Float[Array, " batch"], returns: Float[Array, " batch"], filled: Bool[Array, " batch"]
) -> Float[Array, ""]:
    """E[1/2 (R - V)^2]: both signs count, unlike in Eq. 3, so that V becomes the mean of the returns."""
    require_vectors(value=value, returns=returns, filled=filled)
    return masked_mean(0.5 * jnp.square(returns - value), filled)


def fit_value(
    value_function: ValueFunction,
    optimiser: optax.GradientTransformation,
    train_state: TrainState,
    buffer: ReplayBuffer,
    key: PRNGKeyArray,
    config: SelfImitationConfig,
    normalise: Callable[[Batch], Batch] = lambda batch: batch,
) -> tuple[TrainState, Metrics]:
    """M times sample a batch from the replay buffer and take a gradient step towards its returns.

    With `learning_starts` steps or fewer in the buffer, neither parameters nor optimiser change.

    Args:
        value_function: from parameters and observations [batch, ...] to values [batch].
        optimiser: the Optax optimiser to which the state in `train_state` belongs.
        train_state: parameters of the value function and the state of their optimiser.
        buffer: made by `replay.create`, filled by `replay.insert`.
        key: for sampling.
        config: the number M of updates, and sampling.
        normalise: brings a sampled batch, which is raw, to the scale of observations and values.

    Returns:
        The new train state, and metrics averaged over the updates.

    Raises:
        UsageError: while JAX traces it, if the values are not a vector [batch].
    """

    def update(train_state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Float[Array, ""]]:
        batch = normalise(replay.sample(buffer, key, config))

        def loss(params: Params) -> Float[Array, ""]:
            return value_loss(value_function(params, batch.observation), batch.returns, batch.weight > 0)

        error, gradient = jax.value_and_grad(loss)(train_state.params)
        return optimisers.apply_gradients(optimiser, train_state, gradient), error

    fitted, errors = jax.lax.scan(update, train_state, jax.random.split(key, config.updates))
    ready = buffer.size > config.learning_starts
    fitted = jax.tree.map(lambda new, old: jnp.where(ready, new, old), fitted, train_state)
    return fitted, {"sil_value_loss": jnp.mean(errors)}
