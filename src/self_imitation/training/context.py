"""What callbacks see of a run, and what they can ask of it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import jax

from self_imitation.algorithm.iteration import Policy as PolicyState
from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError, bad_value, prefix_env_name
from self_imitation.storage.metrics_file import Row
from self_imitation.training.evaluation import Evaluation, Evaluator
from self_imitation.training.policy import Policy
from self_imitation.training.trainer import Trainer


class Context:
    """A run in training, as callbacks see it."""

    path: Path
    """The run directory."""
    config: TrainConfig
    """All settings."""

    def __init__(self, path: Path, shown: Path, config: TrainConfig, trainer: Trainer):
        self.path, self.config = path, config
        self.shown = shown
        """The path of the run directory as the user wrote it."""
        self.device = trainer.device
        """On which the run trains, in words."""
        self.notes: Sequence[str] = ()
        """Remarks on how the run trains, in words."""
        self.step = 0
        """Environment steps that every seed has made."""
        self.steps_per_second = 0.0
        """Of all seeds together."""
        self.evaluation: Evaluation | None = None
        """The latest one of this part of the run."""
        self.finished = False
        """Whether the run has reached its last step or stopped early by its settings."""
        self.error: BaseException | None = None
        """At the end: why the run failed."""
        self.stopping = False
        self.updating = False
        """While groups of seeds train, their networks can't be read."""
        self._trainer, self._rows = trainer, list[Row]()
        self._evaluators: dict[tuple[int, bool], Evaluator] = {}

    @property
    def total_steps(self) -> int:
        """Environment steps that every seed will have made at the end."""
        return self.config.total_steps

    def metrics(self) -> list[Row]:
        """All rows of metrics.csv so far, also those before the run was resumed."""
        return list(self._rows)

    def stop(self) -> None:
        """Save the run and stop it as soon as possible. It can be resumed."""
        self.stopping = True

    def policy(self, seed: int | None = None) -> Policy:
        """The present policy of a seed, by default the first one. It does not change while training goes on.

        Raises:
            UsageError: the run has no such seed, or networks are being updated (in `Callback.advanced`).
        """
        seed = self.config.seed if seed is None else seed
        if seed not in self.config.seed_numbers:
            first, last = self.config.seed_numbers[0], self.config.seed_numbers[-1]
            raise bad_value("seed", seed, f"this run has seeds {first} to {last}")
        policies, index = self._policies("policy"), self.config.seed_numbers.index(seed)
        own = jax.tree.map(lambda leaf: leaf[index], policies)
        return Policy(self._trainer.agent, own, seed, self._trainer.backend.spaces)

    def evaluate(self, episodes: int = 10, greedy: bool = False, key: int = 0) -> Evaluation:
        """Play fresh episodes with the present policy of every seed. Does not change the training.

        Args:
            episodes: how many for each seed.
            greedy: take the most likely action instead of a sampled one.
            key: seeds the random numbers of actions and environments.

        Raises:
            UsageError: networks are being updated (in `Callback.advanced`).
        """
        if not isinstance(episodes, int) or episodes < 1:
            raise bad_value("episodes", episodes, "allowed: an integer >= 1")
        policies, kind = self._policies("evaluate"), (episodes, greedy)
        if kind not in self._evaluators:
            self._evaluators[kind] = Evaluator(self.config, self._trainer.agent, episodes, greedy)
        with prefix_env_name(self.config.env), jax.default_device(self._trainer.groups[0].device):
            return self._evaluators[kind].evaluate(policies, key)

    def add(self, rows: Sequence[Row]) -> None:
        self._rows += rows

    def close(self) -> None:
        for evaluator in self._evaluators.values():
            with contextlib.suppress(Exception):
                evaluator.close()

    def _policies(self, what: str) -> PolicyState:
        if self.updating:
            raise UsageError(f"{what}: networks are being updated; use it in logged, evaluated or saved")
        return self._trainer.policies()
