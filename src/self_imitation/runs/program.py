"""The compiled program of a run: all seeds at once, any number of iterations per call."""

from collections.abc import Callable
from functools import cached_property, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Integer

from self_imitation import agents
from self_imitation.algorithm import Agent, State, iteration
from self_imitation.config import TrainConfig
from self_imitation.types import Metrics, Params, Rollout

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


class Program:
    """Seeds are an axis: spread over the devices, `vmap` on each of them."""

    def __init__(self, config: TrainConfig):
        self.config = config
        self.agent = agents.build(config)
        self.sharding = _seed_sharding(config.seeds, self._shape_of_one)
        self._advance = jax.jit(self._over_seeds(partial(_advance, self.agent)), donate_argnums=0)

    def begin(self) -> Progress:
        """Every seed at its start."""
        seeds = self.config.seed_numbers
        params = [agents.initial_params(self.config, self.agent, seed) for seed in seeds]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
        return self.place(jax.jit(jax.vmap(self._begin_one))(stacked, np.array(seeds, np.uint32)))

    def shape(self) -> Progress:
        """Shapes and types of `begin`, without its work."""
        seeds = self.config.seeds
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), self._shape_of_one)

    def place(self, progress: Progress) -> Progress:
        return jax.device_put(progress, self.sharding)

    def compile(self, progress: Progress) -> None:
        """Now, so that the first stretch is timed without it."""
        self._compiled = self._advance.lower(progress, jnp.int32(0)).compile()

    def advance(self, progress: Progress, iterations: int) -> Progress:
        """Some more iterations of every seed. Takes the place of its argument, which must not be used again."""
        return jax.block_until_ready(self._compiled(progress, jnp.int32(iterations)))

    def clear_tally(self, progress: Progress) -> Progress:
        return eqx.tree_at(lambda p: p.tally, progress, self._empty_tallies())

    @cached_property
    def _empty_tallies(self) -> Callable[[], Tally]:
        names = tuple(self.shape().tally.sums)
        many = partial(jax.tree.map, lambda leaf: jnp.stack([leaf] * self.config.seeds))
        return jax.jit(lambda: many(empty_tally(names)), out_shardings=self.sharding)

    @cached_property
    def _shape_of_one(self) -> Progress:
        """Traced once: it takes as long as importing JAX."""
        params = agents.initial_params(self.config, self.agent, self.config.seed)
        return jax.eval_shape(self._begin_one, params, jax.ShapeDtypeStruct((), np.uint32))

    def _begin_one(self, params: Params, seed: Integer[Array, ""]) -> Progress:
        state = agents.begin(self.agent, params, seed)
        *_, metrics = jax.eval_shape(partial(iteration, self.agent), state)
        return Progress(state, empty_tally(tuple(metrics)))

    def _over_seeds(self, advance: Callable) -> Callable:
        batched = jax.vmap(advance, (0, None))
        return jax.shard_map(
            batched,
            mesh=self.sharding.mesh,
            in_specs=(PartitionSpec("seed"), PartitionSpec()),
            out_specs=PartitionSpec("seed"),
            check_vma=False,
        )


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


def _advance(agent: Agent, progress: Progress, iterations: Int[Array, ""]) -> Progress:
    """The number of iterations is an argument, not a constant, so that one compiled program serves every stretch: how
    a run is cut into calls cannot change a bit of it.
    """

    def once(_: Int[Array, ""], progress: Progress) -> Progress:
        state, rollout, metrics = iteration(agent, progress.state)
        return Progress(state, _count(progress.tally, rollout, metrics))

    return jax.lax.fori_loop(0, iterations, once, progress)


def _count(tally: Tally, rollout: Rollout, metrics: Metrics) -> Tally:
    ended = rollout.ended
    finite = jnp.all(jnp.array([jnp.isfinite(value) for value in metrics.values()]))
    return Tally(
        iterations=tally.iterations + 1,
        episodes=tally.episodes + jnp.sum(ended),
        return_sum=tally.return_sum + jnp.sum(jnp.where(ended, rollout.episode_return, 0.0)),
        return_best=jnp.maximum(tally.return_best, jnp.max(jnp.where(ended, rollout.episode_return, -jnp.inf))),
        length_sum=tally.length_sum + jnp.sum(jnp.where(ended, rollout.episode_length, 0)),
        sums={name: tally.sums[name] + value for name, value in metrics.items()},
        first_bad=jnp.where((tally.first_bad == ALL_FINITE) & ~finite, tally.iterations, tally.first_bad),
    )


def _seed_sharding(seeds: int, one: Progress) -> NamedSharding:
    """Over as many devices as divide the seeds evenly. A state with an array of no elements stays on one device: to
    split such an array crashes XLA's partitioner (JAX 0.11 on CPUs).
    """
    devices = jax.local_devices()
    if any(leaf.size == 0 for leaf in jax.tree.leaves(one)):
        devices = devices[:1]
    count = max(n for n in range(1, len(devices) + 1) if seeds % n == 0)
    return NamedSharding(Mesh(np.array(devices[:count]), ("seed",)), PartitionSpec("seed"))
