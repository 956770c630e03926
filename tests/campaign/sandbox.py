"""A directory for one case: the run under attack, and everything around it that must stay as it is.

run/        a copy of a base run, changed by the case        cwd/       the working directory; evilrun is the run
output/     where commands may write                         outside/   files of the user
"""

import hashlib
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

from campaign.outcomes import Case, Change

EVIL = """\
import os, pathlib
for parent in pathlib.Path(__file__).resolve().parents:
    if (parent / "canary-directory").exists():
        (parent / "EXECUTED").touch()
"""
FREE = ("run", "output", "EXECUTED", "stdout", "stderr", "stack", "traceback", "divergence")
"""What a case may change."""
HOLE = "@hole@"


class Sandbox:
    def __init__(self, path: Path, case: Case, bases: Path | None):
        self.path, self.run, self.output, self.cwd = path, path / "run", path / "output", path / "cwd"
        shutil.rmtree(path, ignore_errors=True)
        for folder in (self.cwd, self.output, path / "outside" / "photos" / "2019"):
            folder.mkdir(parents=True)
        (path / "canary-directory").touch()
        (path / "outside" / "photos" / "2019" / "beach.jpg").write_bytes(b"a picture")
        (path / "outside" / "notes.txt").write_text("do not delete\n")
        (self.cwd / "evil.py").write_text(EVIL)
        (self.cwd / "evilrun").symlink_to("../run")
        if case.base and bases is not None:
            shutil.copytree(bases / case.base, self.run)
            (self.run / "evil.py").write_text(EVIL)
        for change in case.changes:
            apply(change, self.run)
        self._before = self._snapshot()

    def command(self, case: Case) -> list[str]:
        places = {"{run}": self.run, "{output}": self.output, "{sandbox}": self.path}
        words = list(case.command)
        for name, place in places.items():
            words = [word.replace(name, str(place)) for word in words]
        return words

    @property
    def executed(self) -> bool:
        return (self.path / "EXECUTED").exists()

    def touched(self) -> tuple[str, ...]:
        """Paths outside the run that are no longer as they were."""
        after = self._snapshot()
        changed = {name for name in self._before.keys() | after.keys() if self._before.get(name) != after.get(name)}
        return tuple(sorted(changed))

    def text(self, name: str) -> str:
        file = self.path / name
        return file.read_text(errors="replace") if file.exists() else ""

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _snapshot(self) -> dict[str, Any]:
        found = {}
        for folder, folders, names in os.walk(self.path):
            if Path(folder) == self.path:
                folders[:] = [name for name in folders if name not in FREE]
                names = [name for name in names if name not in FREE]
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in (*folders, *names):
                path = Path(folder, name)
                content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
                found[str(path.relative_to(self.path))] = (path.lstat().st_mode, hashlib.sha256(content).digest())
        return found


def apply(change: Change, run: Path) -> None:
    """Make one change in a run's directory; a file that an earlier change removed is left alone."""
    file = run / change.file
    match change.do:
        case "write":
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(change.content)
        case "set" | "drop":
            document = read_document(file)
            if document is not None:
                write_document(file, *_edited(document, change))
        case "seal":
            seal(file)
        case "delete" if file.is_dir():
            shutil.rmtree(file)
        case "delete":
            file.unlink(missing_ok=True)
        case "link":
            apply(Change("delete", change.file), run)
            file.symlink_to(change.text)
        case "folder":
            shutil.copytree(run / change.text, file)


def read_document(file: Path) -> Any:
    """The JSON in a file, or in the header of a safetensors file; None if there is none."""
    try:
        content = file.read_bytes()
        return json.loads(_header(content) if file.suffix == ".safetensors" else content)
    except (ValueError, OSError, RecursionError, struct.error):
        return None


def write_document(file: Path, document: Any, hole: str) -> None:
    text = json.dumps(document, indent=None if file.suffix == ".safetensors" else 2).replace(f'"{HOLE}"', hole)
    if file.suffix != ".safetensors":
        file.write_text(text)
        return
    content, header = file.read_bytes(), text.encode("utf-8", "surrogatepass")
    body = content[8 + len(_header(content)) :]
    header += b" " * (-len(header) % 8)
    file.write_bytes(struct.pack("<Q", len(header)) + header + body)


def seal(checkpoint: Path) -> None:
    """Recompute all checksums of a checkpoint, as someone would who wants to pass the first checks."""
    meta = read_document(checkpoint / "meta.json")
    if not isinstance(meta, dict):
        return
    meta.pop("checksum", None)
    if isinstance(meta.get("checksums"), dict):
        for file in checkpoint.glob("*.safetensors"):
            meta["checksums"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    checksum = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
    (checkpoint / "meta.json").write_text(json.dumps({**meta, "checksum": checksum}))


def _header(content: bytes) -> bytes:
    return content[8 : 8 + struct.unpack("<Q", content[:8])[0]]


def _edited(document: Any, change: Change) -> tuple[Any, str]:
    """The document with the value at that place removed or replaced by a hole, and what goes into the hole."""
    *path, last = change.at or (None,)
    inner = document
    try:
        for step in path:
            inner = inner[step]
        if last is None:
            document = HOLE
        elif change.do == "drop":
            del inner[last]
        else:
            inner[last] = HOLE
    except (KeyError, IndexError, TypeError):
        pass  # the place is gone, in another release or by an earlier change
    return document, change.text
