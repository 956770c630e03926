"""A run on disk: its metrics, its policies, what they do in fresh episodes."""

import contextlib
import dataclasses
import math
import shlex
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy as PolicyState
from self_imitation.config import TrainConfig
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.errors import UsageError, bad_value, prefix_env_name
from self_imitation.report import curves, statistics
from self_imitation.report.animation import Episode
from self_imitation.storage import best as best_file
from self_imitation.storage import checkpoint, metrics_file
from self_imitation.storage.config_file import fingerprint
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import agents, backends, devices, evaluation
from self_imitation.training.backends import Backend
from self_imitation.training.counters import Counters
from self_imitation.training.evaluation import Evaluation, Evaluator
from self_imitation.training.policy import Policy
from self_imitation.training.trust import Trust, require_trust


class Run:
    """A run directory: a trained agent, or one in training. `train`, `resume` and `load` return it."""

    config: TrainConfig
    """All settings."""

    def __init__(
        self,
        directory: RunDirectory,
        warn: Callable[[str], None],
        trust: Trust,
        make_env: Callable[..., Any] | None = None,
    ):
        self.directory, self._warn, self._trust = directory, warn, trust
        self.config = dataclasses.replace(directory.config(), make_env=make_env)

    def __repr__(self) -> str:
        seeds = "seed" if len(self.seeds) == 1 else "seeds"
        return (
            f"Run({str(self.directory.shown)!r}: {self.config.agent} on {self.config.env}, {len(self.seeds)} {seeds})"
        )

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.directory.path

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that the run trains, one agent each."""
        return self.config.seed_numbers

    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv: one per seed and logging point, values by the names of their columns."""
        return metrics_file.read(self.path)

    def best_seed(self, best: bool = False) -> int:
        """The seed with the highest mean return in its latest row; with `best`, in the evaluation of its best policy.

        Between seeds with the same: the highest mean return in the latest evaluation, then the highest return of an
        episode in the latest row, then the shortest episodes there, then the first seed.
        """
        latest: dict[int, tuple[float, ...]] = {}
        evaluated: dict[int, float] = {}
        for row in self.metrics():
            seed, mean = int(row["seed"]), row.get("eval_return_mean", math.nan)
            if math.isfinite(mean):
                evaluated[seed] = mean
            if math.isfinite(row["return_mean"]):
                latest[seed] = row["return_mean"], row["return_best"], -row["length_mean"]
        means = dict(zip(self.seeds, self._best.means, strict=True)) if best else {}

        def rank(seed: int) -> tuple[float, ...]:
            mean, *others = latest.get(seed, (-math.inf,) * 3)
            return means.get(seed, -math.inf), mean, evaluated.get(seed, -math.inf), *others

        return max(self.seeds, key=rank)

    def policy(self, seed: int | None = None, best: bool = False) -> Policy:
        """The policy of a seed.

        Args:
            seed: one of `seeds`. None: that of `best_seed`.
            best: the policy that did best in the evaluations of the run (`eval_every`), instead of the latest one.

        Raises:
            UsageError: the run has no such seed, no checkpoint yet, or with `best` no evaluation.
        """
        seed = self.best_seed(best) if seed is None else seed
        return Policy(self._agent, self._policy_of(seed, best), seed, self._spaces)

    def evaluate(
        self,
        episodes: int = 100,
        greedy: bool = False,
        key: int = 0,
        progress: evaluation.Progress = lambda ended, of: None,
        best: bool = False,
    ) -> Evaluation:
        """Play fresh episodes with every seed's policy.

        Args:
            episodes: how many for each seed.
            greedy: take the most likely action instead of a sampled one.
            key: seeds the random numbers of actions and environments.
            progress: called now and then with the number of episodes that have ended, and of all episodes.
            best: as for `policy`.

        Returns:
            Returns and lengths of the episodes, `[seeds, episodes]`.
        """
        if not isinstance(episodes, int) or episodes < 1:
            raise bad_value("episodes", episodes, "allowed: an integer >= 1")
        with prefix_env_name(self.config.env):
            evaluator = Evaluator(self._config_here, self._agent, episodes, greedy)
            with contextlib.closing(evaluator):
                return evaluator.evaluate(self._best_policies if best else self._policies, key, progress)

    def play(self, seed: int | None = None, greedy: bool = False, key: int = 0, best: bool = False) -> Episode:
        """Play one episode with pictures. The arguments are those of `policy` and `evaluate`.

        Raises:
            UsageError: the environment can't be rendered as pictures.
        """
        policy = self._policy_of(self.best_seed(best) if seed is None else seed, best)
        with prefix_env_name(self.config.env):
            return evaluation.play(self._config_here, self._agent, policy, greedy, key)

    @property
    def curve(self) -> curves.Curve:
        """The mean returns of all seeds over environment steps."""
        return curves.from_rows(self.config.agent, self.config.env, self.metrics())

    def summarise(self, finished: bool, machine: str, counters: Counters, stopped_early: str = "") -> dict[str, Any]:
        """summary.json: the final results, per seed and overall. Returns are those of each seed's last row, of its
        latest 100 episodes and of its latest evaluation. `machine` is added to the machines of earlier parts of the
        run. `stopped_early`: why the run stopped before its last step.
        """
        rows = self.metrics()
        per_seed = []
        for seed, episodes in zip(self.seeds, counters.episodes, strict=True):
            own = [row for row in rows if int(row["seed"]) == seed]
            columns = ("return_mean", "return_latest", "return_best", "eval_return_mean")
            means, latest, bests, evaluated = (_finite(own, name) for name in columns)
            per_seed.append(
                {
                    "seed": seed,
                    "episodes": episodes,
                    "return_mean": means[-1] if means else None,
                    **({"return_latest": latest[-1]} if latest else {}),
                    "return_best": max(bests) if bests else None,
                    **({"eval_return_mean": evaluated[-1]} if evaluated else {}),
                }
            )
        final = np.array([entry["return_mean"] for entry in per_seed if entry["return_mean"] is not None])
        low, high = statistics.mean_interval(final) if len(final) > 1 else (None, None)
        seconds, step = counters.seconds, counters.iteration * self.config.steps_per_iteration
        return {
            "env": self.config.env,
            "agent": self.config.agent,
            "preset": self.config.preset,
            "finished": finished,
            **({"stopped_early": stopped_early} if stopped_early else {}),
            "step": step,
            "seconds": seconds,
            "machines": [*dict.fromkeys([*self.directory.machines(), machine])],
            "steps_per_second": step * len(self.seeds) / seconds if seconds else None,
            "return_mean": float(final.mean()) if len(final) else None,
            "return_interval_95": [low, high],
            "seeds": per_seed,
        }

    @cached_property
    def _config_here(self) -> TrainConfig:
        """With an engine that is available here, which may not be the one that the run was trained with."""
        entry = backends.entry_of(self.config)
        try:
            engine = backends.resolve_engine(entry, self.config.engine)
        except UsageError:
            engine = backends.resolve_engine(entry, "auto")
        return dataclasses.replace(self.config, engine=engine)

    @cached_property
    def _backend(self) -> Backend:
        require_trust(self.config, self.path, self._trust)
        backend = backends.create(self._config_here, num_envs=1)
        devices.prepare(self._config_here, backend.spec)
        return backend

    @cached_property
    def _agent(self) -> Agent:
        return agents.build(self._config_here, self._backend.spec)

    @cached_property
    def _spaces(self) -> Spaces | None:
        return self._backend.spaces

    @cached_property
    def _policies(self) -> PolicyState:
        """Of all seeds, from the latest checkpoint whose policy is intact."""
        like = self._policies_shape  # asks whether its module may be imported, before files are read

        def read(path: Path, meta: dict[str, Any]) -> PolicyState:
            return jax.tree.map(jnp.asarray, PolicyState(*checkpoint.load_policy(path, meta, like)))

        policies = checkpoint.load_latest(self.directory.checkpoints, fingerprint(self.config), read, self._warn)
        name = str(self.directory.shown)
        if policies is None and self.metrics():
            raise UsageError(f"{name!r} has metrics but no checkpoint, and so no policy")
        if policies is None:
            command = f"sil resume {shlex.quote(name)}"
            raise UsageError(f"{name!r} has no checkpoint yet; train with: {command}")
        return policies

    @cached_property
    def _best(self) -> best_file.Best:
        found = best_file.load(self.directory.best, fingerprint(self.config), self._policies_shape, self._warn)
        if found is not None:
            return found
        why = "it was trained without --eval-every" if self.config.eval_every is None else "nothing was evaluated yet"
        raise UsageError(f"best: {str(self.directory.shown)!r} has no best policies: {why}")

    @cached_property
    def _best_policies(self) -> PolicyState:
        """Of all seeds, each at its own step."""
        return jax.tree.map(jnp.asarray, PolicyState(self._best.params, self._best.normaliser))

    @cached_property
    def _policies_shape(self) -> tuple[Any, Any]:
        """Of parameters and normaliser, of all seeds."""
        params = agents.initial_params(self.config, self._agent, self.seeds[0])
        normaliser = None if self._agent.normaliser is None else self._agent.normaliser.init()
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((len(self.seeds), *leaf.shape), leaf.dtype), (params, normaliser)
        )

    def _policy_of(self, seed: int, best: bool) -> PolicyState:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed not in self.seeds:
            raise bad_value("seed", seed, f"this run has seeds {self.seeds[0]} to {self.seeds[-1]}")
        index = self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[index], self._best_policies if best else self._policies)


def _finite(rows: list[dict[str, float]], column: str) -> list[float]:
    return [row[column] for row in rows if math.isfinite(row.get(column, math.nan))]
