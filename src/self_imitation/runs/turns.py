"""Groups of seeds that take turns in one process: while the environments of one step, the policies of another act.

For environments that step by themselves and networks on a GPU. Each group is a `HostProgram` of its own: small, so that
nothing it asks of the device keeps the others waiting for long, and not too small, for every call costs the host time.
"""

from collections.abc import Mapping

import jax
import numpy as np

from self_imitation.config import TrainConfig, override
from self_imitation.runs.arrays import from_arrays, join, part, to_arrays
from self_imitation.runs.host_functions import Leaves
from self_imitation.runs.host_program import HostProgram, share_out, take_turns
from self_imitation.runs.program import Shapes
from self_imitation.runs.tally import Progress, Tally

GROUPS = 4


class Turns:
    """The program of all seeds."""

    columns = HostProgram.columns

    def __init__(self, config: TrainConfig, groups: int = GROUPS):
        self.config = config
        self.places = share_out(config.seeds, groups)
        self.groups: list[HostProgram] = []
        twins: dict[int, HostProgram] = {}
        for place in self.places:
            seeds = place.stop - place.start
            own = override(config, {"seed": config.seed + place.start, "seeds": seeds})
            group = HostProgram(own, twins.get(seeds), parts=1)
            twins.setdefault(seeds, group)
            self.groups.append(group)
        self.agent = self.groups[0].agent
        self.shapes = Shapes(config, self.agent)
        self.device = self.groups[0].device

    def begin(self) -> list[Leaves]:
        return [group.begin() for group in self.groups]

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[list[Leaves], str]:
        arrays, restored = to_arrays(saved), []
        for place, group in zip(self.places, self.groups, strict=True):
            progress = from_arrays(part(arrays, place), group.shapes.all_seeds, "the run")
            restored.append(group.restore(progress, part(environments, place), step))
        return [progress for progress, _ in restored], restored[0][1]

    def compile(self, progress: list[Leaves]) -> None:
        for group, one in zip(self.groups, progress, strict=True):
            group.compile(one)

    def advance(self, progress: list[Leaves], iterations: int) -> list[Leaves]:
        going = [group.turns(one, iterations) for group, one in zip(self.groups, progress, strict=True)]
        return jax.block_until_ready(take_turns(going))

    def clear_tally(self, progress: list[Leaves]) -> list[Leaves]:
        return [group.clear_tally(one) for group, one in zip(self.groups, progress, strict=True)]

    def tally(self, progress: list[Leaves]) -> Tally:
        tallies = [group.tally(one) for group, one in zip(self.groups, progress, strict=True)]
        return jax.tree.map(lambda *each: np.concatenate(each), *tallies)

    def whole(self, progress: list[Leaves]) -> Progress:
        """On the host: the memories of all seeds together may be more than a device holds."""
        parts = [to_arrays(group.whole(one)) for group, one in zip(self.groups, progress, strict=True)]
        return from_arrays(join(parts), self.shapes.all_seeds, "the seeds")

    def environments(self) -> dict[str, np.ndarray]:
        return join([group.environments() for group in self.groups])

    def own_metrics(self, seed: int) -> dict[str, float]:
        number = next(i for i, place in enumerate(self.places) if seed < place.stop)
        return self.groups[number].own_metrics(seed - self.places[number].start)

    def close(self) -> None:
        for group in self.groups:
            group.close()
