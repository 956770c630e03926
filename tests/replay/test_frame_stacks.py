"""Frame stacks in the replay buffer: each frame is stored once, and sampled stacks are those that the policy saw."""

from collections import deque
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import STEPS_LEFT
from self_imitation.settings import SelfImitationConfig

SIDE, COLOURS = 2, 3
CAPACITY, MAX_PENDING_STEPS = 40, 11


@jax.tree_util.register_dataclass
@dataclass
class Experience:
    """[T, N, ...] of stacks, as a rollout has them."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    valid: np.ndarray | None
    extras: dict[str, np.ndarray]


class World:
    """Environments whose every frame has a number of its own, shown in all of its pixels.

    With `resets`, the step after the end of an episode is a reset step, which still shows the stack of its end.
    """

    def __init__(self, num_envs, stack, resets, seed):
        self.stack, self.resets = stack, resets
        self.random = np.random.default_rng(seed)
        self.number = 0
        self.frames = [[] for _ in range(num_envs)]
        self.waiting = [[] for _ in range(num_envs)]
        self.truncated_start = [False] * num_envs
        self.resetting = np.zeros(num_envs, bool)
        self.finished = deque(maxlen=CAPACITY)
        """(number of the newest frame, the stack, whether it can be rebuilt, steps left in the same part)"""
        for env in range(num_envs):
            self._show(env)

    def _show(self, env):
        self.number += 1
        self.frames[env].append(self.number)

    def stack_of(self, env):
        latest = self.frames[env][-self.stack :]
        return np.array([0] * (self.stack - len(latest)) + latest)

    def rollout(self, steps, chance):
        shape = steps, len(self.frames)
        seen, ended = np.zeros((*shape, self.stack), int), self.random.random(shape) < chance
        valid = np.ones(shape, bool)
        for time, env in np.ndindex(shape):
            seen[time, env] = self.stack_of(env)
            if self.resetting[env]:
                valid[time, env] = ended[time, env] = self.resetting[env] = False
                self.frames[env] = []
            else:
                self.waiting[env].append(seen[time, env])
                if ended[time, env]:
                    self._finish(env)
                elif len(self.waiting[env]) == MAX_PENDING_STEPS:
                    self._move(env, MAX_PENDING_STEPS - MAX_PENDING_STEPS // 2)
            self._show(env)
        pixels = np.repeat(seen, COLOURS, axis=-1)[:, :, None, None].repeat(SIDE, 2).repeat(SIDE, 3)
        columns = pixels.astype(np.int32), np.zeros(shape, np.int32), np.ones(shape, np.float32), ended
        return Experience(*columns, valid if self.resets else None, {"number": seen[:, :, -1].astype(np.int32)})

    def _move(self, env, steps):
        """The oldest of the waiting steps move on."""
        for age, one in enumerate(self.waiting[env][:steps]):
            whole = not self.truncated_start[env] or age >= self.stack - 1
            self.finished.append((one[-1], one, whole, steps - 1 - age))
        self.waiting[env], self.truncated_start[env] = self.waiting[env][steps:], True

    def _finish(self, env):
        self._move(env, len(self.waiting[env]))
        self.truncated_start[env], self.resetting[env] = False, self.resets
        if not self.resets:
            self.frames[env] = []


insert = jax.jit(replay.insert, static_argnums=2)
observation_at = jax.jit(replay._observation_at)


@pytest.mark.parametrize(("stack", "resets"), [(2, False), (4, True)])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), chance=st.sampled_from([0.02, 0.1, 0.3, 0.9]), rollouts=st.integers(1, 20))
def test_sampled_stacks_are_those_that_the_policy_saw(stack, resets, seed, chance, rollouts):
    """Across episode ends, the seam of the ring, and episodes that are stored in parts."""
    config = SelfImitationConfig(buffer_size=CAPACITY, batch_size=8, learning_starts=0)
    world = World(3, stack, resets, seed)
    buffer = None
    for _ in range(rollouts):
        rollout = world.rollout(4, chance)
        if buffer is None:
            buffer = replay.create(rollout, config, MAX_PENDING_STEPS, stack, extras=("number", STEPS_LEFT))
        buffer = insert(buffer, rollout, config)
    slots = buffer.returns.shape[0]
    assert (slots, buffer.capacity, int(buffer.size)) == (CAPACITY + stack - 1, CAPACITY, len(world.finished))
    assert buffer.observation.shape == (slots, SIDE, SIDE, COLOURS), "each frame once"
    weight = np.asarray(buffer.tree.sums)[buffer.tree.first_leaf :][:slots]
    samplable = np.flatnonzero(weight)
    if not len(samplable):
        assert not any(whole for _, _, whole, _ in world.finished)
        return
    seen = np.asarray(observation_at(buffer, jnp.arange(slots)))[samplable]
    assert (seen == seen[:, :1, :1]).all()
    found = {pixels[-1]: pixels[COLOURS - 1 :: COLOURS].tolist() for pixels in seen[:, 0, 0]}
    assert found == {number: one.tolist() for number, one, whole, _ in world.finished if whole}
    number, left = (np.asarray(buffer.extras[name])[samplable] for name in ("number", STEPS_LEFT))
    assert number.tolist() == seen[:, 0, 0, -1].tolist()
    expected = {number: left for number, _, whole, left in world.finished if whole}
    assert dict(zip(number.tolist(), left.tolist(), strict=True)) == expected
    assert float(buffer.tree.minimum) == weight[samplable].min()
