"""Steps of stored episodes and what came after them: `later`, and segments of consecutive steps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tabular import make_rollout

from self_imitation.replay import buffer as replay
from self_imitation.replay import segments
from self_imitation.replay.buffer import REWARD, STEPS_LEFT
from self_imitation.replay.segments import TERMINAL
from self_imitation.settings import ReplayConfig

CONFIG = ReplayConfig(buffer_size=12, batch_size=4, learning_starts=0, gamma=0.5)
STEPS = 4
insert = jax.jit(replay.insert, static_argnums=2)


def stored(lengths, terminal=(), total=None, max_pending_steps=10):
    """Episodes of these lengths in one environment. Its steps are numbered from 1; the reward is ten times the number.

    `terminal`: numbers of the steps after which the state has no value. `total`: steps, if the last one is unfinished.
    """
    steps = -(-(total or sum(lengths)) // STEPS) * STEPS
    number = np.arange(1, steps + 1, dtype=np.float32)
    ended = np.isin(number, np.cumsum(lengths))
    columns = {"truncated": ended, "action": number.astype(np.int32)}
    buffer = None
    for first in range(0, steps, STEPS):
        part = slice(first, first + STEPS)
        rollout = make_rollout(
            number[part, None, None],
            10 * number[part, None],
            np.zeros((1, 1), np.float32),
            extras={TERMINAL: np.isin(number, terminal)[part, None]},
            **{name: column[part, None] for name, column in columns.items()},
        )
        if buffer is None:
            buffer = replay.create(rollout, CONFIG, max_pending_steps, extras=(REWARD, STEPS_LEFT, TERMINAL))
        buffer = insert(buffer, rollout, CONFIG)
    return buffer


def numbers(buffer):
    return np.asarray(buffer.observation)[:, 0].astype(int).tolist()


def starting_at(buffer, wanted):
    """A batch of the steps with these numbers."""
    slot = [numbers(buffer).index(number) for number in wanted]
    return replay.batch_at(buffer, jnp.array(slot, jnp.int32), jnp.arange(1.0, len(slot) + 1))


@partial(jax.jit, static_argnums=2)
def run_later(buffer, batch, steps):
    return replay.later(buffer, batch, steps)


@partial(jax.jit, static_argnums=2)
def run_segments(buffer, batch, length):
    return segments.from_batch(buffer, batch, length)


def later(buffer, wanted, steps):
    """The number of the step so many steps after each; None where there is none."""
    batch, exists = run_later(buffer, starting_at(buffer, wanted), steps)
    assert_array_equal(batch.action, np.asarray(batch.observation)[:, 0])
    assert_array_equal(batch.extras[REWARD], 10 * np.asarray(batch.observation)[:, 0])
    assert_array_equal(batch.weight, np.arange(1.0, len(wanted) + 1))
    found = np.asarray(batch.observation)[:, 0].astype(int).tolist()
    return [number if there else None for number, there in zip(found, np.asarray(exists), strict=True)]


def test_later_steps_are_those_of_the_same_episode():
    buffer = stored([3, 5])
    assert numbers(buffer)[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert later(buffer, [1, 2, 3, 4, 6, 8], 2) == [3, None, None, 6, 8, None]
    assert later(buffer, [1, 2, 3, 4, 6, 8], 4) == [None, None, None, 8, None, None]


def test_later_steps_are_found_across_the_seam_of_the_ring():
    buffer = stored([3, 5, 8])
    assert numbers(buffer) == [13, 14, 15, 16, 5, 6, 7, 8, 9, 10, 11, 12]
    assert later(buffer, [9, 12, 13, 6, 7, 16], 2) == [11, 14, 15, 8, None, None]


def test_an_episode_whose_beginning_was_overwritten_keeps_its_end():
    assert later(stored([3, 5, 8]), [5, 5, 8, 7, 6, 12], 1) == [6, 6, None, 8, 7, 13]


def test_later_steps_never_lie_in_another_part_of_an_episode():
    """At most four steps wait: the older two of them move at the fourth step, the sixth and the eighth, all four at the
    end.
    """
    buffer = stored([10], total=12, max_pending_steps=4)
    assert numbers(buffer)[:10] == list(range(1, 11))
    assert_array_equal(buffer.extras[STEPS_LEFT][:10], [1, 0, 1, 0, 1, 0, 3, 2, 1, 0])
    assert later(buffer, [1, 2, 3, 4, 7, 9], 1) == [2, None, 4, None, 8, 10]


def test_parts_of_two_environments_do_not_lead_into_each_other():
    """Their parts move in turn, so that the parts of one episode do not lie side by side."""
    number = np.arange(1, 17, dtype=np.float32).reshape(8, 2)
    buffer = None
    for first in (0, 4):
        rows = number[first : first + 4]
        rollout = make_rollout(rows[..., None], rows, np.zeros((2, 1), np.float32), truncated=rows >= 15)
        if buffer is None:
            buffer = replay.create(rollout, CONFIG, 4, extras=(STEPS_LEFT,))
        buffer = insert(buffer, rollout, CONFIG)
    order, left = numbers(buffer), np.asarray(buffer.extras[STEPS_LEFT])
    assert sorted(order) == list(range(5, 17))  # 12 of the 16
    for slot, number in enumerate(order):
        following = [order[(slot + k) % 12] for k in range(left[slot] + 1)]
        assert following == [number + 2 * k for k in range(left[slot] + 1)]
    assert left.max() == 3


# Segments


def segment(buffer, wanted, length):
    """Of each start: the valid transitions with their rewards, and whether the state after the last has no value."""
    found = run_segments(buffer, starting_at(buffer, wanted), length)
    assert found.valid.shape == found.terminal.shape == (length, len(wanted))
    number, reward, weight = (
        np.asarray(found.over_time(column))
        for column in (found.steps.observation[:, 0], found.steps.extras[REWARD], found.steps.weight)
    )
    assert number.shape == (length + 1, len(wanted))
    valid, terminal = np.asarray(found.valid), np.asarray(found.terminal)
    assert_array_equal(weight, np.tile(np.arange(1.0, len(wanted) + 1), (length + 1, 1)))
    assert_array_equal(reward[:-1][valid], 10 * number[:-1][valid])
    result = []
    for n in range(len(wanted)):
        count = int(valid[:, n].sum())
        assert valid[:count, n].all(), "valid transitions come first"
        if count and not terminal[count - 1, n]:  # then the state after them is known
            assert number[count, n] == number[count - 1, n] + 1
        assert not terminal[: max(count - 1, 0), n].any()
        result.append((number[:count, n].astype(int).tolist(), bool(count and terminal[count - 1, n])))
    return result


def test_segments_have_the_asked_length_or_end_at_a_terminal_state():
    assert segment(stored([3, 5], terminal=[3, 8]), [1, 2, 3, 4, 5, 8], 3) == [
        ([1, 2, 3], True),
        ([2, 3], True),
        ([3], True),
        ([4, 5, 6], False),
        ([5, 6, 7], False),
        ([8], True),
    ]


def test_the_last_step_before_a_cut_has_no_transition():
    """The state after a time limit, or after a part of an episode, is not stored with it."""
    assert segment(stored([3, 5], terminal=[8]), [1, 2, 3, 4, 6, 8], 3) == [
        ([1, 2], False),
        ([2], False),
        ([], False),
        ([4, 5, 6], False),
        ([6, 7, 8], True),
        ([8], True),
    ]
    parts = stored([10], total=12, max_pending_steps=4, terminal=[10])
    assert segment(parts, [1, 2, 3, 7, 8, 10], 3) == [
        ([1], False),
        ([], False),
        ([3], False),
        ([7, 8, 9], False),
        ([8, 9, 10], True),
        ([10], True),
    ]


def test_segments_continue_across_the_seam_of_the_ring():
    buffer = stored([3, 5, 8], terminal=[3, 8, 16])
    assert segment(buffer, [11, 12, 14, 7, 8, 16], 3) == [
        ([11, 12, 13], False),
        ([12, 13, 14], False),
        ([14, 15, 16], True),
        ([7, 8], True),
        ([8], True),
        ([16], True),
    ]


def test_empty_entries_of_a_batch_have_no_transitions():
    buffer = stored([3, 5], terminal=[3, 8])
    batch = replay.batch_at(buffer, jnp.array([0, 3, 4, 5, 6, 7]), jnp.zeros(6))
    assert not run_segments(buffer, batch, 3).valid.any()


@pytest.mark.parametrize("length", [1, 3])
def test_terminal_is_only_read_where_a_step_exists(length):
    """Beyond the end of an episode the first step stands in for those that are missing: here a terminal one."""
    buffer = stored([3, 5], terminal=[3, 8])
    found = run_segments(buffer, starting_at(buffer, [3] * 6), length)
    assert_array_equal(found.terminal, np.arange(length)[:, None].repeat(6, 1) == 0)
    assert_array_equal(found.valid, found.terminal)
