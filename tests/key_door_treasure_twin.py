"""A second implementation of Key-Door-Treasure, in plain Python: four rooms of 5 x 5 cells, two openings and a door."""

from functools import cache
from typing import NamedTuple

ROOMS = [(top, left) for top in (1, 7) for left in (1, 7)]
FLOOR = {(top + i, left + j) for top, left in ROOMS for i in range(5) for j in range(5)} | {(6, 2), (9, 6), (6, 11)}
START, KEY, DOOR, TREASURE, APPLES = (8, 2), (11, 11), (6, 11), (1, 7), ((2, 4), (4, 2))
UP, RIGHT, DOWN, LEFT = range(4)
LIMIT = 50


class Place(NamedTuple):
    """A state without its step counter: the agent's cell, and what has not been taken or opened yet."""

    cell: tuple[int, int]
    key: bool
    door: bool
    treasure: bool
    apples: tuple[bool, ...]


def first_place(apples):
    return Place(START, True, True, True, (True, True) if apples else ())


def move(place, action):
    """The next place, the reward, and whether the treasure was found."""
    row, column = place.cell
    cell = {UP: (row - 1, column), RIGHT: (row, column + 1), DOWN: (row + 1, column), LEFT: (row, column - 1)}[action]
    if cell not in FLOOR or (cell == DOOR and place.key):
        cell = place.cell
    reward = 0.0
    key, door, treasure, apples = place.key, place.door, place.treasure, list(place.apples)
    if cell == KEY and key:
        key, reward = False, reward + 1.0
    if cell == DOOR and door and not key:
        door, reward = False, reward + 2.0
    if cell == TREASURE and treasure and not door:
        treasure, reward = False, reward + 4.0
    for i, there in enumerate(apples):
        if there and cell == APPLES[i]:
            apples[i], reward = False, reward + 1.0
    return Place(cell, key, door, treasure, tuple(apples)), reward, not treasure


def observed(place):
    row, column = place.cell
    return [float(number) for number in (column, row, place.key, place.door, place.treasure, *place.apples)]


@cache
def search(apples):
    """Every place that can be reached in any number of steps, with a shortest way to it."""
    ways = {first_place(apples): ()}
    frontier = [first_place(apples)]
    while frontier:
        found = []
        for place in frontier:
            if not place.treasure:
                continue  # the episode is over
            for action in range(4):
                following, _, _ = move(place, action)
                if following not in ways:
                    ways[following] = (*ways[place], action)
                    found.append(following)
        frontier = found
    return ways


def return_of(actions, apples):
    place, total = first_place(apples), 0.0
    for action in actions:
        place, reward, _ = move(place, action)
        total += reward
    return total
