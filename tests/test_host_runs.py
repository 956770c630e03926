"""Whole runs with environments on the host, as their user meets them: trained, evaluated, failing, resumed."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OrdersHere, assert_same_checkpoint, rows
from host_probes import (
    ACTIONS,
    FAULT_STEP,
    FAULTS_AT_RESET,
    FAULTS_WHEN_MADE,
    FAULTS_WHILE_TRAINING,
    SOUND,
    as_flags,
)

import self_imitation
from self_imitation.training import devices
from self_imitation.cli.main import main
from self_imitation.config import override, resolve
from self_imitation.environments.gymnasium import make as engines
from self_imitation.errors import FaultyEnvironmentError, UsageError
from self_imitation.storage import checkpoint
from self_imitation.runs import host_evaluation
from self_imitation.runs import host_program
from self_imitation.runs.host_program import HostProgram
from self_imitation.runs.rollouts import Actor, EarlySight, Sight
from self_imitation.training.run import start
from self_imitation.training.loop import Silent
from self_imitation.validation import validate

A2C = {
    "lanes": 1,
    "agent": "a2c",
    "seeds": 1,
    "num_envs": 2,
    "num_steps": 5,
    "network.hidden": (8,),
    "steps": 40,
    "log_every": 20,
}
SIL = {"sil.batch_size": 32, "sil.buffer_size": 500, "sil.learning_starts": 20, "sil.updates": 2}
PPO = {**A2C, "agent": "ppo", "seeds": 2, "num_steps": 32, "ppo.num_minibatches": 2, "ppo.update_epochs": 2, "steps": 640}
PPO |= {"log_every": 320}


def told(capfd, *arguments: object) -> tuple[int, str, str]:
    """Status and output, that of other processes too."""
    status = main([str(argument) for argument in arguments])
    captured = capfd.readouterr()
    return status, captured.out, captured.err


def probe(name):
    return f"gym:host_probes:{name}-v0"


def trained(env, out, **settings):
    return start(validate(resolve(env, "authors", {**A2C, "out": str(out), **settings})), Silent())[0]


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    """PPO+SIL on CartPole, by the command line. No test changes it."""
    path = tmp_path_factory.mktemp("host") / "pole"
    flags = as_flags({**PPO, **SIL, "agent": "ppo+sil", "out": path})
    assert main(["train", "gym:CartPole-v1", *flags]) == 0
    return self_imitation.load(path)


def test_a_run_on_the_host_leaves_what_every_run_leaves(pole):
    assert {path.name for path in pole.path.iterdir()} >= {"config.json", "metrics.csv", "summary.json", "curve.png"}
    table = rows(pole.path)
    assert [(row["seed"], row["step"]) for row in table] == [("0", "320"), ("1", "320"), ("0", "640"), ("1", "640")]
    for row in pole.metrics():
        assert row["return_mean"] == pytest.approx(row["length_mean"]), "each step pays 1"
        assert row["return_best"] >= row["return_latest"] > 5
        assert row["memory_size"] > 20
    summary = json.loads((pole.path / "summary.json").read_text())
    assert [seed["return_latest"] for seed in summary["seeds"]] == [float(row["return_latest"]) for row in table[-2:]]
    assert json.loads((pole.path / "config.json").read_text())["engine"] == "gymnasium"
    assert checkpoint.steps(pole.directory.checkpoints)[-1] == 640


@pytest.mark.parametrize("agent", ["a2c", "a2c+sil", "ppo"])
def test_every_agent_trains_on_a_users_environment(agent, tmp_path, capfd):
    base = PPO if agent == "ppo" else {**A2C, "steps": 400, "log_every": 200}
    settings = {**base, **(SIL if "sil" in agent else {}), "agent": agent}
    status, out, err = told(capfd, "train", "gym:CartPole-v1", *as_flags(settings), "--out", tmp_path / "run")
    assert (status, err) == (0, "")
    assert out.startswith(f"{agent} on gym:CartPole-v1: ")
    assert ", environments by gymnasium, in " in out.splitlines()[0]
    table = self_imitation.load(tmp_path / "run").metrics()
    assert all(row["return_mean"] == pytest.approx(row["length_mean"]) for row in table)
    assert table[-1]["episodes"] > table[0]["episodes"] > 0


def test_counting_explores_a_frozen_lake(tmp_path, capfd):
    settings = {**PPO, **SIL, "agent": "ppo+sil+exp", "out": tmp_path / "run"}
    assert told(capfd, "train", "gym:FrozenLake-v1", *as_flags(settings))[0] == 0
    run = self_imitation.load(tmp_path / "run")
    first, _, last, _ = (row["bonus"] for row in run.metrics())
    assert 0 < last < first < 1, "what is new becomes less so"
    assert run.policy(0).act(3).shape == (), "its observations are plain numbers"
    assert run.policy(0).act(np.array([3, 15, 0])).shape == (3,)


@pytest.mark.parametrize("name", ["SightsHW", "SightsMultiDiscrete", "Bare", "Chatty"])
def test_any_observations_can_be_learnt_from(name, tmp_path):
    """`Bare` is as short as one can write an environment: what it does not have it need not have. `Chatty` tells more
    than anyone reads.
    """
    run = trained(probe(name), tmp_path / "run", steps=20)
    assert run.metrics()[-1]["episodes"] >= 4
    if name == "SightsHW":
        assert run.config.network.hidden == (8,), "what the user asks for goes before the network for images"


def test_images_get_the_network_for_images_unless_one_is_asked_for():
    settled = engines.settle(validate(resolve(probe("SightsHWC"), "authors", {"agent": "a2c"})))
    assert (settled.network.hidden, settled.network.shared) == ((512,), True)
    asked = engines.settle(validate(resolve(probe("SightsHWC"), "authors", {"agent": "a2c", "network.hidden": (8,)})))
    assert asked.network.hidden == (8,)
    numbers = engines.settle(validate(resolve(probe("Counter"), "authors", {"agent": "a2c"})))
    assert (numbers.network.hidden, numbers.network.shared) == ((64, 64), False)
    usual = {"agent": "a2c", "network.hidden": (64, 64), "network.shared": False}
    assert engines.settle(validate(resolve(probe("SightsHWC"), "authors", usual))).network.hidden == (64, 64)
    assert numbers.engine == "gymnasium"


@pytest.mark.parametrize("name", ACTIONS)
def test_policies_act_for_one_observation_and_for_many_as_the_environment_takes_it(name, tmp_path):
    """The probe refuses any action out of its space, in training and here."""
    env = probe(f"Echo{name}")
    run = trained(env, tmp_path / "run", steps=20)
    space, policy = ACTIONS[name], run.policy(0)
    environment = engines.make_one(env)
    observation, _ = environment.reset(seed=0)
    one = policy.act(observation)
    assert np.shape(one) == space.shape
    assert environment.step(one)[2] is False
    many = policy.act(np.stack([[observation] * 20] * 3))
    assert many.shape == (3, 20, *space.shape)
    assert many.dtype == space.dtype
    assert all(space.contains(action) for action in many.reshape(60, *space.shape))
    assert len(np.unique(many.reshape(60, -1), axis=0)) > 1, "sampled, as in training"
    greedy = policy.act(np.stack([observation] * 20), greedy=True)
    assert len(np.unique(greedy.reshape(20, -1), axis=0)) == 1
    if name == "Box":
        assert (many[..., 1, 1] == 10).all(), "far below its bounds of 10 and 11"
        assert many[..., 1, 2].min() < -1, "where nothing bounds it"
    with pytest.raises(UsageError, match=r"observation: \(3, 1\) is not allowed; allowed: shape \("):
        policy.act(np.zeros((3, 1)))
    assert run.evaluate(3).lengths.tolist() == [[4, 4, 4]]


def test_processes_train_to_the_same_numbers(tmp_path, capfd):
    """One environment for each of two seeds, so that no half of them acts with a key of its own."""
    settings = {**A2C, "seeds": 2, "num_envs": 1, "steps": 100, "log_every": 50}
    for engine in ("gymnasium", "processes"):
        flags = as_flags({**settings, "engine": engine, "out": tmp_path / engine})
        status, _, err = told(capfd, "train", "gym:CartPole-v1", *flags)
        assert (status, err) == (0, "")
    assert rows(tmp_path / "gymnasium") == rows(tmp_path / "processes")


def test_envpool_runs_a_users_environment_too(tmp_path, capfd):
    flags = as_flags({**A2C, "steps": 200, "log_every": 100, "engine": "envpool", "out": tmp_path / "run"})
    status, out, err = told(capfd, "train", "gym:CartPole-v1", *flags)
    assert (status, err) == (0, "")
    assert "environments by envpool" in out
    assert self_imitation.load(tmp_path / "run").metrics()[-1]["episodes"] > 0


def test_same_seed_twice_is_the_same_and_a_seed_does_not_mind_its_neighbours(tmp_path):
    one, again = (trained("gym:CartPole-v1", tmp_path / name, seeds=2, steps=200) for name in ("one", "again"))
    assert_same_checkpoint(one.path, again.path, 200)
    assert rows(one.path) == rows(again.path)
    alone = trained("gym:CartPole-v1", tmp_path / "alone", seeds=1, seed=1, steps=200)
    beside = [row for row in one.metrics() if row["seed"] == 1]
    for row, other in zip(alone.metrics(), beside, strict=True):
        for name in ("episodes", "return_mean", "return_best", "return_latest", "length_mean"):
            np.testing.assert_equal(row[name], other[name], name)
    assert one.metrics()[-1]["return_mean"] != one.metrics()[-2]["return_mean"]


def program_of(tmp_path, env="gym:CartPole-v1", **settings):
    config = validate(resolve(env, "authors", {**A2C, "out": str(tmp_path / "x"), **settings}))
    return HostProgram(override(config, {"engine": config.engine.replace("auto", "gymnasium")}))


def test_a_fault_in_a_later_iteration_of_a_stretch_names_its_step(tmp_path):
    """Step 8 of two environments, in the second of four iterations that were asked for at once."""
    program = program_of(tmp_path, env=probe("Raises"))
    progress = program.begin()
    program.compile(progress)
    with pytest.raises(FaultyEnvironmentError, match=f"the ball left the field, at step {2 * FAULT_STEP}$"):
        program.advance(progress, 4)
    program.close()


@pytest.mark.parametrize(
    ("engine", "num_envs", "cores", "columns"),
    [
        ("gymnasium", 5, 2, [slice(0, 5)]),
        ("envpool", 5, 2, [slice(0, 2), slice(2, 5)]),
        ("envpool", 1, 2, [slice(0, 1)]),
        ("envpool", 5, 1, [slice(0, 5)]),
    ],
)
def test_environments_come_in_halves_where_that_fills_a_wait(monkeypatch, tmp_path, engine, envs, cores, columns):
    monkeypatch.setattr(devices, "cores", lambda: cores)
    program = program_of(tmp_path, engine=engine, envs=envs, seeds=2)
    program.begin()
    assert [part.columns for part in program.collector.parts] == columns
    program.close()


@pytest.mark.parametrize("engine", ["gymnasium", "envpool"])
def test_no_act_waits_on_the_device_for_environments_that_step_in_this_process(tmp_path, monkeypatch, engine):
    """They might use the device themselves."""
    monkeypatch.setattr(host_program, "orders_for", lambda *_: OrdersHere())
    program = program_of(tmp_path, engine=engine)
    program.begin()
    assert [type(sight) for sight in program._sights] == [
        Sight if engine == "gymnasium" else EarlySight
    ] * program._parts
    assert program.late == ("they step here" if engine == "gymnasium" else "")
    program.close()


def test_things_are_shared_out_evenly():
    assert host_program.share_out(7, 3) == [slice(0, 2), slice(2, 5), slice(5, 7)]
    assert host_program.share_out(2, 4) == [slice(0, 1), slice(1, 2)]


def test_no_two_steps_environments_or_rollouts_share_their_chance(tmp_path):
    program = program_of(tmp_path, seeds=2, envs=4)
    progress = program.begin()
    keys = program.keys()
    assert keys.shape == (2, 4, 2), "seeds, environments, words"
    np.testing.assert_array_equal(program.keys(), keys)
    same = np.broadcast_to(program.collector.seen[0][:1, :1], program.collector.seen[0].shape)
    program.collector.seen[0] = same
    act, drawn = Actor(program.collector, progress.acting, [jnp.asarray(keys)], program._sights), []
    for time in range(40):
        act.prepare(0)
        drawn.append(act(0, time, same).reshape(8))
    drawn = np.stack(drawn, axis=1)
    assert len({row.tobytes() for row in drawn}) == 8, "environments and seeds"
    assert 0.2 < np.mean(drawn[:, 1:] != drawn[:, :-1]) < 0.8, "steps"
    program.advance(progress, 1)
    assert not (program.keys() == keys).all(-1).any(), "nor do two rollouts"
    program.close()


def test_ppo_learns_to_balance(tmp_path):
    settings = {
        "lanes": 1,
        "agent": "ppo",
        "seeds": 2,
        "steps": 40_000,
        "network.hidden": (64, 64),
        "log_every": 10_000,
    }
    config = validate(resolve("gym:CartPole-v1", "authors", {**settings, "out": str(tmp_path / "run")}))
    run, _ = start(config, Silent())
    first, last = run.metrics()[:2], run.metrics()[-2:]
    assert all(row["return_mean"] < 60 for row in first)
    assert all(row["return_mean"] > 150 for row in last), last


def test_evaluation_plays_just_as_many_episodes_as_asked_and_repeats_with_its_key(pole):
    for episodes in (1, 16, 100):
        heard = []
        result = pole.evaluate(episodes, listener=lambda *how_many, heard=heard: heard.append(how_many))
        assert heard == sorted(heard)
        assert heard[-1] == (2 * episodes, 2 * episodes)
        assert result.returns.shape == result.lengths.shape == (2, episodes)
        np.testing.assert_array_equal(result.returns, result.lengths)
        assert (result.lengths > 5).all(), "whole ones"
    again, other = pole.evaluate(100), pole.evaluate(100, key=1)
    np.testing.assert_array_equal(result.returns, again.returns)
    assert not np.array_equal(result.returns, other.returns)
    assert len(np.unique(again.returns)) > 5


def test_evaluation_gives_each_copy_its_share(tmp_path):
    """20 episodes in 16 copies: two for each of the first four, one for each of the others, whatever their lengths."""
    run = trained(probe("Counter"), tmp_path / "run", seeds=2, steps=20)
    result = run.evaluate(20, key=3)
    numbers = (np.random.SeedSequence((3, 1)).generate_state(32) >> 1).reshape(2, 16)
    lengths = [
        [2 + (int(number) + episode) % 3 for copy, number in enumerate(own) for episode in range(2 if copy < 4 else 1)]
        for own in numbers
    ]
    np.testing.assert_array_equal(result.lengths, lengths)
    first = [True, False] * 4 + [True] * 12
    totals = [
        [length * (length + 1) // 2 + (0 if new else 100 * length) for length, new in zip(own, first, strict=True)]
        for own in lengths
    ]
    np.testing.assert_array_equal(result.returns, totals)


def test_evaluation_does_not_favour_short_episodes(tmp_path):
    """To begin with left ends it at once: half of the episodes of a policy that does not care. Those that end first
    would be nine in ten.
    """
    run = trained(probe("Chain"), tmp_path / "run", seeds=12, steps=10)
    result = run.evaluate(16)
    assert set(np.unique(result.lengths)) == {1, 5}
    assert 0.4 < (result.lengths == 1).mean() < 0.6
    assert (result.returns[result.lengths == 1] == 0).all()
    assert (result.returns[result.lengths == 5] >= 1).all()


def test_evaluate_by_the_command_line(pole, capfd, tmp_path):
    status, out, err = told(capfd, "evaluate", pole.path, "--episodes", 7, "--json", tmp_path / "x.json", "--greedy")
    assert (status, err) == (0, "")
    assert "(7 greedy episodes a seed)" in out
    figures = json.loads((tmp_path / "x.json").read_text())
    assert [len(seed["returns"]) for seed in figures["seeds"]] == [7, 7]


def test_what_never_ends_is_not_evaluated_for_ever(tmp_path, monkeypatch):
    run = trained(probe("Endless"), tmp_path / "run", steps=20)
    monkeypatch.setattr(host_evaluation, "LONGEST", 500)
    with pytest.raises(UsageError, match=r"Endless-v0' can't be evaluated: 500 steps did not end an episode"):
        run.evaluate(3)


def test_a_delayed_run_is_evaluated_by_whole_returns(tmp_path):
    run = trained("gym:CartPole-v1", tmp_path / "run", delay=20)
    result = run.evaluate(3)
    np.testing.assert_array_equal(result.returns, result.lengths)


def one_line(err, status, got):
    assert got == status, err
    assert err.count("\n") == 1, err
    assert err.startswith("sil: ")
    return err.removeprefix("sil: ").rstrip("\n")


@pytest.mark.parametrize("name", FAULTS_WHILE_TRAINING)
def test_a_fault_stops_the_run_in_one_sentence_and_the_run_goes_on_when_it_is_mended(
    name, tmp_path, capfd, monkeypatch
):
    """Step 8 of each of two environments. The iteration before, of ten steps, is saved."""
    env, path = probe(name), tmp_path / "run"
    status, _, err = told(capfd, "train", env, *as_flags({**A2C, "checkpoint_seconds": 0, "out": path}))
    sentence = one_line(err, 1, status)
    assert sentence.startswith(f"environment {env}: {FAULTS_WHILE_TRAINING[name]}")
    kept = "training stopped, the checkpoint at step {} is kept in " + str(path)
    assert sentence.endswith(f", at step {2 * FAULT_STEP}; {kept.format(10)}")
    assert checkpoint.steps(path / "checkpoints") == [0, 10]
    if name != "Raises":
        return
    assert self_imitation.load(path).policy(0).act(np.zeros(3)).shape == ()
    status, out, err = told(capfd, "resume", path)
    assert one_line(err, 1, status).endswith(f", at step {10 + 2 * FAULT_STEP}; {kept.format(20)}")
    assert "the state of this environment can't be saved: unfinished episodes are dropped, fresh ones begin" in out
    monkeypatch.setenv(SOUND, "1")
    status, out, err = told(capfd, "resume", path)
    assert (status, err) == (0, "")
    assert [row["step"] for row in rows(path)] == ["20", "40"]


@pytest.mark.parametrize(
    ("name", "message"), [("Raises", FAULTS_WHILE_TRAINING["Raises"]), ("Dies", "it raised EOFError")]
)
def test_a_fault_in_a_process_of_its_own_is_one_sentence_too(name, message, tmp_path, capfd):
    """Of the two halves of the environments, one fails while the other one steps."""
    flags = as_flags({**A2C, "engine": "processes", "checkpoint_seconds": 0, "out": tmp_path / "run"})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        status, _, err = told(capfd, "train", probe(name), *flags)
    assert not [warning for warning in said if "ERROR" in str(warning.message)], "Gymnasium's own, with a traceback"
    sentence = one_line(err, 1, status)
    assert f"{message}, at step {2 * FAULT_STEP}; training stopped" in sentence
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [0, 10]
    assert multiprocessing.active_children() == [], "none is left behind"


def test_a_fault_at_a_later_reset_names_its_step(tmp_path, capfd):
    status, _, err = told(capfd, "train", probe("RaisesAtThirdReset"), *as_flags({**A2C, "out": tmp_path / "run"}))
    assert "it raised ConnectionError: the game server is away, at step 12; training" in one_line(err, 1, status)


@pytest.mark.parametrize("name", FAULTS_AT_RESET)
def test_a_fault_at_the_first_reset_stops_the_run_before_it_begins(name, tmp_path, capfd, monkeypatch):
    env, path = probe(name), tmp_path / "run"
    status, _, err = told(capfd, "train", env, *as_flags({**A2C, "out": path}))
    sentence = one_line(err, 1, status)
    assert sentence.startswith(f"environment {env}: {FAULTS_AT_RESET[name]}")
    assert sentence.endswith(", at its first reset")
    assert not path.exists(), "nothing was trained"
    if name == "RaisesAtReset":
        monkeypatch.setenv(SOUND, "1")
        assert told(capfd, "train", env, *as_flags({**A2C, "out": path}))[0] == 0
        assert [row["step"] for row in rows(path)] == ["20", "40"]


def test_an_observation_that_is_not_in_its_space_is_a_fault(tmp_path, capfd):
    status, _, err = told(capfd, "train", probe("Elsewhere"), *as_flags({**A2C, "out": tmp_path / "run"}))
    assert "its observation was 99, which is not in Discrete(5), at its first reset" in one_line(err, 1, status)


def test_processes_in_a_script_without_a_guard_are_refused_in_a_sentence(tmp_path):
    settings = {"engine": "processes", "num_envs": 2, "network.hidden": (8,)}
    code = f"import self_imitation\nself_imitation.train('gym:CartPole-v1', 'a2c', steps=20, settings={settings!r})\n"
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert (
        "engine: 'processes' is not allowed; its processes did not start; a script must train under if __name__" in last
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("RaisesAtReset", "it raised ConnectionError: the game server is away, at its first reset"),
        ("NotANumber", f"its observation had nan at place [1], at step {16 * FAULT_STEP}"),
    ],
)
def test_a_fault_while_a_policy_is_evaluated_is_one_sentence(name, message, tmp_path, capfd, monkeypatch):
    """In 16 copies of the environment."""
    monkeypatch.setenv(SOUND, "1")
    path = trained(probe(name), tmp_path / "run", steps=10).path
    monkeypatch.delenv(SOUND)
    status, _, err = told(capfd, "evaluate", path)
    assert one_line(err, 1, status) == f"environment {probe(name)}: {message}"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        *((probe(name), message) for name, message in FAULTS_WHEN_MADE.items()),
        ("gym:Nope-v0", "can't be made; Environment `Nope` doesn't exist"),
        ("gym:CartPole-v99", "can't be made; Environment version `v99` for environment `CartPole` doesn't exist"),
        ("gym:no_such_package:X-v0", "can't be made; No module named 'no_such_package'"),
        ("gym:not an id", "can't be made; "),
        ("gym:host_probes:TextObservation-v0", "has observations Text("),
        ("gym:host_probes:WholeActions-v0", "has actions Box(0, 5, (2,), int64); allowed: "),
    ],
)
def test_what_cannot_be_made_or_taken_is_one_line_and_nothing_is_written(env, message, tmp_path, capfd):
    status, out, err = told(capfd, "train", env, *as_flags({**A2C, "out": tmp_path / "run"}))
    sentence = one_line(err, 2, status)
    assert sentence.startswith(f"env: '{env}' {message}"), sentence
    assert out == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--agent", "a2c+exp"], "agent: 'exp' counts states; this environment's observations can't be counted"),
        (["--engine", "envpool", "--delay", "0"], "delay: 0 is not allowed; allowed: a whole number of 1 or more"),
        (["--engine", "ray"], "engine: 'ray' is not allowed; allowed: "),
    ],
)
def test_settings_that_do_not_fit_the_environment_are_one_line_and_nothing_is_written(flags, message, tmp_path, capfd):
    out = tmp_path / "run"
    status, _, err = told(capfd, "train", "gym:CartPole-v1", *as_flags({**A2C, "out": out}), *flags)
    assert message in one_line(err, 2, status)
    assert not out.exists()


def test_a_missing_mujoco_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path, capfd):
    def missing(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("MuJoCo is not installed, run ...")

    monkeypatch.setattr(gymnasium, "make", missing)
    status, _, err = told(capfd, "train", "mujoco:Hopper", "--engine", "gymnasium", "--out", tmp_path / "run")
    wanted = "env: 'mujoco:Hopper' needs a package that is not installed: pip install 'self-imitation[mujoco]'"
    assert one_line(err, 2, status) == wanted


def test_an_environment_may_be_a_module_of_the_working_directory(tmp_path, monkeypatch, capfd):
    source = Path(__file__).with_name("host_probes.py").read_text()
    (tmp_path / "my_own.py").write_text(
        source.replace("host_probes", "my_own").replace('f"{name}-v0"', 'f"My{name}-v0"')
    )
    monkeypatch.chdir(tmp_path)
    status, _, err = told(capfd, "train", "gym:my_own:MyCounter-v0", *as_flags({**A2C, "steps": 10, "out": "run"}))
    assert (status, err) == (0, "")


def test_ctrl_c_on_a_terminal_saves_whatever_processes_it_reaches(tmp_path):
    """A terminal sends it to all processes of a command, the environments' own too."""
    path = tmp_path / "run"
    flags = as_flags({**A2C, "engine": "processes", "steps": 10**9, "log_every": 100, "out": path})
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for name in ("XLA_FLAGS", "PJRT_NPROC"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "self_imitation", "train", "gym:CartPole-v1", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    for line in process.stdout:
        if line.startswith("step "):
            break
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert output.endswith(f"Stopped; all is saved. Go on with: sil resume {path}\n")
    assert checkpoint.steps(path / "checkpoints")[-1] > 0
