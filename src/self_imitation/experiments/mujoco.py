"""MuJoCo (paper, section 5.6): PPO and PPO+SIL on three of the six tasks, with normal and with delayed rewards.

In addition, PPO alone on one more task, and on one task with another discount.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Experiment, Line, Settings, markdown
from self_imitation.report import statistics
from self_imitation.report.curves import Curve
from self_imitation.settings import flatten
from self_imitation.training.run import Run

TASKS = ("Hopper", "Walker2d", "Swimmer")
DELAYS = (1, 20)
AGENTS = ("ppo", "ppo+sil")
PPO_ALONE: Mapping[str, Mapping[str, object]] = {"HalfCheetah": {}, "Swimmer": {"ppo.gamma": 0.999}}
"""Controls for the quality of PPO: one more task with a known result, and Swimmer with a longer horizon than that of
the paper's discount, 0.99."""
BASELINES = {"Hopper": 2316.0, "Walker2d": 3425.0, "Swimmer": 111.0, "HalfCheetah": 1669.0}
"""PPO of OpenAI's baselines after 1 M steps, on older versions of the tasks."""
IMPROVED_IN_THE_PAPER = ("Walker2d", "Swimmer")
"""Of these tasks, with normal rewards. The paper shows curves and gives no numbers."""
CONTRASTS = {
    "normal": ((-1, 1, 0, 0), "PPO+SIL against PPO, normal rewards"),
    "delayed": ((0, 0, -1, 1), "PPO+SIL against PPO, delayed rewards"),
    "delayed minus normal": ((1, -1, -1, 1), "The effect of self-imitation, delayed against normal rewards"),
}
"""Weights of the mean returns, by delay and agent, whose sum answers a question."""


class Mujoco(Experiment):
    name = "mujoco"
    title = "MuJoCo (paper, section 5.6)"
    defaults = Settings(steps=1_000_000, seeds=5)
    figure = {"columns": len(TASKS)}  # noqa: RUF012

    def configs(self, settings: Settings, folder: Path) -> list[TrainConfig]:
        def one(task: str, delay: int, agent: str, changes: Mapping[str, object]) -> TrainConfig:
            name = "_".join([task, agent, f"delay-{delay}", *(f"{key}-{value}" for key, value in changes.items())])
            return campaign.config(f"mujoco:{task}", agent, settings, folder / name, {"delay": delay, **changes})

        normal, delayed = ([one(task, delay, agent, {}) for task, agent in product(TASKS, AGENTS)] for delay in DELAYS)
        alone = [one(task, 1, "ppo", changes) for task, changes in PPO_ALONE.items()]
        return [*normal, *alone, *delayed]

    def curves(self, loaded: Sequence[Run]) -> list[Curve]:
        return [dataclasses.replace(run.curve, env=_title(*_case(run)[:2])) for run in _compared(loaded)]

    def line(self, run: Run) -> Line:
        """`final_mean`: mean over seeds of each seed's mean return over its latest 100 episodes."""
        (task, delay, agent), final = _case(run), campaign.final_returns(run)
        low, high = statistics.mean_interval(final)
        return {
            "task": task,
            "delay": delay,
            "agent": agent,
            "changes": _changes(run),
            "seeds": len(final),
            "final_mean": float(final.mean()),
            "final_low": low,
            "final_high": high,
            "steps_per_second": campaign.median_rate(run),
        }

    def table(self, lines: Sequence[Line]) -> str:
        rows = []
        for line in lines:
            final = "{final_mean:,.0f} ({final_low:,.0f} to {final_high:,.0f}, {seeds})".format(**line)
            known = f"{BASELINES[line['task']]:,.0f}" if _has_baseline(line) else ""
            rows.append((_title(line["task"], line["delay"]), line["agent"] + _with_changes(line), final, known))
        return markdown(
            ("task", "agent", "return of the last 100 episodes (95 %, n seeds)", "OpenAI's baselines"), rows
        )

    def tables(self, lines: Sequence[Line], loaded: Sequence[Run]) -> dict[str, Sequence[Line]]:
        return {"table.csv": lines, "contrasts.csv": contrasts(loaded)}

    def text(self, lines: Sequence[Line], loaded: Sequence[Run], settings: Settings) -> str:
        found = contrasts(loaded)
        return f"""\
Returns are means over seeds of each seed's mean return over its last 100 episodes, with Student's intervals over seeds.
PPO compared with OpenAI's baselines, on which the paper's code is based (older versions of the tasks, so only a rough
guide): {_against_baselines(lines)}.

## The paper's claims

The paper reports that self-imitation improves PPO on Swimmer, Walker2d and Ant, and that the gap is larger with delayed
rewards. It shows curves without numbers, and uses the best of four learning rates, two value coefficients and two
priority exponents; here all tasks and both agents share one setting.

{_contrast_table(found)}

{_in_words(found)}

Intervals are Welch's over n = {settings.seeds} seeds per agent, corrected for reading {len(found)} of them together
(Bonferroni): with so few seeds, only large differences are detected.

Each seed trains for {settings.steps:,} steps. `curves.csv` has the mean return of every seed at every logging point;
`table.csv` and `contrasts.csv` have the tables above."""


def contrasts(loaded: Sequence[Run]) -> list[Line]:
    """Differences between mean returns, with their intervals over seeds: all of `CONTRASTS` for each task."""
    finals = {_case(run): campaign.final_returns(run) for run in _compared(loaded)}
    found = []
    for task, (what, (weights, _)) in product(TASKS, CONTRASTS.items()):
        samples = [finals[task, delay, agent] for delay, agent in product(DELAYS, AGENTS)]
        mean = float(sum(weight * sample.mean() for weight, sample in zip(weights, samples, strict=True)))
        low, high = statistics.contrast_interval(samples, weights, comparisons=len(TASKS) * len(CONTRASTS))
        found.append({"task": task, "what": what, "mean": mean, "low": low, "high": high})
    return found


def _contrast_table(found: Sequence[Line]) -> str:
    header = (
        "PPO+SIL minus PPO (95 %, all at once)",
        "normal rewards",
        "in the paper",
        "delayed rewards",
        "delayed minus normal",
    )
    rows = []
    for task in TASKS:
        claim = "better" if task in IMPROVED_IN_THE_PAPER else "not listed as better"
        cells = ["{mean:+,.0f} ({low:+,.0f} to {high:+,.0f})".format(**line) for line in found if line["task"] == task]
        rows.append((task, cells[0], claim, *cells[1:]))
    return markdown(header, rows)


def _in_words(found: Sequence[Line]) -> str:
    sentences = []
    for what, (_, question) in CONTRASTS.items():
        tasks: dict[str, list[str]] = {}
        for line in found:
            if line["what"] == what:
                direction = "higher" if line["low"] > 0 else "lower" if line["high"] < 0 else "no difference detected"
                tasks.setdefault(direction, []).append(line["task"])
        parts = [f"{direction} on {', '.join(names)}" for direction, names in tasks.items()]
        sentences.append(f"- {question}: {'; '.join(parts)}.")
    return "\n".join(sentences)


def _against_baselines(lines: Sequence[Line]) -> str:
    """How PPO compares with the known results, in words."""
    parts = []
    for line in filter(_has_baseline, lines):
        mean, known = line["final_mean"], BASELINES[line["task"]]
        verdict = "reaches" if mean >= known else "is below" if line["final_high"] < known else "is close to"
        parts.append(f"{line['task']}{_with_changes(line)} {verdict} it ({mean:,.0f} against {known:,.0f})")
    return "; ".join(parts)


def _has_baseline(line: Line) -> bool:
    return line["agent"] == "ppo" and line["delay"] == 1


def _with_changes(line: Line) -> str:
    return f" with {line['changes']}" if line["changes"] else ""


def _compared(loaded: Sequence[Run]) -> list[Run]:
    """Without the controls."""
    return [run for run in loaded if _case(run)[0] in TASKS and not _changes(run)]


def _case(run: Run) -> tuple[str, int, str]:
    return run.config.env.removeprefix("mujoco:"), run.config.delay, run.config.agent


def _changes(run: Run) -> str:
    """The changes of `PPO_ALONE` that this run has."""
    asked, found = PPO_ALONE.get(_case(run)[0], {}), flatten(run.config)
    return ", ".join(f"{name} {value}" for name, value in asked.items() if found.get(name) == value)


def _title(task: str, delay: int) -> str:
    return task if delay == 1 else f"{task}, rewards delayed by {delay}"
