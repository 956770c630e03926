"""The paper's Atari table: scores of its agents, of a random player and of a human one (Mnih et al. 2015)."""

import csv
from functools import cache
from importlib import resources


@cache
def table() -> dict[str, dict[str, float]]:
    """By game: a2c, acper, a2c_sil, random and human."""
    file = resources.files("self_imitation.environments").joinpath("data/atari_49_games.csv")
    with file.open(encoding="utf-8") as opened:
        return {row.pop("game"): {name: float(score) for name, score in row.items()} for row in csv.DictReader(opened)}


def human_normalised(game: str, score: float) -> float | None:
    """0 for a random player, 1 for a human one; None for a game that is not in the table."""
    known = table().get(game)
    return None if known is None else (score - known["random"]) / (known["human"] - known["random"])
