"""Whole training iterations of one seed on a grid world."""

from functools import partial
from typing import Any

import jax

from benchmarks.measuring import best_seconds, prepare
from self_imitation.training import agents, devices
from self_imitation.training.in_program_group import InProgramGroup

CASES: dict[str, dict[str, object]] = {
    "a2c, one shared FC(64)": {"agent": "a2c", "network.hidden": (64,), "network.shared": True},
    "a2c+sil, one shared FC(64)": {"agent": "a2c+sil", "network.hidden": (64,), "network.shared": True},
    "a2c+sil, two 64-64 networks": {"agent": "a2c+sil"},
}
ITERATIONS = {"a2c": 5000, "a2c+sil": 500}


def measure() -> dict[str, float]:
    """Environment steps per second."""
    print("train: one seed, 16 environments x 5 steps, M = 4, batch 512, buffer 100,000", flush=True)
    results = {}
    for case, changes in CASES.items():
        # All episodes are kept, so that the replay buffer is used from the start.
        config, backend = prepare("key-door-treasure", {"seeds": 1, "sil.keep": "all", **changes})
        iterations = ITERATIONS[config.agent]
        agent = agents.build(config, backend.spec)
        group = InProgramGroup(
            config, agent, config.seed_numbers, jax.devices()[0], backend, cores=devices.core_numbers()
        )
        held = [group.init()]
        group.compile(held[0])
        seconds = best_seconds(partial(_advance, group, held, iterations))
        results[case] = iterations * config.steps_per_iteration / seconds
        print(f"  {case:28} {results[case]:11,.0f} steps/s   {1e3 * seconds / iterations:.3f} ms per iteration")
    return results


def _advance(group: InProgramGroup, held: list[Any], iterations: int) -> None:
    held[0], _ = group.run(held[0], iterations)
