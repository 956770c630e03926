"""Checkpoints: what is damaged is noticed and skipped, and the last good one is never lost."""

import json
import os
import pickle
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Recorder, arrays, assert_same_checkpoint, interrupt_after, rows, small_config

import self_imitation
from self_imitation.config import override
from self_imitation.errors import UsageError
from self_imitation.storage import checkpoint, files
from self_imitation.storage.config_file import fingerprint
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.storage.trees import from_arrays, to_arrays
from self_imitation.training import backends
from self_imitation.training.counters import Counters
from self_imitation.training.run import continue_run, start

STEPS = 800


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run with checkpoints at its start, somewhere in between and at its end. No test changes it."""
    path = tmp_path_factory.mktemp("checkpoints") / "run"
    with pytest.MonkeyPatch.context() as patch:
        start(small_config(path), [Recorder()], interrupt_after(7, patch))
    continue_run(path, None, [Recorder()])
    first, between, last = checkpoint.steps(path / "checkpoints")
    assert (first, last) == (0, STEPS)
    return path, between


@pytest.fixture
def copy(interrupted, tmp_path):
    return shutil.copytree(interrupted[0], tmp_path / "copy")


def flip_bit(file, position):
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("policy.safetensors", lambda file: flip_bit(file, file.stat().st_size // 2), "checksum differs"),
        ("state.safetensors", lambda file: file.write_bytes(file.read_bytes()[:-7]), "checksum differs"),
        ("state.safetensors", Path.unlink, "No such file or directory"),
        ("meta.json", lambda file: file.write_text(file.read_text().replace(":", ";", 1)), "not readable JSON"),
        ("meta.json", lambda file: file.write_text("[" * 100_000), "not readable JSON"),
        ("meta.json", lambda file: file.write_text("9" * 5000), "not readable JSON"),
        ("meta.json", lambda file: file.write_text("[]"), "not the metadata"),
        ("meta.json", lambda file: (file.unlink(), os.mkfifo(file)), "Not a regular file"),
        ("policy.safetensors", lambda file: (file.unlink(), os.mkfifo(file)), "Not a regular file"),
        ("meta.json", lambda file: file.write_text(file.read_text().replace('"iteration": 4', '"iteration": 5')), "ch"),
        ("policy.safetensors", lambda file: file.write_bytes(pickle.dumps(Touch(file))), "checksum differs"),
    ],
    ids=["bit", "short", "missing", "no JSON", "deep", "long", "list", "pipe", "other pipe", "counter", "pickle"],
)
def test_a_damaged_checkpoint_is_named_and_skipped(copy, interrupted, name, damage, reason):
    between = interrupted[1]
    damage(copy / "checkpoints" / str(STEPS) / name)
    messages = []

    def load(path, meta):
        for part in ("policy.safetensors", "state.safetensors"):
            checkpoint._read(path, part, meta, {})
        return meta["step"]

    settings = fingerprint(RunDirectory(copy).config())
    assert checkpoint.load_latest(copy / "checkpoints", settings, load, messages.append) == between
    (message,) = messages
    assert f"checkpoints/{STEPS} is damaged ({name}: {reason}" in message
    assert message.endswith("); trying the one before")
    assert not (copy / "ran").exists(), "a pickle is never loaded"


class Touch:
    def __init__(self, file):
        self.target = file.parents[2] / "ran"

    def __reduce__(self):
        return (Path.touch, (self.target,))


def test_a_run_resumes_from_the_one_before(copy, interrupted):
    flip_bit(copy / "checkpoints" / str(STEPS) / "state.safetensors", 5000)
    recorder = Recorder()
    continue_run(copy, None, [recorder])
    assert recorder.messages[0].endswith("; trying the one before")
    assert_same_checkpoint(interrupted[0], copy, STEPS)
    assert rows(interrupted[0]) == rows(copy)


def test_without_an_intact_checkpoint_nothing_is_changed(copy):
    before = rows(copy)
    for file in copy.glob("checkpoints/*/state.safetensors"):
        flip_bit(file, 1000)
    recorder = Recorder()
    with pytest.raises(UsageError, match="has no intact checkpoint"):
        continue_run(copy, 1200, [recorder])
    assert not recorder.messages[-1].endswith("trying the one before")
    assert rows(copy) == before
    assert RunDirectory(copy).config().steps == STEPS


def test_evaluation_does_not_read_the_state(copy, interrupted):
    expected = self_imitation.load(interrupted[0]).evaluate(5)
    (copy / "checkpoints" / str(STEPS) / "state.safetensors").unlink()
    np.testing.assert_array_equal(self_imitation.load(copy).evaluate(5).returns, expected.returns)


def test_checkpoints_of_other_settings_are_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    config["a2c"]["gamma"] = 0.5
    (copy / "config.json").write_text(json.dumps(config))
    for use in (lambda: self_imitation.resume(copy), lambda: self_imitation.load(copy).evaluate()):
        with pytest.raises(UsageError, match=r"belongs to another run; its settings differ from config\.json"):
            use()


def test_a_renamed_checkpoint_is_noticed(copy):
    (copy / "checkpoints" / str(STEPS)).rename(copy / "checkpoints" / "99999")
    messages = []
    settings = fingerprint(RunDirectory(copy).config())
    checkpoint.load_latest(copy / "checkpoints", settings, lambda path, meta: meta["step"], messages.append)
    assert f"99999 is damaged (meta.json: it belongs to step {STEPS})" in messages[0]


def test_a_checkpoint_that_vanishes_while_being_read_is_not_damaged(copy, interrupted):
    """Another process trains the run and deletes old checkpoints: look again, say nothing."""
    tried, messages = [], []

    def load(path, meta):
        tried.append(path.name)
        if len(tried) == 1:
            shutil.rmtree(path)
            raise checkpoint.DamagedError("policy.safetensors: no such file")
        return meta["step"]

    settings = fingerprint(RunDirectory(copy).config())
    assert checkpoint.load_latest(copy / "checkpoints", settings, load, messages.append) == interrupted[1]
    assert tried == [str(STEPS), str(interrupted[1])]
    assert messages == []


def rewrite(folder, change):
    """Change the metadata of a checkpoint, as someone would who also computes the checksum."""
    meta = json.loads((folder / "meta.json").read_text())
    del meta["checksum"]
    change(meta)
    (folder / "meta.json").write_text(json.dumps({**meta, "checksum": checkpoint._checksum_of(meta)}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda meta: meta.pop("counters"), "counters is missing or of the wrong type"),
        (lambda meta: meta.update(step=str(STEPS)), "step is missing or of the wrong type"),
        (lambda meta: meta.update(settings=None), "settings is missing or of the wrong type"),
        (lambda meta: meta.update(checksums=[]), "checksums is missing or of the wrong type"),
        (lambda meta: meta.update(version=True), "version is missing or of the wrong type"),
        (lambda meta: meta["counters"].pop("iteration"), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(speed=3), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(iteration="4"), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(iteration=10**400), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(row_iteration=-1), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(seconds=float("nan")), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(episodes=[1]), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(episodes=[1, None]), "counters are missing, unknown or out of range"),
        (lambda meta: meta["counters"].update(metrics_bytes=10**400), "counters are missing, unknown or out of range"),
    ],
)
def test_a_forged_checkpoint_is_skipped(copy, interrupted, change, reason):
    rewrite(copy / "checkpoints" / str(STEPS), change)
    config, messages = RunDirectory(copy).config(), []

    def load(path, meta):
        return Counters.from_json(meta["counters"], config, meta["step"]).iteration * config.steps_per_iteration

    assert checkpoint.load_latest(copy / "checkpoints", fingerprint(config), load, messages.append) == interrupted[1]
    assert [f"{STEPS} is damaged (meta.json: {reason}); trying" in message for message in messages] == [True]


LIKE = {"agents": np.zeros((2, 3), np.float32), "frames": np.zeros((2, 90, 84, 84, 1), np.uint8)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"packed": '{"frames": [2, 2000000000000, 84, 84, 1]}'}, "frames is packed as"),
        ({"packed": '{"frames": "many"}'}, "frames is packed as"),
        ({"packed": '{"frames": [2, 90, 84, 84, 1], "more": [2, 3, 4]}'}, "not the metadata of packed arrays"),
        ({"packed": '{"frames": [2, 90, 84, 84, 1], "collection.x": [2, 3, 99999999999]}'}, "2 packed entries of"),
        ({"packed": '{"agents": [2, 3, 1]}'}, "agents is packed as"),
        ({"packed": "[" * 5000}, "recursion"),
        ({"packed": "[]"}, "not the metadata of packed arrays"),
        ({"packed": "9" * 5000}, "Exceeds the limit"),
        ({"dtypes": '{"frames": "object"}'}, "frames is packed as 'object'"),
        ({"dtypes": "{"}, "Expecting"),
        ({"collection.x": {"dtype": "F8_E4M3", "shape": [4]}}, "a dtype that NumPy does not have"),
        ({"collection.x": {"dtype": "I32", "shape": []}}, "collection.x has shape \\[\\], not that of 2 seeds"),
    ],
)
def test_forged_arrays_are_refused_before_they_take_memory(tmp_path, change, reason):
    state = {**LIKE, "collection": {"x": np.zeros(2, np.uint16)}}
    path = checkpoint.save(tmp_path, 7, state, {}, kept=1, settings="")
    file = path / "state.safetensors"
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    for name, value in change.items():
        header["__metadata__" if isinstance(value, str) else name] |= (
            value if isinstance(value, dict) else {name: value}
        )
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])
    rewrite(path, lambda meta: meta["checksums"].update({file.name: checkpoint._checksum(file)}))
    with pytest.raises(checkpoint.DamagedError, match=rf"state\.safetensors: .*{reason}"):
        checkpoint.load_state(path, checkpoint._read_meta(path, ""), LIKE)


@pytest.mark.parametrize("name", ["009000", "²", "９０００", "9" * 200])
def test_only_folders_named_by_a_step_are_checkpoints(copy, interrupted, name):
    (copy / "checkpoints" / name).mkdir()
    assert checkpoint.steps(copy / "checkpoints") == [0, interrupted[1], STEPS]
    settings, messages = fingerprint(RunDirectory(copy).config()), []
    found = checkpoint.load_latest(copy / "checkpoints", settings, lambda path, meta: meta["step"], messages.append)
    assert (found, messages) == (STEPS, [])


def test_other_versions_are_refused(copy):
    meta_file = copy / "checkpoints" / str(STEPS) / "meta.json"
    meta = json.loads(meta_file.read_text())
    meta["version"] = 1
    meta.pop("checksum")
    meta_file.write_text(json.dumps({**meta, "checksum": checkpoint._checksum_of(meta)}))
    with pytest.raises(UsageError, match="has version 1; this release reads 3"):
        self_imitation.load(copy).evaluate()


def test_only_checkpoints_are_deleted(tmp_path):
    """Not folders of others that are named by a number, nor what links point to."""
    folder, photos = tmp_path / "checkpoints", tmp_path / "photos"
    photos.mkdir()
    for place in (photos, folder / "2021", folder / "2022"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "beach.jpg").touch()
        (place / "meta.json").touch()
    (folder / "2023").symlink_to(photos)
    for step in (100, 3000, 4000):
        checkpoint.save(folder, step, {"x": np.zeros(3)}, {}, kept=1, settings="")
    assert sorted(path.name for path in folder.iterdir()) == ["2021", "2022", "2023", "4000"]
    assert [path.name for path in photos.iterdir()].count("beach.jpg") == 1
    with pytest.raises(OSError, match="not empty"):
        checkpoint.save(folder, 2022, {"x": np.zeros(3)}, {}, kept=1, settings="")
    assert (folder / "2022" / "beach.jpg").exists()


def test_a_new_checkpoint_is_kept_beside_damaged_later_ones(tmp_path):
    for step in (400, 800, 500, 600):
        checkpoint.save(tmp_path, step, {"x": np.zeros(3)}, {}, kept=2, settings="")
    assert checkpoint.steps(tmp_path) == [500, 600, 800]


@pytest.mark.parametrize("failing", ["write_through", "write_json", "sync_directory"])
def test_a_crash_while_saving_keeps_the_last_checkpoint(copy, monkeypatch, failing):
    before = arrays(copy, STEPS)

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, failing, crash)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(copy / "checkpoints", 900, {"x": np.zeros(3)}, {}, kept=1, settings="")
    assert checkpoint.steps(copy / "checkpoints")[-1] == STEPS
    after = arrays(copy, STEPS)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert not list((copy / "checkpoints").glob(f"{files.PARTIAL}*"))


def test_the_policy_is_a_file_of_its_own(interrupted):
    import safetensors.numpy

    policy = safetensors.numpy.load_file(interrupted[0] / "checkpoints" / str(STEPS) / "policy.safetensors")
    assert policy
    assert all(name.startswith("agents.train.params.") for name in policy)


def test_short_runs_need_no_space_for_a_full_buffer(tmp_path):
    config = small_config(tmp_path / "run", **{"sil.buffer_size": 100_000})
    spec = backends.create(config).spec
    short, long = (checkpoint.expected_bytes(override(config, {"steps": steps}), spec) for steps in (2000, 10**6))
    assert 0 < short < long / 5


def test_expected_sizes_are_about_right(interrupted):
    config = RunDirectory(interrupted[0]).config()
    expected = checkpoint.expected_bytes(config, backends.create(config).spec)
    files_ = (interrupted[0] / "checkpoints" / str(STEPS)).iterdir()
    found = sum(file.stat().st_size for file in files_)
    assert found < expected < found + 900_000


TREE = {"weights": jnp.arange(6.0).reshape(2, 3), "key": jax.random.split(jax.random.key(3)), "none": None}


def test_trees_survive_as_arrays():
    arrays_ = to_arrays(TREE)
    assert set(arrays_) == {"weights", "key"}
    assert arrays_["key"].dtype == np.uint32
    back = from_arrays(arrays_, TREE, "test")
    np.testing.assert_array_equal(back["weights"], TREE["weights"])
    assert jax.random.uniform(back["key"][1]) == jax.random.uniform(TREE["key"][1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": np.zeros((2, 4), np.float32)}, r"weights is float32\[2, 4\], not float32\[2, 3\]"),
        ({"weights": np.zeros((2, 3))}, r"weights is float64\[2, 3\], not float32\[2, 3\]"),
        ({"bias": np.zeros(1)}, "it differs in 'bias'"),
    ],
)
def test_trees_of_another_structure_are_refused_by_name(changed, message):
    with pytest.raises(UsageError, match=f"'test' does not fit the environment or the settings; {message}"):
        from_arrays({**to_arrays(TREE), **changed}, TREE, "test")
