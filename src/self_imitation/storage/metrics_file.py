"""metrics.csv and the TensorBoard files of a run: one row per seed and logging point."""

import csv
import io
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from self_imitation.errors import UsageError

FILE = "metrics.csv"
LEADING = ("seed", "step", "episodes", "return_mean", "return_best", "length_mean")
TIMING = ("steps_per_second", "seconds")
"""Columns that measure time; all others are reproducible."""

Row = Mapping[str, float]


class EventFile:
    """TensorBoard's file of one seed. Written at once, in this thread: a full disk is an error, not a hang."""

    def __init__(self, directory: Path, forget_from: int | None):
        """`forget_from`: TensorBoard drops what an interrupted stretch wrote from that step on."""
        directory.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(directory / "events"))
        if forget_from is not None:
            self._write(Event(step=forget_from, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            if math.isfinite(value):
                self._write(Event(step=step, summary=scalar(name, value)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write_event(event)


class MetricsWriter:
    """Appends rows. Rows that a full disk rejects are written with the next ones."""

    def __init__(self, directory: Path, columns: Sequence[str], keep_bytes: int | None):
        """`keep_bytes`: length of the table when the checkpoint was saved; later rows are cut off. None: a new table.

        A table that is shorter than that is continued with the rows that it has.
        """
        self.columns = [*LEADING, *columns, *TIMING]
        self._directory = directory
        self._resumed = keep_bytes is not None
        self._boards: dict[int, EventFile] = {}
        path = directory / FILE
        self._bytes = _bytes_of_whole_rows(path, self.columns, keep_bytes) if keep_bytes is not None else 0
        self._waiting = b"" if self._bytes else _line(self.columns)
        self.lacks_rows = self._bytes < (keep_bytes or 0)
        """Whether rows are missing that existed when the checkpoint was saved."""
        if not self._resumed:
            shutil.rmtree(directory / "tensorboard", ignore_errors=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._file.truncate(self._bytes)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._waiting += _line([_cell(row.get(column, math.nan)) for column in self.columns])
        self._flush()
        for row in rows:
            self._board(row).write(int(row["step"]), {name: row[name] for name in self.columns[2:] if name in row})

    def flush_to_disk(self) -> int:
        """Write all rows to disk; returns the length of the table in bytes."""
        self._flush()
        os.fsync(self._file.fileno())
        return self._bytes

    def close(self) -> None:
        self._file.close()
        for board in self._boards.values():
            board.close()

    def _flush(self) -> None:
        try:
            written = self._file.write(self._waiting)
            if written != len(self._waiting):
                raise OSError(28, "No space left on device")
        except OSError:
            self._file.truncate(self._bytes)  # no half rows
            raise
        self._bytes += len(self._waiting)
        self._waiting = b""

    def _board(self, row: Row) -> EventFile:
        seed = int(row["seed"])
        if seed not in self._boards:
            forget_from = int(row["step"]) if self._resumed else None
            self._boards[seed] = EventFile(self._directory / "tensorboard" / f"seed-{seed}", forget_from)
        return self._boards[seed]


def read(directory: Path) -> list[dict[str, float]]:
    """The rows of a run's table; an empty cell is NaN. A half-written last row is ignored."""
    path = directory / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}") from None
    return parse(content, path)


def parse(content: bytes, path: Path) -> list[dict[str, float]]:
    """The rows of a table; `path` names it in errors."""
    try:
        lines = [line for line in content.decode().splitlines(keepends=True) if line.endswith("\n")]
        rows = [{k: float(v) if v else math.nan for k, v in row.items() if k} for row in csv.DictReader(lines)]
    except UnicodeDecodeError:
        raise UsageError(f"{str(path)!r} is damaged: not text") from None
    except (ValueError, TypeError, csv.Error) as error:
        raise UsageError(f"{str(path)!r} is damaged: {error}") from None
    if rows and not set(LEADING) <= set(rows[0]):
        raise UsageError(f"{str(path)!r} is damaged: no column {sorted(set(LEADING) - set(rows[0]))[0]!r}")
    return rows


def _bytes_of_whole_rows(path: Path, columns: Sequence[str], most: int) -> int:
    """Length of the complete rows within the first `most` bytes."""
    if not path.exists():
        return 0
    found, header = path.read_bytes()[:most] if path.is_file() else None, _line(columns)
    if found is None or not found.startswith(header[: len(found)]):
        raise UsageError(f"{str(path)!r} is damaged: not this run's metrics; move it away to continue without its rows")
    return found.rfind(b"\n") + 1


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _cell(value: float) -> str:
    """Integers as such, others with all float32 digits, empty if unknown."""
    if not math.isfinite(value):
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else f"{value:.9g}"
