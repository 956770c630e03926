"""Which settings are tried: drawn at random, or suggested by Optuna. Imported where Ray is installed."""

import json
import math
from collections.abc import Iterator
from typing import Any, Protocol

from ray.tune.search import Searcher

from self_imitation.errors import UsageError
from self_imitation.tuning import space as spaces
from self_imitation.tuning.space import Candidate, Choices, Space
from self_imitation.tuning.trainable import NUMBER, SETTINGS, STOPPED, NotSaved
from self_imitation.tuning.trials import Log, plain


class Source(Protocol):
    """Suggests settings, and learns how they did."""

    def suggest(self, trial: str) -> Candidate: ...
    def learn(self, trial: str, score: float | None) -> None: ...


class RandomSource:
    """The same settings for the same seed, whatever their scores are."""

    def __init__(self, space: Space, seed: int):
        self._draws: Iterator[Candidate] = spaces.draws(space, seed)

    def suggest(self, trial: str) -> Candidate:
        return next(self._draws)

    def learn(self, trial: str, score: float | None) -> None:
        return


class OptunaSource:
    """Optuna's sampler (TPE), through Tune. It begins with the settings that were tried before."""

    def __init__(self, space: Space, seed: int, tried: list[Candidate]):
        import optuna
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        distributions = {name: self._distribution(dimension) for name, dimension in space.items()}
        points = [self._encoded(candidate) for candidate in tried] or None
        self._search = OptunaSearch(distributions, metric="score", mode="max", points_to_evaluate=points, seed=seed)

    @staticmethod
    def _distribution(dimension: Any) -> Any:
        from optuna import distributions

        if isinstance(dimension, Choices):  # by their position: Optuna knows no lists
            return distributions.CategoricalDistribution(range(len(dimension.values)))
        kind = distributions.IntDistribution if dimension.whole else distributions.FloatDistribution
        return kind(dimension.low, dimension.high, log=dimension.log)

    def _encoded(self, candidate: Candidate) -> dict[str, Any]:
        return {
            name: own.values.index(candidate[name]) if isinstance(own, Choices) else candidate[name]
            for name, own in self._space.items()
        }

    def suggest(self, trial: str) -> Candidate:
        found = self._search.suggest(trial)
        return {
            name: own.values[found[name]] if isinstance(own, Choices) else own.rounded(found[name])
            for name, own in self._space.items()
        }

    def learn(self, trial: str, score: float | None) -> None:
        known = score is not None and math.isfinite(score)
        self._search.on_trial_complete(trial, {"score": score} if known else None, error=not known)


class Suggestions(NotSaved, Searcher):
    """Gives Tune one trial after another. Settings that were tried, or that do not go together, are left out."""

    def __init__(self, log: Log, source: Source):
        super().__init__(metric="score", mode="max")
        self._log, self._source = log, source
        self._given: list[Candidate] = []
        self._asked: dict[str, str] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        for attempt in range(spaces.MAX_DRAWS):
            if len(self._given) >= spaces.size(self._log.search.space):
                break
            asked = f"{trial_id}-{attempt}"
            candidate = self._source.suggest(asked)
            if candidate not in self._given and self._is_allowed(candidate):
                self._asked[trial_id] = asked
                return self._give(candidate)
            self._source.learn(asked, None)
        return Searcher.FINISHED

    def _is_allowed(self, candidate: Candidate) -> bool:
        try:
            self._log.search.trial(len(self._given), candidate)
        except UsageError:
            return False
        return True

    def _give(self, candidate: Candidate) -> dict[str, Any]:
        number = len(self._given)
        self._given.append(candidate)
        self._log.add(number, candidate)
        return {
            NUMBER: number,
            SETTINGS: json.dumps(plain(self._log.candidates[number])),
            STOPPED: number in self._log.stopped,
        }

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        return

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        known = result is not None and not error and result.get("state") != "failed"
        self._source.learn(self._asked[trial_id], result.get("score") if result and known else None)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: search.json has what a search is continued from."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, as above."""


def create(log: Log) -> Suggestions:
    search = log.search
    if search.algorithm == "optuna":
        return Suggestions(log, OptunaSource(search.space, search.seed, log.candidates[: search.trials]))
    return Suggestions(log, RandomSource(search.space, search.seed))
