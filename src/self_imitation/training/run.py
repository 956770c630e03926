"""The Python interface: train, load, act, evaluate."""

import dataclasses
import math
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from self_imitation import config as configuration
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy as PolicyState
from self_imitation.config import Preset, TrainConfig, refuse_unused, validate
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.errors import UsageError, bad_value, prefix_env_name
from self_imitation.report import curves, statistics
from self_imitation.report.animation import Episode
from self_imitation.storage import checkpoint, files, metrics_file, run_directory
from self_imitation.storage.config_file import fingerprint
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import agents, backends, devices, evaluation
from self_imitation.training.backends import Backend
from self_imitation.training.loop import Counters, Listener, Silent, Training
from self_imitation.training.policy import Policy
from self_imitation.training.trust import Trust, require_trust


def train(
    env: str = "key-door-treasure",
    agent: str = "a2c+sil",
    *,
    preset: Preset = "authors",
    steps: int | None = None,
    seeds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    listener: Listener | None = None,
) -> "Run":
    """Train an agent and return its run. Steps and seeds default to those of the environment.

    `settings`: any other setting by its dotted name, as on the command line: `{"sil.updates": 8}`.
    """
    if out is not None and not isinstance(out, str | os.PathLike):
        raise bad_value("out", out, "allowed: the path of a new directory")
    if settings is not None and not (isinstance(settings, Mapping) and all(isinstance(name, str) for name in settings)):
        raise bad_value("settings", settings, 'allowed: values by name, such as {"sil.updates": 8}')
    named = {"agent": agent, "steps": steps, "seeds": seeds, "seed": seed, "out": None if out is None else str(out)}
    for name in ("env", "preset", *named):
        if name in (settings or {}):
            raise bad_value("settings", name, f"it is an argument of its own: train({name}=...)")
    given = {name: value for name, value in named.items() if value is not None}
    defaults = configuration.resolve(env, preset, _plain(given))
    config = validate(configuration.override(defaults, _plain(settings or {})))
    refuse_unused(config, defaults)
    return start(config, listener or Silent())[0]


def _plain(settings: Mapping[str, object]) -> dict[str, object]:
    """NumPy scalars as Python's, lists as tuples."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}


def start(config: TrainConfig, listener: Listener, stop: Callable[[], bool] = lambda: False) -> tuple["Run", bool]:
    """Start a new run; also returns whether it reached its end before `stop`."""
    path = run_directory.destination(config)
    backend = backends.create(config)
    config = _resolved(config, backend)
    with run_directory.create(config, path, checkpoint.expected_bytes(config, backend.spec)) as run:
        return _train(run, run.config(), backend, listener, stop)


def _resolved(config: TrainConfig, backend: Backend) -> TrainConfig:
    """The config with what depends on the environment, after checking that it can be trained here. Sets JAX up."""
    network = config.network.resolved(backend.spec.observation_kind == "image")
    config = dataclasses.replace(config, engine=backend.engine, network=network)
    devices.prepare(config, backend.spec)
    devices.available(config, backend.spec)
    agents.build(config, backend.spec)
    return config


def resume(
    path: str | Path, steps: int | None = None, listener: Listener | None = None, *, trust: bool = False
) -> "Run":
    """Resume a run where it stopped; `steps` sets a new total. `trust`: as for `load`."""
    return continue_run(path, steps, listener or Silent(), trust=trust)[0]


def continue_run(
    path: str | Path,
    steps: int | None,
    listener: Listener,
    stop: Callable[[], bool] = lambda: False,
    trust: Trust = False,
) -> tuple["Run", bool]:
    """Resume a run; also returns whether it reached its end before `stop`."""
    run = run_directory.open_run(path)
    config = run.config()
    require_trust(config, run.path, trust)
    if steps is not None:
        config = validate(configuration.override(config, {"steps": steps}))
    done = max(checkpoint.steps(run.checkpoints), default=0)
    if steps is not None and config.total_steps < done:
        raise bad_value("steps", steps, f"the run has made {done} steps already; allowed: at least that many")
    backend = backends.create(config)
    devices.prepare(config, backend.spec)
    at_end = "The run is complete; extend it with --steps N." if steps is None else ""
    with run.locked():
        return _train(run, config, backend, listener, stop, at_end)


def load(path: str | Path, warn: Callable[[str], None] = lambda _: None, *, trust: Trust = False) -> "Run":
    """Open a run. `warn` is called with a message for each damaged checkpoint that is skipped.

    `trust`: whether an environment such as gym:my_module:MyEnv-v0 may import its module, which runs its code. Not
    needed if this program has imported the module itself.
    """
    return Run(run_directory.open_run(path), warn, trust)


def _train(
    run: RunDirectory,
    config: TrainConfig,
    backend: Backend,
    listener: Listener,
    stop: Callable[[], bool],
    at_end: str = "",
) -> tuple["Run", bool]:
    """With the lock held. `at_end`: message for a run that is complete already."""
    try:
        training = Training(run, config, backend, listener)
        if at_end and training.counters.iteration >= config.iterations:
            listener.message(at_end)
        if config != run.config():
            run.write_config(config)
        finished = training.train(stop)
        run.require_usable()
        result = Run(run, listener.message, trust=True)
        machine = devices.machine(training.trainer.groups[0].device)
        files.write_json(run.summary, result.summarise(finished, machine, training.counters))
        with files.replacing(run.curve) as partial:
            curves.draw([result.curve], partial, title=f"{config.agent} on {config.env}")
    except BrokenPipeError:
        raise  # the listener's stream is closed, not the disk full
    except OSError as error:
        run.require_usable()
        raise UsageError(f"{files.explain(error, run.shown)}; {checkpoint.kept(run.checkpoints)}") from None
    return result, finished


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths of fresh episodes."""

    seeds: tuple[int, ...]
    returns: np.ndarray
    """[seeds, episodes]"""
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95 % interval of the mean over seeds; NaN for a single one."""
        return statistics.mean_interval(self.returns.mean(axis=1))


class Run:
    """A run directory: a trained agent, or one in training."""

    def __init__(self, directory: RunDirectory, warn: Callable[[str], None], trust: Trust):
        self.directory, self._warn, self._trust = directory, warn, trust
        self.config = directory.config()

    def __repr__(self) -> str:
        seeds = "seed" if len(self.seeds) == 1 else "seeds"
        return (
            f"Run({str(self.directory.shown)!r}: {self.config.agent} on {self.config.env}, {len(self.seeds)} {seeds})"
        )

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.config.seed_numbers

    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv."""
        return metrics_file.read(self.path)

    def best_seed(self) -> int:
        """The seed with the highest mean return in its latest row."""
        latest = {int(row["seed"]): row["return_mean"] for row in self.metrics() if math.isfinite(row["return_mean"])}
        return max(latest, key=lambda seed: latest[seed], default=self.seeds[0])

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of a seed, by default the best one."""
        seed = self.best_seed() if seed is None else seed
        return Policy(self._agent, self._policy_of(seed), seed, self._spaces)

    def evaluate(
        self,
        episodes: int = 100,
        greedy: bool = False,
        key: int = 0,
        progress: evaluation.Progress = lambda ended, of: None,
    ) -> Evaluation:
        """Play `episodes` fresh episodes with every seed's policy; `key` seeds their random numbers.

        `progress` is called now and then with the number of episodes that have ended, and of all episodes.
        """
        if not isinstance(episodes, int) or episodes < 1:
            raise bad_value("episodes", episodes, "allowed: an integer >= 1")
        with prefix_env_name(self.config.env):
            returns, lengths = evaluation.evaluate(
                self._config_here, self._agent, self._policies, episodes, greedy, key, progress
            )
        return Evaluation(self.seeds, returns, lengths)

    def play(self, seed: int | None = None, greedy: bool = False, key: int = 0) -> Episode:
        """Play one episode with pictures, by default with the best seed's policy."""
        policy = self._policy_of(self.best_seed() if seed is None else seed)
        with prefix_env_name(self.config.env):
            return evaluation.play(self._config_here, self._agent, policy, greedy, key)

    @property
    def curve(self) -> curves.Curve:
        return curves.from_rows(self.config.agent, self.config.env, self.metrics())

    def summarise(self, finished: bool, machine: str, counters: Counters) -> dict[str, Any]:
        """summary.json: the final results, per seed and overall. Returns are those of each seed's last row and of its
        latest 100 episodes. `machine` is added to the machines of earlier parts of the run.
        """
        rows = self.metrics()
        per_seed = []
        for seed, episodes in zip(self.seeds, counters.episodes, strict=True):
            own = [row for row in rows if int(row["seed"]) == seed]
            means, latest, bests = (_finite(own, name) for name in ("return_mean", "return_latest", "return_best"))
            per_seed.append(
                {
                    "seed": seed,
                    "episodes": episodes,
                    "return_mean": means[-1] if means else None,
                    **({"return_latest": latest[-1]} if latest else {}),
                    "return_best": max(bests) if bests else None,
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
        entry = backends.find(self.config.env)
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
        params = agents.initial_params(self.config, self._agent, self.seeds[0])
        normaliser = None if self._agent.normaliser is None else self._agent.normaliser.init()
        like = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((len(self.seeds), *leaf.shape), leaf.dtype), (params, normaliser)
        )

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

    def _policy_of(self, seed: int) -> PolicyState:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed not in self.seeds:
            raise bad_value("seed", seed, f"this run has seeds {self.seeds[0]} to {self.seeds[-1]}")
        index = self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[index], self._policies)


def _finite(rows: list[dict[str, float]], column: str) -> list[float]:
    return [row[column] for row in rows if math.isfinite(row.get(column, math.nan))]
