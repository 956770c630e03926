"""Stacks of frames, each frame stored once: what is drawn is what the policy saw."""

from collections import deque
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from self_imitation.replay import buffer as memory
from self_imitation.config import SelfImitationConfig

SIDE, COLOURS = 2, 3


@jax.tree_util.register_dataclass
@dataclass
class Experience:
    """[T, N, ...] of stacks, as a rollout has them."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    ended: np.ndarray


class World:
    """Environments whose every frame has a number of its own, which it shows in all of its pixels."""

    def __init__(self, environments, stack, room, capacity, seed):
        self.stack, self.room = stack, room
        self.random = np.random.default_rng(seed)
        self.number = 0
        self.frames = [[] for _ in range(environments)]
        self.waiting = [[] for _ in range(environments)]
        self.finished = deque(maxlen=capacity)
        """(number of the newest frame, the stack, whether it can be put together again)"""
        for place in range(environments):
            self._show(place)

    def _show(self, place):
        self.number += 1
        self.frames[place].append(self.number)

    def stack_of(self, place):
        latest = self.frames[place][-self.stack :]
        return np.array([0] * (self.stack - len(latest)) + latest)

    def rollout(self, steps, chance):
        shape = steps, len(self.frames)
        seen, ended = np.zeros((*shape, self.stack), int), self.random.random(shape) < chance
        for time, place in np.ndindex(shape):
            seen[time, place] = self.stack_of(place)
            self.waiting[place].append(seen[time, place])
            if ended[time, place]:
                kept = self.waiting[place][-self.room :]
                lost = len(kept) < len(self.waiting[place])
                for age, one in enumerate(kept):
                    self.finished.append((one[-1], one, not lost or age >= self.stack - 1))
                self.frames[place], self.waiting[place] = [], []
            self._show(place)
        pixels = np.repeat(seen, COLOURS, axis=-1)[:, :, None, None].repeat(SIDE, 2).repeat(SIDE, 3)
        return Experience(pixels.astype(np.int32), np.zeros(shape, np.int32), np.ones(shape, np.float32), ended)


@pytest.mark.parametrize("stack", [2, 4])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), chance=st.sampled_from([0.02, 0.1, 0.3, 0.9]), rollouts=st.integers(1, 25))
def test_drawn_stacks_are_those_that_the_policy_saw(stack, seed, chance, rollouts):
    """Over episode ends, the ring's seam, and episodes that have lost their first steps."""
    config = SelfImitationConfig(capacity=40, batch=8, keep="all", learning_starts=0)
    world = World(3, stack, room=11, capacity=40, seed=seed)
    stored, remember = None, jax.jit(memory.remember, static_argnums=2)
    for _ in range(rollouts):
        rollout = world.rollout(4, chance)
        stored = memory.create(rollout, config, 11, stack) if stored is None else stored
        stored = remember(stored, rollout, config)
    slots = stored.returns.shape[0]
    assert (slots, stored.capacity, int(stored.size)) == (40 + stack - 1, 40, len(world.finished))
    assert stored.observation.shape == (slots, SIDE, SIDE, COLOURS), "each frame once"
    weight = np.asarray(stored.tree.sums)[stored.tree.first_leaf :][:slots]
    drawable = np.flatnonzero(weight)
    if not len(drawable):
        assert not any(whole for _, _, whole in world.finished)
        return
    seen = np.asarray(memory._seen_at(stored, jnp.asarray(drawable, jnp.int32)))
    assert (seen == seen[:, :1, :1]).all()
    found = {stack[-1]: stack[COLOURS - 1 :: COLOURS].tolist() for stack in seen[:, 0, 0]}
    assert found == {number: one.tolist() for number, one, whole in world.finished if whole}
    assert float(stored.tree.minimum) == weight[drawable].min()
