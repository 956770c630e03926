"""Key-Door-Treasure and Apple-Key-Door-Treasure (paper, figure 2) as pure functions of (state, action).

Fetch the key, open the door with it, reach the treasure, within 50 steps. The apples lie nearer and pay at once.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from self_imitation.environments.jax.maze import APPLES, DOOR, KEY, START, TREASURE, WALLS
from self_imitation.types import Discrete, Spec, Step

MAX_EPISODE_STEPS = 50
KEY_REWARD, DOOR_REWARD, TREASURE_REWARD, APPLE_REWARD = 1.0, 2.0, 4.0, 1.0

MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)], np.int32)
"""Actions 0 ... 3: up, right, down, left, as (row, column)."""


class MazeState(eqx.Module):
    cell: Int[Array, "2"]
    """(row, column)"""
    key_there: Bool[Array, ""]
    door_there: Bool[Array, ""]
    treasure_there: Bool[Array, ""]
    apples_there: Bool[Array, "2"]
    """Never, in the maze without apples."""
    time: Int[Array, ""]


class KeyDoorTreasure:
    """One maze, with or without its two apples."""

    def __init__(self, apples: bool = False):
        self.apples = apples

    @property
    def spec(self) -> Spec:
        flags = 3 + len(APPLES) * self.apples
        levels = (WALLS.shape[1], WALLS.shape[0], *(2,) * flags)
        return Spec((2 + flags,), Discrete(len(MOVES)), MAX_EPISODE_STEPS, levels)

    def reset(self, key: PRNGKeyArray) -> MazeState:
        """Always the same start; the key is for environments that begin at random."""
        cell, there = jnp.array(START, jnp.int32), jnp.array(True)
        return MazeState(cell, there, there, there, jnp.full(len(APPLES), self.apples), jnp.int32(0))

    def observe(self, state: MazeState) -> Float[Array, " numbers"]:
        """[column, row, key there, door there, treasure there, each apple there]: raw numbers, no clock."""
        numbers = [state.cell[::-1], jnp.stack([state.key_there, state.door_there, state.treasure_there])]
        if self.apples:
            numbers.append(state.apples_there)
        return jnp.concatenate(numbers).astype(jnp.float32)

    def step(self, state: MazeState, action: Int[Array, ""]) -> Step:
        wanted = state.cell + jnp.asarray(MOVES)[action]
        # The door blocks until the key is taken.
        blocked = jnp.asarray(WALLS)[wanted[0], wanted[1]] | (_at(wanted, DOOR) & state.key_there)
        cell = jnp.where(blocked, state.cell, wanted)

        takes_key = _at(cell, KEY) & state.key_there
        opens_door = _at(cell, DOOR) & state.door_there
        finds_treasure = _at(cell, TREASURE) & state.treasure_there & ~state.door_there
        eats = jnp.all(cell == jnp.array(APPLES), axis=-1) & state.apples_there
        reward = (
            KEY_REWARD * takes_key
            + DOOR_REWARD * opens_door
            + TREASURE_REWARD * finds_treasure
            + APPLE_REWARD * jnp.sum(eats)
        )
        following = MazeState(
            cell,
            state.key_there & ~takes_key,
            state.door_there & ~opens_door,
            state.treasure_there & ~finds_treasure,
            state.apples_there & ~eats,
            state.time + 1,
        )
        out_of_time = following.time >= MAX_EPISODE_STEPS
        return Step(
            following,
            self.observe(following),
            reward.astype(jnp.float32),
            terminated=finds_treasure,
            truncated=out_of_time & ~finds_treasure,
        )

    def state_of(self, observation: Float[Array, " numbers"], time: Int[Array, ""]) -> MazeState:
        """The inverse of `observe`: an observation and a clock are the whole state."""
        key, door, treasure, *apples = observation[2:] > 0.5
        cell = observation[1::-1].astype(jnp.int32)
        return MazeState(cell, key, door, treasure, jnp.stack(apples) if apples else jnp.zeros(2, bool), time)


def _at(cell: Int[Array, "2"], place: tuple[int, int]) -> Bool[Array, ""]:
    return (cell[0] == place[0]) & (cell[1] == place[1])
