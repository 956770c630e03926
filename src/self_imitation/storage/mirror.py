"""A run directory on storage that has a URL, such as s3://bucket/runs: trained in a local copy, uploaded as it grows.

The order of the uploads makes every state of the storage one that can be resumed from: rows of metrics before the
checkpoint that counts them, a checkpoint's arrays before its metadata, the summary last.
"""

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from self_imitation.errors import UsageError, first_line
from self_imitation.storage import best, checkpoint, files, lock, metrics_file

OWNER = "owner.json"
"""Which process trains the run. One that finds another name there stops."""
LIGHT = ("config.json", metrics_file.FILE, "summary.json", "provenance.json")
"""What reports and progress need."""
CHECKPOINTS = (best.DIRECTORY, checkpoint.DIRECTORY)
"""Folders whose folders are complete with their metadata, and which are deleted when they are not needed any more."""
SECONDS = 10.0
"""Between uploads."""


def is_url(place: str) -> bool:
    return "://" in place


def open_url(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it. Raises a `UsageError` if there is none for it."""
    try:
        import fsspec
    except ImportError:
        raise UsageError("storage on URLs needs the package fsspec: pip install 'self-imitation[ray]'") from None
    try:
        system, path = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise UsageError(f"storage: {url!r} needs another package: {first_line(error)}") from None
    except ValueError as error:
        raise UsageError(f"storage: {url!r} is not allowed; {first_line(error)}") from None
    return system, path.rstrip("/")


@contextlib.contextmanager
def explain_failure(url: str) -> Iterator[None]:
    """Raise what a file system raises as a `UsageError`."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # fsspec's file systems raise those of the libraries that they are made of
        reason = first_line(error) or type(error).__name__
        raise UsageError(f"storage: {url!r} can't be used: {reason}") from None


class Mirror:
    """A local directory and its copy at a URL."""

    def __init__(self, url: str, local: Path):
        self.url, self.local = url.rstrip("/"), local
        self._system, self._root = open_url(self.url)
        self._known: dict[str, tuple[int, int]] = {}
        """Size and time of the local files that are uploaded."""
        self._seen: dict[str, Any] = {}
        """What identifies the version of each remote file that was downloaded."""

    def write(self, name: str, content: bytes) -> None:
        self._system.pipe_file(f"{self._root}/{name}", content)

    def read(self, name: str) -> bytes | None:
        """None if there is no such file."""
        try:
            return self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        return list(self._remote())

    def delete(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._system.rm(self._root, recursive=True)

    def download(self, names: tuple[str, ...] | None = None) -> None:
        """Bring the local copy up to date, or only files of these names. Checkpoints that were not uploaded completely
        are left out.
        """
        remote = self._remote()
        complete = {str(PurePosixPath(name).parent) for name in remote if PurePosixPath(name).name == checkpoint.META}
        for name, entry in remote.items():
            if name == OWNER or (names is not None and name not in names):
                continue
            if _is_of_checkpoint(name) and str(PurePosixPath(name).parent) not in complete:
                continue
            version = _version(entry)
            if self._seen.get(name) == version and (self.local / name).exists():
                continue
            target = self.local / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with files.replacing(target) as partial:
                self._system.get_file(f"{self._root}/{name}", str(partial))
            self._seen[name] = version
            self._known[name] = _stamp(target)

    def upload(self) -> None:
        """Upload what has changed, and delete the checkpoints that were deleted here."""
        present = sorted(self._local(), key=_order)
        for name in present:
            with contextlib.suppress(FileNotFoundError):  # a checkpoint may be deleted meanwhile
                stamp = _stamp(self.local / name)
                if self._known.get(name) != stamp:
                    self._system.put_file(str(self.local / name), f"{self._root}/{name}")
                    self._known[name] = stamp
        gone = [name for name in self._known if name not in present and _is_of_checkpoint(name)]
        for name in sorted(gone, key=_order, reverse=True):  # metadata first
            with contextlib.suppress(FileNotFoundError):
                self._system.rm_file(f"{self._root}/{name}")
            del self._known[name]

    def _local(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.local):
            for name in names:
                path = Path(folder, name).relative_to(self.local)
                if name != lock.FILE and not any(part.startswith(files.PARTIAL) for part in path.parts):
                    yield path.as_posix()

    def _remote(self) -> dict[str, dict[str, Any]]:
        """Details of the files by name."""
        try:
            found = self._system.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        return {path.removeprefix(self._root).lstrip("/"): entry for path, entry in found.items()}


@contextlib.contextmanager
def uploading(mirror: Mirror, lost: Callable[[], None], seconds: float = SECONDS) -> Iterator[None]:
    """Upload every few seconds, in a thread, and once more at the end. `lost` is called if another process has taken
    the run over; nothing is uploaded from then on. A failed upload is tried again; the last one raises.
    """
    token = uuid.uuid4().hex.encode()
    mirror.write(OWNER, token)
    ended, owned = threading.Event(), True

    def upload() -> None:
        nonlocal owned
        if owned and mirror.read(OWNER) != token:
            owned = False
            lost()
        if owned:
            mirror.upload()

    def repeat() -> None:
        while not ended.wait(seconds):
            with contextlib.suppress(Exception):
                upload()

    thread = threading.Thread(target=repeat, name="upload", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with explain_failure(mirror.url):
            upload()


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _version(entry: dict[str, Any]) -> Any:
    """What changes with a file's content, as far as its file system tells."""
    return tuple(str(entry.get(key)) for key in ("size", "ETag", "LastModified", "mtime", "created", "updated"))


def _is_of_checkpoint(name: str) -> bool:
    return PurePosixPath(name).parts[0] in CHECKPOINTS


def _order(name: str) -> tuple[int, str, bool, str]:
    """Metrics and settings, then checkpoints from the oldest on with their metadata last, then the summary."""
    path = PurePosixPath(name)
    if path.parts[0] in CHECKPOINTS:
        step = path.parts[1] if len(path.parts) > 1 else ""
        return 1, step.zfill(20), path.name == checkpoint.META, name
    return 2 if name in ("summary.json", "provenance.json") else 0, "", False, name
