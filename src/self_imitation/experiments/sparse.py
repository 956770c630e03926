"""Sparse rewards, beyond the paper: A2C and PPO with and without self-imitation, with the defaults for any environment.

Two of these defaults, both for PPO, were chosen on other seeds of three of the tasks (see `Sparse.introduction`).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign, contrasts
from self_imitation.experiments.campaign import Experiment, Line, Settings, markdown
from self_imitation.report import statistics
from self_imitation.report.curves import Curve
from self_imitation.training.run import Run


@dataclass(frozen=True)
class Task:
    title: str
    steps: int
    rewarded: str
    """What for, in words."""
    solved: float
    """A seed solves the task if its latest 100 episodes have this mean return; Gymnasium's own threshold if it has one.
    """
    digits: int = 2


TASKS: Mapping[str, Task] = {
    "gym:MiniGrid-DoorKey-8x8-v0": Task("DoorKey 8x8", 1_000_000, "the goal behind a locked door", 0.9),
    "gym:MiniGrid-KeyCorridorS3R3-v0": Task("KeyCorridor S3R3", 1_000_000, "an object in a locked room", 0.8),
    "gym:FrozenLake8x8-v1": Task("FrozenLake 8x8", 500_000, "the goal, on slippery ice with holes", 0.85),
    "gym:MountainCarContinuous-v0": Task("MountainCarContinuous", 300_000, "the goal, 100; each action costs", 90.0, 1),
    "gym:self_imitation/KeyDoorTreasure-v0": Task(
        "Key-Door-Treasure", 500_000, "the key, the door and the treasure", 6.65
    ),
    "hopper-distance": Task("Hopper for distance", 500_000, "metres covered, at the end", 10.0, 1),
}
"""By environment. Thresholds of tasks without one of their own: most of the best return."""
LEARNERS = ("a2c", "ppo")
AGENTS = tuple(learner + sil for learner, sil in product(LEARNERS, ("", "+sil")))


class Sparse(Experiment):
    name = "sparse"
    title = "Sparse rewards"
    introduction = """\
Beyond the paper: tasks that pay rarely, as people meet them, with the defaults for any Gymnasium environment. Two of
these defaults, PPO's entropy coefficient (0.01) and the coefficient of self-imitation beside PPO (1), were chosen on
Key-Door-Treasure, FrozenLake and MountainCarContinuous with other seeds (1000 to 1007), where the paper's MuJoCo values
(0 and 0.1) were tried too. Nothing else was tuned on any of these tasks."""
    defaults = Settings(steps=1_000_000, seeds=8)
    figure = {"columns": 3}  # noqa: RUF012

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        return [
            campaign.config(
                env,
                agent,
                dataclasses.replace(settings, steps=min(settings.steps, task.steps)),
                folder / f"{task.title.replace(' ', '-')}_{agent}",
            )
            for (env, task), agent in product(TASKS.items(), AGENTS)
        ]

    def curves(self, loaded: Sequence[Run]) -> list[Curve]:
        return [dataclasses.replace(run.curve, env=_task(run).title) for run in loaded]

    def line(self, run: Run) -> Line:
        """`final_mean`: mean over seeds of each seed's mean return over its latest 100 episodes."""
        task, final = _task(run), campaign.final_returns(run)
        low, high = statistics.mean_interval(final)
        return {
            "task": task.title,
            "env": run.config.env,
            "agent": run.config.agent,
            "steps": run.config.steps,
            "seeds": len(final),
            "final_mean": float(final.mean()),
            "final_low": low,
            "final_high": high,
            "solved": int((final >= task.solved).sum()),
            "steps_per_second": campaign.median_rate(run),
        }

    def table(self, lines: Sequence[Line]) -> str:
        rows = []
        for line in lines:
            digits = TASKS[line["env"]].digits
            mean, low, high = (f"{line[f'final_{part}']:z.{digits}f}" for part in ("mean", "low", "high"))
            final = "a seed has finished no episode" if math.isnan(line["final_mean"]) else f"{mean} ({low} to {high})"
            rows.append((line["task"], line["agent"], final, f"{line['solved']} of {line['seeds']}"))
        return markdown(("task", "agent", "return of the last 100 episodes (95 %)", "seeds that solve it"), rows)

    def tables(self, lines: Sequence[Line], loaded: Sequence[Run]) -> dict[str, Sequence[Line]]:
        found = [{"task": t, "learner": learner, **line} for (t, learner), line in _differences(loaded).items()]
        return {"table.csv": lines, "contrasts.csv": found}

    def text(self, lines: Sequence[Line], loaded: Sequence[Run], settings: Settings) -> str:
        found = _differences(loaded)
        tasks = [
            (task.title, f"`{env}`", task.rewarded, f"{task.solved:g}", f"{min(settings.steps, task.steps):,}")
            for env, task in TASKS.items()
        ]
        rows = [
            (task.title, *(contrasts.cell(found.get((task.title, learner)), task.digits) for learner in LEARNERS))
            for task in TASKS.values()
        ]
        return f"""\
Returns are means over seeds of each seed's mean return over its last 100 episodes, with Student's intervals over n =
{settings.seeds} seeds. A seed solves a task if that mean reaches the level below.

{markdown(("task", "environment", "what is rewarded", "solved at", "steps per seed"), tasks)}

## The difference that self-imitation makes

{markdown(("difference of the means (95 %, all at once)", *(f"{name}+sil minus {name}" for name in LEARNERS)), rows)}

{_in_words(found)}

Intervals are Welch's, corrected for reading all {len(found)} together (Bonferroni). `curves.csv` has the mean return of
every seed at every logging point; `table.csv` and `contrasts.csv` have the tables."""


def _task(run: Run) -> Task:
    return TASKS[run.config.env]


def _differences(loaded: Sequence[Run]) -> dict[tuple[str, str], Line]:
    """What self-imitation adds, by task and learner."""
    finals = {(_task(run).title, run.config.agent): campaign.final_returns(run) for run in loaded}
    pairs = {
        (task.title, learner): (finals[task.title, f"{learner}+sil"], finals[task.title, learner])
        for task, learner in product(TASKS.values(), LEARNERS)
        if {(task.title, learner), (task.title, f"{learner}+sil")} <= finals.keys()
    }
    return contrasts.differences(pairs)


def _in_words(found: Mapping[tuple[str, str], Line]) -> str:
    sentences = []
    for learner in LEARNERS:
        verdicts = {task.title: contrasts.verdict(found.get((task.title, learner))) for task in TASKS.values()}
        sentences.append(f"- {learner}+sil against {learner}: {contrasts.in_words(verdicts)}.")
    return "\n".join(sentences)
