"""All systems on Apple-Key-Door-Treasure: the paper's four agents, its other systems, and what goes beyond them."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Line, Settings, Variant
from self_imitation.experiments.grid_worlds import GridWorlds, ranking, steps_to_solve
from self_imitation.report.curves import Curve
from self_imitation.training.run import Run

ENV = "apple-key-door-treasure"
TEMPERATURES = (0.01, 0.1, 1.0)

GROUPS: Mapping[str, Mapping[str, Variant]] = {
    "the paper's agents": {name: Variant(name) for name in ("a2c", "a2c+exp", "a2c+sil", "a2c+sil+exp")},
    "replay through importance weights": {name: Variant(name) for name in ("acer", "acper", "acper+sil")},
    "other lower bounds": {
        **{
            f"a2c+sil+exp, temperature {alpha:g}": Variant("a2c+sil+exp", {"sil.temperature": alpha})
            for alpha in TEMPERATURES
        },
        "a2c+sil+exp, 5-step bound": Variant("a2c+sil+exp", {"sil.bound": "n-step"}),
    },
    "other bonuses": {name: Variant(name) for name in ("a2c+rnd", "a2c+sil+rnd", "a2c+simhash", "a2c+sil+simhash")},
    "the degree of self-imitation": {
        "a2c+sil+exp, linear coefficient": Variant("a2c+sil+exp", {"sil.loss_coef_schedule": "linear"}),
        "a2c+sil+exp, linear updates": Variant("a2c+sil+exp", {"sil.updates_schedule": "linear"}),
        "a2c+sil+exp, share": Variant("a2c+sil+exp", {"sil.loss_coef_schedule": "share"}),
        "a2c+sil+exp, bandit": Variant("a2c+sil+exp", {"sil.updates_schedule": "bandit"}),
    },
}
"""Panels of the figure, and their agents."""
VARIANTS: Mapping[str, Variant] = {name: variant for group in GROUPS.values() for name, variant in group.items()}
PANELS: Mapping[str, str] = {name: group for group, members in GROUPS.items() for name in members}


class Systems(GridWorlds):
    """Every agent of this project for which the grid world makes sense."""

    name = "systems"
    title = "All systems on Apple-Key-Door-Treasure"
    introduction = """\
One task, all agents: the paper's four, its other systems (ACPER, section 5.5; lower-bound soft Q-learning, section 4),
and what goes beyond the paper. A return of 2 means the two apples near the start; 9 means everything, and takes an
agent that finds the treasure behind the door and learns to repeat it. Bonuses only add to on-policy learning: what
self-imitation imitates was achieved with the environment's own rewards. The bonuses for images (`cts`, `pixelcnn`)
can't be used here."""
    defaults = Settings(steps=2_000_000, seeds=8)
    figure = {"columns": 3}  # noqa: RUF012
    variants: Mapping[str, Variant] = VARIANTS
    first_column = "kind"

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        return [
            campaign.config(ENV, variant.agent, settings, folder / campaign.file_name(name), variant.changes)
            for name, variant in self.variants.items()
        ]

    def curves(self, loaded: Sequence[Run]) -> list[Curve]:
        names = [campaign.variant_of(run, self.variants) for run in loaded]
        return [
            dataclasses.replace(run.curve, env=PANELS[name], label=name)
            for run, name in zip(loaded, names, strict=True)
        ]

    def line(self, run: Run) -> Line:
        return {**super().line(run), "agent": campaign.variant_of(run, self.variants)}

    def first_cell(self, line: Line) -> str:
        return PANELS[line["agent"]]

    def comparison(self, lines: Sequence[Line]) -> str:
        solved = [line for line in lines if steps_to_solve(line)]
        return f"""\
When the mean over seeds first solved the task: {ranking(solved, ENV) or "never"}.

How the variants differ, which helps to read the table:

- With a temperature α, the policy term of self-imitation is weighted by α and the value term by 1, instead of 1 and
  0.005, and V, which A2C trains on rewards alone, is compared with returns that include entropies. So the smaller α,
  the weaker the imitation; the larger, the more a long episode is worth, whatever it collects.
- The n-step bound looks five steps ahead. It only exceeds V where V has not learnt what comes next, and the values of
  A2C's policy, which eats the apples, are what it looks ahead with.
- Priorities are (R - V)+, so nearly all sampled steps have R > V as long as any have: the share that the coefficient
  follows stays near 1.
- The count-based bonus counts states; SimHash counts the cells of a random partition, in which some states that differ
  by a flag only may fall together."""
