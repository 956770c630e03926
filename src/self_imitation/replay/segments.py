"""Consecutive steps of stored episodes, for learners that need what happened next."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import STEPS_LEFT, Batch, ReplayBuffer

TERMINAL = "terminal"
"""Extra of a rollout: whether the state after this step has no value."""


class Segments(eqx.Module):
    """L + 1 consecutive steps each: L transitions, and the observation after them."""

    steps: Batch
    """Flat, [(L + 1) * batch], time first."""
    valid: Bool[Array, "L batch"]
    """Which transitions are part of the episode and have a known state after them."""
    terminal: Bool[Array, "L batch"]
    """Transitions after which the state has no value."""

    def over_time(self, array: Array) -> Array:
        """[(L + 1) * batch, ...] to [L + 1, batch, ...]"""
        return array.reshape(self.valid.shape[0] + 1, -1, *array.shape[1:])


def from_batch(buffer: ReplayBuffer, start: Batch, length: int) -> Segments:
    """The segments of `length` transitions that begin with these steps. Needs the extras `STEPS_LEFT`, `TERMINAL`."""
    offset = jnp.arange(length + 1)[:, None]
    exists = offset <= start.extras[STEPS_LEFT]
    slot = jnp.where(exists, (start.slot + offset) % buffer.returns.shape[0], start.slot)
    steps = replay.batch_at(buffer, slot.reshape(-1), jnp.broadcast_to(start.weight, slot.shape).reshape(-1))
    terminal = steps.extras[TERMINAL].reshape(slot.shape)[:-1] & exists[:-1]
    filled = start.weight > 0
    return Segments(steps, exists[:-1] & (exists[1:] | terminal) & filled, terminal)
