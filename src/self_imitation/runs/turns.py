"""Several seeds in one process that take turns: while the environments of one step, the policy of another acts.

For networks with convolutions, which `vmap` over seeds makes slow. Each seed is a `HostProgram` of its own; what is
compiled for one serves all.
"""

from collections.abc import Mapping

import jax
import numpy as np

from self_imitation.config import TrainConfig, override
from self_imitation.runs.arrays import from_arrays, join, part, to_arrays
from self_imitation.runs.host_program import HostProgram, take_turns
from self_imitation.runs.program import Shapes
from self_imitation.runs.tally import Progress, Tally


class Turns:
    """The program of all seeds."""

    columns = HostProgram.columns

    def __init__(self, config: TrainConfig):
        self.config = config
        self.seeds: list[HostProgram] = []
        for number in config.seed_numbers:
            own = override(config, {"seed": number, "seeds": 1})
            self.seeds.append(HostProgram(own, twin=self.seeds[0] if self.seeds else None))
        self.agent = self.seeds[0].agent
        self.shapes = Shapes(config, self.agent)
        self.device = self.seeds[0].device

    def begin(self) -> list[Progress]:
        return [seed.begin() for seed in self.seeds]

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[list[Progress], str]:
        restored = []
        for place, seed in enumerate(self.seeds):
            own = slice(place, place + 1)
            progress = from_arrays(part(to_arrays(saved), own), seed.shapes.all_seeds, "the run")
            restored.append(seed.restore(progress, part(environments, own), step))
        return [progress for progress, _ in restored], restored[0][1]

    def compile(self, progress: list[Progress]) -> None:
        self.seeds[0].compile(progress[0])

    def advance(self, progress: list[Progress], iterations: int) -> list[Progress]:
        going = [seed.advance_by_turns(one, iterations) for seed, one in zip(self.seeds, progress, strict=True)]
        return jax.block_until_ready(take_turns(going))

    def clear_tally(self, progress: list[Progress]) -> list[Progress]:
        return [seed.clear_tally(one) for seed, one in zip(self.seeds, progress, strict=True)]

    def tally(self, progress: list[Progress]) -> Tally:
        tallies = [seed.tally(one) for seed, one in zip(self.seeds, progress, strict=True)]
        return jax.tree.map(lambda *each: np.concatenate(each), *tallies)

    def whole(self, progress: list[Progress]) -> Progress:
        """On the host: the memories of all seeds together may be more than a device holds."""
        return from_arrays(join([to_arrays(one) for one in progress]), self.shapes.all_seeds, "the seeds")

    def environments(self) -> dict[str, np.ndarray]:
        return join([seed.environments() for seed in self.seeds])

    def own_metrics(self, seed: int) -> dict[str, float]:
        return self.seeds[seed].own_metrics(0)

    def close(self) -> None:
        for seed in self.seeds:
            seed.close()
