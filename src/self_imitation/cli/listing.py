"""`sil list`."""

from collections.abc import Mapping, Sequence
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
    what: tyro.conf.Positional[Literal["all", "atari"]] = "all"
    """all: environments and parts of agents; atari: the games."""


def list_names(arguments: Sequence[str]) -> int:
    """List the environments, learners and exploration bonuses, or the Atari games."""
    given = parse(ListArguments, "list", arguments, summary=list_names.__doc__ or "")
    if given.what == "atari":
        return _list_games()
    games = f"one of {len(environments.atari_games()) or 'the'} Atari games (sil list atari)"
    learners, bonuses = list(registry.learners()), list(registry.bonuses())
    _print_table(
        "Environments",
        {
            **{entry.name: entry.summary for entry in environments.entries().values()},
            "atari:GAME": f"{games}, by its name in the paper, such as atari:MontezumaRevenge",
            "gym:ID": "any Gymnasium environment by its id, also your own: gym:my_package:MyEnv-v0",
        },
    )
    _print_table("Learners", {name: entry.summary for name, entry in registry.learners().items()})
    _print_table("Bonuses", {name: entry.summary for name, entry in registry.bonuses().items()})
    print(f"Agents\n  A learner, then +{SELF_IMITATION} for self-imitation, then + any bonus, for example:")
    examples = (learners[0], f"{learners[1]}+{SELF_IMITATION}", f"{learners[0]}+{SELF_IMITATION}+{bonuses[0]}")
    print("  " + ", ".join(examples))
    return 0


def _print_table(title: str, rows: Mapping[str, str]) -> None:
    width = max(map(len, (*environments.entries(), *rows)))
    print(title)
    for name, summary in rows.items():
        print(f"  {name:{width}}  {summary}")


def _list_games() -> int:
    from self_imitation.environments import atari_scores

    games = environments.atari_games()
    if not games:
        raise UsageError("Atari games come with ale-py: pip install 'self-imitation[atari]'")
    scores = atari_scores.table()
    for game in games:
        print(f"atari:{game}" + (" *" if game in scores else ""))
    print("* one of the paper's 49 games, for which sil evaluate knows a human score")
    return 0
