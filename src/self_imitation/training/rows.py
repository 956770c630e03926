"""From accumulated metrics to the rows of metrics.csv."""

import math
from collections.abc import Sequence

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.storage.metrics_file import Row
from self_imitation.training.counters import Counters
from self_imitation.training.metrics import MetricsAccumulator


def make_rows(
    config: TrainConfig, counters: Counters, measured: MetricsAccumulator, evaluated: Sequence[Row]
) -> list[Row]:
    """One for each seed; begins the next row in the counters. `evaluated`: what evaluation adds for each seed."""
    iterations, rows = int(measured.iterations[0]), list[Row]()
    rate = iterations * config.steps_per_iteration * config.seeds / (counters.seconds - counters.row_seconds)
    for i, seed in enumerate(config.seed_numbers):
        episodes, latest = int(measured.episodes[i]), int(measured.latest.count[i])
        counters.episodes[i] += episodes
        rows.append(
            {
                "seed": seed,
                "step": counters.iteration * config.steps_per_iteration,
                "episodes": counters.episodes[i],
                "return_mean": float(measured.return_sum[i]) / episodes if episodes else math.nan,
                "return_best": float(measured.return_best[i]) if episodes else math.nan,
                "length_mean": float(measured.length_sum[i]) / episodes if episodes else math.nan,
                "return_latest": float(np.mean(measured.latest.returns[i][:latest])) if latest else math.nan,
                **{name: float(total[i]) / iterations for name, total in measured.sums.items()},
                **evaluated[i],
                "steps_per_second": rate,
                "seconds": counters.seconds,
            }
        )
    counters.row_iteration, counters.row_seconds = counters.iteration, counters.seconds
    return rows
