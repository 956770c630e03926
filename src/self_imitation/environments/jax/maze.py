"""The maze's plan, and pictures of it: text and pixels. NumPy only."""

import numpy as np

PLAN = """\
#############
#.....#T....#
#...a.#.....#
#.....#.....#
#.a...#.....#
#.....#.....#
##.########D#
#.....#.....#
#.S...#.....#
#...........#
#.....#.....#
#.....#....K#
#############"""

_CELLS = np.array([list(line) for line in PLAN.splitlines()])
WALLS = _CELLS == "#"


def _find(symbol: str) -> list[tuple[int, int]]:
    return [(int(row), int(column)) for row, column in np.argwhere(symbol == _CELLS)]


(START,), (KEY,), (DOOR,), (TREASURE,) = _find("S"), _find("K"), _find("D"), _find("T")
APPLES = tuple(_find("a"))

PIXELS_PER_CELL = 24
_COLOURS = {
    "#": (58, 64, 84),
    ".": (244, 240, 230),
    "K": (233, 178, 34),
    "D": (150, 90, 50),
    "T": (30, 160, 130),
    "a": (205, 62, 58),
    "@": (66, 105, 208),
}


def symbols(observation: np.ndarray) -> np.ndarray:
    """The maze as an array of characters: what is still there, and the agent as @."""
    cells = np.where(WALLS, "#", ".")
    column, row, *flags = (int(number) for number in observation)
    for there, symbol, place in zip(flags, "KDTaa", (KEY, DOOR, TREASURE, *APPLES), strict=False):
        if there:
            cells[place] = symbol
    cells[row, column] = "@"
    return cells


def to_text(observation: np.ndarray) -> str:
    return "\n".join("".join(line) for line in symbols(observation))


def to_pixels(observation: np.ndarray) -> np.ndarray:
    """Height x width x RGB bytes: walls and floor as squares, things as discs, the door as a bar, the agent a disc."""
    cells = symbols(observation)
    size = PIXELS_PER_CELL
    image = np.empty((cells.shape[0] * size, cells.shape[1] * size, 3), np.uint8)
    for (row, column), symbol in np.ndenumerate(cells):
        image[row * size : (row + 1) * size, column * size : (column + 1) * size] = _tile(str(symbol))
    return image


def _tile(symbol: str) -> np.ndarray:
    size = PIXELS_PER_CELL
    tile = np.full((size, size, 3), _COLOURS["#" if symbol == "#" else "."], np.uint8)
    if symbol == "#":
        return tile
    tile[0, :] = tile[:, 0] = (228, 222, 208)  # a faint grid
    if symbol == "D":
        tile[size // 3 : -(size // 3), :] = _COLOURS["D"]
    elif symbol != ".":
        y, x = np.mgrid[:size, :size] - (size - 1) / 2
        radius = size * (0.25 if symbol == "a" else 0.38)
        shape = np.abs(x) + np.abs(y) <= radius if symbol in "KT" else x**2 + y**2 <= radius**2
        tile[shape] = _COLOURS[symbol]
    return tile
