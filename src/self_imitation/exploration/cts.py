"""Pseudo-counts from context tree switching (CTS; Veness et al. 2012), as in A3C+ (Bellemare et al. 2016).

Each pixel of a frame has a context tree of its own, which predicts its level from those of four neighbours that come
before it: left, above, above left, above right. The root ignores the context, a node at depth d knows the first d
neighbours. Each node estimates the distribution of levels in its context and mixes it with the prediction of its child,
weighted by how well both have done. The density of a frame is the product over its pixels.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from self_imitation.algorithm.components import Bonus, Exploration
from self_imitation.algorithm.rollouts import flatten_time
from self_imitation.arrays import masked_mean
from self_imitation.errors import UsageError
from self_imitation.exploration.frames import frame_size, frames_reached, require_images
from self_imitation.exploration.pseudo_counts import pseudo_count, pseudo_count_bonus
from self_imitation.settings import real, setting, whole
from self_imitation.types import Metrics, Rollout, Spec

DEPTH = 4
"""Neighbours in a context."""
MAX_COUNTS = 2**31 - 1
"""Entries of the table of counts: they have int32 indices."""


@dataclass(frozen=True)
class CTSConfig:
    """Pseudo-counts from a CTS density model: beta / sqrt(N + 0.01) added to the on-policy reward."""

    scale: float = setting(0.01, real(0))
    """beta; a frame that looks like none before it is paid about ten times this (pseudo-count paper: 0.01 for A3C+)."""
    side: int = setting(42, whole(1, 84))
    """Height and width, in pixels, to which frames are down-sampled (pseudo-count paper: 42)."""
    levels: int = setting(8, whole(2, 16))
    """Levels of grey to which pixels are quantised (pseudo-count paper: 3 bits). Memory grows with levels^5: 300 MB
    per seed with 8 levels and 42 x 42 pixels."""


class CTSState(eqx.Module):
    """The context trees of all pixels. Nodes are numbered from the root, 0; the children of n from levels * n + 1."""

    frames: Int[Array, ""]
    """Frames learnt."""
    counts: Int[Array, "rows pixels"]
    """Each node has 1 + levels rows: its visits, and those with each level of the pixel."""
    odds: Float[Array, "inner_nodes pixels"]
    """Weight of a node's own estimate divided by that of its child's prediction. Leaves have none."""


class Entries(eqx.Module):
    """Where the nodes of a frame are in the flattened tables, from the roots to the leaves."""

    counts: Int[Array, "*frames 2 nodes pixels"]
    """Of their visits, and of those with the level that the pixel has."""
    odds: Int[Array, "*frames inner pixels"]


class Probability(eqx.Module):
    """Of the level that a pixel has, and of all others together. They add up to 1, but only the smaller one is precise
    after a subtraction, and a pseudo-count of thousands lies in the last digits of the larger one.
    """

    level: Float[Array, "*batch pixels"]
    others: Float[Array, "*batch pixels"]

    def log(self) -> Float[Array, "*batch pixels"]:
        return jnp.where(self.level < 0.5, jnp.log(self.level), jnp.log1p(-self.others))


class CTSBonus(Bonus):
    """Pseudo-counts of frames, for environments with image observations."""

    Config = CTSConfig
    memory_settings = ("levels", "side")

    def __init__(self, config: CTSConfig, spec: Spec):
        require_images(spec, "cts")
        super().__init__(config, spec)
        self.height, self.width = frame_size(spec, config.side)
        self.pixels = self.height * self.width
        self.inner_nodes = sum(config.levels**depth for depth in range(DEPTH))
        self.rows = (self.inner_nodes + config.levels**DEPTH) * (1 + config.levels)
        if self.rows * self.pixels > MAX_COUNTS:
            table = f"{self.height} x {self.width} pixels with {config.levels} levels"
            raise UsageError(f"cts: {table} need more than {MAX_COUNTS:,} counts; lower cts.side or cts.levels")

    def init(self, key: PRNGKeyArray, num_envs: int) -> CTSState:
        counts = jnp.zeros((self.rows, self.pixels), jnp.int32)
        return CTSState(jnp.int32(0), counts, jnp.ones((self.inner_nodes, self.pixels)))

    def update(self, state: CTSState, rollout: Rollout, key: PRNGKeyArray) -> tuple[CTSState, Exploration, Metrics]:
        """Frames are learnt one at a time, in order of time and then of environment."""
        frames = frames_reached(self.spec, rollout, self.config.side, self.config.levels)
        valid = jnp.ones(len(frames), bool) if rollout.valid is None else flatten_time(rollout.valid)
        entries = jax.vmap(self._entries)(frames)  # not in the loop: a GPU spends its time on launching kernels there
        state, (before, after) = jax.lax.scan(self._learn, state, (entries, valid))

        # Sums of small differences: log rho' - log rho of whole frames would be rounded to 0 after some thousands.
        log_before, log_after = before.log(), after.log()
        gain = jnp.sum(log_after - log_before, axis=-1)
        count = pseudo_count(jnp.sum(log_after, axis=-1), gain)
        bonus = jnp.where(valid, pseudo_count_bonus(count, self.config.scale), 0.0).reshape(rollout.reward.shape)
        log_density = masked_mean(jnp.sum(log_before, axis=-1), valid)
        metrics = {"cts_bonus": masked_mean(bonus, rollout.valid), "cts_log_density": log_density}
        return state, Exploration(reward=bonus), metrics

    def _entries(self, frame: UInt8[Array, "height width"]) -> Entries:
        level = frame.astype(jnp.int32)
        path = self._path(level)
        first_row = path * (1 + self.config.levels)
        rows = jnp.stack([first_row, first_row + 1 + level.reshape(-1)])
        return Entries(self._flat(rows), self._flat(path[:-1]))

    def _learn(
        self, state: CTSState, step: tuple[Entries, Bool[Array, ""]]
    ) -> tuple[CTSState, tuple[Probability, Probability]]:
        """Take one frame into account; also its probability before and after that, for each pixel.

        The nodes of each pixel's path are read once and written once, so that XLA updates the table in place.
        """
        entries, valid = step
        rows, weights = entries.counts, entries.odds
        # The barrier keeps the reads out of the kernels that write: fused with them, the table would be copied first.
        counts, odds = jax.lax.optimization_barrier((_get(state.counts, rows), _get(state.odds, weights)))
        visits, same = counts

        frames = state.frames + valid
        before, after = self._estimate(same[-1], visits[-1]), self._estimate(same[-1] + 1, visits[-1] + 1)
        new_odds = []
        for depth in reversed(range(DEPTH)):
            own = self._estimate(same[depth], visits[depth])
            new_odds.append(_switch(odds[depth] * own.level / before.level, frames))
            before = _mix(odds[depth], own, before)
            after = _mix(new_odds[-1], self._estimate(same[depth] + 1, visits[depth] + 1), after)

        odds = jnp.where(valid, jnp.stack(new_odds[::-1]), odds)
        state = CTSState(frames, _set(state.counts, rows, counts + valid), _set(state.odds, weights, odds))
        return state, (before, after)

    def _path(self, level: Int[Array, "height width"]) -> Int[Array, "nodes pixels"]:
        """The nodes of each pixel from the root to the leaf. Outside the frame, the level is 0."""
        padded = jnp.pad(level, ((1, 0), (1, 1)))
        above = padded[:-1]
        path = [jnp.zeros_like(level)]
        for neighbour in (padded[1:, :-2], above[:, 1:-1], above[:, :-2], above[:, 2:]):
            path.append(self.config.levels * path[-1] + 1 + neighbour)
        return jnp.stack(path).reshape(len(path), self.pixels)

    def _flat(self, row: Int[Array, "*nodes pixels"]) -> Int[Array, "*nodes pixels"]:
        """Indices of each pixel's row in a flattened table."""
        return row * self.pixels + np.arange(self.pixels, dtype=np.int32)

    def _estimate(self, same: Int[Array, " pixels"], visits: Int[Array, " pixels"]) -> Probability:
        """(n + 1/levels) / (N + 1): Dirichlet-multinomial with Perks' prior (authors' code)."""
        prior, total = 1 / self.config.levels, visits.astype(jnp.float32) + 1
        return Probability((same + prior) / total, ((visits - same) + (1 - prior)) / total)


def _mix(odds: Float[Array, " pixels"], own: Probability, child: Probability) -> Probability:
    """The estimate of a node, mixed with the prediction of its child."""
    total = 1 + odds
    return Probability((odds * own.level + child.level) / total, (odds * own.others + child.others) / total)


def _switch(posterior: Float[Array, " pixels"], frames: Int[Array, ""]) -> Float[Array, " pixels"]:
    """The odds after the t-th frame: the posterior ones, with an exchange of weight at the rate 1 / (t + 1)."""
    # Deviation: the authors' code computes the weight of the child from the new weight of the estimate; here, as in the
    # CTS paper, both come from the old ones.
    time = frames.astype(jnp.float32)
    return (time * posterior + 1) / (time + posterior)


def _get(table: Array, index: Int[Array, "*index"]) -> Array:
    return table.reshape(-1).at[index].get(mode="promise_in_bounds")


def _set(table: Array, index: Int[Array, "*index"], value: Array) -> Array:
    flat = table.reshape(-1).at[index].set(value, mode="promise_in_bounds", unique_indices=True)
    return flat.reshape(table.shape)
