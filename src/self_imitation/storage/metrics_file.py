"""metrics.csv and the TensorBoard files of a run: one row per seed and logging point."""

import csv
import io
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from self_imitation.errors import UsageError
from self_imitation.storage import files
from self_imitation.storage.tags import tag

FILE, TENSORBOARD = "metrics.csv", "tensorboard"
LEADING = ("seed", "step", "episodes", "return_mean", "return_best", "length_mean")
TIMING = ("steps_per_second", "seconds")
"""Columns that measure time; all others but `eval_seconds` are reproducible."""
EVALUATION = ("eval_return_mean", "eval_return_best", "eval_length_mean", "eval_seconds")
"""Columns of runs with evaluations; empty in rows without one."""

WHOLE = ("seed", "step", "episodes")
"""Columns of whole numbers, none of them empty."""

LONGEST_ROW = 1 << 14
"""In bytes."""

Row = Mapping[str, float]


class EventFile:
    """TensorBoard's file of one seed. Written at once, in this thread: a full disk is an error, not a hang."""

    def __init__(self, directory: Path, forget_from: int | None):
        """`forget_from`: TensorBoard drops what an interrupted stretch wrote from that step on."""
        for folder in (directory.parent, directory):
            folder.mkdir(exist_ok=True)
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

    def __init__(
        self,
        directory: Path,
        columns: Sequence[str],
        keep_bytes: int | None,
        warn: Callable[[str], None] = lambda _: None,
    ):
        """`keep_bytes`: length of the table when the checkpoint was saved; later rows are cut off. None: a new table.

        A table that is shorter than that is continued with the rows that it has, and `warn` is called with a message.
        """
        self.columns = [*LEADING, *columns, *TIMING]
        self._directory, self._path, self._warn = directory, directory / FILE, warn
        self._resumed = keep_bytes is not None
        self._boards: dict[int, EventFile] = {}
        self._bytes = _bytes_of_whole_rows(self._path, self.columns, keep_bytes) if keep_bytes is not None else 0
        self._waiting = b"" if self._bytes else _line(self.columns)
        if self._bytes < (keep_bytes or 0):
            warn(f"{FILE} lacks rows of earlier steps; continuing with the rows it has")
        if not self._resumed:
            shutil.rmtree(directory / TENSORBOARD, ignore_errors=True)
        self._file = files.open_regular(self._path, "a+b")
        self._file.truncate(self._bytes)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._waiting += _line([_cell(row.get(column, math.nan)) for column in self.columns])
        self._flush()
        for row in rows:
            self._board(row).write(int(row["step"]), {tag(name): row[name] for name in self.columns[2:] if name in row})

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
        self._restore_table()
        try:
            written = self._file.write(self._waiting)
            if written != len(self._waiting):
                raise OSError(28, "No space left on device")
        except OSError:
            self._file.truncate(self._bytes)  # no half rows
            raise
        self._bytes += len(self._waiting)
        self._waiting = b""

    def _restore_table(self) -> None:
        """Write the table again, from the file that is open, if another program deleted, replaced or changed it."""
        if self._is_intact():
            return
        self._file.seek(0)
        known = _whole_rows(self._file.read(self._bytes), self.columns) or b""
        files.write_atomically(self._path, known)
        self._file.close()
        self._file = files.open_regular(self._path, "a+b")
        lost = "" if len(known) == self._bytes else ", without the rows that were lost"
        self._warn(f"{FILE} was deleted or changed by another program; it was written again{lost}")
        self._waiting = (b"" if known else _line(self.columns)) + self._waiting
        self._bytes = len(known)

    def _is_intact(self) -> bool:
        held = os.fstat(self._file.fileno())
        try:
            return os.path.samestat(os.lstat(self._path), held) and held.st_size == self._bytes
        except FileNotFoundError:
            return False

    def _board(self, row: Row) -> EventFile:
        seed = int(row["seed"])
        if seed not in self._boards:
            forget_from = int(row["step"]) if self._resumed else None
            self._boards[seed] = EventFile(self._directory / TENSORBOARD / f"seed-{seed}", forget_from)
        return self._boards[seed]


def read(directory: Path) -> list[dict[str, float]]:
    """The rows of a run's table; an empty cell is NaN. A half-written last row is ignored."""
    path = directory / FILE
    try:
        with files.open_regular(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}") from None
    return parse(content, path)


def last_row(directory: Path) -> dict[str, float] | None:
    """The last complete row, without reading the whole table; None if there is none that can be read."""
    try:
        with files.open_regular(directory / FILE, "rb") as file:
            header = file.read(LONGEST_ROW).partition(b"\n")[0]
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * LONGEST_ROW))
            lines = file.read(2 * LONGEST_ROW).rpartition(b"\n")[0].split(b"\n")
        return parse(header + b"\n" + lines[-1] + b"\n", directory / FILE)[-1] if lines[-1] != header else None
    except (OSError, UsageError, IndexError):
        return None


def parse(content: bytes, path: Path) -> list[dict[str, float]]:
    """The rows of a table; `path` names it in errors."""
    try:
        text = content.decode()
        reader = csv.DictReader(line for line in io.StringIO(text, newline="") if line.endswith("\n"))
        missing = [name for name in (*LEADING, *TIMING) if name not in (reader.fieldnames or ())]
        if missing and text:
            raise ValueError(f"no column {missing[0]!r}")
        return [{name: _number(name, cell) for name, cell in row.items() if name} for row in reader]
    except UnicodeDecodeError:
        raise UsageError(f"{str(path)!r} is damaged: not text") from None
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{str(path)!r} is damaged: {error}") from None


def _number(column: str, cell: str | None) -> float:
    """NaN if the cell is empty, which only measurements may be."""
    if not cell and column not in WHOLE:
        return math.nan
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (column in WHOLE and not (0 <= value < 2**53 and value.is_integer())):
        raise ValueError(f"{column} is {cell or ''!r:.60}")
    return value


def _bytes_of_whole_rows(path: Path, columns: Sequence[str], most: int) -> int:
    """Length of the complete rows within the first `most` bytes."""
    if not path.exists():
        return 0
    rows = _whole_rows(path.read_bytes()[:most], columns) if path.is_file() else None
    if rows is None:
        raise UsageError(f"{str(path)!r} is damaged: not this run's metrics; move it away to continue without its rows")
    return len(rows)


def _whole_rows(table: bytes, columns: Sequence[str]) -> bytes | None:
    """Without a half-written last row; None if it is a table of something else."""
    return table[: table.rfind(b"\n") + 1] if table.startswith(_line(columns)[: len(table)]) else None


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def as_read(value: float) -> float:
    """The number that is read back from the table."""
    return _number("", _cell(value))


def _cell(value: float) -> str:
    """Integers as such, others with all float32 digits, empty if unknown."""
    if not math.isfinite(value):
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else f"{value:.9g}"
