"""Training an experiment: one run after another, each after the search for its settings."""

from collections.abc import Callable, Iterable
from pathlib import Path

from self_imitation.experiments import runs, search
from self_imitation.experiments.definition import Definition
from self_imitation.experiments.runs import Case
from self_imitation.training.loop import Listener


def train(
    definition: Definition,
    cases: Iterable[Case],
    folder: Path,
    command: str,
    listener: Listener,
    stop: Callable[[], bool],
) -> bool:
    """Finished runs are left as they are, unfinished ones resumed. Returns False if `stop` ended it early.

    `command`: recorded with each run.
    """
    for case in cases:
        chosen = None
        if case.agent.search:
            if not search.train(definition, case, folder, command, listener, stop):
                return False
            choice = search.choose(definition, case, folder)
            chosen = choice and choice["chosen"]
        if not runs.train(runs.run_config(definition, case, folder, chosen), command, listener, stop):
            return False
    return True
