"""What is counted between two rows of metrics."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from self_imitation.types import Metrics, Rollout

ALL_FINITE = -1
LATEST = 100
"""Episodes over which `return_latest` averages."""


class LatestReturns(eqx.Module):
    """A ring of the returns of the latest episodes."""

    returns: Float[Array, " latest"]
    count: Int[Array, ""]
    """Episodes so far, at most the size of the ring."""
    head: Int[Array, ""]

    def update(self, rollout: Rollout) -> "LatestReturns":
        ended = rollout.ended.reshape(-1)
        rank = jnp.cumsum(ended)
        total = rank[-1]
        kept = ended & (rank > total - LATEST)
        slot = jnp.where(kept, (self.head + rank - 1) % LATEST, LATEST)  # out of range: dropped
        return LatestReturns(
            self.returns.at[slot].set(rollout.episode_return.reshape(-1), mode="drop"),
            jnp.minimum(self.count + total, LATEST),
            (self.head + total) % LATEST,
        )


class MetricsAccumulator(eqx.Module):
    """What happened since the last row of metrics, of one seed or of several."""

    iterations: Int[Array, "*seeds"]
    episodes: Int[Array, "*seeds"]
    return_sum: Float[Array, "*seeds"]
    return_best: Float[Array, "*seeds"]
    length_sum: Float[Array, "*seeds"]
    sums: dict[str, Float[Array, "*seeds"]]
    """Each metric, summed over the iterations."""
    first_bad: Int[Array, "*seeds"]
    """Iteration, counted from the last row, in which a metric was first not finite; else `ALL_FINITE`."""
    latest: LatestReturns
    """Not cleared by a row."""


def create(metric_names: tuple[str, ...]) -> MetricsAccumulator:
    return MetricsAccumulator(
        iterations=jnp.int32(0),
        episodes=jnp.int32(0),
        return_sum=jnp.float32(0),
        return_best=jnp.float32(-jnp.inf),
        length_sum=jnp.float32(0),
        sums={name: jnp.float32(0) for name in metric_names},
        first_bad=jnp.int32(ALL_FINITE),
        latest=LatestReturns(jnp.zeros(LATEST), jnp.int32(0), jnp.int32(0)),
    )


def clear(accumulator: MetricsAccumulator) -> MetricsAccumulator:
    """Start a new row."""
    return dataclasses.replace(create(tuple(accumulator.sums)), latest=accumulator.latest)


def accumulate(accumulator: MetricsAccumulator, rollout: Rollout, metrics: Metrics) -> MetricsAccumulator:
    """Add one iteration."""
    ended, returns = rollout.ended, rollout.episode_return
    finite = jnp.all(jnp.array([jnp.isfinite(value) for value in metrics.values()]))
    first_bad = accumulator.first_bad
    return MetricsAccumulator(
        iterations=accumulator.iterations + 1,
        episodes=accumulator.episodes + jnp.sum(ended),
        return_sum=accumulator.return_sum + jnp.sum(jnp.where(ended, returns, 0.0)),
        return_best=jnp.maximum(accumulator.return_best, jnp.max(jnp.where(ended, returns, -jnp.inf))),
        length_sum=accumulator.length_sum + jnp.sum(jnp.where(ended, rollout.episode_length, 0)),
        sums={name: total + metrics[name] for name, total in accumulator.sums.items()},
        first_bad=jnp.where((first_bad == ALL_FINITE) & ~finite, accumulator.iterations, first_bad),
        latest=accumulator.latest.update(rollout),
    )


clear_seeds = jax.jit(jax.vmap(clear))
"""`clear` of several seeds."""
