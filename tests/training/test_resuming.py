"""A run that stops and resumes ends as if nothing had happened; the same seed twice gives the same bits."""

import json
import shutil
from functools import cache

import gymnasium_probes
import numpy as np
import pytest
from helpers import Recorder, arrays, assert_same_checkpoint, interrupt_after, rows, small_config, small_run

import self_imitation
from self_imitation.errors import UsageError
from self_imitation.storage import checkpoint
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training.run import continue_run, start

GRID = {"agent": "a2c+sil+exp", "delay": 7}
MUJOCO = {
    "env": "mujoco:Hopper",
    "engine": "gymnasium",
    "num_envs": 1,
    "num_steps": 8,
    "steps": 160,
    "log_every": 80,
    "delay": 20,
    "sil.optimiser": "own",
    "sil.value": "own",
    "sil.kl_ratio": 0.1,
}
ENVPOOL = {**MUJOCO, "engine": "envpool", "agent": "a2c", "workers": 1, "sil.optimiser": "shared"}
CARTPOLE = {"env": "gym:CartPole-v1", "agent": "a2c+sil", "engine": "gymnasium", "steps": 400, "log_every": 200}
COMPONENTS = {"agent": "vtrace+rnd", "steps": 400, "log_every": 200}
REPLAY = {
    "agent": "acper+sil",
    "num_steps": 10,
    "acper.buffer_size": 300,
    "acper.learning_starts": 20,
    "acper.batch_size": 4,
    "acper.segment_steps": 3,
    "acper.replay_ratio": 2,
    "sil.temperature": 0.1,
    "sil.bound": "n-step",
    "sil.updates_schedule": "bandit",
    "sil.bandit_window": 2,
    "sil.loss_coef_schedule": "share",
}
KINDS = {
    "grid": GRID,
    "mujoco": MUJOCO,
    "envpool": ENVPOOL,
    "cartpole": CARTPOLE,
    "components": COMPONENTS,
    "replay": REPLAY,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs without interruption, by kind. No test changes them."""
    folder = tmp_path_factory.mktemp("whole")
    return cache(lambda kind: small_run(folder / kind, **KINDS[kind]))


@pytest.fixture
def copy(whole, tmp_path):
    """A copy of a finished run that a test may change."""
    return shutil.copytree(whole("grid").path, tmp_path / "copy")


def interrupted(kind, path):
    """A run that stopped in the middle of a row and of its episodes."""
    with pytest.MonkeyPatch.context() as patch:
        run, finished = start(small_config(path, **KINDS[kind]), [Recorder()], interrupt_after(7, patch))
    assert not finished
    assert checkpoint.steps(run.directory.checkpoints)[-1] == 7 * run.config.steps_per_iteration
    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["envpool", "cartpole"])
def test_the_same_seed_gives_the_same_bits_twice(kind, whole, tmp_path):
    """Where the state of the environments can't be saved. Otherwise, interrupted runs show it."""
    one, again = whole(kind), small_run(tmp_path / "again", **KINDS[kind])
    assert_same_checkpoint(one.path, again.path, one.config.total_steps)
    assert rows(one.path) == rows(again.path)
    weights = arrays(one.path, one.config.total_steps)["agents.train.params.policy_head.weight"]
    assert not np.array_equal(weights[0], weights[1]), "seeds differ"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "mujoco", "components", "replay"])
def test_an_interrupted_run_ends_bit_identical(kind, whole, tmp_path):
    """In the middle of episodes, with rewards that are not paid yet."""
    one, recorder = whole(kind), Recorder()
    run = interrupted(kind, tmp_path / "run")
    saved = arrays(run.path, checkpoint.steps(run.directory.checkpoints)[-1])
    assert saved["collection.episodes.episode_length"].any()
    _, finished = continue_run(run.path, None, [recorder])
    assert finished
    assert not [message for message in recorder.messages if "environments" in message]
    assert_same_checkpoint(one.path, run.path, one.config.total_steps)
    assert rows(one.path) == rows(run.path)


def test_checkpoints_hold_everything(whole):
    names = set(arrays(whole("grid").path, 800))
    for part in (
        "agents.train.params.",
        "agents.train.optimiser_state.",
        "agents.buffer.",
        "agents.components.exp",
        "agents.key",
        "collection.environment.",
        "collection.episodes.accumulated",
        "metrics.latest.",
    ):
        assert any(name.startswith(part) for name in names), part
    for part in ("agents.learner_buffer", "agents.buffer.extras", "agents.degree"):
        assert not any(name.startswith(part) for name in names), f"{part}: this agent does not need it"


def test_checkpoints_hold_the_state_of_mujoco(whole):
    saved = arrays(whole("mujoco").path, 160)
    for name in ("physics", "xpos", "xipos", "random_state", "elapsed_steps"):
        assert saved[f"collection.environment.{name}"].shape[:2] == (2, 1)
    np.testing.assert_array_equal(
        saved["collection.environment.elapsed_steps"], saved["collection.episodes.episode_length"]
    )


def test_component_states_are_saved_under_their_names(whole):
    names = set(arrays(whole("components").path, 400))
    assert any(name.startswith("agents.components.rnd.trained.predictor") for name in names)
    assert any(name.startswith("agents.components.rnd.optimiser_state") for name in names)


@pytest.mark.slow
def test_checkpoints_hold_a_learners_replay_buffer_and_its_average_network(whole):
    saved = arrays(whole("replay").path, 800)
    names = {name.removeprefix("agents.learner_buffer.extras.") for name in saved}
    assert {"reward", "steps_left", "log_probs", "terminal"} <= names
    assert (saved["agents.learner_buffer.size"] > 20).all(), "there was something to replay"
    average, params = (f"agents.{part}.policy_head.weight" for part in ("components.acper", "train.params"))
    assert saved[average].shape == saved[params].shape
    assert not np.array_equal(saved[average], saved[params])


@pytest.mark.slow
def test_checkpoints_hold_entropies_and_the_degree_of_self_imitation(whole):
    saved = arrays(whole("replay").path, 800)
    names = {name.removeprefix("agents.buffer.extras.") for name in saved}
    assert {"log_prob", "entropy_return", "steps_left"} <= names
    assert saved["agents.degree.iteration"].tolist() == [20, 20]
    assert (saved["agents.degree.bandit.plays"] > 0).sum() > 2
    assert (saved["agents.degree.share"] < 1).any()


@pytest.mark.parametrize("kind", ["envpool", "cartpole"])
def test_unfinished_episodes_that_can_not_be_saved_are_dropped_with_a_message(kind, tmp_path):
    run, recorder = interrupted(kind, tmp_path / "run"), Recorder()
    saved = arrays(run.path, checkpoint.steps(run.directory.checkpoints)[-1])
    assert not any(name.startswith("collection.") for name in saved)
    _, finished = continue_run(run.path, None, [recorder])
    assert finished
    says = "the state of the environments can't be saved: unfinished episodes are dropped, new ones begin"
    assert recorder.messages[0] == says
    assert rows(run.path)[-1]["step"] == str(run.config.total_steps)
    _, finished_again = continue_run(run.path, run.config.total_steps + 1, [Recorder()])
    assert finished_again, "what a resumed run saves can be resumed, too"


def test_a_resumed_run_starts_other_episodes():
    """Not those of its beginning again: their random numbers depend on the step."""
    from self_imitation.training.group import environment_seeds

    first, later = environment_seeds((0, 1), 3, 0), environment_seeds((0, 1), 3, 640)
    assert len(np.unique([first, later])) == 12
    np.testing.assert_array_equal(first[1:], environment_seeds((1,), 3, 0))
    assert (first < 2**31).all()


def test_more_steps_equal_a_longer_run(copy, tmp_path):
    longer = small_run(tmp_path / "longer", **GRID, steps=1200)
    continue_run(copy, 1200, [Recorder()])
    assert_same_checkpoint(longer.path, copy, 1200)
    assert rows(longer.path) == rows(copy)
    assert RunDirectory(copy).config().steps == 1200


def test_fewer_steps_than_made_are_refused(copy):
    before = rows(copy)
    with pytest.raises(UsageError, match="steps: 100 is not allowed; the run has made 800 steps already"):
        self_imitation.resume(copy, steps=100)
    assert RunDirectory(copy).config().steps == 800
    assert rows(copy) == before


def test_a_complete_run_says_so(copy):
    recorder = Recorder()
    continue_run(copy, None, [recorder])
    assert recorder.messages == ["The run is complete; extend it with --steps N."]


def test_resuming_on_another_device_says_so(copy, monkeypatch):
    monkeypatch.setattr("self_imitation.training.trainer._describe", lambda *_: "9 x toaster")
    recorder = Recorder()
    continue_run(copy, None, [recorder])
    assert any("now on 9 x toaster: results may differ in the last bits" in message for message in recorder.messages)


def test_the_summary_names_all_machines(copy):
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps(summary | {"machines": ["another"]}))
    continue_run(copy, None, [Recorder()])
    assert json.loads((copy / "summary.json").read_text())["machines"] == ["another", *summary["machines"]]


def test_a_run_without_checkpoints_starts_anew(copy, whole):
    """It was killed before its first one."""
    shutil.rmtree(copy / "checkpoints")
    header = (copy / "metrics.csv").read_text().split("\n")[0]
    (copy / "metrics.csv").write_text(f"{header}\n0,12")  # and half a row
    self_imitation.resume(copy)
    assert rows(copy) == rows(whole("grid").path)
    assert_same_checkpoint(whole("grid").path, copy, 800)


def test_a_run_whose_checkpoints_were_deleted_keeps_its_rows(copy):
    shutil.rmtree(copy / "checkpoints")
    before = rows(copy)
    with pytest.raises(UsageError, match="has metrics but no checkpoint to resume from"):
        self_imitation.resume(copy, steps=1200)
    assert rows(copy) == before
    assert RunDirectory(copy).config().steps == 800
    with pytest.raises(UsageError, match="has metrics but no checkpoint, and so no policy"):
        self_imitation.load(copy).evaluate()


def test_only_the_latest_checkpoints_are_kept(tmp_path):
    run = small_run(tmp_path / "run", agent="a2c", checkpoint_seconds=0.0, checkpoints_kept=2, log_every=80, steps=400)
    assert len(checkpoint.steps(run.directory.checkpoints)) == 2
    assert checkpoint.steps(run.directory.checkpoints)[-1] == 400


@pytest.mark.slow
def test_processes_train_to_the_same_numbers(tmp_path):
    settings = {**CARTPOLE, "seeds": 1, "num_envs": 2, "steps": 100, "log_every": 50}
    one, other = (small_run(tmp_path / name, **{**settings, "engine": name}) for name in ("gymnasium", "processes"))
    assert rows(one.path) == rows(other.path)


def test_a_slow_environment_stops_in_the_middle_of_an_iteration(tmp_path, monkeypatch):
    """The steps of that iteration are dropped; the run resumes from the iteration before."""
    steps, step = [], gymnasium_probes.Counter.step
    monkeypatch.setattr(gymnasium_probes.Counter, "step", lambda env, action: steps.append(1) or step(env, action))
    config = small_config(tmp_path / "run", "gym:gymnasium_probes:Counter-v0", steps=100, agent="a2c")
    per_iteration = config.steps_per_iteration * config.seeds
    wanted = 2 * per_iteration + 3
    run, finished = start(config, [Recorder()], lambda: len(steps) >= wanted)
    assert (finished, len(steps)) == (False, wanted)
    assert max(checkpoint.steps(run.directory.checkpoints)) == 2 * config.steps_per_iteration
    continue_run(run.path, None, [Recorder()])
    assert len(steps) == wanted + 3 * per_iteration
