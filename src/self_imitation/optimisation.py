"""The optimiser, shared by the on-policy and the self-imitation updates, as in the authors' runs."""

import optax
from jaxtyping import PyTree

from self_imitation.config import OptimiserConfig
from self_imitation.types import Learner, Params


def create(config: OptimiserConfig) -> optax.GradientTransformation:
    """A clip by global norm, then Adam, or RMSProp with epsilon inside the root and a mean square that starts at 1."""
    if config.kind == "adam":
        step = optax.adam(config.learning_rate, eps=config.epsilon)
    else:
        step = optax.rmsprop(config.learning_rate, config.decay, config.epsilon, initial_scale=1.0, eps_in_sqrt=True)
    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), step)


def descend(optimiser: optax.GradientTransformation, learner: Learner, gradient: PyTree) -> Learner:
    """One step against the gradient."""
    updates, optimiser_state = optimiser.update(gradient, learner.optimiser_state, learner.params)
    params: Params = optax.apply_updates(learner.params, updates)
    return Learner(params, optimiser_state)
