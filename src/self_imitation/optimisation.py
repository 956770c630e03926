"""The optimiser, shared by the on-policy and the self-imitation updates, as in the authors' runs."""

import optax
from jaxtyping import PyTree

from self_imitation.config import OptimiserConfig
from self_imitation.types import Learner, Params


def create(config: OptimiserConfig, gradient_steps: int) -> optax.GradientTransformation:
    """A clip by global norm, then Adam, or RMSProp with epsilon inside the root and a mean square that starts at 1.

    `gradient_steps`: of the whole run, over which a linear schedule falls.
    """
    size: optax.ScalarOrSchedule = config.learning_rate
    if config.schedule == "linear":
        size = optax.linear_schedule(config.learning_rate, 0.0, gradient_steps)
    if config.kind == "adam":
        step = optax.adam(size, eps=config.epsilon)
    else:
        step = optax.rmsprop(size, config.decay, config.epsilon, initial_scale=1.0, eps_in_sqrt=True)
    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), step)


def descend(optimiser: optax.GradientTransformation, learner: Learner, gradient: PyTree) -> Learner:
    """One step against the gradient."""
    updates, optimiser_state = optimiser.update(gradient, learner.optimiser_state, learner.params)
    params: Params = optax.apply_updates(learner.params, updates)
    return Learner(params, optimiser_state)
