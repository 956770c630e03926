"""What a run counts between two rows of metrics, and one seed's whole state with it."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from self_imitation.algorithm import State
from self_imitation.types import Metrics, Rollout

ALL_FINITE = -1


class Tally(eqx.Module):
    """What happened since the last row of metrics."""

    iterations: Int[Array, ""]
    episodes: Int[Array, ""]
    return_sum: Float[Array, ""]
    return_best: Float[Array, ""]
    length_sum: Float[Array, ""]
    sums: Metrics
    """Each metric, summed over the iterations."""
    first_bad: Int[Array, ""]
    """The iteration, counted from 0 at the last row, at which a loss was first not finite; else `ALL_FINITE`."""


class Progress(eqx.Module):
    """One seed's whole state on the device."""

    state: State
    tally: Tally


def empty_tally(metric_names: tuple[str, ...]) -> Tally:
    return Tally(
        iterations=jnp.int32(0),
        episodes=jnp.int32(0),
        return_sum=jnp.float32(0),
        return_best=jnp.float32(-jnp.inf),
        length_sum=jnp.float32(0),
        sums={name: jnp.float32(0) for name in metric_names},
        first_bad=jnp.int32(ALL_FINITE),
    )


def add(tally: Tally, metrics: Metrics) -> Tally:
    """Some of an iteration's metrics, before it is counted."""
    finite = jnp.all(jnp.array([jnp.isfinite(value) for value in metrics.values()]))
    return dataclasses.replace(
        tally,
        sums={**tally.sums, **{name: tally.sums[name] + value for name, value in metrics.items()}},
        first_bad=jnp.where((tally.first_bad == ALL_FINITE) & ~finite, tally.iterations, tally.first_bad),
    )


def count(tally: Tally, rollout: Rollout, metrics: Metrics) -> Tally:
    """An iteration, with those of its metrics that are not added yet."""
    ended = rollout.ended
    return dataclasses.replace(
        add(tally, metrics),
        iterations=tally.iterations + 1,
        episodes=tally.episodes + jnp.sum(ended),
        return_sum=tally.return_sum + jnp.sum(jnp.where(ended, rollout.episode_return, 0.0)),
        return_best=jnp.maximum(tally.return_best, jnp.max(jnp.where(ended, rollout.episode_return, -jnp.inf))),
        length_sum=tally.length_sum + jnp.sum(jnp.where(ended, rollout.episode_length, 0)),
    )
