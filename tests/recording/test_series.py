"""The files in record/: bounded, atomic, and none from steps that a resumed run makes again."""

import json

import numpy as np
import pytest

from self_imitation.errors import UsageError
from self_imitation.recording.series import SNAPSHOTS, Series


@pytest.fixture
def series(tmp_path):
    return Series(tmp_path, SNAPSHOTS, 5)


def test_a_file_appears_when_it_is_complete(series):
    series.write(10, {"step": 10})
    assert [path.name for path in series.folder.iterdir()] == ["10.json"]
    assert json.loads((series.folder / "10.json").read_text()) == {"step": 10}
    with pytest.raises(ValueError, match="JSON"):
        series.write(20, {"value": float("nan")})
    assert series.steps() == [10]


def test_a_full_series_stays_spread_over_the_run_with_its_first_and_last_file(series):
    for step in range(0, 1000, 10):
        series.write(step, {}, protected=30)
    steps = series.steps()
    assert len(steps) == 5
    assert (steps[0], steps[-1]) == (0, 990)
    assert 30 in steps
    assert max(np.diff(steps)) < 600


def test_what_was_written_after_a_step_is_deleted_and_damaged_files_are_too(series):
    for step in (0, 10, 20):
        series.write(step, {"step": step})
    (series.folder / "10.json").write_text("{")
    (series.folder / ".partial-5.json").write_text("{}")
    assert series.keep_until(10) == {0: {"step": 0}}
    assert [path.name for path in series.folder.iterdir()] == ["0.json"]
    assert series.keep_until(-1) == {}
    assert series.steps() == []


@pytest.mark.parametrize("link", ["record", "record/snapshots"])
def test_nothing_is_written_or_deleted_through_a_symbolic_link(series, tmp_path, link):
    outside = tmp_path / "outside" / "snapshots"
    outside.mkdir(parents=True)
    (outside / "7.json").write_text("{}")
    path = tmp_path / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside.parent if link == "record" else outside)
    for action in (lambda: series.write(8, {}), lambda: series.keep_until(-1)):
        with pytest.raises(UsageError, match="is a symbolic link"):
            action()
    assert [file.name for file in outside.iterdir()] == ["7.json"]


def test_a_link_left_in_place_of_an_incomplete_file_is_replaced(series, tmp_path):
    series.write(1, {})
    (tmp_path / "other").write_text("kept")
    (series.folder / ".partial-2.json").symlink_to(tmp_path / "other")
    series.write(2, {})
    assert (tmp_path / "other").read_text() == "kept"
    assert series.steps() == [1, 2]
