"""Where a run comes from: command, commit, versions and date, recorded in its directory when it was trained."""

import datetime
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import self_imitation
from self_imitation.storage import files

FILE = "provenance.json"
PACKAGES = ("jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "envpool", "ale-py", "mujoco", "minigrid")
"""Whose versions are recorded, where they are installed."""
KEYS = ("command", "commit", "version", "versions", "date")


def record(run: Path, command: str) -> None:
    """Write provenance.json into a run's directory."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    values = command, _commit(), self_imitation.__version__, _versions(), now
    files.write_json(run / FILE, dict(zip(KEYS, values, strict=True)))


def read(run: Path) -> dict[str, Any]:
    """What was recorded; None for what is unknown."""
    try:
        found = json.loads((run / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    return {key: found.get(key) if isinstance(found, dict) else None for key in KEYS}


def common(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What holds for all runs: values that they share, else None; and the latest date."""
    shared = {key: entries[0][key] if all(e[key] == entries[0][key] for e in entries) else None for key in KEYS}
    return shared | {"date": max((entry["date"] for entry in entries if entry["date"]), default=None)}


def joined(kept: Mapping[str, Any], found: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """provenance.json of runs from two sources."""
    machines = dict.fromkeys([*kept["machines"], *found["machines"]])
    total = {"machines": [*machines], "wall_seconds": round(sum(run["seconds"] for run in runs), 1)}
    return common([{**dict.fromkeys(KEYS), **run} for run in runs]) | total | {"runs": list(runs)}


def commands(known: Mapping[str, Any]) -> list[str]:
    """Those that trained the runs of `provenance.json`, each once; empty if none was recorded."""
    found = [known.get("command"), *(run.get("command") for run in known["runs"])]
    return [*dict.fromkeys(filter(None, found))]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """Of the source checkout that the package is in, with `-dirty` if files were changed; None outside of one."""
    git = ["git", "-C", str(Path(self_imitation.__file__).resolve().parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, check=True)
        described = [*git, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
        return subprocess.run(described, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
