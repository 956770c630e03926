"""The Python interface: train, resume, load."""

import contextlib
import dataclasses
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from self_imitation import config as configuration
from self_imitation.config import TrainConfig, refuse_unused, validate
from self_imitation.environments.gymnasium.objects import from_object
from self_imitation.environments.registry import find
from self_imitation.errors import UsageError, bad_value
from self_imitation.networks.actor_critic import NetworkFactory, register_by_own_name
from self_imitation.report import curves
from self_imitation.storage import checkpoint, files, run_directory, settings_file
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import agents, backends, changes, devices, early_stopping, interrupts
from self_imitation.training.backends import Backend
from self_imitation.training.callbacks import Callback, CallbackLike, Callbacks
from self_imitation.training.loop import Training
from self_imitation.training.saved_run import Run
from self_imitation.training.trust import Trust, require_trust
from self_imitation.training.wandb_callback import configured

LOGGER = logging.getLogger("self_imitation")

Env: TypeAlias = str | Callable[..., Any] | gymnasium.Env[Any, Any]
"""A name, what makes an environment, or one that Gymnasium made."""


def train(
    env: Env = "key-door-treasure",
    agent: str | None = None,
    *,
    preset: str | os.PathLike[str] = "authors",
    steps: float | None = None,
    seeds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    network: NetworkFactory | None = None,
    callbacks: Iterable[CallbackLike] | CallbackLike = (),
    env_kwargs: Mapping[str, object] | None = None,
) -> Run:
    """Train an agent and return its run.

    Args:
        env: a name; a class or function that makes an environment; or what `gymnasium.make` returned, of which copies
            are made from its spec.
        agent: a learner and its additions, such as `ppo+sil`. None: `a2c+sil`.
        preset: `authors`, `paper`, or the path of a TOML file.
        steps: environment steps of each seed. None: the environment's default.
        seeds: how many agents to train, each with a seed of its own. None: the environment's default.
        seed: the first seed.
        out: path of the new run directory. None: one below `runs/` that is named after environment, agent and time.
        settings: any other setting by its dotted name, as on the command line: `{"sil.updates": 8}`.
        network: a network of your own, a class or function; `register_network` under its name in programs that load
            the run.
        callbacks: see `Callback`; a function is called with the context after each row of metrics.csv.
        env_kwargs: keyword arguments for a Gymnasium environment, a class or a function.

    Returns:
        The run, which is complete unless a callback or a stopping rule ended it earlier.

    Raises:
        UsageError: a name, setting or environment is not allowed; nothing was written.
        NonFiniteError: a loss became NaN or infinite.
        FaultyEnvironmentError: the environment raised, or broke Gymnasium's rules. Here and after `NonFiniteError` the
            last checkpoint is kept.
        KeyboardInterrupt: after Ctrl-C, once the run is saved.
    """
    if out is not None and not isinstance(out, str | os.PathLike):
        raise bad_value("out", out, "allowed: the path of a new directory")
    _require_names("settings", settings, '{"sil.updates": 8}')
    _require_names("env_kwargs", env_kwargs, '{"is_slippery": False}')
    named = {"agent": agent, "steps": steps, "seeds": seeds, "seed": seed, "out": None if out is None else str(out)}
    for name in ("env", "preset", *named):
        if name in (settings or {}):
            raise bad_value("settings", name, f"it is an argument of its own: train({name}=...)")
    if network is not None:
        if "network.kind" in (settings or {}):
            raise bad_value("settings", "network.kind", "it is given by train(network=...) already")
        settings = {**(settings or {}), "network.kind": register_by_own_name(network)}
    given = {name: value for name, value in named.items() if value is not None}
    made = from_object(env)
    keywords = {f"env.{name}": value for name, value in {**made.kwargs, **(env_kwargs or {})}.items()}
    defaults = configuration.resolve(made.name, settings_file.read_preset(preset), _plain(given))
    defaults = dataclasses.replace(defaults, make_env=made.factory)
    config = validate(configuration.override(defaults, _plain({**keywords, **(settings or {})})))
    refuse_unused(config, defaults)
    with interrupts.deferred() as stop:
        return start(config, _logging(callbacks), stop)[0]


def _require_names(name: str, values: object, example: str) -> None:
    if values is not None and not (isinstance(values, Mapping) and all(isinstance(own, str) for own in values)):
        raise bad_value(name, values, f"allowed: values by name, such as {example}")


def _plain(settings: Mapping[str, object]) -> dict[str, object]:
    """NumPy scalars as Python's; lists as tuples, but as lists in keyword arguments, which are stored as JSON."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    return {
        name: value if not isinstance(value, list | tuple) else list(value) if name.startswith("env.") else tuple(value)
        for name, value in plain.items()
    }


class _LogMessages(Callback):
    def message(self, text: str) -> None:
        LOGGER.warning(text)


def _logging(callbacks: Iterable[CallbackLike] | CallbackLike) -> list[CallbackLike]:
    """With one that passes on what the run tells its user: by default, Python's logging prints it."""
    return [*(callbacks if isinstance(callbacks, Iterable) else [callbacks]), _LogMessages()]


def start(
    config: TrainConfig, callbacks: Iterable[CallbackLike] | CallbackLike = (), stop: Callable[[], bool] = lambda: False
) -> tuple[Run, bool]:
    """Start a new run; also returns whether it reached its end before `stop` or a callback stopped it."""
    all_callbacks = Callbacks(callbacks, configured(config))
    path = run_directory.destination(config)
    backend = backends.create(config)
    config = _resolved(config, backend)
    with run_directory.create(config, path, checkpoint.expected_bytes(config, backend.spec)) as run:
        own = dataclasses.replace(run.config(), make_env=config.make_env)
        return _train(run, own, backend, all_callbacks, stop)


def _resolved(config: TrainConfig, backend: Backend) -> TrainConfig:
    """The config with what depends on the environment, after checking that it can be trained here. Sets JAX up."""
    network = config.network.resolved(backend.spec.observation_kind == "image")
    config = dataclasses.replace(config, engine=backend.engine, network=network)
    devices.prepare(config, backend.spec)
    devices.available(config, backend.spec)
    devices.require_division(config, backend.in_program)
    agents.build(config, backend.spec)
    return config


def resume(
    path: str | Path,
    steps: float | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    callbacks: Iterable[CallbackLike] | CallbackLike = (),
    env: Env | None = None,
    trust: bool = False,
) -> Run:
    """Resume a run where it stopped.

    Args:
        path: the run directory.
        steps: a new total of environment steps of each seed. None: the run's own.
        settings: new values by dotted names, for settings that neither say which run this is nor determine the shapes
            of its arrays. The change is recorded in config.json.
        callbacks: as for `train`.
        env: as for `load`.
        trust: as for `load`.

    Returns:
        The run.

    Raises:
        UsageError: there is no such run, another process trains it, or a setting can't be changed. The other errors
            are those of `train`.
    """
    _require_names("settings", settings, '{"optimiser.learning_rate": 1e-4}')
    if "steps" in (settings or {}):
        raise bad_value("settings", "steps", "it is an argument of its own: resume(steps=...)")
    new = _plain(settings or {})
    with interrupts.deferred() as stop:
        return continue_run(path, steps, _logging(callbacks), stop, trust=trust, settings=new, env=env)[0]


def continue_run(
    path: str | Path,
    steps: float | None,
    callbacks: Iterable[CallbackLike] | CallbackLike = (),
    stop: Callable[[], bool] = lambda: False,
    trust: Trust = False,
    settings: Mapping[str, object] | None = None,
    env: Env | None = None,
) -> tuple[Run, bool]:
    """Resume a run; also returns whether it reached its end before `stop` or a callback stopped it."""
    run = run_directory.open_run(path)
    before = _with_env(run.config(), env)
    require_trust(before, run.path, trust)
    config = changes.apply(before, {**(settings or {}), **({} if steps is None else {"steps": steps})})
    all_callbacks = Callbacks(callbacks, configured(config))
    done = max(checkpoint.steps(run.checkpoints), default=0)
    if steps is not None and config.total_steps < done:
        raise bad_value("steps", steps, f"the run has made {done} steps already; allowed: at least that many")
    backend = backends.create(config)
    devices.prepare(config, backend.spec)
    changes.require_same_arrays(before, config, backend.spec)
    at_end = "The run is complete; extend it with --steps N." if steps is None else ""
    with run.locked():
        return _train(run, config, backend, all_callbacks, stop, at_end)


def load(
    path: str | Path,
    warn: Callable[[str], None] = lambda _: None,
    *,
    env: Env | None = None,
    trust: Trust = False,
) -> Run:
    """Open a run, also one that is still in training.

    Args:
        path: the run directory.
        warn: called with a message for each damaged checkpoint that is skipped.
        env: what makes the environment, if the run was trained with a class, a function or an object.
        trust: whether an environment such as gym:my_module:MyEnv-v0 or a wrapper may import its module, which runs
            its code. Not needed if this program has imported the module itself.

    Returns:
        The run. Its policies are read when they are first used.

    Raises:
        UsageError: the directory is not a run, or its config.json is damaged.
    """
    directory = run_directory.open_run(path)
    return Run(directory, warn, trust, _with_env(directory.config(), env).make_env)


def _with_env(config: TrainConfig, env: Env | None) -> TrainConfig:
    """With what makes the environment of a run."""
    if env is None:
        return config
    made = from_object(env)
    if made.factory is None or not find(config.env).in_python:
        raise bad_value("env", env, f"allowed: what makes {config.env}, if that is a class or function")
    return dataclasses.replace(config, make_env=made.factory)


def _train(
    run: RunDirectory,
    config: TrainConfig,
    backend: Backend,
    callbacks: Callbacks,
    stop: Callable[[], bool],
    at_end: str = "",
) -> tuple[Run, bool]:
    """With the lock held. `at_end`: message for a run that is complete already."""
    try:
        training = Training(run, config, backend, callbacks)
        step = training.counters.iteration * config.steps_per_iteration
        config = training.config = training.context.config = changes.begin_at(config, step)
        with _ending(training):
            if at_end and training.is_complete:
                callbacks.message(at_end)
            elif training.stopped_early:
                callbacks.message(_stopped_early(training))
            recorded = run.config()
            if (config, config.changes) != (recorded, recorded.changes):
                run.write_config(config)
            was_stopped = training.stopped_early
            finished = training.train(stop)
            if training.stopped_early and not was_stopped:
                callbacks.message(_stopped_early(training))
            run.require_usable()
            result = Run(run, callbacks.message, trust=True, make_env=config.make_env)
            _write_summary(result, training)
    except OSError as error:
        run.require_usable()
        raise UsageError(f"{files.explain(error, run.shown)}; {checkpoint.kept(run.checkpoints)}") from None
    if callbacks.failure is not None:
        raise callbacks.failure
    return result, finished


@contextlib.contextmanager
def _ending(training: Training) -> Iterator[None]:
    """Tell the callbacks when the run has ended, in whatever way."""
    context = training.context
    try:
        yield
    except BaseException as error:
        context.error = error
        raise
    finally:
        context.error = context.error or training.callbacks.failure
        training.callbacks.ended(context)
        context.close()


def _stopped_early(training: Training) -> str:
    step, path = training.context.step, shlex.quote(str(training.run.shown))
    more = f"sil resume {path} {early_stopping.how_to_go_on(training.config)}"
    return f"Stopped early at step {step:,}: {training.stopped_early}. Go on with: {more}"


def _write_summary(run: Run, training: Training) -> None:
    """summary.json and curve.png."""
    config = training.config
    machine = devices.machine(training.trainer.groups[0].device)
    finished, early = training.context.finished, training.stopped_early
    files.write_json(run.directory.summary, run.summarise(finished, machine, training.counters, early))
    with files.replacing(run.directory.curve) as partial:
        curves.draw([run.curve], partial, title=f"{config.agent} on {config.env}")
