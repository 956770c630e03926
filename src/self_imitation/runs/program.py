"""The compiled program of a run: all seeds at once, any number of iterations per call."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Integer

from self_imitation import agents, devices
from self_imitation.algorithm import Agent, iteration, learn
from self_imitation.config import TrainConfig
from self_imitation.environments import catalogue
from self_imitation.runs.tally import Progress, Tally, count, empty_tally
from self_imitation.types import Params


@runtime_checkable
class Program(Protocol):
    """What trains a run's seeds, wherever their environments are. `Any` stands for its own form of their progress."""

    config: TrainConfig
    agent: Agent
    shapes: "Shapes"
    device: str
    """Where it runs, in words."""
    columns: tuple[str, ...]
    """Metrics that it keeps itself, see `own_metrics`."""

    def begin(self) -> Any:
        """Every seed at its start."""

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[Any, str]:
        """Every seed where a checkpoint left it, `step` steps on; and what can't be as it was, in words."""

    def compile(self, progress: Any) -> None:
        """Now, so that the first stretch is timed without it."""

    def advance(self, progress: Any, iterations: int) -> Any:
        """Some more iterations of every seed. Takes the place of its argument, which must not be used again."""

    def clear_tally(self, progress: Any) -> Any: ...

    def tally(self, progress: Any) -> Tally:
        """Of all seeds, on the host."""

    def whole(self, progress: Any) -> Progress:
        """All seeds in one structure, for a checkpoint."""

    def environments(self) -> dict[str, np.ndarray]:
        """What is to be saved of environments that are no part of the progress."""

    def own_metrics(self, seed: int) -> dict[str, float]:
        """Of the seed with this place in the order."""

    def close(self) -> None: ...


def create(config: TrainConfig) -> Program:
    if catalogue.find(config.env).host_id is None:
        return DeviceProgram(config)
    from self_imitation.environments.host import engines
    from self_imitation.runs.host_program import HostProgram
    from self_imitation.runs.lanes import Lanes

    lanes = devices.lanes(config, engines.known_everywhere(config.env))
    if lanes > 1:
        return Lanes(config, lanes)
    return HostProgram(config)


class Shapes:
    """How seeds begin, and of what shapes their progress is."""

    def __init__(self, config: TrainConfig, agent: Agent):
        self.config, self.agent = config, agent

    def begin(self, seeds: tuple[int, ...]) -> Progress:
        params = [agents.initial_params(self.config, self.agent, seed) for seed in seeds]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
        return jax.jit(jax.vmap(self._begin_one))(stacked, np.array(seeds, np.uint32))

    @property
    def all_seeds(self) -> Progress:
        """Shapes and types of `begin`, without its work."""
        seeds = self.config.seeds
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), self.one_seed)

    @cached_property
    def one_seed(self) -> Progress:
        """Traced once: it takes as long as importing JAX."""
        params = agents.initial_params(self.config, self.agent, self.config.seed)
        return jax.eval_shape(self._begin_one, params, jax.ShapeDtypeStruct((), np.uint32))

    def empty_tallies(self, seeds: int) -> Tally:
        one = empty_tally(tuple(self.one_seed.tally.sums))
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), one)

    def _begin_one(self, params: Params, seed: Integer[Array, ""]) -> Progress:
        state = agents.begin(self.agent, params, seed)
        rollout = agents.rollout_shape(self.agent, params, state.acting)
        _, metrics = jax.eval_shape(partial(learn, self.agent), state, rollout)
        return Progress(state, empty_tally(tuple(metrics)))


class DeviceProgram:
    """With environments on the device. Seeds are an axis: spread over the devices, `vmap` on each of them."""

    columns: tuple[str, ...] = ()

    def __init__(self, config: TrainConfig):
        self.config = config
        self.agent = agents.build(config)
        self.shapes = Shapes(config, self.agent)
        available = devices.available(config)
        self.sharding = _seed_sharding(config.seeds, self.shapes.one_seed, available)
        self.device = name_of(self.sharding.mesh.devices.reshape(-1).tolist())
        self._advance = jax.jit(self._over_seeds(partial(_advance, self.agent)), donate_argnums=0)

    def begin(self) -> Progress:
        return jax.device_put(self.shapes.begin(self.config.seed_numbers), self.sharding)

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[Progress, str]:
        return jax.device_put(saved, self.sharding), ""

    def compile(self, progress: Progress) -> None:
        self._compiled = self._advance.lower(progress, jnp.int32(0)).compile()

    def advance(self, progress: Progress, iterations: int) -> Progress:
        return jax.block_until_ready(self._compiled(progress, jnp.int32(iterations)))

    def clear_tally(self, progress: Progress) -> Progress:
        return eqx.tree_at(lambda p: p.tally, progress, self._empty_tallies())

    def tally(self, progress: Progress) -> Tally:
        return jax.device_get(progress.tally)

    def whole(self, progress: Progress) -> Progress:
        return progress

    def environments(self) -> dict[str, np.ndarray]:
        return {}

    def own_metrics(self, seed: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass

    @cached_property
    def _empty_tallies(self) -> Callable[[], Tally]:
        return jax.jit(lambda: self.shapes.empty_tallies(self.config.seeds), out_shardings=self.sharding)

    def _over_seeds(self, advance: Callable) -> Callable:
        batched = jax.vmap(advance, (0, None))
        return jax.shard_map(
            batched,
            mesh=self.sharding.mesh,
            in_specs=(PartitionSpec("seed"), PartitionSpec()),
            out_specs=PartitionSpec("seed"),
            check_vma=False,
        )


def _advance(agent: Agent, progress: Progress, iterations: Int[Array, ""]) -> Progress:
    """The number of iterations is an argument, not a constant, so that one compiled program serves every stretch: how
    a run is cut into calls cannot change a bit of it.
    """

    def once(_: Int[Array, ""], progress: Progress) -> Progress:
        state, rollout, metrics = iteration(agent, progress.state)
        return Progress(state, count(progress.tally, rollout, metrics))

    return jax.lax.fori_loop(0, iterations, once, progress)


def _seed_sharding(seeds: int, one: Progress, available: list[jax.Device]) -> NamedSharding:
    """Over as many devices as divide the seeds evenly. A state with an array of no elements stays on one device: to
    split such an array crashes XLA's partitioner (JAX 0.11 on CPUs).
    """
    if any(math.prod(leaf.shape) == 0 for leaf in jax.tree.leaves(one)):
        available = available[:1]
    number = max(n for n in range(1, len(available) + 1) if seeds % n == 0)
    return NamedSharding(Mesh(np.array(available[:number]), ("seed",)), PartitionSpec("seed"))


def name_of(devices: list[jax.Device]) -> str:
    kind = devices[0].device_kind
    return kind if len(devices) == 1 else f"{len(devices)} x {kind}"
