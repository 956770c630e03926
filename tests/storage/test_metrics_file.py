"""metrics.csv and the TensorBoard files beside it."""

import math
from pathlib import Path

import pytest

from self_imitation.errors import UsageError
from self_imitation.storage import metrics_file
from self_imitation.storage.metrics_file import MetricsWriter

COLUMNS = ["loss"]


def row(seed, step, **values):
    return {"seed": seed, "step": step, "episodes": 3, "return_mean": 1.5, "return_best": 4, "loss": 0.1, **values}


def write(directory, *steps, keep=None):
    """Returns the length of the table after each row."""
    writer, lengths = MetricsWriter(directory, COLUMNS, keep), []
    for step in steps:
        writer.write([row(seed, step) for seed in (0, 1)])
        lengths.append(writer.flush_to_disk())
    writer.close()
    return lengths


def steps_of(directory):
    return [int(found["step"]) for found in metrics_file.read(directory) if found["seed"] == 0]


def test_rows_are_read_as_they_were_written(tmp_path):
    write(tmp_path, 100, 200)
    table = metrics_file.read(tmp_path)
    assert [(found["seed"], found["step"]) for found in table] == [(0, 100), (1, 100), (0, 200), (1, 200)]
    assert table[0]["loss"] == 0.1
    assert math.isnan(table[0]["length_mean"])


def test_the_header_and_the_format_of_numbers(tmp_path):
    writer = MetricsWriter(tmp_path, COLUMNS, None)
    writer.write([row(0, 10**12, loss=1 / 3, return_mean=math.nan, return_best=math.inf)])
    writer.close()
    header, line = (tmp_path / "metrics.csv").read_text().splitlines()
    assert header == "seed,step,episodes,return_mean,return_best,length_mean,loss,steps_per_second,seconds"
    assert line == "0,1000000000000,3,,,,0.333333333,,"


def test_rows_after_the_checkpoint_are_cut_off(tmp_path):
    first, _ = write(tmp_path, 100, 200)
    write(tmp_path, 250, keep=first)
    assert steps_of(tmp_path) == [100, 250]


def test_a_half_written_row_is_ignored_and_replaced(tmp_path):
    (length,) = write(tmp_path, 100)
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("0,2")
    assert steps_of(tmp_path) == [100]
    write(tmp_path, 200, keep=length)
    assert steps_of(tmp_path) == [100, 200]


@pytest.mark.parametrize("left", ["nothing", "no bytes", "half a header", "some rows"])
def test_a_table_that_lost_rows_is_continued(tmp_path, left):
    length = write(tmp_path, 100, 200)[-1]
    table = tmp_path / "metrics.csv"
    header, first, second, *_ = table.read_bytes().splitlines(keepends=True)
    table.write_bytes({"no bytes": b"", "half a header": header[:20]}.get(left, header + first + second[:9]))
    if left == "nothing":
        table.unlink()
    messages = []
    writer = MetricsWriter(tmp_path, COLUMNS, length, messages.append)
    assert messages == ["metrics.csv lacks rows of earlier steps; continuing with the rows it has"]
    writer.write([row(0, 300)])
    writer.close()
    assert steps_of(tmp_path) == ([100, 300] if left == "some rows" else [300])
    assert table.read_bytes().startswith(header)


CHANGES = {
    "deleted": Path.unlink,
    "replaced": lambda table: table.with_name("x").rename(table),
    "appended to": lambda table: table.write_bytes(table.read_bytes() + b"9,9\n"),
    "cut": lambda table: table.write_bytes(table.read_bytes()[:-5]),
    "overwritten": lambda table: table.write_bytes(b"x,y\n1,2\n"),
    "emptied": lambda table: table.write_bytes(b""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_changed_while_its_run_trains_is_written_again(tmp_path, change):
    messages, table = [], tmp_path / "metrics.csv"
    (tmp_path / "x").write_text("another file")
    writer = MetricsWriter(tmp_path, COLUMNS, None, messages.append)
    for step in (100, 200):
        writer.write([row(0, step)])
    CHANGES[change](table)
    writer.write([row(0, 300)])
    assert writer.flush_to_disk() == table.stat().st_size
    writer.close()
    left = {"cut": [100], "overwritten": [], "emptied": []}.get(change, [100, 200])
    assert steps_of(tmp_path) == [*left, 300]
    lost = "" if len(left) == 2 else ", without the rows that were lost"
    assert messages == [f"metrics.csv was deleted or changed by another program; it was written again{lost}"]


@pytest.mark.parametrize("kind", ["another table", "bytes", "directory"])
def test_what_is_not_this_runs_table_is_left_alone(tmp_path, kind):
    table = tmp_path / "metrics.csv"
    if kind == "directory":
        table.mkdir()
    else:
        table.write_bytes(b"seed,step\n" if kind == "another table" else bytes(range(256)))
    with pytest.raises(UsageError, match=r"metrics\.csv' is damaged: not this run's metrics; move it away"):
        MetricsWriter(tmp_path, COLUMNS, 400)
    assert table.exists()


TABLE = b"seed,step,episodes,return_mean,return_best,length_mean,loss,steps_per_second,seconds\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x,y\n1,2\n", "no column 'seed'"),
        (b"\xff\xfe\n", "not text"),
        (b"seed,step\n0,many\n", "no column 'episodes'"),
        (TABLE + b"0,many,1,,,,,,\n", "step is 'many'"),
        (TABLE + b",10,1,,,,,,\n", "seed is ''"),
        (TABLE + b"0,,1,,,,,,\n", "step is ''"),
        (TABLE + b"0\n", "step is ''"),
        (TABLE + b"0,inf,1,,,,,,\n", "step is 'inf'"),
        (TABLE + b"0,1e300,1,,,,,,\n", "step is '1e300'"),
        (TABLE + b"-1,10,1,,,,,,\n", "seed is '-1'"),
        (TABLE + b"0,10,1.5,,,,,,\n", r"episodes is '1\.5'"),
        (TABLE + b"0,10,1,1e400,,,,,\n", "return_mean is '1e400'"),
        (TABLE + b"0,10,1,," + b"9" * 5000 + b",,,,\n", "return_best is '9{59}$"),
    ],
)
def test_damaged_tables_are_named(tmp_path, content, message):
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(UsageError, match=rf"metrics\.csv' is damaged: {message}"):
        metrics_file.read(tmp_path)


def test_no_table_has_no_rows(tmp_path):
    assert metrics_file.read(tmp_path) == []


class FullDisk:
    """Writes half of what it is given, then raises, as long as `full`."""

    def __init__(self, file):
        self.file, self.full = file, True

    def write(self, data):
        if self.full:
            return self.file.write(data[: len(data) // 2])
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_rows_that_a_full_disk_rejected_are_written_with_the_next_ones(tmp_path):
    writer = MetricsWriter(tmp_path, COLUMNS, None)
    writer.write([row(0, 100)])
    writer._file = FullDisk(writer._file)
    with pytest.raises(OSError, match="No space left"):
        writer.write([row(0, 200)])
    assert steps_of(tmp_path) == [100], "no half rows"
    writer._file.full = False
    writer.write([row(0, 300)])
    writer.close()
    assert steps_of(tmp_path) == [100, 200, 300]


def events(file):
    from tensorboardX.proto.event_pb2 import Event

    data = file.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        yield Event.FromString(data[12 : 12 + length])
        data = data[12 + length + 4 :]


def test_tensorboard_has_the_same_numbers(tmp_path):
    write(tmp_path, 100, 200)
    (file,) = (tmp_path / "tensorboard" / "seed-1").iterdir()
    found = {(value.tag, event.step): value.simple_value for event in events(file) for value in event.summary.value}
    assert found["losses/loss", 200] == pytest.approx(0.1)
    assert ("episodes/length_mean", 200) not in found, "unknown"


def test_tensorboard_forgets_what_an_interrupted_run_wrote(tmp_path):
    first, _ = write(tmp_path, 100, 200)
    write(tmp_path, 150, keep=first)
    starts = [
        event.step
        for file in (tmp_path / "tensorboard" / "seed-0").iterdir()
        for event in events(file)
        if event.HasField("session_log")
    ]
    assert starts == [150]


def test_a_new_run_starts_new_tensorboard_files(tmp_path):
    write(tmp_path, 100)
    write(tmp_path, 100)
    assert len(list((tmp_path / "tensorboard" / "seed-0").iterdir())) == 1
