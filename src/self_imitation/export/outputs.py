"""What an exported policy computes, as a function of JAX arrays."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from self_imitation.algorithm import iteration
from self_imitation.algorithm.components import Agent
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.networks.distributions import Categorical, CategoricalWithValues, DiagonalGaussian, MultiCategorical
from self_imitation.types import Continuous, Distribution, Observation, Spec


class ActionForm(NamedTuple):
    """From the policy's actions to those that the environment takes."""

    low: np.ndarray | None
    """Bounds of continuous actions, else None."""
    high: np.ndarray | None
    start: np.ndarray
    """Smallest value of each discrete action; 0 for continuous ones."""
    shape: tuple[int, ...]
    """Of one action."""


def action_form(spec: Spec, spaces: Spaces | None) -> ActionForm:
    shape = spec.action_shape if spaces is None else spaces.action_space.shape or ()
    if isinstance(spec.actions, Continuous):
        low, high = (np.array(bound, np.float32) for bound in (spec.actions.low, spec.actions.high))
        return ActionForm(low, high, np.zeros(spec.action_shape, np.float32), shape)
    zeros = np.zeros((1, *spec.action_shape), np.int64)
    start = zeros if spaces is None else spaces.action(zeros)  # what the environment takes for the first actions
    return ActionForm(None, None, start.reshape(spec.action_shape).astype(np.int64), shape)


def compute(
    agent: Agent, policy: iteration.Policy, spaces: Spaces | None, observation: Observation
) -> dict[str, Shaped[Array, "..."]]:
    """The most likely action as the environment takes it, the parameters of the distribution, and the value.

    `observation`: a batch as described by `agent.spec`, not normalised.
    """
    distribution, value = iteration.actor_critic(agent, policy.normaliser)(policy.params, observation)
    form, action = action_form(agent.spec, spaces), distribution.mode()
    action = action + form.start if form.low is None else jnp.clip(action, form.low, form.high)
    return {"action": action.reshape(-1, *form.shape), **parameters(distribution), "value": value}


def parameters(distribution: Distribution) -> dict[str, Any]:
    """By name. Those of a distribution of your own are its arrays."""
    match distribution:
        case CategoricalWithValues():
            return {"logits": distribution.logits, "action_values": distribution.action_values}
        case Categorical():
            return {"logits": distribution.logits}
        case MultiCategorical():
            return {"logits": jnp.concatenate([choice.logits for choice in distribution.choices], axis=-1)}
        case DiagonalGaussian():
            return {"mean": distribution.mean, "log_std": distribution.log_std}
        case _:
            leaves, _ = jax.tree_util.tree_flatten_with_path(distribution)
            return {jax.tree_util.keystr(path, simple=True, separator="_"): leaf for path, leaf in leaves}
