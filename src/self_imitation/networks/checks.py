"""What a network of a user's own returns, checked before training. Nothing is computed: only shapes are traced."""

import inspect
from typing import Any

import jax
import numpy as np

from self_imitation.errors import UsageError, bad_value
from self_imitation.networks.distributions import Categorical
from self_imitation.types import Discrete, Observation, Spec

BATCH = 7
"""Observations that the network is traced with."""
METHODS = ("sample", "mode", "log_prob", "entropy", "kl")
"""Of a distribution."""


def require_usable(network: Any, kind: str, spec: Spec, precision: str = "float32") -> None:
    """Raise a `UsageError` that names the first thing that can't be used. Errors of the network itself pass through."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(network)[0]:
        if not isinstance(leaf, jax.Array | np.ndarray):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise _wrong(kind, f"{name or 'it'} is {type(leaf).__name__}, not an array", "equinox.field(static=True)")
    if not callable(network):
        raise _wrong(kind, f"it is {type(network).__name__}", "something that can be called with observations")
    if precision != "float32" and not _takes_two(network):
        raise bad_value("precision", precision, f"network {kind!r} takes no dtype as a second argument")
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((BATCH, *leaf.shape), leaf.dtype), spec.observation)
    shapes = jax.eval_shape(lambda network, observation: _outputs(network, kind, spec, observation), network, batch)
    action = jax.ShapeDtypeStruct((BATCH, *spec.action_shape), spec.action_dtype)
    number = jax.ShapeDtypeStruct((BATCH,), np.float32)
    for name, found in shapes.items():
        expected = action if name in ("mode()", "sample()") else number
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise _wrong(kind, f"for {BATCH} observations, {name} is {_text(found)}", _text(expected))


def _outputs(network: Any, kind: str, spec: Spec, observation: Observation) -> dict[str, Any]:
    result = network(observation)
    if not isinstance(result, tuple) or len(result) != 2:
        raise _wrong(kind, f"it returns {type(result).__name__}", "a tuple of a distribution and values")
    distribution, value = result
    for method in METHODS:
        if not callable(getattr(distribution, method, None)):
            missing = f"its distribution, {type(distribution).__name__}, has no method {method}"
            raise _wrong(kind, missing, f"{', '.join(METHODS)}")
    if isinstance(distribution, Categorical) and isinstance(spec.actions, Discrete):
        logits = distribution.logits.shape[-1]
        if logits != spec.actions.count:
            raise _wrong(kind, f"its distribution has {logits} logits", f"{spec.actions.count}, one for each action")
    action = distribution.mode()
    return {
        "the value": value,
        "mode()": action,
        "sample()": distribution.sample(jax.random.key(0)),
        "log_prob()": distribution.log_prob(action),
        "entropy()": distribution.entropy(),
    }


def _takes_two(network: Any) -> bool:
    try:
        inspect.signature(network).bind(None, None)
    except TypeError:
        return False
    return True


def _text(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _wrong(kind: str, what: str, expected: str) -> UsageError:
    return UsageError(f"network {kind!r}: {what}; expected: {expected}")
