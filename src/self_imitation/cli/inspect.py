"""`sil evaluate`, `sil play`, `sil plot` and `sil list`: looking at what is there."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from self_imitation import devices
from self_imitation.cli.parse import parse
from self_imitation.config import AGENTS
from self_imitation.environments import catalogue
from self_imitation.errors import UsageError, bad_value
from self_imitation.runs import directory, files

if TYPE_CHECKING:
    from self_imitation.runs.run import Evaluation, Run

PATIENCE = 10.0
"""Seconds after which who waits hears something."""


@dataclass(frozen=True)
class EvaluateArguments:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    episodes: int = 100
    """Fresh episodes for each seed."""
    greedy: bool = False
    """Take the most likely action instead of sampling as in training."""
    key: int = 0
    """Seed of the evaluation's own random numbers."""
    json: str | None = None
    """Write the figures to this file too."""


@dataclass(frozen=True)
class PlayArguments:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    seed: int | None = None
    """Whose policy plays. None: the seed with the highest mean return."""
    greedy: bool = False
    """Take the most likely action instead of sampling as in training."""
    key: int = 0
    """Seed of the episode's own random numbers."""
    out: str | None = None
    """The moving picture, a file that ends in .mp4 or .gif. None: play.mp4 or, if MP4 can't be written here, play.gif
    in the run's directory."""


@dataclass(frozen=True)
class PlotArguments:
    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Directories of runs; those of the same environment share a panel."""
    out: str = "curves.png"
    """The picture."""


@dataclass(frozen=True)
class ListArguments:
    what: tyro.conf.Positional[Literal["all", "atari"]] = "all"
    """all: environments and agents; atari: the games."""


def evaluate(arguments: Sequence[str]) -> int:
    """Play fresh episodes with every seed's policy and tell how well it did."""
    given = parse(EvaluateArguments, "evaluate", arguments, summary=evaluate.__doc__ or "")
    _require_count("episodes", given.episodes, 1)
    _require_count("key", given.key, 0)
    if given.json:
        files.require_writable(Path(given.json), "json")
    run = _load(given.run)
    result = run.evaluate(given.episodes, given.greedy, given.key, _Patience())
    for seed, returns, lengths in zip(result.seeds, result.returns, result.lengths, strict=True):
        print(f"seed {seed}: return {returns.mean():.3f} (best {returns.max():g}), length {lengths.mean():.1f}")
    low, high = result.interval
    how = "greedy" if given.greedy else "sampled"
    episodes = "episode" if given.episodes == 1 else "episodes"
    interval = f", 95 % interval over seeds {low:.3f} to {high:.3f}" if len(result.seeds) > 1 else ""
    print(f"all: return {result.mean:.3f}{interval} ({given.episodes} {how} {episodes} a seed)")
    if run.config.env.startswith("atari:"):
        print(_beside_a_human(run.config.env.removeprefix("atari:"), result.mean))
    if given.json:
        _write_json(given.json, result)
    return 0


def play(arguments: Sequence[str]) -> int:
    """Watch an episode: a moving picture (MP4 or GIF), and what happened as text."""
    given = parse(PlayArguments, "play", arguments, summary=play.__doc__ or "")
    _require_count("key", given.key, 0)
    run = _load(given.run)
    from self_imitation.report import animation

    maze = catalogue.find(run.config.env).host_id is None
    path = Path(given.out) if given.out else run.path / ("play.gif" if maze else animation.default_name())
    animation.require_format(path)
    files.require_writable(path, "out")
    seed = run.best_seed() if given.seed is None else given.seed
    episode = run.play(seed, given.greedy, given.key)
    try:
        animation.save(episode, path, f"{run.config.agent}, seed {seed}")
    except OSError as error:
        raise files.explain(error, path) from None
    if maze:
        print(animation.maze_text(episode))
    print(animation.to_text(episode))
    print(f"Animation: {path}")
    return 0


def plot(arguments: Sequence[str]) -> int:
    """Draw the learning curves of one or more runs, with 95 % confidence bands."""
    given = parse(PlotArguments, "plot", arguments, summary=plot.__doc__ or "")
    if not given.runs:
        raise UsageError("runs: none given; allowed: one or more directories of runs")
    from self_imitation.report import curves
    from self_imitation.runs import metrics

    drawn = []
    for path in given.runs:
        run = directory.open_run(path)
        rows = metrics.read(run.path)
        if not rows:
            raise bad_value("runs", path, "it has no row of metrics yet")
        config = run.config()
        drawn.append(curves.from_rows(config.agent, config.env, rows))
    if Path(given.out).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise bad_value("out", given.out, "allowed: a file name that ends in .png, .pdf or .svg")
    labels = [curve.label for curve in drawn]
    if len(set(zip(labels, (curve.env for curve in drawn), strict=True))) < len(drawn):
        drawn = [
            curves.relabel(curve, f"{curve.label}, {Path(path).name}")
            for curve, path in zip(drawn, given.runs, strict=True)
        ]
    try:
        curves.draw(drawn, Path(given.out))
    except OSError as error:
        raise files.explain(error, Path(given.out)) from None
    print(f"Curves: {given.out}")
    return 0


def list_names(arguments: Sequence[str]) -> int:
    """The environments and agents, one line each, or the Atari games."""
    given = parse(ListArguments, "list", arguments, summary=list_names.__doc__ or "")
    if given.what == "atari":
        return _list_games()
    width = max(map(len, (*catalogue.ENTRIES, *AGENTS)))
    print("Environments")
    for entry in catalogue.ENTRIES.values():
        print(f"  {entry.name:{width}}  {entry.summary}")
    games = f"one of {len(catalogue.atari_games()) or 'the'} Atari games (sil list atari)"
    print(f"  {'atari:GAME':{width}}  {games}, by its name in the paper: atari:MontezumaRevenge")
    print(f"  {'gym:ID':{width}}  any Gymnasium environment by its id, also one of yours: gym:my_package:MyEnv-v0")
    print("Agents")
    for name, summary in AGENTS.items():
        print(f"  {name:{width}}  {summary}")
    return 0


def _list_games() -> int:
    from self_imitation.environments import atari_scores

    games = catalogue.atari_games()
    if not games:
        raise bad_value("what", "atari", "the games come with ale-py: pip install 'self-imitation[atari]'")
    scores = atari_scores.table()
    for game in games:
        print(f"atari:{game}" + (" *" if game in scores else ""))
    print("* one of the paper's 49 games, for which sil evaluate knows a human player's score")
    return 0


class _Patience:
    """Tells who waits, every so often, how far an evaluation has come."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, ended: int, of: int) -> None:
        if time.monotonic() - self._told >= PATIENCE:
            self._told = time.monotonic()
            print(f"{ended:,} of {of:,} episodes have ended", file=sys.stderr)


def _beside_a_human(game: str, score: float) -> str:
    from self_imitation.environments import atari_scores

    share = atari_scores.human_normalised(game, score)
    if share is None:
        return f"{game} is not among the paper's 49 games: no human score is known"
    known = atari_scores.table()[game]
    paper = f"A2C {known['a2c']:,.4g}, A2C+SIL {known['a2c_sil']:,.4g} (bias correction 0.4)"
    human = f"{share:.1%} of a human player's score, counted from a random one's"
    return f"{human}; the paper's table of 49 games, after 50 M steps: {paper}"


def _load(path: str) -> "Run":
    devices.prepare(directory.open_run(path).config())
    from self_imitation.runs import run as runs

    return runs.load(path, warn=print)


def _require_count(field: str, value: int, least: int) -> None:
    if not least <= value < 2**31:
        raise bad_value(field, value, f"allowed: a whole number of {least} or more, below 2147483648")


def _write_json(path: str, result: "Evaluation") -> None:
    data = {
        "return_mean": result.mean,
        "return_interval_95": list(result.interval),
        "seeds": [
            {"seed": seed, "return_mean": float(returns.mean()), "returns": returns.tolist()}
            for seed, returns in zip(result.seeds, result.returns, strict=True)
        ],
    }
    try:
        files.write_atomically(Path(path), json.dumps(data, indent=2) + "\n")
    except OSError as error:
        raise files.explain(error, Path(path), "json") from None
