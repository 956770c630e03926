"""record/: what a run writes for `sil watch`, as series of JSON files, record/SERIES/STEP.json.

Each file is complete in itself and appears under its name when it is. A series stays bounded: when it is full, the file
that leaves the smallest gap is deleted, so that the others stay spread over the whole run.
"""

import json
from pathlib import Path
from typing import Any

from self_imitation.errors import UsageError
from self_imitation.storage import files
from self_imitation.storage.run_directory import RECORD

SNAPSHOTS, PLAYED = SERIES = ("snapshots", "played")
"""What the agent remembers and what its policy does; episodes that its policy played."""


class Series:
    """The files of one series."""

    def __init__(self, run: Path, name: str, most: int):
        """`most`: the number of files that are kept, at least 3."""
        self.folder, self.most = run / RECORD / name, most

    def steps(self) -> list[int]:
        """The steps of its files, oldest first."""
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdecimal())

    def read(self, step: int) -> dict[str, Any]:
        return json.loads(self._path(step).read_text(encoding="utf-8"))

    def write(self, step: int, data: object, protected: int = -1) -> None:
        """Add a file, and delete another one if there are too many; never the first, the last or that of `protected`.

        Not synchronised to disk: nothing but the page depends on it.
        """
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(exist_ok=True)
        self._refuse_links()
        with files.replacing(self._path(step)) as partial, open(partial, "x", encoding="utf-8") as file:
            file.write(json.dumps(data, separators=(",", ":"), allow_nan=False))
        steps = self.steps()
        if len(steps) > self.most:
            inner = [i for i in range(1, len(steps) - 1) if steps[i] != protected]
            self._path(steps[min(inner, key=lambda i: steps[i + 1] - steps[i - 1])]).unlink()

    def keep_until(self, step: int) -> dict[int, dict[str, Any]]:
        """Delete what an interrupted run wrote after this step, and files that a crash damaged; returns the others."""
        if not self.folder.is_dir():
            return {}
        self._refuse_links()
        files.clear_partial(self.folder)
        kept = {}
        for at in self.steps():
            try:
                data = self.read(at) if at <= step else None
            except ValueError:
                data = None
            if data is None:
                self._path(at).unlink()
            else:
                kept[at] = data
        return kept

    def _refuse_links(self) -> None:
        """What is written and deleted belongs to the run."""
        for folder in (self.folder.parent, self.folder):
            if folder.is_symlink():
                raise UsageError(f"{str(folder)!r} is a symbolic link; links inside a run directory are not followed")

    def _path(self, step: int) -> Path:
        return self.folder / f"{step}.json"
