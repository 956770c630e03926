"""`sil evaluate` and `sil play`."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from self_imitation.cli import terminal
from self_imitation.cli.parse import parse
from self_imitation.settings import setting, whole
from self_imitation.storage import files

SECONDS_BETWEEN_REPORTS = 10.0
"""How often a long evaluation reports how far it is."""


@dataclass(frozen=True)
class EvaluateArguments:
    """Evaluate every seed's policy in fresh episodes and report the results."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    episodes: int = setting(100, whole(1, 2**31 - 1))
    """Fresh episodes per seed."""
    greedy: bool = False
    """Take the most likely action instead of sampling as in training."""
    key: int = setting(0, whole(0, 2**31 - 1))
    """Random seed of the evaluation."""
    best: bool = False
    """Use the policies that did best in the evaluations of the run (--eval-every) instead of the latest ones."""
    json: str | None = None
    """Also write the results to this file."""
    trust: bool = False
    """Import the module that an environment such as gym:my_module:MyEnv-v0 names, which runs its code. Without this, a
    terminal asks and anything else refuses."""


@dataclass(frozen=True)
class PlayArguments:
    """Record an episode as a video (MP4 or GIF), with a summary as text."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    seed: int | None = None
    """Seed whose policy plays. None: the one with the highest mean return."""
    greedy: bool = False
    """Take the most likely action instead of sampling as in training."""
    key: int = setting(0, whole(0, 2**31 - 1))
    """Random seed of the episode."""
    best: bool = False
    """Use the policy that did best in the evaluations of the run (--eval-every) instead of the latest one."""
    out: str | None = None
    """Video file, .mp4 or .gif. None: play.mp4 in the run directory, or play.gif for grid worlds and without the extra
    `video`."""
    trust: bool = False
    """Import the module that an environment such as gym:my_module:MyEnv-v0 names, which runs its code. Without this, a
    terminal asks and anything else refuses."""


def evaluate(arguments: Sequence[str]) -> int:
    given = parse(EvaluateArguments, "evaluate", arguments)
    json_file = files.require_writable(Path(given.json), "json") if given.json else None
    from self_imitation.training import run as runs

    run = runs.load(given.run, terminal.say, trust=given.trust or terminal.ask_to_import)
    result = run.evaluate(given.episodes, given.greedy, given.key, _progress_reports(), given.best)
    for seed, returns, lengths in zip(result.seeds, result.returns, result.lengths, strict=True):
        print(f"seed {seed}: return {returns.mean():.3f} (best {returns.max():g}), length {lengths.mean():.1f}")
    low, high = result.interval
    how = "greedy" if given.greedy else "sampled"
    episodes = "episode" if given.episodes == 1 else "episodes"
    interval = (
        f", 95 % interval {low:.3f} to {high:.3f} (n = {len(result.seeds)} seeds)" if len(result.seeds) > 1 else ""
    )
    print(f"all: return {result.mean:.3f}{interval} ({given.episodes} {how} {episodes} per seed)")
    if run.config.env.startswith("atari:"):
        print(_compare_with_human(run.config.env.removeprefix("atari:"), result.mean))
    if json_file:
        data = {
            "return_mean": result.mean,
            "return_interval_95": [low, high] if len(result.seeds) > 1 else [None, None],
            "seeds": [
                {"seed": seed, "return_mean": float(returns.mean()), "returns": returns.tolist()}
                for seed, returns in zip(result.seeds, result.returns, strict=True)
            ],
        }
        with files.explain_failure(json_file, "json"):
            files.write_json(json_file, data)
    return 0


def play(arguments: Sequence[str]) -> int:
    given = parse(PlayArguments, "play", arguments)
    from self_imitation.recording import grid_world
    from self_imitation.report import animation
    from self_imitation.training import run as runs

    run = runs.load(given.run, terminal.say, trust=given.trust or terminal.ask_to_import)
    in_maze = grid_world.is_one(run.config.env)
    name = "play.gif" if in_maze else animation.default_name()
    shown = Path(given.out) if given.out else run.directory.shown / name
    animation.require_format(shown)
    path = files.require_writable(shown, "out")
    seed = run.best_seed(given.best) if given.seed is None else given.seed
    episode = run.play(seed, given.greedy, given.key, given.best)
    with files.explain_failure(path), files.replacing(path) as partial:
        animation.save(episode, partial, f"{run.config.agent}, seed {seed}")
    if in_maze:
        print(animation.maze_text(episode))
    print(animation.to_text(episode))
    terminal.say(f"Animation: {shown}")
    return 0


def _progress_reports() -> Callable[[int, int], None]:
    """Reports every few seconds how many episodes of an evaluation have ended."""
    latest = time.monotonic()

    def report(ended: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest >= SECONDS_BETWEEN_REPORTS:
            latest = time.monotonic()
            print(f"{ended:,} of {total:,} episodes finished", file=sys.stderr)

    return report


def _compare_with_human(game: str, score: float) -> str:
    from self_imitation.environments import atari_scores

    share = atari_scores.human_normalised(game, score)
    if share is None:
        return f"{game} is not one of the paper's 49 games: no human score is known"
    known = atari_scores.table()[game]
    paper = f"A2C {known['a2c']:,.4g}, A2C+SIL {known['a2c_sil']:,.4g} (importance exponent 0.4)"
    return f"human-normalised score {share:.1%}; the paper's table of 49 games, after 50 M steps: {paper}"
