"""MuJoCo (paper, section 5.6 and figure 5): PPO and PPO+SIL on six tasks, with normal and with delayed rewards."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign, contrasts
from self_imitation.experiments.campaign import NOT_RUN, Experiment, Line, Settings, Variant, markdown
from self_imitation.report import statistics
from self_imitation.report.curves import Curve
from self_imitation.training.run import Run

TASKS = ("Hopper", "Walker2d", "Swimmer", "HalfCheetah", "Ant", "Humanoid")
DELAYS = {1: "normal", 20: "delayed by 20"}
"""By the setting, what the page calls the rewards."""
BASELINES = {"Hopper": 2316.0, "Walker2d": 3425.0, "Swimmer": 111.0, "HalfCheetah": 1669.0}
"""PPO of OpenAI's baselines after 1 M steps with normal rewards, on older versions of the tasks."""
IMPROVED_IN_THE_PAPER = ("Walker2d", "Swimmer", "Ant")
"""With normal rewards. The paper shows curves and gives no numbers."""


VARIANTS: Mapping[str, Variant] = {
    "ppo": Variant("ppo"),
    "ppo+sil": Variant("ppo+sil"),
    "ppo+sil, own optimiser": Variant("ppo+sil", {"sil.optimiser": "own"}),
}
PPO, *WITH_SELF_IMITATION = VARIANTS


class Mujoco(Experiment):
    name = "mujoco"
    title = "MuJoCo (paper, section 5.6)"
    defaults = Settings(steps=1_000_000, seeds=10)
    figure = {"columns": len(TASKS)}  # noqa: RUF012

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        return [
            campaign.config(
                f"mujoco:{task}",
                variant.agent,
                settings,
                folder / f"{task}_{campaign.file_name(name)}_delay-{delay}",
                {"delay": delay, **variant.changes},
            )
            for delay, task, (name, variant) in product(DELAYS, TASKS, VARIANTS.items())
        ]

    def curves(self, loaded: Sequence[Run]) -> list[Curve]:
        found = []
        for run in loaded:
            task, delay, variant = _case(run)
            title = task if delay == 1 else f"{task}, rewards {DELAYS[delay]}"
            found.append(dataclasses.replace(run.curve, env=title, label=variant))
        return found

    def line(self, run: Run) -> Line:
        """`final_mean`: mean over seeds of each seed's mean return over its latest 100 episodes."""
        (task, delay, variant), final = _case(run), campaign.final_returns(run)
        low, high = statistics.mean_interval(final)
        return {
            "task": task,
            "delay": delay,
            "agent": variant,
            "seeds": len(final),
            "final_mean": float(final.mean()),
            "final_low": low,
            "final_high": high,
            "steps_per_second": campaign.median_rate(run),
        }

    def table(self, lines: Sequence[Line]) -> str:
        cells = {
            (line["delay"], line["task"], line["agent"]): "{final_mean:,.0f} ({final_low:,.0f} to {final_high:,.0f})"
            "".format(**line)
            for line in lines
        }
        rows = [
            (DELAYS[delay], task, *(cells.get((delay, task, variant), NOT_RUN) for variant in VARIANTS))
            for delay, task in product(DELAYS, TASKS)
        ]
        return markdown(("rewards", "return of the last 100 episodes (95 %)", *VARIANTS), rows)

    def tables(self, lines: Sequence[Line], loaded: Sequence[Run]) -> dict[str, Sequence[Line]]:
        names = "delay", "task", "agent"
        found = [dict(zip(names, case, strict=True)) | line for case, line in _differences(loaded).items()]
        return {"table.csv": lines, "contrasts.csv": found}

    def text(self, lines: Sequence[Line], loaded: Sequence[Run], settings: Settings) -> str:
        found = _differences(loaded)
        header = "rewards", "task", *(f"{name} minus ppo" for name in WITH_SELF_IMITATION), "in the paper"
        rows = [
            (
                DELAYS[delay],
                task,
                *(contrasts.cell(found.get((delay, task, name))) for name in WITH_SELF_IMITATION),
                _claim(task),
            )
            for delay, task in product(DELAYS, TASKS)
        ]
        return f"""\
Returns are means over seeds of each seed's mean return over its last 100 episodes, with Student's intervals over n =
{settings.seeds} seeds. PPO with normal rewards compared with OpenAI's baselines, on which the paper's code is based
(older versions of the tasks, so only a rough guide): {_against_baselines(lines)}.

## The paper's claims

The paper reports that self-imitation improves PPO on Swimmer, Walker2d and Ant, and that the gap is larger with delayed
rewards (figure 5). It shows curves without numbers, and uses the best of four learning rates, two value coefficients
and two priority exponents; here all tasks and agents share one setting.

In the authors' code, and so in `ppo+sil`, both losses share one Adam. PPO's many and larger gradients set its scale,
and self-imitation hardly moves the policy. With `own optimiser` (`--sil.optimiser own`) it has an Adam of its own.

{markdown(header, rows)}

{_in_words(found)}

Intervals are Welch's, corrected for reading all {len(found)} together (Bonferroni).

Each seed trains for {settings.steps:,} steps. `curves.csv` has the mean return of every seed at every logging point;
`table.csv` and `contrasts.csv` have the tables above."""


def _case(run: Run) -> tuple[str, int, str]:
    return run.config.env.removeprefix("mujoco:"), run.config.delay, campaign.variant_of(run, VARIANTS)


def _differences(loaded: Sequence[Run]) -> dict[tuple[int, str, str], Line]:
    """What self-imitation adds to PPO, by delay, task and variant, where both were run."""
    finals: dict[tuple[str, int, str], np.ndarray] = {_case(run): campaign.final_returns(run) for run in loaded}
    return contrasts.differences(
        {
            (delay, task, variant): (finals[task, delay, variant], finals[task, delay, PPO])
            for delay, task, variant in product(DELAYS, TASKS, WITH_SELF_IMITATION)
            if {(task, delay, variant), (task, delay, PPO)} <= finals.keys()
        }
    )


def _claim(task: str) -> str:
    return "better" if task in IMPROVED_IN_THE_PAPER else "not listed as better"


def _in_words(found: Mapping[tuple[int, str, str], Line]) -> str:
    sentences = []
    for variant, (delay, rewards) in product(WITH_SELF_IMITATION, DELAYS.items()):
        verdicts = {task: contrasts.verdict(found.get((delay, task, variant))) for task in TASKS}
        sentences.append(f"- {variant} against ppo, rewards {rewards}: {contrasts.in_words(verdicts)}.")
    return "\n".join(sentences)


def _against_baselines(lines: Sequence[Line]) -> str:
    """How PPO compares with the known results, in words."""
    parts = []
    for line in lines:
        known = BASELINES.get(line["task"])
        if known and line["agent"] == PPO and line["delay"] == 1:
            mean = line["final_mean"]
            verdict = "reaches" if mean >= known else "is below" if line["final_high"] < known else "is close to"
            parts.append(f"{line['task']} {verdict} it ({mean:,.0f} against {known:,.0f})")
    return "; ".join(parts)
