"""The optimiser, shared by the on-policy and the self-imitation updates, as in the authors' runs."""

import optax
from jaxtyping import PyTree

from self_imitation.settings import OptimiserConfig
from self_imitation.types import Params, TrainState


def create(config: OptimiserConfig, gradient_steps: int) -> optax.GradientTransformation:
    """Clip by global norm, then Adam, or RMSProp with epsilon inside the root and a mean square that starts at 1.

    `gradient_steps`: of the whole run, over which a linear schedule decays.
    """
    learning_rate: optax.ScalarOrSchedule = config.learning_rate
    if config.schedule == "linear":
        learning_rate = optax.linear_schedule(config.learning_rate, 0.0, gradient_steps)
    if config.kind == "adam":
        # Deviation: the authors' Adam adds epsilon to the root before the bias correction, Optax's after it.
        step = optax.adam(learning_rate, eps=config.epsilon)
    else:
        step = optax.rmsprop(learning_rate, config.decay, config.epsilon, initial_scale=1.0, eps_in_sqrt=True)
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), step)


def apply_gradients(optimiser: optax.GradientTransformation, train_state: TrainState, gradient: PyTree) -> TrainState:
    """One optimiser step."""
    updates, optimiser_state = optimiser.update(gradient, train_state.optimiser_state, train_state.params)
    params: Params = optax.apply_updates(train_state.params, updates)
    return TrainState(params, optimiser_state)
