"""The Python interface: train, load, act, evaluate."""

import math
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from self_imitation import agents, devices
from self_imitation import config as configuration
from self_imitation.algorithm import Agent
from self_imitation.config import Preset, TrainConfig
from self_imitation.environments.host import engines
from self_imitation.errors import UsageError, bad_value
from self_imitation.report import curves, statistics
from self_imitation.runs import checkpoint, directory, evaluation, files, metrics
from self_imitation.runs.config_file import fingerprint
from self_imitation.runs.directory import RunDirectory
from self_imitation.runs.evaluation import Episode, Policies
from self_imitation.runs.program import Shapes
from self_imitation.runs.training import Listener, Silent, Training
from self_imitation.validation import refuse_unread, validate

if TYPE_CHECKING:
    from self_imitation.environments.host.spaces import Spaces


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
    """Train an agent and return its run, with the environment's number of steps and seeds where none is given.
    `settings` holds any other setting by its dotted name, as on the command line:
    `{"sil.updates": 8, "network.hidden": (64,)}`.
    """
    if out is not None and not isinstance(out, str | os.PathLike):
        raise bad_value("out", out, "allowed: the path of a new directory")
    if settings is not None and not (isinstance(settings, Mapping) and all(isinstance(name, str) for name in settings)):
        raise bad_value("settings", settings, 'allowed: values by name, as in {"sil.updates": 8}')
    named = {"agent": agent, "steps": steps, "seeds": seeds, "seed": seed, "out": None if out is None else str(out)}
    for name in ("env", "preset", *named):
        if name in (settings or {}):
            raise bad_value("settings", name, f"it is an argument of its own: train({name}=...)")
    given = {name: value for name, value in named.items() if value is not None}
    defaults = configuration.resolve(env, preset, _plain(given))
    config = validate(configuration.override(defaults, _plain(settings or {})))
    refuse_unread(config, defaults)
    config = engines.settle(config)
    devices.prepare(config)
    return start(config, listener or Silent())[0]


def _plain(settings: Mapping[str, object]) -> dict[str, object]:
    """NumPy's numbers as Python's, lists as tuples."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}


def start(config: TrainConfig, listener: Listener, stop: Callable[[], bool] = lambda: False) -> tuple["Run", bool]:
    """A new run; also whether it reached its end before `stop`."""
    config = engines.settle(config)
    devices.available(config)
    spec = agents.build(config).spec  # what can't be trained here is refused before anything is written
    run = directory.create(config, checkpoint.expected_bytes(config, spec))
    try:
        return _go(run, run.config(), listener, stop)
    except Exception:
        if not checkpoint.steps(run.checkpoints) and not metrics.read(run.path):
            run.discard()  # nothing was trained: the same command will do once more
        raise


def resume(path: str | Path, steps: int | None = None, listener: Listener | None = None) -> "Run":
    """Go on with a run where it stopped; `steps` sets a new total."""
    devices.prepare(directory.open_run(path).config())
    return go_on(path, steps, listener or Silent())[0]


def go_on(
    path: str | Path, steps: int | None, listener: Listener, stop: Callable[[], bool] = lambda: False
) -> tuple["Run", bool]:
    """An old run; also whether it reached its end before `stop`."""
    run = directory.open_run(path)
    config = run.config()
    if steps is not None:
        config = validate(configuration.override(config, {"steps": steps}))
    total, done = config.iterations * config.steps_per_iteration, max(checkpoint.steps(run.checkpoints), default=0)
    if steps is not None and total < done:
        raise bad_value("steps", steps, f"the run has made {done} steps already; allowed: that or more")
    more = "The run has made all of its steps; --steps gives it more." if steps is None else ""
    return _go(run, config, listener, stop, more)


def load(path: str | Path, warn: Callable[[str], None] = lambda _: None) -> "Run":
    """A run on disk. `warn` hears of a damaged checkpoint that was passed over."""
    run = directory.open_run(path)
    run.config()
    return Run(run, warn)


def _go(
    run: RunDirectory, config: TrainConfig, listener: Listener, stop: Callable[[], bool], at_the_end: str = ""
) -> tuple["Run", bool]:
    """`at_the_end`: what is told of a run that has nothing left to do."""
    try:
        with files.lock(run.path):
            training = Training(run, config, listener)
            if at_the_end and training.counters.iteration >= config.iterations:
                listener.message(at_the_end)
            if config != run.config():
                run.write_config(config)
            finished = training.go(stop)
            result = Run(run, listener.message)
            files.write_json(run.summary, result.summarise(finished, devices.machine(config)))
            curves.draw([result.curve], run.curve, title=f"{config.agent} on {config.env}")
    except BrokenPipeError:
        raise  # the listener's stream went away, not the disk
    except OSError as error:
        raise UsageError(f"{files.explain(error, run.path)}; {checkpoint.kept(run.checkpoints)}") from None
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
        """95 % bootstrap interval of the mean, over seeds."""
        return statistics.mean_interval(self.returns.mean(axis=1))


class Policy:
    """One seed's policy: observations in, actions out. A batch of observations gives a batch of actions."""

    def __init__(self, agent: Agent, policies: Policies, seed: int, spaces: "Spaces | None"):
        self.seed = seed
        self._policies, self._spaces = policies, spaces
        self._shape = (spaces.observation_space.shape or ()) if spaces else agent.spec.observation_shape
        self._act = jax.jit(partial(evaluation.act, agent), static_argnums=0)
        self._key = jax.random.key(seed)
        self._is_image = agent.spec.observation_kind == "image"

    def act(self, observation: Any, greedy: bool = False) -> np.ndarray:
        """The policy's action, sampled as in training or the most likely one, as the environment takes it."""
        given = self._numbers(observation)
        several = given.shape[: given.ndim - len(self._shape)]
        if given.shape != (*several, *self._shape):
            raise bad_value("observation", given.shape, f"allowed: shape {self._shape}, or a batch of it")
        batch = given.reshape(math.prod(several), *self._shape)
        if not len(batch):  # as for one, of which none is asked for
            batch = np.zeros((1, *self._shape), given.dtype)
        seen = self._spaces.observation(batch) if self._spaces else batch.astype(np.float32)
        self._key, key = jax.random.split(self._key)
        actions = np.asarray(self._act(greedy, self._policies, seen, key))
        taken = self._spaces.action(actions) if self._spaces else actions
        return taken[: math.prod(several)].reshape((*several, *taken.shape[1:]))

    def _numbers(self, observation: Any) -> np.ndarray:
        """As the policy can read them."""
        try:
            given = np.asarray(observation)
        except ValueError:  # of lists that differ in length
            given = np.asarray(None)
        if given.dtype.kind not in "buif":
            raise bad_value("observation", given.dtype.name, f"allowed: numbers of shape {self._shape}")
        if self._is_image and given.dtype != np.uint8:
            if given.dtype.kind == "f" or (given.size and (given.min() < 0 or given.max() > 255)):
                raise bad_value("observation", given.dtype.name, "allowed: whole numbers from 0 to 255")
        elif given.dtype.kind == "f" and not np.isfinite(given).all():
            raise bad_value("observation", float(given[~np.isfinite(given)][0]), "allowed: finite numbers")
        return given


class Run:
    """A trained agent, or one in training, in its directory."""

    def __init__(self, directory: RunDirectory, warn: Callable[[str], None]):
        self.directory, self._warn = directory, warn
        self.config = directory.config()

    def __repr__(self) -> str:
        seeds = "seed" if len(self.seeds) == 1 else "seeds"
        return f"Run({str(self.path)!r}: {self.config.agent} on {self.config.env}, {len(self.seeds)} {seeds})"

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.config.seed_numbers

    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv."""
        return metrics.read(self.path)

    def best_seed(self) -> int:
        """The seed with the highest mean return in its latest row."""
        latest = {int(row["seed"]): row["return_mean"] for row in self.metrics() if math.isfinite(row["return_mean"])}
        return max(latest, key=lambda seed: latest[seed], default=self.seeds[0])

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of a seed, by default the best one."""
        seed = self.best_seed() if seed is None else seed
        return Policy(self._agent, self._policies_of(seed), seed, self._spaces)

    def evaluate(
        self,
        episodes: int = 100,
        greedy: bool = False,
        key: int = 0,
        listener: evaluation.Listener = lambda ended, of: None,
    ) -> Evaluation:
        """`episodes` fresh episodes of every seed's policy; `key` seeds their random numbers. `listener` hears now and
        then how many of all have ended.
        """
        if not isinstance(episodes, int) or episodes < 1:
            raise bad_value("episodes", episodes, "allowed: a whole number of 1 or more")
        returns, lengths = evaluation.returns_of_seeds(
            self._settled, self._agent, self._policies, episodes, greedy, key, listener
        )
        return Evaluation(self.seeds, returns, lengths)

    def play(self, seed: int | None = None, greedy: bool = False, key: int = 0) -> Episode:
        """One episode, step by step and with pictures, of a seed's policy, by default the best one's."""
        policy = self._policies_of(self.best_seed() if seed is None else seed)
        return evaluation.one_episode(self._settled, self._agent, policy, greedy, key)

    @property
    def curve(self) -> curves.Curve:
        return curves.from_rows(self.config.agent, self.config.env, self.metrics())

    def summarise(self, finished: bool, machine: str) -> dict[str, Any]:
        """summary.json: the final figures, per seed and overall. Returns are those of each seed's latest row, and
        where they are counted those of its latest 100 episodes.

        `machine`: that it was trained on now; those before it are kept.
        """
        rows = self.metrics()
        per_seed = []
        for seed in self.seeds:
            own = [row for row in rows if int(row["seed"]) == seed]
            means, latest, bests = (_finite(own, name) for name in ("return_mean", "return_latest", "return_best"))
            per_seed.append(
                {
                    "seed": seed,
                    "episodes": int(own[-1]["episodes"]) if own else 0,
                    "return_mean": means[-1] if means else None,
                    **({"return_latest": latest[-1]} if latest else {}),
                    "return_best": max(bests) if bests else None,
                }
            )
        final = np.array([entry["return_mean"] for entry in per_seed if entry["return_mean"] is not None])
        low, high = statistics.mean_interval(final) if len(final) else (None, None)
        seconds = rows[-1]["seconds"] if rows else 0.0
        step = int(rows[-1]["step"]) if rows else 0
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
    def _settled(self) -> TrainConfig:
        """With an engine that is installed here, which may not be the one that it was trained with."""
        return evaluation.with_engine_at_hand(self.config)

    @cached_property
    def _agent(self) -> Agent:
        return agents.build(self._settled)

    @cached_property
    def _spaces(self) -> "Spaces | None":
        return evaluation.spaces_of(self._settled)

    @cached_property
    def _policies(self) -> Policies:
        """Of all seeds, from the latest checkpoint whose policy is sound."""
        like = Shapes(self.config, self._agent).all_seeds

        def load(path: Path, meta: dict[str, Any]) -> Policies:
            return jax.tree.map(jnp.asarray, Policies(*checkpoint.load_policy(path, meta, like)))

        policies = checkpoint.load_latest(self.directory.checkpoints, fingerprint(self.config), load, self._warn)
        if policies is None and self.metrics():
            raise UsageError(f"run: {str(self.path)!r} has rows of metrics but no checkpoint, and so no policy")
        if policies is None:
            go_on = f"sil resume {shlex.quote(str(self.path))}"
            raise UsageError(f"run: {str(self.path)!r} has no checkpoint yet; train on with: {go_on}")
        return policies

    def _policies_of(self, seed: int) -> Policies:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed not in self.seeds:
            raise bad_value("seed", seed, f"this run has seeds {self.seeds[0]} to {self.seeds[-1]}")
        index = self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[index], self._policies)


def _finite(rows: list[dict[str, float]], column: str) -> list[float]:
    return [row[column] for row in rows if math.isfinite(row.get(column, math.nan))]
