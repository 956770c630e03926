"""`sil list`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import tyro

from self_imitation import registry
from self_imitation.cli.parse import parse
from self_imitation.environments import registry as environments
from self_imitation.errors import UsageError
from self_imitation.registry import SELF_IMITATION


@dataclass(frozen=True)
class ListArguments:
    """List the environments, learners and exploration bonuses, or the Atari games."""

    what: tyro.conf.Positional[Literal["all", "atari"]] = "all"
    """all: environments and parts of agents; atari: the games."""


def list_names(arguments: Sequence[str]) -> int:
    games = environments.atari_games()
    if parse(ListArguments, "list", arguments).what == "atari":
        return _list_games(games)
    learners, bonuses = registry.learners(), registry.bonuses()
    known = {
        **{entry.name: entry.summary for entry in environments.entries().values()},
        "atari:GAME": f"one of {len(games) or 'the'} Atari games (sil list atari), by its name in the paper, such as "
        "atari:MontezumaRevenge",
        "xland:ID": "an environment of XLand-MiniGrid, in the compiled program, such as xland:MiniGrid-DoorKey-8x8",
        "gym:ID": "any Gymnasium environment by its id, also your own: gym:my_package:MyEnv-v0",
    }
    tables = {
        "Environments": known,
        "Learners": {name: entry.summary for name, entry in learners.items()},
        "Bonuses": {name: entry.summary for name, entry in bonuses.items()},
    }
    width = max(len(name) for rows in tables.values() for name in rows)
    for title, rows in tables.items():
        print(title)
        for name, summary in rows.items():
            print(f"  {name:{width}}  {summary}")
    first, second, *_ = learners
    alone = [name for name, entry in learners.items() if entry.component.refuses_bonuses]
    example = f"{first}, {second}+{SELF_IMITATION}, {first}+{SELF_IMITATION}+{next(iter(bonuses))}"
    print(
        f"Agents\n  A learner, then +{SELF_IMITATION} for self-imitation, then + any bonus"
        f" (but none with {' and '.join(alone)}), for example:\n  {example}"
    )
    return 0


def _list_games(games: Iterable[str]) -> int:
    from self_imitation.environments import atari_scores

    if not games:
        raise UsageError("Atari games come with ale-py: pip install 'self-imitation[atari]'")
    for game in games:
        print(f"atari:{game}" + (" *" if game in atari_scores.table() else ""))
    print("* one of the paper's 49 games, for which sil evaluate knows a human score")
    return 0
