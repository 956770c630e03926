"""Logging to Weights & Biases: one W&B run per seed, all of them in one group."""

import os
import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError, first_line
from self_imitation.settings import flatten
from self_imitation.storage import files
from self_imitation.storage.metrics_file import Row
from self_imitation.storage.run_directory import WANDB
from self_imitation.storage.tags import tag
from self_imitation.training.callbacks import Callback
from self_imitation.training.context import Context

PROJECT = "self-imitation"


class WandbCallback(Callback):
    """Logs all metrics, with the names that they have in TensorBoard, and the settings: a W&B run for each seed.

    Other variables of W&B, such as WANDB_ENTITY and WANDB_MODE=offline, have their usual meaning.

    Args:
        project: None stands for $WANDB_PROJECT or self-imitation.
    """

    def __init__(self, project: str | None = None):
        self._project = project or os.environ.get("WANDB_PROJECT") or PROJECT
        self._runs: dict[int, Any] = {}

    def started(self, context: Context) -> None:
        import wandb

        group, run_id = context.path.name, _run_id(context.path)
        for seed in context.config.seed_numbers:
            self._runs[seed] = wandb.init(
                project=self._project,
                group=group,
                name=f"{group} seed {seed}",
                id=f"{run_id}-{seed}",
                resume="allow",
                reinit="create_new",  # several at a time
                config={**flatten(context.config), "seed": seed},
                settings=wandb.Settings(silent=True, console="off"),
            )

    def logged(self, context: Context, rows: Sequence[Row]) -> None:
        for row in rows:
            run, step = self._runs[int(row["seed"])], int(row["step"])
            if step >= run.step:  # W&B has the rows that were logged after the checkpoint from which the run goes on
                known = {name: value for name, value in row.items() if name not in ("seed", "step") and value == value}
                run.log({tag(name): value for name, value in known.items()}, step=step)

    def ended(self, context: Context) -> None:
        for run in self._runs.values():
            run.finish(exit_code=0 if context.error is None else 1)
        self._runs.clear()


def configured(config: TrainConfig) -> list[Callback]:
    """The callbacks that the settings of a run ask for."""
    if not config.wandb:
        return []
    if find_spec("wandb") is None:
        raise UsageError("wandb: the package is not installed: pip install 'self-imitation[wandb]'")
    _require_login()
    return [WandbCallback(config.wandb_project)]


def _require_login() -> None:
    """Before the run begins; on a terminal, W&B asks for what is missing."""
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return
    import wandb

    try:
        wandb.login()
    except wandb.Error as error:
        cause = first_line(error).rstrip(".")
        raise UsageError(f"wandb: not logged in: {cause}; or set WANDB_MODE=offline") from None


def _run_id(path: Path) -> str:
    """That of the first part of the run; made if there is none."""
    file = path / WANDB
    if file.exists():
        try:
            found = files.read_json(file)
        except files.UnreadableError as error:
            raise UsageError(f"{str(file)!r} is damaged: {error}; delete it to begin new W&B runs") from None
        if isinstance(found, dict) and isinstance(found.get("id"), str):
            return found["id"]
        raise UsageError(f"{str(file)!r} is damaged: no id; delete it to begin new W&B runs")
    new = secrets.token_hex(4)
    files.write_json(file, {"id": new})
    return new
