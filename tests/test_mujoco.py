"""The MuJoCo tasks: snapshots that go on to the last bit, runs that resume as if nothing had happened, two engines."""

import random
import signal
import time

import numpy as np
import pytest
from helpers import arrays, assert_same_checkpoint, finish, rows, sil
from host_probes import as_flags
from self_imitation.host_collection import HostCollector, Part
from self_imitation.runs.host_program import HostProgram
from self_imitation.validation import validate

import self_imitation
from self_imitation.config import override, resolve
from self_imitation.environments import registry as catalogue
from self_imitation.environments.gymnasium import make as engines
from self_imitation.errors import UsageError
from self_imitation.storage import checkpoint
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training.loop import Silent, Training
from self_imitation.training.run import go_on, start

TASKS = ("Hopper", "Walker2d", "HalfCheetah", "Swimmer", "Ant", "Humanoid")
NUMBERS = {"Hopper": (11, 3), "Walker2d": (17, 6), "HalfCheetah": (17, 6), "Swimmer": (8, 2)}
NUMBERS |= {"Ant": (105, 8), "Humanoid": (348, 17)}
"""Of observations and of actions."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its log where it is called."""
    monkeypatch.chdir(tmp_path)


def config_of(task, engine="gymnasium"):
    return override(resolve(f"mujoco:{task}", "authors"), {"engine": engine})


def make(task, seeds, engine="gymnasium"):
    config = config_of(task, engine)
    vector = engines.make_vector(config, engines.inspect(config), seeds)
    vector.reset(seeds)
    return vector


def walk(vector, actions):
    """What came of these actions: fields with time first."""
    arrivals = []
    for action in actions:
        vector.send(action)
        arrivals.append(vector.receive())
    return [np.stack(column) for column in zip(*arrivals, strict=True)]


SETTINGS = {
    "lanes": 1,
    "agent": "ppo+sil",
    "engine": "gymnasium",
    "seeds": 2,
    "num_steps": 64,
    "ppo.num_minibatches": 4,
    "ppo.update_epochs": 2,
    "network.hidden": (8,),
    "sil.batch_size": 32,
    "sil.buffer_size": 500,
    "sil.learning_starts": 20,
    "sil.updates": 2,
    "log_every": 640,
}
STEPS = 1920


def small(out, **settings):
    changes = {"steps": STEPS, "out": str(out), **SETTINGS, **settings}
    return validate(resolve("mujoco:Hopper", "authors", changes))


def stopped_after(calls):
    turns = iter([False] * calls + [True])
    return lambda: next(turns)


class Heard(Silent):
    def __init__(self):
        self.messages = []

    def message(self, text):
        self.messages.append(text)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that no test changes."""
    return start(small(tmp_path_factory.mktemp("mujoco") / "finished"), Silent())[0]


def test_twice_the_same_run_is_the_same_to_the_last_bit(finished, tmp_path):
    again, _ = start(small(tmp_path / "again"), Silent())
    assert_same_checkpoint(finished.path, again.path, STEPS)
    assert rows(finished.path) == rows(again.path)
    assert len(rows(finished.path)) == 6
    weights = arrays(finished.path, STEPS)["state.train_state.params.policy_head.weight"]
    assert not np.array_equal(weights[0], weights[1]), "each seed is an agent of its own"


def test_the_checkpoint_holds_the_environments_seed_by_seed(finished):
    saved = arrays(finished.path, STEPS)
    own = {name.removeprefix("environments."): array for name, array in saved.items() if "environments." in name}
    assert own.keys() == {
        *("latest", "observation", "episode_return", "episode_length", "owed", "waited"),
        *(f"0.{name}" for name in ("physics", "xpos", "xipos", "generator", "clock")),
    }
    assert all(array.shape[0] == 2 for array in own.values())
    assert own["observation"].shape == (2, 1, 11)
    assert own["latest"].shape == (2, 100)
    np.testing.assert_array_equal(own["episode_length"], own["0.clock"], "two clocks that count the same")


@pytest.mark.parametrize("delay", [1, 20])
def test_a_run_stopped_in_mid_episode_goes_on_to_the_last_bit(finished, tmp_path, delay):
    whole = finished if delay == 1 else start(small(tmp_path / "whole", delay=delay), Silent())[0]
    heard = Heard()
    run, reached_end = start(small(tmp_path / "cut", delay=delay), heard, stopped_after(3))
    assert not reached_end
    saved = arrays(run.path, checkpoint.steps(run.directory.checkpoints)[-1])
    assert saved["environments.episode_length"].any(), "in mid-episode"
    assert saved["environments.owed"].any() == (delay > 1)
    go_on(run.path, None, heard)
    assert heard.messages == []
    assert_same_checkpoint(whole.path, run.path, STEPS)
    assert rows(whole.path) == rows(run.path)


def test_a_collector_goes_on_where_another_was_saved():
    """Two seeds x three environments of which each has its own place, with delayed rewards, over ends and resets."""
    numbers = np.arange(6).reshape(2, 3)
    choices = np.random.default_rng(0).normal(size=(40, 2, 3, 3)).astype(np.float32)

    def collector(seeds):
        config = config_of("Hopper")
        spaces = engines.inspect(config)
        vector = engines.make_vector(config, spaces, seeds.reshape(-1).tolist())
        made = HostCollector([Part(slice(0, 3), vector)], spaces.spec, 2, 40, delay=7)
        made.begin(seeds)
        made.collect(lambda part, time, seen: choices[time], 0)
        return made

    one, other = collector(numbers), collector(numbers + 6)
    assert one.can_be_saved
    saved = one.save()
    expected = one.collect(lambda part, time, seen: choices[time], 0)
    other.restore(saved)
    found = other.collect(lambda part, time, seen: choices[time], 0)
    assert expected.terminated.any(axis=0).all(), "each met an end"
    for name in expected._fields:
        np.testing.assert_array_equal(getattr(expected, name), getattr(found, name), err_msg=name)


def test_kills_at_random_moments_change_nothing(tmp_path):
    """SIGKILL while training, logging or saving, with delayed rewards, in two lanes; each time resumed; the same in
    the end.
    """
    steps = 64 * 45
    flags = as_flags({**SETTINGS, "lanes": 2, "delay": 20, "steps": steps, "checkpoint_seconds": 0, "log_every": 320})
    code, output = finish(sil("train", "mujoco:Hopper", *flags, "--out", tmp_path / "whole"))
    assert code == 0, output
    moments, killed, seen = random.Random(3), tmp_path / "killed", set()
    process = sil("train", "mujoco:Hopper", *flags, "--out", killed)
    for kill in range(2):
        while not process.stdout.readline().startswith("step"):
            assert process.poll() is None
        time.sleep(moments.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        seen.add(max(checkpoint.steps(killed / "checkpoints")))
        assert max(seen) < steps, f"too fast to be killed {kill + 1} times"
        process = sil("resume", killed)
    code, output = finish(process)
    assert code == 0, output
    assert "dropped" not in output
    assert len(seen) == 2, "the kills met the run at different points"
    assert_same_checkpoint(tmp_path / "whole", killed, steps)
    assert rows(tmp_path / "whole") == rows(killed)


def test_with_envpool_fresh_episodes_begin_and_finished_ones_stay(tmp_path):
    config = small(tmp_path / "run", engine="envpool")
    run, _ = start(config, Silent(), stopped_after(4))
    step = checkpoint.steps(run.directory.checkpoints)[-1]
    saved = arrays(run.path, step)
    assert not saved["state.memory.recent.observation"].any(), "what will not go on takes no room on the disk"
    assert saved["state.memory.size"].all()
    heard = Heard()
    training = Training(RunDirectory(run.path), run.config, heard)
    assert heard.messages == [
        "the environments' state is not saved with engine 'envpool': unfinished episodes are dropped, fresh ones begin"
    ]
    state = training.program.whole(training.progress).state
    assert not np.asarray(state.memory.recent.length).any()
    assert not np.asarray(state.memory.recent.rewarded).any()
    assert not np.asarray(state.scales.running).any()
    for name in ("observation", "action", "returns", "size", "head"):
        kept = np.asarray(getattr(state.memory, name))
        np.testing.assert_array_equal(kept, saved[f"state.memory.{name}"], err_msg=name)
    collector = training.program.collector
    begun = collector.observation
    np.testing.assert_allclose(begun[..., 0], 1.25, atol=0.0051, err_msg="the height at which every episode begins")
    assert not collector.episode_length.any()
    training.program.close()
    assert go_on(run.path, None, Silent())[1]
    assert [int(row["step"]) for row in rows(run.path)] == [640, 640, 1280, 1280, 1920, 1920]


def test_resumed_environments_do_not_see_their_start_again(tmp_path):
    """Their random numbers depend on the step at which they begin, and on the seed."""
    seen = []
    for step in (0, 128):
        program = HostProgram(small(tmp_path, envs=2, engine="envpool"))
        program._open(step)
        seen += list(program.collector.observation.reshape(-1, 11))
        program.close()
    assert len(np.unique(np.stack(seen), axis=0)) == len(seen) == 2 * 2 * 2


def test_the_latest_returns_are_over_a_hundred_episodes_and_survive_a_stop(finished):
    row = finished.metrics()[-1]
    latest = arrays(finished.path, STEPS)["environments.latest"][1]
    assert row["seed"] == 1
    assert np.isfinite(latest).sum() == min(row["episodes"], 100)
    assert row["return_latest"] == pytest.approx(latest[np.isfinite(latest)].mean())
    training = Training(finished.directory, finished.config, Silent())
    assert training.program.own_metrics(1)["return_latest"] == pytest.approx(row["return_latest"])
    training.program.latest[1].extend(range(1000, 1100))
    assert training.program.own_metrics(1)["return_latest"] == pytest.approx(1049.5), "the older ones have left"
    training.program.close()


def test_the_catalogue_has_the_papers_six_tasks():
    entries = [entry for name, entry in catalogue.ENTRIES.items() if name.startswith("mujoco:")]
    assert [(entry.name, entry.host_id) for entry in entries] == [(f"mujoco:{task}", f"{task}-v5") for task in TASKS]
    for entry in entries:
        assert entry.search == {
            "optimiser.learning_rate": (3e-4, 1e-4, 5e-5, 3e-5),
            "sil.vf_coef": (0.01, 0.05),
            "sil.priority_exponent": (0.6, 1.0),
        }
        for name in entry.search:
            override(resolve(entry.name, "paper"), {name: entry.search[name][0]})


def test_the_papers_settings_of_the_mujoco_tasks():
    config = resolve("mujoco:Ant", "authors", {"agent": "ppo+sil"})
    assert (config.num_envs, config.num_steps, config.ppo.update_epochs, config.ppo.num_minibatches) == (
        1,
        2048,
        10,
        32,
    )
    assert (config.ppo.clip_coef, config.ppo.gae_lambda, config.ppo.gamma, config.optimiser.kind) == (
        *(0.2, 0.95, 0.99),
        "adam",
    )
    assert (config.sil.updates, config.sil.batch_size, config.sil.loss_coef, config.sil.buffer_size) == (
        10,
        512,
        0.1,
        50_000,
    )
    assert (config.sil.importance_exponent, config.sil.ent_coef) == (0.1, 0.0)
    assert (config.normalise.observations, config.normalise.rewards, config.normalise.clip) == (True, True, 10.0)
    assert (config.network.hidden, config.network.shared) == ((64, 64), False)
    assert config.time_limit == "terminal"
    assert resolve("mujoco:Ant", "paper", {"agent": "ppo+sil"}).time_limit == "bootstrap"


def test_a_users_environment_gets_defaults_that_do_not_fail_in_silence():
    entry = catalogue.find("gym:CartPole-v1")
    assert (entry.host_id, entry.search) == ("CartPole-v1", {})
    assert catalogue.find("gym:my_package:MyEnv-v0").host_id == "my_package:MyEnv-v0"
    config = resolve("gym:CartPole-v1", "authors")
    assert (config.sil.keep, config.time_limit) == ("all", "bootstrap")
    assert (config.normalise.observations, config.normalise.rewards) == (True, True)
    for unknown in ("gym", "gym:", "mujoco:Dog", "gymnasium:CartPole-v1"):
        with pytest.raises(UsageError, match=f"env: '{unknown}' is unknown; did you mean"):
            catalogue.find(unknown)


def test_auto_takes_the_fast_engine_where_there_is_one(monkeypatch):
    assert engines.choose("mujoco:Hopper", "auto") == "envpool"
    assert engines.choose("gym:Hopper-v5", "auto") == "gymnasium"
    assert engines.choose("gym:CartPole-v1", "envpool") == "envpool"
    assert engines.choose("mujoco:Hopper", "processes") == "processes"
    assert engines.choose("key-door-treasure", "auto") == "auto"
    with pytest.raises(UsageError, match="EnvPool has no host_probes:Counter-v0; allowed: gymnasium, processes"):
        engines.choose("gym:host_probes:Counter-v0", "envpool")
    monkeypatch.setattr(engines, "_installed", lambda package: package != "envpool")
    assert engines.choose("mujoco:Hopper", "auto") == "gymnasium"
    with pytest.raises(UsageError, match=r"EnvPool is not installed: pip install 'self-imitation\[fast\]'"):
        engines.choose("mujoco:Hopper", "envpool")


@pytest.mark.parametrize("task", TASKS)
def test_both_engines_have_the_same_spaces(task):
    pool, gym = (engines.inspect(config_of(task, engine)).spec for engine in ("envpool", "gymnasium"))
    assert pool.observation_shape == gym.observation_shape == (NUMBERS[task][0],)
    assert pool.max_episode_steps == gym.max_episode_steps == 1000
    assert len(gym.actions.low) == NUMBERS[task][1]
    np.testing.assert_allclose(pool.actions.low, gym.actions.low, rtol=1e-6)
    np.testing.assert_allclose(pool.actions.high, gym.actions.high, rtol=1e-6)


def test_both_engines_take_the_same_steps():
    """From the same state, the same action leads to the same place; EnvPool gets its state by the same way there."""
    vectors = [make("Hopper", [5], engine) for engine in ("envpool", "gymnasium")]
    heights = [walk(vector, np.zeros((20, 1, 3), np.float32))[0][:, 0, 0] for vector in vectors]
    np.testing.assert_allclose(*heights, atol=0.02)
    rewards = [walk(vector, np.zeros((1, 1, 3), np.float32))[1][0] for vector in vectors]
    np.testing.assert_allclose(*rewards, atol=0.3)


def test_a_run_trained_with_one_engine_can_be_evaluated_with_another(tmp_path, monkeypatch):
    """As on a machine where EnvPool is not installed."""
    run, _ = start(small(tmp_path / "run", engine="envpool", steps=64), Silent())
    monkeypatch.setattr(engines, "_installed", lambda package: package != "envpool")
    monkeypatch.setattr(engines, "_envpool", lambda: pytest.fail("it is not installed"))
    loaded = self_imitation.load(run.path)
    assert loaded.config.engine == "envpool"
    assert loaded.evaluate(3).returns.shape == (2, 3)
    assert loaded.policy(0).act(np.zeros(11)).shape == (3,)
