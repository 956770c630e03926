"""When a run stops before its last step, by the evaluations in its metrics."""

import math
from collections.abc import Sequence

from self_imitation.config import TrainConfig
from self_imitation.storage.metrics_file import Row


def reason(config: TrainConfig, rows: Sequence[Row]) -> str:
    """Why the run stops after these rows; empty if it goes on."""
    means = _means(rows)
    if not means:
        return ""
    (step, latest), best = list(means.items())[-1], max(means.values())
    if config.stop_at is not None and latest >= config.stop_at:
        return f"the evaluation at step {step:,} has a mean return of {latest:g} (stop_at is {config.stop_at:g})"
    if config.patience is not None and list(means.values()).index(best) < len(means) - config.patience:
        return f"the latest {config.patience} evaluations are not better than {best:g} (patience is {config.patience})"
    return ""


def how_to_go_on(config: TrainConfig) -> str:
    """Flags with which a run that stopped early continues."""
    limits = {"--stop-at": config.stop_at, "--patience": config.patience}
    return " ".join(f"{flag} None" for flag, value in limits.items() if value is not None)


def _means(rows: Sequence[Row]) -> dict[int, float]:
    """Of each evaluation, over all seeds, by its step."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if math.isfinite(mean := row.get("eval_return_mean", math.nan)):
            found.setdefault(int(row["step"]), []).append(mean)
    return {step: sum(own) / len(own) for step, own in found.items()}
