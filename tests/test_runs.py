"""Runs on disk: exactness, checkpoints, faults. Real files, real kills."""

import json
import math
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import SMALL, SMALL_FLAGS, arrays, assert_same_checkpoint, finish, rows, sil

import self_imitation
from self_imitation.training import agents
from self_imitation.training import devices
from self_imitation.config import TrainConfig, override, resolve
from self_imitation.errors import NonFiniteError, UsageError
from self_imitation.storage import checkpoint
from self_imitation.storage import run_directory as directory
from self_imitation.storage import files
from self_imitation.storage.config_file import fingerprint
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.runs.program import Shapes
from self_imitation.training.run import go_on, start
from self_imitation.training.loop import Silent, Training
from self_imitation.validation import validate

STEPS = 2000


def small_config(out: Path, **changes: object) -> TrainConfig:
    config = resolve("key-door-treasure", "authors", {"agent": "a2c+sil+exp", "steps": STEPS, **SMALL})
    return validate(override(config, {"out": str(out), **changes}))


def small_run(out: Path, **settings: object) -> "self_imitation.Run":
    return start(small_config(out, **settings), Silent())[0]


def resume(path: Path, steps: int | None = None, listener=None) -> tuple["self_imitation.Run", bool]:
    return go_on(path, steps, listener or Silent())


class Heard(Silent):
    def __init__(self):
        self.messages: list[str] = []

    def message(self, text):
        self.messages.append(text)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that no test changes."""
    return small_run(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of it that a test may harm."""
    path = tmp_path / "copy"
    shutil.copytree(finished.path, path)
    return path


def test_a_run_directory_holds_all_that_was_promised(finished):
    path = finished.path
    assert {p.name for p in path.iterdir()} >= {
        "config.json",
        "metrics.csv",
        "summary.json",
        "curve.png",
        "tensorboard",
        "checkpoints",
    }
    table = rows(path)
    assert list(table[0])[:5] == ["seed", "step", "episodes", "return_mean", "return_best"]
    assert [(row["seed"], row["step"]) for row in table] == [
        (str(seed), str(step)) for step in range(400, STEPS + 1, 400) for seed in (0, 1)
    ]
    assert {p.name for p in (path / "checkpoints" / str(STEPS)).iterdir()} == {
        "policy.safetensors",
        "state.safetensors",
        "meta.json",
    }
    assert (path / "curve.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((path / "summary.json").read_text())
    assert summary["finished"] is True
    assert summary["step"] == STEPS
    assert [entry["seed"] for entry in summary["seeds"]] == [0, 1]
    assert summary["return_mean"] == pytest.approx(np.mean([float(row["return_mean"]) for row in table[-2:]]))
    assert summary["machines"] == [devices.machine(finished.config)]


def test_a_short_run_needs_no_space_for_a_full_memory(tmp_path):
    config = small_config(tmp_path / "run", **{"sil.buffer_size": 100_000})
    spec = agents.build(config).spec
    short, long = (checkpoint.expected_bytes(override(config, {"steps": steps}), spec) for steps in (2000, 10**6))
    assert 0 < short < long / 5, "the network takes as much in both"


def test_a_run_names_all_machines_that_it_was_trained_on(copy):
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps(summary | {"machines": ["another"]}))
    resume(copy, STEPS + 400)
    assert json.loads((copy / "summary.json").read_text())["machines"] == ["another", *summary["machines"]]
    (copy / "summary.json").write_text("damaged")
    resume(copy, STEPS + 800)
    assert json.loads((copy / "summary.json").read_text())["machines"] == summary["machines"]


def test_return_mean_is_the_mean_over_episodes_that_ended_since_the_last_row(tmp_path):
    """With one episode of 50 steps per environment and row, the rows' means are those of single waves of episodes."""
    run = small_run(tmp_path / "run", agent="a2c", envs=2, rollout=5, log_every=100, steps=400)
    for row in run.metrics():
        assert row["episodes"] == 2 * row["step"] / 100
        assert row["return_mean"] * 2 == int(row["return_mean"] * 2)
        assert row["length_mean"] == 50


def test_rows_without_a_finished_episode_have_an_empty_mean(tmp_path):
    run = small_run(tmp_path / "run", agent="a2c", log_every=20, steps=40)
    assert all(row["return_mean"] == "" for row in rows(run.path))
    assert json.loads(run.directory.summary.read_text())["return_mean"] is None


def test_tensorboard_files_hold_the_same_figures(finished):
    from tensorboardX.proto.event_pb2 import Event

    (file,) = (finished.path / "tensorboard" / "seed-1").iterdir()
    data, found = file.read_bytes(), {}
    while data:
        length = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + length])
        found.update({(value.tag, event.step): value.simple_value for value in event.summary.value})
        data = data[12 + length + 4 :]
    for row in rows(finished.path):
        if row["seed"] == "1" and row["return_mean"]:
            assert found["return_mean", int(row["step"])] == pytest.approx(float(row["return_mean"]))


def test_same_seed_twice_is_bit_identical(finished, tmp_path):
    again = small_run(tmp_path / "again")
    assert_same_checkpoint(finished.path, again.path, STEPS)
    assert rows(finished.path) == rows(again.path)


def test_each_seed_is_an_agent_of_its_own(finished, tmp_path):
    """Seeds differ from each other, and a seed is the same whoever its neighbours are."""
    both = arrays(finished.path, STEPS)
    weights = both["state.train_state.params.policy_head.weight"]
    assert not np.array_equal(weights[0], weights[1])
    alone = small_run(tmp_path / "alone", seeds=1, seed=1)
    for name, array in arrays(alone.path, STEPS).items():
        np.testing.assert_allclose(array[0], both[name][1], rtol=1e-4, atol=1e-5, err_msg=name)
    assert {row["seed"] for row in rows(alone.path)} == {"1"}


def test_checkpoint_holds_everything(finished):
    """Policy apart; optimiser, memory with priorities, unfinished episodes, counts, keys, environments in the state."""
    folder = finished.path / "checkpoints" / str(STEPS)
    import safetensors.numpy

    policy = safetensors.numpy.load_file(folder / "policy.safetensors")
    state = safetensors.numpy.load_file(folder / "state.safetensors")
    assert all(name.startswith("state.train_state.params.") for name in policy)
    for part in (
        "state.train_state.optimiser_state.",
        "state.memory.observation",
        "state.memory.returns",
        "state.memory.tree.sums",
        "state.memory.largest_priority",
        "state.memory.recent.reward",
        "state.memory.recent.length",
        "state.exploration",
        "state.key",
        "state.acting.environment.",
        "state.acting.episode_return",
        "tally.",
    ):
        assert any(name.startswith(part) for name in state), part
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["counters"]["iteration"] == STEPS // 20


def test_resuming_a_stopped_run_ends_bit_identical(finished, tmp_path):
    turns = iter([False] * 3 + [True])
    config = small_config(tmp_path / "run")
    _, reached_end = start(config, Silent(), stop=lambda: next(turns))
    assert not reached_end
    stopped_at = checkpoint.steps(tmp_path / "run" / "checkpoints")[-1]
    assert 0 < stopped_at < STEPS
    _, reached_end = resume(tmp_path / "run")
    assert reached_end
    assert_same_checkpoint(finished.path, tmp_path / "run", STEPS)
    assert rows(finished.path) == rows(tmp_path / "run")


def test_resume_with_more_steps_equals_a_longer_run(copy, tmp_path):
    longer = small_run(tmp_path / "longer", steps=3000)
    resume(copy, steps=3000)
    assert_same_checkpoint(longer.path, copy, 3000)
    assert rows(longer.path) == rows(copy)
    assert RunDirectory(copy).config().steps == 3000


def test_resume_with_fewer_steps_than_done_is_refused(copy):
    before = rows(copy)
    with pytest.raises(UsageError, match=f"steps: 100 is not allowed; the run has made {STEPS} steps already"):
        resume(copy, steps=100)
    assert RunDirectory(copy).config().steps == STEPS
    assert rows(copy) == before


def test_ten_kills_at_random_moments_change_nothing(tmp_path):
    """SIGKILL while starting, training, logging or saving; each time resumed; bit-identical in the end."""
    steps = 300_000
    flags = [*SMALL_FLAGS, "--agent", "a2c+sil+exp", "--steps", steps, "--checkpoint-seconds", 0]
    code, output = finish(sil("train", *flags, "--out", tmp_path / "whole"))
    assert code == 0, output
    moments = random.Random(7)
    killed = tmp_path / "killed"
    process = sil("train", *flags, "--out", killed)
    seen = set()
    for kill in range(10):
        assert process.stdout is not None
        first = "a2c" if kill % 5 == 4 else "step"  # while it compiles, or once it trains
        while not process.stdout.readline().startswith(first):
            assert process.poll() is None
        time.sleep(moments.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        seen.add(max(checkpoint.steps(killed / "checkpoints"), default=0))
        assert max(seen) < steps, f"too fast to be killed {kill + 1} times"
        process = sil("resume", killed)
    code, output = finish(process)
    assert code == 0, output
    assert len(seen) > 3, "the kills met the run at different points"
    assert_same_checkpoint(tmp_path / "whole", killed, steps)
    assert rows(tmp_path / "whole") == rows(killed)
    assert not list(killed.rglob(f"{files.PARTIAL}*")), "nothing half-written is left"


def test_a_run_killed_before_its_first_checkpoint_starts_anew(copy, finished):
    shutil.rmtree(copy / "checkpoints")
    header = (copy / "metrics.csv").read_text().split("\n")[0]
    (copy / "metrics.csv").write_text(f"{header}\n0,12")  # and half a row
    resume(copy)
    assert rows(copy) == rows(finished.path)
    assert_same_checkpoint(finished.path, copy, STEPS)


def test_a_run_whose_checkpoints_were_removed_keeps_its_rows(copy):
    """To start anew would write over them: that is for the user to decide."""
    shutil.rmtree(copy / "checkpoints")
    before = rows(copy)
    with pytest.raises(UsageError, match="has rows of metrics but no checkpoint to go on from"):
        resume(copy, steps=3000)
    assert rows(copy) == before
    assert (copy / "tensorboard").is_dir()
    assert RunDirectory(copy).config().steps == STEPS
    with pytest.raises(UsageError, match="has rows of metrics but no checkpoint, and so no policy"):
        self_imitation.load(copy).evaluate()


def test_a_crash_while_saving_never_harms_the_last_good_checkpoint(copy, monkeypatch):
    before = arrays(copy, STEPS)

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_through", crash)
    training = Training(RunDirectory(copy), small_config(copy, steps=3000), Silent())
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(copy / "checkpoints", 2500, training.progress, {}, {}, kept=1, settings="")
    assert checkpoint.steps(copy / "checkpoints")[-1] == STEPS
    after = arrays(copy, STEPS)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def test_only_the_last_few_checkpoints_are_kept(tmp_path):
    run = small_run(tmp_path / "run", checkpoint_seconds=0.0, checkpoints_kept=2, log_every=40, agent="a2c")
    kept = checkpoint.steps(run.directory.checkpoints)
    assert len(kept) == 2
    assert kept[-1] == STEPS


@pytest.fixture
def two_checkpoints(tmp_path):
    turns = iter([False] * 2 + [True])
    run, _ = start(small_config(tmp_path / "run"), Silent(), stop=lambda: next(turns))
    resume(run.path)
    start_step, first, last = checkpoint.steps(run.directory.checkpoints)
    assert start_step == 0
    return run.path, first, last


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["policy.safetensors", "state.safetensors", "meta.json"])
@pytest.mark.parametrize("harm", ["flip a bit", "cut short", "remove"])
def test_a_damaged_checkpoint_is_named_and_passed_over(two_checkpoints, finished, name, harm):
    path, first, last = two_checkpoints
    file = path / "checkpoints" / str(last) / name
    if harm == "flip a bit":
        _flip(file, file.stat().st_size // 2)
    elif harm == "cut short":
        file.write_bytes(file.read_bytes()[:-7])
    else:
        file.unlink()
    heard = Heard()
    training = Training(RunDirectory(path), RunDirectory(path).config(), heard)
    assert training.counters.iteration * 20 == first
    assert len(heard.messages) == 1
    assert f"checkpoints/{last} is damaged ({name}: " in heard.messages[0]
    assert "); trying the one before" in heard.messages[0]
    assert "Errno" not in heard.messages[0]
    again = Heard()
    resume(path, listener=again)
    assert not any("has made all of its steps" in message for message in again.messages), "not any more"
    assert_same_checkpoint(finished.path, path, STEPS)
    assert rows(finished.path) == rows(path)


def test_all_checkpoints_damaged_is_an_error_and_nothing_is_lost(copy):
    before = rows(copy)
    for file in copy.glob("checkpoints/*/state.safetensors"):
        _flip(file, 1000)
    heard = Heard()
    with pytest.raises(UsageError, match="has no checkpoint that is not damaged"):
        resume(copy, steps=3000, listener=heard)
    assert not heard.messages[-1].endswith("trying the one before"), "there is none"
    assert rows(copy) == before
    assert RunDirectory(copy).config().steps == STEPS, "nor is the new total written"


def test_evaluation_needs_the_policy_alone(copy, finished):
    """A big memory costs nothing to evaluate: it is not even there."""
    expected = finished.evaluate(20)
    (copy / "checkpoints" / str(STEPS) / "state.safetensors").unlink()
    np.testing.assert_array_equal(self_imitation.load(copy).evaluate(20).returns, expected.returns)


def test_a_checkpoint_of_another_kind_of_run_is_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    config["network"]["hidden"] = [9]
    (copy / "config.json").write_text(json.dumps(config))
    for use in (lambda: resume(copy), lambda: self_imitation.load(copy).evaluate()):
        with pytest.raises(UsageError, match="belongs to another run; its settings differ"):
            use()


def test_checkpoints_of_a_run_with_the_same_shapes_but_other_seeds_are_refused(copy, tmp_path):
    other = small_run(tmp_path / "other", seed=5)
    shutil.rmtree(copy / "checkpoints")
    shutil.copytree(other.directory.checkpoints, copy / "checkpoints")
    before = rows(copy)
    with pytest.raises(UsageError, match="belongs to another run"):
        resume(copy, steps=3000)
    assert rows(copy) == before


def test_a_state_of_other_shapes_is_refused_by_name(finished):
    like = Shapes(finished.config, finished._agent).all_seeds
    (path, meta), *_ = [
        (path, json.loads((path / "meta.json").read_text())) for path in finished.directory.checkpoints.iterdir()
    ]
    import jax

    wider = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*leaf.shape, 2), leaf.dtype), like)
    with pytest.raises(UsageError, match=r"belongs to another kind of run; .* is .*, not "):
        checkpoint.load_state(path, meta, wider)


def test_a_renamed_checkpoint_is_noticed(copy):
    (copy / "checkpoints" / str(STEPS)).rename(copy / "checkpoints" / "99999")
    heard = Heard()
    resume(copy, listener=heard)
    assert any(f"99999 is damaged (meta.json: it is of step {STEPS})" in message for message in heard.messages)


def test_a_checkpoint_that_vanishes_while_it_is_read_is_not_damage(copy):
    """Another process trains on and clears old checkpoints away: look again, say nothing."""
    tried = []

    def load(path, meta):
        tried.append(path.name)
        if len(tried) == 1:
            shutil.rmtree(path)
            raise checkpoint.DamagedError("policy.safetensors: no such file")
        return meta["step"]

    heard = []
    settings = fingerprint(RunDirectory(copy).config())
    assert checkpoint.load_latest(copy / "checkpoints", settings, load, heard.append) == 0
    assert tried == [str(STEPS), "0"]
    assert heard == []


def test_going_on_with_other_devices_says_so(copy, monkeypatch):
    monkeypatch.setattr("self_imitation.runs.program.name_of", lambda _: "9 x toaster")
    heard = Heard()
    resume(copy, steps=2200, listener=heard)
    assert any("now on 9 x toaster: the last bits" in message for message in heard.messages)


def test_a_pickle_in_place_of_a_checkpoint_is_never_run(copy):
    import pickle

    class Evil:
        def __reduce__(self):
            return (Path.touch, (copy / "ran",))

    for file in copy.glob("checkpoints/*/policy.safetensors"):
        file.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UsageError, match="damaged"):
        self_imitation.load(copy).evaluate()
    assert not (copy / "ran").exists()


@pytest.mark.parametrize("left", ["nothing", "no bytes", "half a header", "some rows"])
def test_a_run_whose_rows_of_metrics_are_lost_goes_on_and_says_so(copy, left):
    table = copy / "metrics.csv"
    whole = table.read_bytes()
    header, first, second, *_ = whole.splitlines(keepends=True)
    table.write_bytes({"no bytes": b"", "half a header": header[:20]}.get(left, header + first + second[:9]))
    if left == "nothing":
        table.unlink()
    heard = Heard()
    resume(copy, steps=3000, listener=heard)
    assert "metrics.csv lacks rows of steps before this; it goes on with those that it has" in heard.messages
    found = table.read_bytes().splitlines(keepends=True)
    assert found[0] == header
    kept = [first] if left == "some rows" else []
    assert found[1 : 1 + len(kept)] == kept
    steps = [int(line.split(b",")[1]) for line in found[1 + len(kept) :]]
    assert steps
    assert min(steps) > STEPS


@pytest.mark.parametrize("kind", ["another table", "bytes", "directory"])
def test_what_is_no_table_of_metrics_is_left_alone_and_told(copy, kind):
    table = copy / "metrics.csv"
    table.unlink()
    if kind == "directory":
        table.mkdir()
    else:
        table.write_bytes(b"seed,step\n" if kind == "another table" else bytes(range(256)))
    with pytest.raises(UsageError, match=r"metrics\.csv' is damaged; it is not this run's table.* move it away"):
        resume(copy, steps=3000)
    assert table.exists()
    assert RunDirectory(copy).config().steps == STEPS


def test_two_processes_cannot_train_one_run(copy):
    with files.lock(copy), pytest.raises(UsageError, match="is being trained by another process"):
        resume(copy, steps=3000)
    assert RunDirectory(copy).config().steps == STEPS


def test_non_finite_losses_stop_the_run_at_the_step_and_keep_the_last_good_checkpoint(tmp_path):
    """A huge learning rate: the first step is taken on good weights, the next one on what it made of them."""
    config = small_config(tmp_path / "run", **{"optimiser.learning_rate": 1e38, "checkpoint_seconds": 0.0})
    with pytest.raises(
        NonFiniteError, match=r"of seed 0 was not finite at step 40; .* the checkpoint at step 20 is kept"
    ):
        start(config, Silent())
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == 20


def test_self_imitation_with_nothing_to_imitate_says_so(tmp_path):
    heard = Heard()
    start(small_config(tmp_path / "run", **{"sil.keep": "positive", "steps": 60}), heard)
    assert any("memory is still empty" in message for message in heard.messages)


def test_a_full_disk_while_saving_keeps_the_run_going_and_the_last_checkpoint(copy, monkeypatch):
    """Here the disk is full for one save only; tests/test_faults.py fills a real one."""
    real, failed = checkpoint.save, []

    def full_once(*arguments, **others):
        if not failed:
            failed.append(True)
            raise OSError(28, "No space left on device")
        return real(*arguments, **others)

    monkeypatch.setattr(checkpoint, "save", full_once)
    heard = Heard()
    config = override(RunDirectory(copy).config(), {"checkpoint_seconds": 0.0})
    RunDirectory(copy).write_config(config)
    _, reached_end = resume(copy, steps=3000, listener=heard)
    assert reached_end
    assert any("not saved" in message and "no space left" in message for message in heard.messages)
    assert checkpoint.steps(copy / "checkpoints")[-1] == 3000


def test_out_that_holds_a_run_offers_resume(copy):
    before = rows(copy)
    with pytest.raises(UsageError, match=f"it holds a run already; go on with it: sil resume {copy}"):
        directory.create(small_config(copy))
    assert rows(copy) == before


def test_out_that_holds_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="allowed: a new or an empty directory"):
        directory.create(small_config(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_python_interface(finished):
    run = self_imitation.load(finished.path)
    assert run.seeds == (0, 1)
    result = run.evaluate(episodes=30)
    assert result.returns.shape == result.lengths.shape == (2, 30)
    low, high = result.interval
    assert low <= result.mean <= high
    policy = run.policy(seed=1)
    assert policy.act(np.array([2, 8, 1, 1, 1])).shape == ()
    assert policy.act(np.zeros((3, 7, 5))).shape == (3, 7)
    observation = np.array([2, 8, 1, 1, 1], np.float32)
    assert len({int(policy.act(observation, greedy=True)) for _ in range(5)}) == 1
    assert len({int(policy.act(observation)) for _ in range(50)}) > 1, "an early policy is far from certain"
    with pytest.raises(UsageError, match=r"observation: \(4,\) is not allowed; allowed: shape \(5,\)"):
        policy.act(np.zeros(4))
    assert policy.act(np.zeros((0, 7, 5))).shape == (0, 7)
    for wrong, told in ((None, "'object'"), ([[1], [1, 2]], "'object'"), (["a"] * 5, "'str32'"), (1j, "'complex128'")):
        with pytest.raises(UsageError, match=rf"observation: {told} is not allowed; allowed: numbers of shape \(5,\)"):
            policy.act(wrong)
    with pytest.raises(UsageError, match="observation: nan is not allowed; allowed: finite numbers"):
        policy.act([1, 2, np.nan, 1, 1])
    with pytest.raises(UsageError, match="seed: 2 is not allowed; this run has seeds 0 to 1"):
        run.policy(seed=2)
    episode = run.play()
    assert len(episode.observations) == len(episode.actions) + 1 == len(episode.rewards) + 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("train(settings=[1])", 'settings: [1] is not allowed; allowed: values by name, as in {"sil.updates": 8}'),
        ("train(settings={3: 3})", "settings: {3: 3} is not allowed; allowed: values by name"),
        ("train(out=3)", "out: 3 is not allowed; allowed: the path of a new directory"),
        ("load(3)", "run: 3 is not allowed; allowed: the path of a run's directory"),
        ("load(RUN).policy(0.0)", "seed: 0.0 is not allowed; this run has seeds 0 to 1"),
        ("load(RUN).policy(True)", "seed: True is not allowed"),
    ],
)
def test_arguments_of_wrong_types_are_told_by_name(finished, call, told):
    """In a process of its own: here types are checked at every call."""
    script = f"from self_imitation import load, train; RUN = {str(finished.path)!r}; {call}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=finished.path.parent)
    assert f"UsageError: {told}" in done.stderr.splitlines()[-1]


def test_arguments_from_python_are_as_strict_and_as_kind(tmp_path):
    for name in ("preset", "env", "steps"):
        with pytest.raises(UsageError, match=f"settings: '{name}' is not allowed; it is an argument of its own"):
            self_imitation.train(settings={name: "paper"})
    for wrong in ({"agent": "a3c"}, {"env": "maze"}):
        with pytest.raises(UsageError, match="is unknown"):
            self_imitation.train(**wrong)
    with pytest.raises(UsageError, match="agent: 'None' is unknown"):
        validate(TrainConfig(agent=None))
    small = {name: list(v) if isinstance(v, tuple) else v for name, v in SMALL.items() if name != "seeds"}
    run = self_imitation.train(steps=40, seeds=1, out=tmp_path / "run", settings={**small, "num_envs": np.int64(4)})
    assert run.config.steps == 40
    assert self_imitation.resume(run.path, 80).metrics()[-1]["step"] == 80


def test_evaluation_is_of_whole_first_episodes_and_repeats_with_its_key(finished):
    one, same, other = (finished.evaluate(40, key=key) for key in (1, 1, 2))
    np.testing.assert_array_equal(one.returns, same.returns)
    assert not np.array_equal(one.lengths, other.lengths) or not np.array_equal(one.returns, other.returns)
    assert (one.lengths <= 50).all()
    assert set(np.unique(one.returns)) <= set(range(8))


def test_policies_act_in_the_gymnasium_environment(finished):
    import gymnasium

    environment = gymnasium.make("self_imitation/KeyDoorTreasure-v0")
    observation, _ = environment.reset(seed=0)
    total = 0.0
    policy = finished.policy()
    while True:
        observation, reward, terminated, truncated, _ = environment.step(policy.act(observation))
        total += float(reward)
        if terminated or truncated:
            break
    assert math.isfinite(total)
