"""Run directories: what is refused, and config.json."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest
from helpers import Recorder, small_config, small_run

import self_imitation
from self_imitation.config import resolve
from self_imitation.errors import UsageError
from self_imitation.storage import checkpoint, config_file, files, lock, run_directory
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training.run import continue_run, start


def creating(config, **options):
    return run_directory.create(config, run_directory.destination(config), **options)


def create(config, **options):
    with creating(config, **options) as run:
        return run


def test_a_directory_with_a_run_offers_to_resume_it(tmp_path):
    create(small_config(tmp_path / "a b"))
    with pytest.raises(UsageError, match=r"a b already contains a run; continue it with: sil resume '.*a b'$"):
        create(small_config(tmp_path / "a b"))


def test_a_directory_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="allowed: a new or an empty directory"):
        create(small_config(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_directory_will_do(tmp_path):
    run = create(small_config(tmp_path))
    assert run.config().out == str(tmp_path)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("file/run", "can't be written: Not a directory"),
        ("x" * 300, "can't be written: File name too long"),
        ("a\0b", "is not a path: it has a NUL character"),
    ],
)
def test_paths_that_can_not_be_written(tmp_path, monkeypatch, out, message):
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        create(small_config(out))


def test_too_little_space_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10**6})
    monkeypatch.setattr(run_directory.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UsageError, match=r"has no space left: 1\.0 MB free, 8\.0 MB needed for 4 checkpoints"):
        create(small_config(tmp_path / "run"), checkpoint_bytes=2 * 10**6)
    assert not (tmp_path / "run").exists()


def test_names_of_new_runs_do_not_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = resolve("gym:my_package:MyEnv-v0", "authors")
    one, other = create(config), create(config)
    assert one.path != other.path
    assert one.path.parent.name == "runs"
    assert one.path.name.startswith("gym-my-package-MyEnv-v0_a2c+sil_")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing", "^no such run: 'nothing'$"),
        ("x" * 300, "^no such run: 'x+'$"),
        ("a\0b", r"^'a\\x00b' is not a path: it has a NUL character$"),
        (".", r"^'\.' is not a run directory \(no config\.json\)$"),
    ],
)
def test_what_is_not_a_run_is_refused(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        run_directory.open_run(path)


@pytest.mark.parametrize("winner", ["still trains", "was killed"])
def test_the_slower_of_two_processes_leaves_the_run_of_the_other_alone(tmp_path, monkeypatch, winner):
    """The other one creates its run after this one found nothing there."""
    config, faster = small_config(tmp_path / "run"), contextlib.ExitStack()

    def overtake(*_):
        monkeypatch.undo()
        faster.enter_context(creating(config))
        if winner == "was killed":
            faster.close()

    monkeypatch.setattr(run_directory, "_require_space", overtake)
    with faster:
        message = "already contains a run" if winner == "was killed" else "is being trained by another process"
        with pytest.raises(UsageError, match=message):
            start(config, [Recorder()])
        assert RunDirectory(tmp_path / "run").config() == config


def test_of_many_processes_one_trains_and_its_run_stays(tmp_path):
    """Each thread has a lock of its own, as processes have."""
    config, meet, results = small_config(tmp_path / "run"), threading.Barrier(8), []

    def compete():
        meet.wait()
        try:
            with creating(config):
                results.append("trains")
        except UsageError as error:
            results.append(str(error))

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count("trains") == 1, results
    assert all("already contains" in text or "another process" in text for text in results if text != "trains")
    assert RunDirectory(tmp_path / "run").config() == config


@pytest.mark.parametrize("existed", [False, True])
def test_a_run_that_fails_before_it_trains_leaves_what_it_found(tmp_path, existed):
    if existed:
        (tmp_path / "run").mkdir()
    assert fail(tmp_path / "run", "checkpoints") == []
    assert (tmp_path / "run").exists() == existed
    assert fail(tmp_path / "run", "photos") == ["photos"], "made by the user, meanwhile"


def fail(path, folder):
    """Make a folder in a new run, which then fails; returns what is left."""
    with contextlib.suppress(ZeroDivisionError), creating(small_config(path)) as run:
        (run.path / folder).mkdir()
        1 / 0  # noqa: B018
    return [path.name for path in path.iterdir()] if path.exists() else []


@pytest.mark.parametrize("name", [".lock", "config.json", "metrics.csv", "summary.json", "curve.png"])
def test_links_to_files_are_refused_before_anything_is_written(tmp_path, name):
    run, foreign = create(small_config(tmp_path / "run")), tmp_path / "foreign"
    before = shutil.copy(run.config_file, foreign).read_bytes()
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(foreign)
    with pytest.raises(UsageError, match=f"{name}' is a symbolic link; links inside a run directory are not followed"):
        continue_run(run.path, 1200, [Recorder()])
    assert foreign.read_bytes() == before


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", "checkpoints/2023", "tensorboard/seed-0"])
def test_links_to_folders_are_refused(tmp_path, name):
    run, photos = create(small_config(tmp_path / "run")), tmp_path / "photos"
    (photos / "2023").mkdir(parents=True)
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).symlink_to(photos)
    with pytest.raises(UsageError, match=f"{name}' is a symbolic link"):
        continue_run(run.path, None, [Recorder()])
    assert (photos / "2023").is_dir()


def test_a_run_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    with creating(small_config(tmp_path / "run")):
        assert (tmp_path / "disk" / "config.json").is_file()


@pytest.mark.parametrize("kind", ["file", "partial file", "partial folder"])
def test_writing_replaces_links(tmp_path, kind):
    (tmp_path / "photos").mkdir()
    (tmp_path / "thesis.tex").write_text("years of work")
    link = tmp_path / ("x.json" if kind == "file" else ".partial-x.json")
    link.symlink_to(tmp_path / ("photos" if kind == "partial folder" else "thesis.tex"))
    if kind == "partial folder":
        files.clear_partial(tmp_path)
    files.write_json(tmp_path / "x.json", {})
    assert json.loads((tmp_path / "x.json").read_text()) == {}
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "photos").is_dir()
    assert not link.is_symlink()


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(UsageError, match="can't be written"), lock.hold(tmp_path):
        pass


def test_a_lock_that_its_holder_deleted_is_not_taken(tmp_path, monkeypatch):
    """Opened before it was deleted, locked afterwards."""
    opened = files.open_regular

    def open_and_lose(path, mode):
        file = opened(path, mode)
        path.unlink()
        path.touch()
        return file

    monkeypatch.setattr(files, "open_regular", open_and_lose)
    with pytest.raises(UsageError, match="is being trained by another process"), lock.hold(tmp_path):
        pass


def test_two_processes_can_not_train_one_run(tmp_path):
    run = small_run(tmp_path / "run", agent="a2c", steps=40)
    with lock.hold(run.path), pytest.raises(UsageError, match="is being trained by another process"):
        self_imitation.resume(run.path, steps=80)
    assert run.directory.config().steps == 40


CONFIG = resolve("mujoco:Hopper", "paper", {"agent": "ppo+sil+rnd", "ppo.clip_coef": 0.3, "rnd.coef": 2.0})


def test_configs_survive_as_json():
    data = json.loads(json.dumps(config_file.to_json(CONFIG)))
    assert data["version"] == config_file.VERSION
    assert (data["ppo"]["clip_coef"], data["rnd"]["coef"]) == (0.3, 2.0)
    assert config_file.from_json(data, "config.json") == CONFIG


def changed(path, value):
    data = json.loads(json.dumps(config_file.to_json(CONFIG)))
    *groups, name = path.split(".")
    target = data
    for group in groups:
        target = target[group]
    if value is None:
        del target[name]
    else:
        target[name] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "config.json is not the config of a run"),
        ({}, "config.json is not the config of a run"),
        (changed("version", 2), "config.json: version: 2 is not allowed; this release reads version 3"),
        (changed("version", {"a": 3}), "config.json: version: {'a': 3} is not allowed"),
        (changed("env", "maze"), "config.json: env: 'maze' is unknown"),
        (changed("env", 5), "config.json: env: 5 is not allowed; allowed: a name"),
        (changed("preset", []), "config.json: preset: .* is not allowed; allowed: a name"),
        (changed("network.kind", 3), r"config.json: network\.kind: 3 is not allowed; allowed: the name of a network"),
        (changed("checkpoint_seconds", 10**400), "config.json: checkpoint_seconds: 10+ ... 0+ is not allowed"),
        (changed("agent", "a3c"), "config.json: agent: 'a3c' is unknown"),
        (changed("ppo.clip_coef", None), r"config.json: settings missing: ppo\.clip_coef"),
        (changed("rnd.speed", 3), r"config.json: settings unknown: rnd\.speed"),
        (changed("seeds", 0), "config.json: seeds: 0 is not allowed"),
        (changed("rnd.coef", -1.0), r"config.json: rnd\.coef: -1.0 is not allowed"),
    ],
)
def test_damaged_configs_are_refused_by_name(data, message):
    with pytest.raises(UsageError, match=message):
        config_file.from_json(data, "config.json")


def test_deeply_nested_configs_are_refused():
    nested = []
    for _ in range(5000):
        nested = [nested]
    data = {**changed("seeds", None), "seeds": nested}
    with pytest.raises(UsageError, match=r"config.json: (nested too deeply|seeds: <tuple> is not allowed)"):
        config_file.from_json(data, "config.json")


@pytest.mark.parametrize(
    "content", [b"{", b"[" * 100_000, b"9" * 5000, b'"\xff"'], ids=["half", "deep", "long", "bytes"]
)
def test_unreadable_configs_are_refused(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"config\.json' is damaged: not readable JSON"):
        RunDirectory(tmp_path).config()


def test_huge_configs_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 1000)
    (tmp_path / "config.json").write_text(" " * 1001)
    with pytest.raises(UsageError, match="is damaged: larger than 1000 bytes"):
        RunDirectory(tmp_path).config()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 5000, b"[]", b'{"finished": true, "step": "x"}'])
def test_a_damaged_summary_counts_as_none(tmp_path, content):
    (tmp_path / "summary.json").write_bytes(content)
    assert RunDirectory(tmp_path).finished_step() == -1


@pytest.mark.parametrize(
    ("change", "same"),
    [({"steps": 5}, True), ({"workers": 3}, True), ({"ppo.gamma": 0.5}, False), ({"seed": 1}, False)],
)
def test_fingerprints_cover_what_determines_the_results(change, same):
    from self_imitation.config import override

    assert (config_file.fingerprint(CONFIG) == config_file.fingerprint(override(CONFIG, change))) == same


def test_a_full_disk_while_saving_keeps_the_run_going(tmp_path, monkeypatch):
    """The disk is full for one checkpoint only."""
    run, real, failed = small_run(tmp_path / "run", agent="a2c", steps=400), checkpoint.save, []

    def full_once(*arguments):
        if not failed:
            failed.append(True)
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(checkpoint, "save", full_once)
    settings = {**json.loads(run.directory.config_file.read_text()), "checkpoint_seconds": 0.0}
    files.write_json(run.directory.config_file, settings)
    recorder = Recorder()
    _, finished = continue_run(run.path, 1200, [recorder])
    assert finished
    assert any("not saved: out: " in text and "No space left on device" in text for text in recorder.messages)
    assert checkpoint.steps(run.directory.checkpoints)[-1] == 1200


@pytest.mark.slow
def test_a_disk_that_stays_full_is_an_error_and_the_last_checkpoint_is_kept(tmp_path):
    """A limit on the size of files, in a process of its own, stands for the disk."""
    run = small_run(tmp_path / "run", steps=400)
    size = (run.directory.checkpoints / "400" / "state.safetensors").stat().st_size
    limit = size // 2

    script = f"""
import resource, sys
from self_imitation.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.exit(main(["resume", {str(run.path)!r}, "--steps", "800"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the checkpoint at step 400 is kept" in done.stderr
    assert checkpoint.steps(run.directory.checkpoints)[-1] == 400


def test_writes_are_atomic(tmp_path, monkeypatch):
    file = tmp_path / "x.json"
    files.write_json(file, {"a": 1})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        files.write_json(file, {"a": 2})
    assert json.loads(file.read_text()) == {"a": 1}
    files.clear_partial(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
