"""The Python interface: train, load, act, play."""

import json
import shutil
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium_probes import ACTION_SPACES, SPACES, sample
from helpers import SMALL, rows, small_config, small_run

import self_imitation
from self_imitation.environments.gymnasium.make import make_env
from self_imitation.errors import UsageError
from self_imitation.training import devices
from self_imitation.training import run as runs
from self_imitation.training.callbacks import Callback

STEPS = 800
TINY = {"agent": "a2c", "seeds": 1, "num_envs": 2, "num_steps": 5, "steps": 10, "log_every": 10}

SHORT = {"agent": "a2c", "steps": 160, "log_every": 80}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that no test changes."""
    return small_run(tmp_path_factory.mktemp("interface") / "run", agent="a2c+sil+exp")


def test_a_run_directory_is_complete(run):
    names = {path.name for path in run.path.iterdir()}
    assert names >= {"config.json", "metrics.csv", "summary.json", "curve.png", "tensorboard", "checkpoints"}
    files = {path.name for path in (run.path / "checkpoints" / str(STEPS)).iterdir()}
    assert files == {"policy.safetensors", "state.safetensors", "meta.json"}
    assert (run.path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_have_one_row_per_seed_and_logging_point(run):
    table = rows(run.path)
    assert list(table[0])[:5] == ["seed", "step", "episodes", "return_mean", "return_best"]
    assert {"return_latest", "length_mean", "loss", "memory_size", "bonus"} <= set(table[0])
    assert [(row["seed"], row["step"]) for row in table] == [("0", "400"), ("1", "400"), ("0", "800"), ("1", "800")]


def test_rows_average_over_the_episodes_that_ended_since_the_last_row(tmp_path):
    """One episode of 50 steps per environment and row."""
    run = small_run(tmp_path / "run", agent="a2c", num_envs=2, num_steps=5, log_every=100, steps=300)
    for row in run.metrics():
        assert row["episodes"] == 2 * row["step"] / 100
        assert row["return_mean"] * 2 == int(row["return_mean"] * 2)
        assert row["length_mean"] == 50


def test_rows_without_a_finished_episode_have_an_empty_mean(tmp_path):
    run = small_run(tmp_path / "run", agent="a2c", log_every=20, steps=40)
    assert all(row["return_mean"] == row["return_latest"] == "" for row in rows(run.path))
    assert json.loads(run.directory.summary.read_text())["return_mean"] is None


def test_the_summary(run):
    summary = json.loads((run.path / "summary.json").read_text())
    assert (summary["finished"], summary["step"]) == (True, STEPS)
    assert [entry["seed"] for entry in summary["seeds"]] == [0, 1]
    last = rows(run.path)[-2:]
    assert summary["return_mean"] == pytest.approx(np.mean([float(row["return_mean"]) for row in last]))
    assert [seed["return_latest"] for seed in summary["seeds"]] == [float(row["return_latest"]) for row in last]
    assert summary["machines"] == [devices.machine(devices.jax.devices("cpu")[0])]


def test_the_summary_counts_what_was_trained_even_if_rows_are_lost(tmp_path):
    class Empty(Callback):
        def logged(self, context, rows):
            (tmp_path / "run" / "metrics.csv").write_text("")

    runs.start(small_config(tmp_path / "run", **SHORT), [Empty()])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["finished"], summary["step"]) == (True, 160)


def test_single_and_batched_observations(run):
    policy = run.policy(seed=1)
    assert policy.act(np.array([2, 8, 1, 1, 1])).shape == ()
    assert policy.act([2, 8, 1, 1, 1]).shape == ()
    assert policy.act(np.zeros((3, 7, 5))).shape == (3, 7)
    assert policy.act(np.zeros((0, 7, 5))).shape == (0, 7)


def test_actions_are_sampled_or_greedy(run):
    policy, observation = run.policy(0), np.tile(np.array([2, 8, 1, 1, 1], np.float32), (60, 1))
    assert len(np.unique(policy.act(observation))) > 1
    assert len(np.unique(policy.act(observation, greedy=True))) == 1


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(4), r"\(4,\) is not allowed; allowed: shape \(5,\), or a batch of it"),
        (None, r"'object' is not allowed; allowed: numbers of shape \(5,\)"),
        ([[1], [1, 2]], r"'object' is not allowed"),
        (["a"] * 5, r"'str32' is not allowed"),
        (1j, r"'complex128' is not allowed"),
        ([1, 2, np.nan, 1, 1], "nan is not allowed; allowed: finite numbers"),
    ],
)
def test_bad_observations_are_refused(run, observation, message):
    with pytest.raises(UsageError, match=f"observation: {message}"):
        run.policy(0).act(observation)


def test_unknown_seeds_are_refused(run):
    with pytest.raises(UsageError, match="seed: 2 is not allowed; this run has seeds 0 to 1"):
        run.policy(seed=2)


def test_policies_act_in_the_gymnasium_environment(run):
    environment = gymnasium.make("self_imitation/KeyDoorTreasure-v0")
    observation, _ = environment.reset(seed=0)
    ended, steps = False, 0
    policy = run.policy()
    while not ended:
        observation, _, terminated, truncated, _ = environment.step(policy.act(observation))
        ended, steps = terminated or truncated, steps + 1
    assert steps <= 50


def test_playing_an_episode(run):
    episode = run.play()
    assert len(episode.observations) == len(episode.actions) + 1 == len(episode.rewards) + 1
    assert episode.total == episode.rewards.sum()


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_actions_are_in_the_environments_own_space(name, tmp_path):
    """The probe refuses other actions, in training and here."""
    run, space = small_run(tmp_path / "run", f"gym:gymnasium_probes:Echo{name}-v0", **TINY), ACTION_SPACES[name]
    environment, policy = make_env(f"gymnasium_probes:Echo{name}-v0"), run.policy(0)
    observation, _ = environment.reset(seed=0)
    one, many = policy.act(observation), policy.act(np.stack([[observation] * 20] * 3))
    assert np.shape(one) == space.shape
    assert environment.step(one)[2] is False
    assert (many.shape, many.dtype) == ((3, 20, *space.shape), space.dtype)
    assert all(space.contains(action) for action in many.reshape(60, *space.shape))


@pytest.mark.parametrize("name", ["Nested", "Tuple"])
def test_dict_and_tuple_observations_are_single_ones(name, tmp_path):
    run = small_run(tmp_path / "run", f"gym:gymnasium_probes:Sampled{name}-v0", **TINY)
    assert run.policy(0).act(sample(SPACES[name], 1, 0, 0)) in (0, 1)


@pytest.mark.slow
def test_images_must_be_bytes(tmp_path):
    run = small_run(tmp_path / "run", "gym:gymnasium_probes:SampledHW-v0", **TINY)
    image = np.zeros((36, 40), np.uint8)
    assert run.policy(0).act(image).shape == ()
    assert run.policy(0).act(np.stack([image.astype(int)] * 2)).shape == (2,)
    for wrong in (image.astype(float), image.astype(int) - 1):
        with pytest.raises(UsageError, match="allowed: integers from 0 to 255"):
            run.policy(0).act(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("train(settings=[1])", 'settings: [1] is not allowed; allowed: values by name, such as {"sil.updates": 8}'),
        ("train(settings={3: 3})", "settings: {3: 3} is not allowed; allowed: values by name"),
        ("train(out=3)", "out: 3 is not allowed; allowed: the path of a new directory"),
        ("load(3)", "run: 3 is not allowed; allowed: the path of a run directory"),
        ("load(RUN).policy(0.0)", "seed: 0.0 is not allowed; this run has seeds 0 to 1"),
        ("load(RUN).policy(True)", "seed: True is not allowed"),
    ],
)
def test_arguments_of_wrong_types_are_named(run, wrong_calls, call, message):
    assert message in wrong_calls[call]


@pytest.fixture(scope="module")
def wrong_calls(run):
    """Messages of the errors, from a process in which types are not checked at every call."""
    calls = [
        "train(settings=[1])",
        "train(settings={3: 3})",
        "train(out=3)",
        "load(3)",
        "load(RUN).policy(0.0)",
        "load(RUN).policy(True)",
    ]
    script = f"""
import json
from self_imitation import UsageError, load, train
RUN, found = {str(run.path)!r}, {{}}
for call in {calls!r}:
    try:
        eval(call)
    except UsageError as error:
        found[call] = str(error)
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=run.path.parent)
    return json.loads(done.stdout)


def test_settings_can_not_repeat_arguments():
    for name in ("preset", "env", "steps"):
        with pytest.raises(UsageError, match=f"settings: '{name}' is not allowed; it is an argument of its own"):
            self_imitation.train(settings={name: "paper"})


def test_numpy_numbers_and_lists_are_settings_too(tmp_path):
    small = {name: list(v) if isinstance(v, tuple) else v for name, v in SMALL.items() if "sil" not in name}
    settings = {**small, "num_envs": np.int64(4)}
    settings.pop("seeds")
    run = self_imitation.train(agent="a2c", steps=40, seeds=1, out=tmp_path / "run", settings=settings)
    assert (run.config.steps, run.config.num_envs, run.config.network.hidden) == (40, 4, (8,))
    assert self_imitation.resume(run.path, 80).metrics()[-1]["step"] == 80


def test_settings_that_have_no_effect_are_refused():
    with pytest.raises(UsageError, match=r"sil\.updates has no effect with agent 'a2c'"):
        self_imitation.train(agent="a2c", settings={"sil.updates": 3})


def test_environments_bring_their_own_steps_and_seeds(monkeypatch):
    begun, nothing = [], object.__new__(self_imitation.Run)
    monkeypatch.setattr(runs, "start", lambda config, *_: (begun.append(config) or nothing, True))
    self_imitation.train("atari:Pong")
    self_imitation.train("atari:Pong", steps=80, seeds=2)
    assert [(config.steps, config.seeds) for config in begun] == [(50_000_000, 1), (80, 2)]


@pytest.mark.parametrize(("name", "hidden", "shared"), [("SampledHWC", (512,), True), ("Counter", (64, 64), False)])
def test_images_get_a_network_for_images(name, hidden, shared, tmp_path):
    from self_imitation.config import override
    from self_imitation.training import backends

    config = small_config(tmp_path / "run", f"gym:gymnasium_probes:{name}-v0", **TINY)
    config = override(config, {"network.hidden": None, "network.shared": None})
    found = runs._resolved(config, backends.create(config))
    assert (found.network.hidden, found.network.shared, found.engine) == (hidden, shared, "gymnasium")


def test_an_environment_may_change_the_working_directory(tmp_path, monkeypatch):
    """Paths are those of the moment at which the run was started."""
    from self_imitation.training import backends

    create = backends.create

    def create_elsewhere(config):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        return create(config)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backends, "create", create_elsewhere)
    run = small_run("run", **SHORT)
    assert run.path == tmp_path / "run"
    assert run.config.out == "run"
    assert not list((tmp_path / "elsewhere").iterdir())
    assert len(run.metrics()) == 4


@pytest.mark.parametrize("kind", ["moved", "replaced"])
def test_a_run_that_vanishes_while_it_trains_is_not_created_again(tmp_path, kind):
    path, moved = tmp_path / "run", tmp_path / "moved"

    class Vanish(Callback):
        def logged(self, context, rows):
            if not moved.exists():
                path.rename(moved)
                if kind == "replaced":
                    shutil.copytree(moved, path)

    with pytest.raises(UsageError, match=r"run' or its \.lock was moved or deleted while it was trained"):
        runs.start(small_config(path, **SHORT), [Vanish()])
    assert path.exists() == (kind == "replaced")
    if kind == "replaced":
        assert {row["step"] for row in rows(path)} == {"80"}
    else:
        assert runs.load(moved).config.steps == 160


def test_a_fault_at_the_first_reset_leaves_no_run(tmp_path):
    from self_imitation.errors import FaultyEnvironmentError

    with pytest.raises(FaultyEnvironmentError, match=r"^environment gym:gymnasium_probes:RaisesAtReset-v0: raised"):
        small_run(tmp_path / "run", "gym:gymnasium_probes:RaisesAtReset-v0", **TINY)
    assert not (tmp_path / "run").exists(), "the same command works again"


def test_a_fault_while_training_keeps_the_last_checkpoint(tmp_path):
    from self_imitation.errors import FaultyEnvironmentError
    from self_imitation.storage import checkpoint

    settings = {**TINY, "steps": 40, "log_every": 10, "checkpoint_seconds": 0.0}
    with pytest.raises(FaultyEnvironmentError) as error:
        small_run(tmp_path / "run", "gym:gymnasium_probes:Raises-v0", **settings)
    message = str(error.value)
    assert message.startswith("environment gym:gymnasium_probes:Raises-v0: raised ZeroDivisionError: the ball left")
    assert message.endswith(f"training stopped, the checkpoint at step 10 is kept in {tmp_path / 'run'}")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == 10
