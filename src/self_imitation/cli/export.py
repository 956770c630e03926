"""`sil export`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from self_imitation.cli import terminal
from self_imitation.cli.parse import parse
from self_imitation.settings import setting
from self_imitation.storage import files

MODEL = (lambda v: Path(v).suffix.lower() == ".onnx", "a file name that ends in .onnx")


@dataclass(frozen=True)
class ExportArguments:
    """Write a policy as an ONNX model: observations in; action, parameters of the distribution and value out."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    out: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[FILE]")] = setting("policy.onnx", MODEL)
    """Model file, .onnx."""
    seed: int | None = None
    """Seed whose policy is exported. None: the one with the highest mean return."""
    best: bool = False
    """Use the policy that did best in the evaluations of the run (--eval-every) instead of the latest one."""
    trust: bool = False
    """Import the module that an environment such as gym:my_module:MyEnv-v0 names, which runs its code. Without this, a
    terminal asks and anything else refuses."""


def export(arguments: Sequence[str]) -> int:
    given = parse(ExportArguments, "export", arguments)
    path = files.require_writable(Path(given.out), "out")
    from self_imitation.export.graph import require_onnx
    from self_imitation.training import run as runs

    require_onnx()
    run = runs.load(given.run, terminal.say, trust=given.trust or terminal.ask_to_import)
    policy = run.policy(given.seed, given.best)
    policy.export(path, {"env": run.config.env, "agent": run.config.agent})
    terminal.say(f"Model: {given.out} (seed {policy.seed})")
    return 0
