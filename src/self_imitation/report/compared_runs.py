"""Runs side by side: which belong together, what to call them, and their curves.

Runs that differ in their seeds only are one curve over all these seeds. Others are labelled by the agent and by the
settings in which they differ.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from self_imitation.config import MAY_CHANGE, PRESETS, TrainConfig, resolve
from self_imitation.report.curves import Curve
from self_imitation.settings import flatten

XAxis = Literal["step", "seconds", "episodes"]

MEASURING = ("log_every", "record", "eval_every", "eval_episodes", "eval_greedy")
IRRELEVANT = {*MAY_CHANGE, *MEASURING, "seed", "seeds", "device", "engine"} - {"steps"}
"""Settings in which runs of one experiment may differ. Not `steps`, which schedules depend on."""
MAX_POINTS = 500
"""Of a curve; enough for the width of a picture."""


class ComparedRun(NamedTuple):
    name: str
    """Of its directory."""
    config: TrainConfig
    rows: Sequence[dict[str, float]]
    """Of metrics.csv; at least one."""


def curves_of(runs: Sequence[ComparedRun], y: str, x: XAxis = "step", smooth: int = 1) -> list[Curve]:
    """The curves of column `y` over column `x`, each value the mean of the latest `smooth` rows of its seed."""
    groups = _groups(runs)
    with np.errstate(over="ignore", invalid="ignore"):  # values near the largest float
        found = [_curve(label, group, y, x, smooth) for label, group in zip(_labels(groups), groups, strict=True)]
    return [curve for curve in found if len(curve.steps)]


def _groups(runs: Sequence[ComparedRun]) -> list[list[ComparedRun]]:
    """Runs that differ in their seeds only. Those that have a seed in common stay apart: it would count twice."""
    by_settings: dict[str, list[ComparedRun]] = {}
    for run in runs:
        by_settings.setdefault(repr(_settings(run.config)), []).append(run)
    groups = []
    for group in by_settings.values():
        seeds = [seed for run in group for seed in run.config.seed_numbers]
        groups += [group] if len(set(seeds)) == len(seeds) else [[run] for run in group]
    return groups


def _settings(config: TrainConfig) -> dict[str, object]:
    keywords = {f"env.{name}": value for name, value in config.env_kwargs.items()}
    own = {name: value for name, value in flatten(config).items() if name not in (*IRRELEVANT, "env_kwargs")}
    return {**own, **keywords}


def _labels(groups: Sequence[Sequence[ComparedRun]]) -> list[str]:
    """The agent, then the settings in which runs of this agent in this environment differ, where they are not the
    defaults; last the name of the run, if all settings are the same.
    """
    configs = [group[0].config for group in groups]
    labels = []
    for config in configs:
        alike = [_settings(other) for other in configs if (other.env, other.agent) == (config.env, config.agent)]
        own, usual = _settings(config), _settings(_defaults(config))
        differing = [name for name, value in own.items() if any(other.get(name) != value for other in alike)]
        changed = [name for name in differing if own[name] != usual.get(name) or name == "preset"]
        labels.append(", ".join([config.agent, *(f"{name}={_text(own[name])}" for name in changed)]))
    places = [(config.env, label) for config, label in zip(configs, labels, strict=True)]
    return [
        label if places.count(place) == 1 else f"{label}, {group[0].name}"
        for label, place, group in zip(labels, places, groups, strict=True)
    ]


def _defaults(config: TrainConfig) -> TrainConfig:
    """Of a preset from a file, which may be elsewhere by now, those of the authors."""
    return resolve(config.env, config.preset if config.preset in PRESETS else "authors", {"agent": config.agent})


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _curve(label: str, group: Sequence[ComparedRun], y: str, x: XAxis, smooth: int) -> Curve:
    """On points that all seeds have reached, interpolated between the rows of each seed."""
    series: dict[int, list[tuple[float, float]]] = {}
    for row in (row for run in group for row in run.rows if math.isfinite(row[x])):
        series.setdefault(int(row["seed"]), []).append((row[x], row[y]))
    tables = {seed: np.array(sorted(series[seed], key=lambda pair: pair[0])) for seed in sorted(series)}
    points = np.unique([place for rows in tables.values() for place in rows[:, 0]])
    points = points[points <= min((rows[-1, 0] for rows in tables.values()), default=0)]
    if len(points) > MAX_POINTS:
        points = np.linspace(points[0], points[-1], MAX_POINTS)
    values = np.array([_interpolated(rows, points, smooth) for rows in tables.values()]).T
    return Curve(label, group[0].config.env, tuple(tables), points, values)


def _interpolated(rows: np.ndarray, points: np.ndarray, smooth: int) -> np.ndarray:
    """One seed's values at these points; NaN before its first one."""
    known = rows[np.isfinite(rows[:, 1])]
    if not len(known):
        return np.full(len(points), np.nan)
    means = [known[max(0, end - smooth) : end, 1].mean() for end in range(1, len(known) + 1)]
    return np.where(points < known[0, 0], np.nan, np.interp(points, known[:, 0], means))
