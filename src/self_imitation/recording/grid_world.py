"""What an agent does in every cell of a grid world, at every stage of its task."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from self_imitation.environments import registry
from self_imitation.environments.gymnasium.key_door_treasure import transitions
from self_imitation.environments.jax import maze
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.recording.remembered import Episodes, Memory, rounded

TASKS = ((1, 1, 1), (0, 1, 1), (0, 0, 1))
"""Whether key, door and treasure are still there: first fetch the key, then open the door, then reach the treasure."""
APPLES = ((1, 1), (0, 1), (1, 0), (0, 0))


@dataclass(frozen=True)
class GridWorld:
    """Every state that an episode can visit: each stage of the task in each cell that is no wall.

    States are numbered stage by stage; a stage has the cells in the order of `cells`.
    """

    cells: np.ndarray
    """[cells, (row, column)]"""
    stages: np.ndarray
    """[stages, flags]: what is still there, as in observations."""
    observations: np.ndarray
    """[states, numbers]"""
    numbers: np.ndarray
    """Number of each state, by its observation; -1 for those that no episode visits."""
    next_state: np.ndarray
    """[states, actions]; -1 where the episode ends."""
    next_cell: np.ndarray
    """[states, actions]: number of the cell."""
    reward: np.ndarray
    """[states, actions]"""
    start: int
    max_episode_steps: int

    def state_of(self, observations: np.ndarray) -> np.ndarray:
        """Numbers of the states with these observations."""
        return self.numbers[tuple(observations.astype(int).T)]

    def visits(self, probabilities: np.ndarray) -> tuple[np.ndarray, float]:
        """Expected visits of each state in an episode of a policy [states, actions], and its expected return: exact."""
        present: np.ndarray = np.zeros(len(self.observations))
        present[self.start] = 1.0
        visits, total, goes_on = np.zeros_like(present), 0.0, self.next_state >= 0
        for _ in range(self.max_episode_steps):
            visits += present
            flow = present[:, None] * probabilities
            total += float((flow * self.reward).sum())
            present = np.bincount(self.next_state[goes_on], flow[goes_on], minlength=len(present))
        return visits, total

    def path(self, memory: Memory, found: Episodes, observations: np.ndarray, actions: np.ndarray) -> dict[str, Any]:
        """The best episode, cell by cell. `observations`, `actions`: of all steps in the memory."""
        best = found.best()
        if best is None:
            return {}
        steps = slice(found.first[best], found.last[best] + 1)
        states, taken = self.state_of(observations[steps]), actions[steps].astype(int)
        return {
            "return": rounded(found.total[best]),
            "age": int(found.age[best]),
            "cells": [*(states % len(self.cells)).tolist(), int(self.next_cell[states[-1], taken[-1]])],
            "stages": (states // len(self.cells)).tolist(),
            "actions": taken.tolist(),
            "rewards": rounded(memory.reward[steps]),
        }

    def policy(self, probabilities: np.ndarray, values: np.ndarray) -> dict[str, Any]:
        """Actions, values and visits by stage and cell, for the page. `values` in units of rewards."""
        visits, total = self.visits(probabilities)
        shape = len(self.stages), len(self.cells)
        return {
            "percent": np.round(100 * probabilities).astype(int).reshape(*shape, -1).tolist(),
            "values": np.round(values, 3).reshape(shape).tolist(),
            "visits": np.round(visits, 3).reshape(shape).tolist(),
            "expected_return": rounded(total),
        }

    def counts(self, states: np.ndarray) -> list[list[int]]:
        """How often each state occurs, by stage and cell."""
        found = np.bincount(states, minlength=len(self.observations))
        return found.reshape(len(self.stages), len(self.cells)).tolist()


def of_environment(env: str) -> GridWorld | None:
    """The grid world of that name; None for other environments."""
    environment = _environment(env)
    return None if environment is None else create(environment.apples)


def is_one(env: str) -> bool:
    return _environment(env) is not None


def _environment(env: str) -> KeyDoorTreasure | None:
    make = registry.find(env).pure_jax
    environment = None if make is None else make()
    return environment if isinstance(environment, KeyDoorTreasure) else None


@cache
def create(apples: bool) -> GridWorld:
    cells = np.argwhere(~maze.WALLS)
    stages = np.array([(*task, *eaten) for task in TASKS for eaten in (APPLES if apples else ((),))])
    positions, flags = np.tile(cells[:, ::-1], (len(stages), 1)), np.repeat(stages, len(cells), axis=0)
    observations = np.concatenate([positions, flags], axis=1)
    table, at = transitions(apples), tuple(observations.T)
    numbers = np.full(table.terminated.shape[:-1], -1)
    numbers[at] = np.arange(len(observations))
    following = table.next_observation[at].astype(int)
    next_state = np.where(table.terminated[at], -1, numbers[tuple(np.moveaxis(following, -1, 0))])
    cell_numbers = np.cumsum(~maze.WALLS).reshape(maze.WALLS.shape) - 1
    return GridWorld(
        cells=cells,
        stages=stages,
        observations=observations.astype(np.float32),
        numbers=numbers,
        next_state=next_state,
        next_cell=cell_numbers[following[..., 1], following[..., 0]],
        reward=table.reward[at],
        start=int(numbers[tuple(table.first_observation.astype(int))]),
        max_episode_steps=table.max_episode_steps,
    )
