"""MuJoCo (paper, section 5.6): PPO and PPO+SIL on three of the six tasks, with normal and with delayed rewards.

In addition, PPO alone on one more task, and on one task with another discount.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from self_imitation.config import TrainConfig
from self_imitation.experiments import campaign
from self_imitation.experiments.campaign import Settings
from self_imitation.report import statistics
from self_imitation.report.curves import Curve
from self_imitation.settings import flatten
from self_imitation.training.run import Run

DEFAULTS = Settings(steps=1_000_000, seeds=5)
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


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    task: str
    delay: int
    agent: str
    changes: str
    """Settings that differ from the preset."""
    seeds: int
    final_mean: float
    """Mean over seeds of each seed's mean return over its latest 100 episodes."""
    final_low: float
    final_high: float
    steps_per_second: float


@dataclass(frozen=True)
class Contrast:
    """A difference between mean returns, with its interval over seeds."""

    task: str
    what: str
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+,.0f} ({self.low:+,.0f} to {self.high:+,.0f})"

    @property
    def direction(self) -> str:
        if self.low > 0:
            return "higher"
        return "lower" if self.high < 0 else "no difference detected"


def configs(settings: Settings, folder: Path) -> list[TrainConfig]:
    normal, delayed = ([_config(settings, folder, *case) for case in product(TASKS, (d,), AGENTS)] for d in DELAYS)
    alone = [_config(settings, folder, task, 1, "ppo", changes) for task, changes in PPO_ALONE.items()]
    return [*normal, *alone, *delayed]


def _config(
    settings: Settings, folder: Path, task: str, delay: int, agent: str, changes: Mapping[str, object] | None = None
) -> TrainConfig:
    name = "_".join([task, agent, f"delay-{delay}", *(f"{key}-{value}" for key, value in (changes or {}).items())])
    return campaign.config(f"mujoco:{task}", agent, settings, folder / name, {"delay": delay, **(changes or {})})


def report(settings: Settings, folder: Path, out: Path) -> list[Line]:
    """Write curves.csv, table.csv, contrasts.csv, figure.png and README.md to `out`, from the runs in `folder`."""
    wanted = configs(settings, folder)
    loaded = campaign.load(wanted, "return_latest")
    shown = [run for run in loaded if _case(run)[0] in TASKS and not _changes(run)]
    finals = {_case(run): campaign.final_returns(run) for run in shown}
    lines = [_line(run, campaign.final_returns(run)) for run in loaded]
    contrasts = {task: _contrasts(task, finals) for task in TASKS}
    tables: Mapping[str, Sequence[Line | Contrast]] = {
        "table.csv": lines,
        "contrasts.csv": [one for own in contrasts.values() for one in own],
    }
    page = _page(lines, contrasts, settings, loaded, wanted)
    campaign.write_report(out, [_curve(run) for run in shown], tables, page, columns=len(TASKS))
    return lines


def _case(run: Run) -> tuple[str, int, str]:
    return run.config.env.removeprefix("mujoco:"), run.config.delay, run.config.agent


def _changes(run: Run) -> str:
    """The changes of `PPO_ALONE` that this run has."""
    asked, found = PPO_ALONE.get(_case(run)[0], {}), flatten(run.config)
    return ", ".join(f"{name} {value}" for name, value in asked.items() if found.get(name) == value)


def _curve(run: Run) -> Curve:
    task, delay, _ = _case(run)
    return dataclasses.replace(run.curve, env=_title(task, delay))


def _title(task: str, delay: int) -> str:
    return task if delay == 1 else f"{task}, rewards delayed by {delay}"


def _line(run: Run, final: np.ndarray) -> Line:
    interval, rate = statistics.mean_interval(final), campaign.median_rate(run)
    return Line(*_case(run), _changes(run), len(final), float(final.mean()), *interval, rate)


def _contrasts(task: str, finals: dict[tuple[str, int, str], np.ndarray]) -> list[Contrast]:
    """The effect of self-imitation with normal rewards, with delayed rewards, and the difference of the two."""
    samples = [finals[task, delay, agent] for delay in DELAYS for agent in AGENTS]
    found = []
    for what, weights in {
        "normal": (-1, 1, 0, 0),
        "delayed": (0, 0, -1, 1),
        "delayed minus normal": (1, -1, -1, 1),
    }.items():
        mean = float(sum(weight * sample.mean() for weight, sample in zip(weights, samples, strict=True)))
        found.append(Contrast(task, what, mean, *statistics.contrast_interval(samples, weights)))
    return found


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    rows = ["| task | agent | return of the last 100 episodes (95 %) | OpenAI's baselines |", "|---|---|---|---|"]
    for line in lines:
        known = f"{BASELINES[line.task]:,.0f}" if line.delay == 1 and line.agent == "ppo" else ""
        final = f"{line.final_mean:,.0f} ({line.final_low:,.0f} to {line.final_high:,.0f})"
        changes = f" with {line.changes}" if line.changes else ""
        rows.append(f"| {_title(line.task, line.delay)} | {line.agent}{changes} | {final} | {known} |")
    return "\n".join(rows)


def _contrast_table(contrasts: dict[str, list[Contrast]]) -> str:
    rows = [
        "| PPO+SIL minus PPO (95 %) | normal rewards | in the paper | delayed rewards | delayed minus normal |",
        "|---|---|---|---|---|",
    ]
    for task, (normal, delayed, difference) in contrasts.items():
        claim = "better" if task in IMPROVED_IN_THE_PAPER else "not listed as better"
        rows.append(f"| {task} | {normal} | {claim} | {delayed} | {difference} |")
    return "\n".join(rows)


def _in_words(contrasts: dict[str, list[Contrast]]) -> str:
    questions = (
        "PPO+SIL against PPO, normal rewards",
        "PPO+SIL against PPO, delayed rewards",
        "The effect of self-imitation, delayed against normal rewards",
    )
    sentences = []
    for number, question in enumerate(questions):
        tasks: dict[str, list[str]] = {}
        for task, own in contrasts.items():
            tasks.setdefault(own[number].direction, []).append(task)
        parts = [f"{direction} on {', '.join(names)}" for direction, names in tasks.items()]
        sentences.append(f"- {question}: {'; '.join(parts)}.")
    return "\n".join(sentences)


def _against_baselines(lines: Sequence[Line]) -> str:
    """How PPO compares with the known results, in words."""
    parts = []
    for line in lines:
        if line.agent == "ppo" and line.delay == 1:
            known = BASELINES[line.task]
            verdict = (
                "reaches" if line.final_mean >= known else "is below" if line.final_high < known else "is close to"
            )
            changes = f" with {line.changes}" if line.changes else ""
            parts.append(f"{line.task}{changes} {verdict} it ({line.final_mean:,.0f} against {known:,.0f})")
    return "; ".join(parts)


def _page(
    lines: list[Line],
    contrasts: dict[str, list[Contrast]],
    settings: Settings,
    loaded: list[Run],
    wanted: list[TrainConfig],
) -> str:
    return f"""# MuJoCo (paper, section 5.6)

{campaign.figure(loaded, wanted)}

{table(lines)}

Returns are means over seeds of each seed's mean return over its last 100 episodes, with bootstrap intervals over seeds.
PPO compared with OpenAI's baselines, on which the paper's code is based (older versions of the tasks, so only a rough
guide): {_against_baselines(lines)}.

## The paper's claims

The paper reports that self-imitation improves PPO on Swimmer, Walker2d and Ant, and that the gap is larger with delayed
rewards. It shows curves without numbers, and uses the best of four learning rates, two value coefficients and two
priority exponents; here all tasks and both agents share one setting.

{_contrast_table(contrasts)}

{_in_words(contrasts)}

Intervals are bootstrapped over {settings.seeds} seeds per agent: with so few, only large differences are detected.

{campaign.provenance("mujoco", settings, DEFAULTS, loaded)}

Each seed trains for {settings.steps:,} steps. `curves.csv` has the mean return of every seed at every logging point;
`table.csv` and `contrasts.csv` have the tables above.
"""
