"""Files: written so that a crash leaves either the old one or the new one, and read whatever is in them."""

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from self_imitation.errors import UsageError

PARTIAL = ".partial-"
"""Prefix of files being written; only a crash leaves them behind, and they are deleted later."""
MAX_JSON_BYTES = 16 << 20


class UnreadableError(Exception):
    """A file can't be read; the message says why, without its name."""


def absolute(path: str | os.PathLike[str]) -> Path:
    """A path as the user wrote it, made independent of the working directory, which an environment may change."""
    if "\0" in os.fspath(path):
        raise UsageError(f"{os.fspath(path)!r} is not a path: it has a NUL character")
    return Path(path).absolute()


def _partial(path: Path) -> Path:
    return path.with_name(PARTIAL + path.name)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file to write, in place of `path` if nothing fails. A symbolic link is replaced, not followed."""
    partial = _partial(path)
    partial.unlink(missing_ok=True)
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        write_through(partial, content)
    sync_directory(path.parent)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode())


def write_json(path: Path, data: object) -> None:
    write_text(path, json.dumps(data, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Raises `UnreadableError`, whatever is wrong with the file."""
    try:
        with open_regular(path, "rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)
        if len(content) > MAX_JSON_BYTES:
            raise UnreadableError(f"larger than {MAX_JSON_BYTES} bytes")
        return json.loads(content)
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        raise UnreadableError("not readable JSON") from None


def read_named(name: str, most: int = MAX_JSON_BYTES) -> str:
    """The text of a file that the user named, at most `most` bytes. Raises a `UsageError` that says what is wrong."""
    try:
        with open_regular(absolute(name), "rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise UsageError(f"{name!r} can't be read: larger than {most} bytes")
        return content.decode()
    except FileNotFoundError:
        raise UsageError(f"no such file: {name!r}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name!r} can't be read: not text") from None
    except OSError as error:
        raise UsageError(f"{name!r} can't be read: {error.strerror}") from None


def write_through(path: Path, content: bytes) -> None:
    """Write a new file and flush it to disk."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def open_regular(path: Path, mode: Literal["rb", "a+b"]) -> io.FileIO:
    """Open a file, unbuffered. Pipes and devices are refused: they may block. "a+b" follows no links."""
    flags = getattr(os, "O_NONBLOCK", 0) | (0 if mode == "rb" else getattr(os, "O_NOFOLLOW", 0))
    file = open(path, mode, buffering=0, opener=lambda name, usual: os.open(name, usual | flags, 0o666))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file")
    return file


def sync_directory(path: Path) -> None:
    if sys.platform == "win32":
        return  # directories can't be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_partial(directory: Path) -> None:
    for path in directory.glob(f"{PARTIAL}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def explain(error: OSError, path: Path, field: str = "out") -> UsageError:
    """A failed write as a `UsageError`."""
    return UsageError(f"{field}: {str(path)!r} can't be written: {error.strerror or error}")


@contextlib.contextmanager
def explain_failure(path: Path, field: str = "out") -> Iterator[None]:
    """Raise a failed write to `path` as a `UsageError`."""
    try:
        yield
    except OSError as error:
        raise explain(error, path, field) from None


def require_writable(path: Path, field: str, make_parents: bool = False) -> Path:
    """Raise now rather than after the work whose result goes there. Returns the absolute path."""
    target = absolute(path)
    with explain_failure(path, field):
        if make_parents:
            target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        probe = _partial(target)
        probe.unlink(missing_ok=True)
        write_through(probe, b"")
        probe.unlink()
    return target
