"""Beyond the paper: self-imitation on the grid worlds with state counts or random network distillation."""

from pathlib import Path

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign, grid_worlds
from self_imitation.experiments.campaign import Settings
from self_imitation.experiments.grid_worlds import BEST_RETURN, Line, table

__all__ = ["DEFAULTS", "configs", "report", "table"]

DEFAULTS = Settings(steps=2_000_000, seeds=8)
AGENTS = ("a2c+sil", "a2c+sil+exp", "a2c+sil+rnd")


def configs(settings: Settings, folder: Path) -> list[TrainConfig]:
    return grid_worlds.configs(settings, folder, AGENTS)


def report(settings: Settings, folder: Path, out: Path) -> list[Line]:
    """Write curves.csv, table.csv, figure.png and README.md to `out`, from the runs in `folder`."""
    wanted = configs(settings, folder)
    loaded = campaign.load(wanted)
    lines = [grid_worlds.summarise(run) for run in loaded]
    found = "\n".join(f"- {env}: {grid_worlds.ranking(lines, env)}." for env in BEST_RETURN)
    page = f"""# Exploration bonuses with self-imitation

The paper combines self-imitation with a count-based bonus (`exp`), which needs observations that can be counted.
Random network distillation (`rnd`) works with any observations. Both only add to on-policy learning: what
self-imitation imitates was achieved with the environment's own rewards.

{campaign.figure(loaded, wanted)}

{table(lines)}

{grid_worlds.EXPLANATION}

When the mean over seeds first solved each task:

{found}

{campaign.provenance("exploration", settings, DEFAULTS, loaded)}

Each seed trains for {settings.steps:,} steps. {grid_worlds.FILES}
"""
    campaign.write_report(out, [run.curve for run in loaded], {"table.csv": lines}, page)
    return lines
