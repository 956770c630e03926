"""Differences between agents, with intervals that hold together."""

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from self_imitation.experiments.campaign import NOT_RUN, Line
from self_imitation.report import statistics

K = TypeVar("K", bound=Hashable)


def differences(pairs: Mapping[K, tuple[np.ndarray, np.ndarray]]) -> dict[K, Line]:
    """By name: mean of the first sample minus mean of the second, with Welch's interval.

    All intervals hold at once in 95 % of cases.
    """
    found = {}
    for name, (first, second) in pairs.items():
        low, high = statistics.contrast_interval([first, second], [1, -1], comparisons=len(pairs))
        found[name] = {"mean": float(first.mean() - second.mean()), "low": low, "high": high}
    return found


def cell(difference: Line | None, digits: int = 0) -> str:
    """None: one of the two was not run."""
    if difference is None:
        return NOT_RUN
    if math.isnan(difference["mean"]):
        return "unknown: a seed has finished no episode"
    mean, low, high = (f"{difference[part]:+z,.{digits}f}" for part in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def verdict(difference: Line | None) -> str:
    if difference is None:
        return NOT_RUN
    if math.isnan(difference["mean"]):
        return "unknown"
    return "higher" if difference["low"] > 0 else "lower" if difference["high"] < 0 else "no difference detected"


def in_words(verdicts: Mapping[str, str]) -> str:
    """From verdicts by task to one sentence: "higher on A, B; no difference detected on C"."""
    kinds = dict.fromkeys(verdicts.values())
    return "; ".join(f"{kind} on {', '.join(t for t, own in verdicts.items() if own == kind)}" for kind in kinds)
