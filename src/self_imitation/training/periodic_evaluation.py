"""Evaluation while a run trains: when, what goes into metrics.csv, and the best policies so far.

Episodes are played in environments of their own, with random numbers that depend on the step alone, so evaluation
changes nothing in the training.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from self_imitation.algorithm.iteration import Policy
from self_imitation.config import TrainConfig
from self_imitation.errors import FaultyEnvironmentError, UsageError, first_line
from self_imitation.storage import best, files
from self_imitation.storage.best import Best
from self_imitation.storage.config_file import fingerprint
from self_imitation.storage.metrics_file import EVALUATION, Row, as_read
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training.evaluation import Evaluation, Evaluator
from self_imitation.training.trainer import Trainer

MAX_KEY = 2**31


class PeriodicEvaluation:
    """Evaluates the policies of a run every `eval_every` steps; never if that is None."""

    def __init__(self, run: RunDirectory, config: TrainConfig, trainer: Trainer, message: Callable[[str], None]):
        self._run, self._config, self._trainer, self._message = run, config, trainer, message
        self._evaluator = Evaluator(config, trainer.agent, config.eval_episodes, config.eval_greedy)
        self._best: Best | None = None
        self.columns: Sequence[str] = () if config.eval_every is None else EVALUATION

    def restore(self) -> None:
        """Read the best policies so far, also those of a part of the run that a kill cut off: they were as good."""
        if self._config.eval_every is None:
            return
        files.clear_partial(self._run.best)
        shape = self._trainer.saved_shape.agents
        like = shape.train.params, shape.normaliser
        try:
            self._best = best.load(self._run.best, fingerprint(self._config), like, self._message)
        except UsageError as error:
            self._message(f"{error}: best policies are chosen anew")

    def is_due(self, iteration: int) -> bool:
        """At the end of a row."""
        every = self._config.iterations_per_evaluation
        return every is not None and (iteration % every == 0 or iteration >= self._config.iterations)

    def evaluate(self, step: int, stop: Callable[[], bool]) -> tuple[Evaluation | None, list[Row]]:
        """Evaluate all seeds and keep the best policies. Also returns what each seed's row gets.

        Raises `Interrupted` once `stop` returns True. None if episodes don't end, which is reported.
        """
        begun, policies = time.monotonic(), self._trainer.policies()
        try:
            with in_evaluation(self._trainer):
                found = self._evaluator.evaluate(policies, step % MAX_KEY, stop=stop)
        except UsageError as error:
            self._message(f"evaluation at step {step} failed, training goes on: {first_line(error)}")
            return None, [{} for _ in self._config.seed_numbers]
        means = [as_read(float(own.mean())) for own in found.returns]
        self._keep_best(step, policies, means)
        seconds = time.monotonic() - begun
        rows: list[Row] = [
            dict(zip(EVALUATION, (mean, float(returns.max()), as_read(float(lengths.mean())), seconds), strict=True))
            for mean, returns, lengths in zip(means, found.returns, found.lengths, strict=True)
        ]
        return found, rows

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._evaluator.close()

    def _keep_best(self, step: int, policies: Policy, means: Sequence[float]) -> None:
        before = self._best
        better = np.array([before is None or mean > before.means[i] for i, mean in enumerate(means)])
        if not better.any():
            return
        new = Best((step,) * len(means), tuple(means), policies.params, policies.normaliser)
        if before is not None:
            new = _chosen(better, new, before)
        self._run.require_usable()
        try:
            best.save(self._run.best, new, fingerprint(self._config))
        except OSError as error:
            self._message(f"best policies at step {step} not saved: {files.explain(error, self._run.shown)}")
            return
        self._best = new


@contextlib.contextmanager
def in_evaluation(trainer: Trainer) -> Iterator[None]:
    """On the device that trains; an environment's fault says that it happened in an evaluation."""
    try:
        with jax.default_device(trainer.groups[0].device):
            yield
    except FaultyEnvironmentError as error:
        raise FaultyEnvironmentError(f"in an evaluation: {error}") from error.__cause__


def _chosen(better: np.ndarray, new: Best, before: Best) -> Best:
    """Of each seed the new policy if it is better, else the one before."""

    def choose(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.where(better.reshape(-1, *[1] * (one.ndim - 1)), one, other)

    def choose_all(one: object, other: object) -> object:
        return jax.tree.map(choose, one, other)

    return dataclasses.replace(
        new,
        steps=tuple(int(step) for step in choose(np.array(new.steps), np.array(before.steps))),
        means=tuple(float(mean) for mean in choose(np.array(new.means), np.array(before.means))),
        params=choose_all(new.params, before.params),
        normaliser=choose_all(new.normaliser, before.normaliser),
    )
