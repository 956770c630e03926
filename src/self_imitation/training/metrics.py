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
    """Episodes so far, saturated at the size of the ring."""
    head: Int[Array, ""]

    @staticmethod
    def create() -> "LatestReturns":
        return LatestReturns(jnp.zeros(LATEST), jnp.int32(0), jnp.int32(0))

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
    """What happened since the last row of metrics, of one seed."""

    iterations: Int[Array, ""]
    episodes: Int[Array, ""]
    return_sum: Float[Array, ""]
    return_best: Float[Array, ""]
    length_sum: Float[Array, ""]
    sums: Metrics
    """Each metric, summed over the iterations."""
    first_bad: Int[Array, ""]
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
        latest=LatestReturns.create(),
    )


def clear(accumulator: MetricsAccumulator) -> MetricsAccumulator:
    """Start a new row. Accepts arrays with leading axes."""
    fresh = create(tuple(accumulator.sums))
    shape = accumulator.iterations.shape
    cleared: MetricsAccumulator = eqx.tree_at(lambda m: m.latest, fresh, None)
    cleared = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape)), cleared)
    return dataclasses.replace(cleared, latest=accumulator.latest)


def accumulate(accumulator: MetricsAccumulator, rollout: Rollout, metrics: Metrics) -> MetricsAccumulator:
    """Add one iteration."""
    ended = rollout.ended
    finite = jnp.all(jnp.array([jnp.isfinite(value) for value in metrics.values()]))
    first_bad = accumulator.first_bad
    return MetricsAccumulator(
        iterations=accumulator.iterations + 1,
        episodes=accumulator.episodes + jnp.sum(ended),
        return_sum=accumulator.return_sum + jnp.sum(jnp.where(ended, rollout.episode_return, 0.0)),
        return_best=jnp.maximum(
            accumulator.return_best, jnp.max(jnp.where(ended, rollout.episode_return, -jnp.inf))
        ),
        length_sum=accumulator.length_sum + jnp.sum(jnp.where(ended, rollout.episode_length, 0)),
        sums={name: total + metrics[name] for name, total in accumulator.sums.items()},
        first_bad=jnp.where((first_bad == ALL_FINITE) & ~finite, accumulator.iterations, first_bad),
        latest=accumulator.latest.update(rollout),
    )
