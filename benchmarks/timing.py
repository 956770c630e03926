"""Best of five: on a machine with other work, the fastest try is the one least disturbed."""

import time
from collections.abc import Callable

import jax

TRIES = 5


def best_seconds(*programs: Callable[[], object]) -> list[float]:
    """The shortest time of each program, tried in turns so that all meet the same conditions. Each runs once before."""
    best = [float("inf")] * len(programs)
    for program in programs:
        jax.block_until_ready(program())
    for _ in range(TRIES):
        for i, program in enumerate(programs):
            begun = time.perf_counter()
            jax.block_until_ready(program())
            best[i] = min(best[i], time.perf_counter() - begun)
    return best
