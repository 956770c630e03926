"""Recording: the results stay the same, what is recorded is true, and no failure stops the training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Recorder as Messages
from helpers import arrays, interrupt_after, rows, small_config, small_run

from self_imitation.algorithm import iteration
from self_imitation.config import TrainConfig
from self_imitation.environments.gymnasium.rendering import Player
from self_imitation.errors import UsageError
from self_imitation.recording import grid_world
from self_imitation.recording.series import PLAYED, SNAPSHOTS, Series
from self_imitation.storage.trees import from_arrays
from self_imitation.training import agents, recorder
from self_imitation.training.played_episodes import PlayedEpisodes
from self_imitation.training.run import continue_run, start
from self_imitation.training.snapshots import Snapshots

CARTPOLE = {"env": "gym:CartPole-v1", "engine": "gymnasium", "steps": 400, "log_every": 200}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("grid") / "run", record=True)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("cartpole") / "run", record=True, **CARTPOLE)


def recorded(run, series=SNAPSHOTS):
    own = Series(run.path, series, 3)
    return {step: own.read(step) for step in own.steps()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "cartpole"])
def test_a_run_that_records_has_the_same_rows_and_the_same_policies_to_the_last_bit(kind, request, tmp_path):
    one = request.getfixturevalue(kind)
    other = small_run(tmp_path / "plain", **(CARTPOLE if kind == "cartpole" else {}))
    assert not (other.path / "record").exists()
    assert rows(one.path) == rows(other.path)
    found, expected = (arrays(run.path, run.config.total_steps) for run in (one, other))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert found.keys() - expected.keys() == {"agents.buffer.extras.reward", "agents.buffer.extras.steps_left"}


def test_the_last_snapshot_describes_the_last_checkpoint(grid):
    snapshots, saved = recorded(grid), arrays(grid.path, 800)
    assert {0, 800} <= snapshots.keys(), "one at the start, one at the end"
    world = grid_world.create(False)
    for index, own in enumerate(snapshots[800]["seeds"]):
        assert own["seed"] == grid.seeds[index]
        assert own["memory"]["steps"] == saved["agents.buffer.size"][index]
        assert np.sum(own["remembered"]) == own["memory"]["steps"]
        assert np.sum(own["memory"]["points"]["share"]) == pytest.approx(1, abs=0.01)
        assert np.array(own["policy"]["percent"]).shape == (3, len(world.cells), 4)
        assert np.abs(np.sum(own["policy"]["percent"], axis=-1) - 100).max() <= 2, "rounded"
        assert sum(own["best"]["rewards"]) == own["best"]["return"] == own["memory"]["best"]
        assert own["imitated"]["steps"] == own["memory"]["steps"], "every stored step has a known value"


def test_the_recorded_policy_is_the_trained_one(grid):
    world, found = grid_world.create(False), recorded(grid)[800]["seeds"][1]["policy"]
    params = jax.tree.map(lambda leaf: leaf[1], grid._policies.params)
    distribution, value = iteration.actor_critic(grid._agent, None)(params, jnp.asarray(world.observations))
    chances = np.asarray(jax.nn.softmax(distribution.logits))
    np.testing.assert_allclose(np.reshape(found["percent"], chances.shape), 100 * chances, atol=0.51)
    np.testing.assert_allclose(np.ravel(found["values"]), value, atol=1e-3)


def test_values_of_normalised_runs_are_in_units_of_rewards(cartpole):
    """Of CartPole every reward is 1: the return of a step is what is left of its episode, discounted."""
    (own, *_), saved = recorded(cartpole)[400]["seeds"], arrays(cartpole.path, 400)
    assert own["memory"]["points"]["return"] == own["memory"]["points"]["length"]
    assert max(own["imitated"]["return"]) <= saved["agents.buffer.returns"][0].max() * 1.001
    assert own["imitated"]["steps"] == 512, "sampled"
    assert np.isfinite(own["imitated"]["value"]).all()


def test_an_episode_is_played_and_filmed(cartpole):
    (episode,) = recorded(cartpole, PLAYED).values()
    assert episode["return"] == episode["length"] == episode["film"]["steps"][-1]
    assert episode["film"]["returns"][-1] == episode["return"]
    assert episode["film"]["image"].startswith("data:image/webp;base64,")
    assert episode["seed"] in cartpole.seeds


def test_where_pictures_take_long_there_are_fewer(cartpole, monkeypatch):
    playing, clock = PlayedEpisodes(TrainConfig("gym:CartPole-v1"), cartpole._agent), Clock(monkeypatch)
    for seconds, expected in ((1e-3, 48), (0.1, 20), (9.0, 8)):
        monkeypatch.setattr(Player, "picture", lambda *_, s=seconds: clock.take(s) or np.zeros((4, 4, 3), np.uint8))
        film = playing.play(cartpole._policies, 0, 0, 0.0)["film"]
        assert len(film["steps"]) <= expected + 1
        assert len(film["steps"]) >= min(expected, film["steps"][-1]) / 2
    playing.close()


def test_snapshots_after_the_checkpoint_are_removed(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        run, _ = start(small_config(tmp_path / "run", record=True), [Messages()], interrupt_after(7, patch))
    assert max(recorded(run)) == 140, "where it stopped"
    later, earlier = Series(run.path, SNAPSHOTS, 100), recorded(run)[140]
    for step in (160, 10_000):
        later.write(step, {**earlier, "step": step})
    continue_run(run.path, None, [Messages()])
    assert not {160, 10_000} & recorded(run).keys()
    assert {0, 140, 800} <= recorded(run).keys()


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def take(self, seconds):
        self.now += seconds
        return {}


def test_recording_waits_until_it_is_within_its_share_of_the_time(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    part = recorder._Part(Series(tmp_path, SNAPSHOTS, 100), total_steps=1000, expected=0.0, message=print)
    taken = []
    for step in range(1, 1001):  # a second of training each
        if part.is_due(step, seconds=step):
            part.record(step, lambda: clock.take(0.5))
            taken.append(step)
    assert taken[:4] == [9, 100, 150, 200], "the first one's cost is unknown"
    assert part.spent <= recorder.SHARE * 1000 + 0.5
    assert taken[-1] >= 950


def test_no_more_snapshots_are_taken_than_are_kept(tmp_path, monkeypatch):
    Clock(monkeypatch)
    part = recorder._Part(Series(tmp_path, SNAPSHOTS, 10), total_steps=1000, expected=0.0, message=print)
    due = [step for step in range(1, 1001) if part.is_due(step, seconds=1.0) and part.record(step, dict) is None]
    assert len(due) <= 11


def test_a_failure_is_reported_once_and_training_goes_on(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Snapshots, "take", fail)
    messages = Messages()
    _, finished = start(small_config(tmp_path / "run", record=True), [messages])
    assert finished
    reported = [text for text in messages.messages if "recording" in text]
    why = "OSError: [Errno 28] No space left on device"
    assert reported == [f"recording of snapshots stopped, training goes on: {why}"]


def test_an_environment_that_can_not_be_rendered_is_noted(cartpole, tmp_path, monkeypatch):
    unseen = PlayedEpisodes(TrainConfig("gym:gymnasium_probes:ThreeSteps-v0"), cartpole._agent)
    with pytest.raises(UsageError, match="can't be rendered; it has no render mode 'rgb_array'") as refused:
        unseen.play(cartpole._policies, 0, 0, 9.0)
    monkeypatch.setattr(PlayedEpisodes, "play", lambda *arguments: PlayedEpisodes._play(unseen, *arguments[1:]))
    messages = Messages()
    run, finished = start(small_config(tmp_path / "run", record=True, **CARTPOLE), [messages])
    assert finished
    assert messages.messages == [f"recording of played stopped, training goes on: {refused.value}"]
    assert recorded(run)[400]["note"] == str(refused.value)
    assert recorded(run, PLAYED) == {}


def test_agents_without_self_imitation_record_their_policy(tmp_path):
    run = small_run(tmp_path / "run", agent="a2c", record=True, steps=400)
    assert recorded(run)[400]["seeds"][0].keys() == {"seed", "policy"}


def test_returns_are_shown_against_the_value_that_filters_them(tmp_path):
    run = small_run(tmp_path / "run", record=True, **{"sil.value": "own", "sil.keep": "all"})
    saved, world = arrays(run.path, 800), grid_world.create(False)
    like = agents.initial_value(run.config, run._agent, 0)
    prefix = "agents.imitation_value.params."
    stored = {name.removeprefix(prefix): own[0] for name, own in saved.items() if name.startswith(prefix)}
    params = from_arrays(stored, like, "the checkpoint")
    _, expected = iteration.actor_critic(run._agent, None)(params, jnp.asarray(world.observations))
    shown = np.array(recorded(run)[800]["seeds"][0]["imitated"]["value"])
    nearest = np.abs(np.asarray(expected)[None] - shown[:, None]).min(axis=1)
    assert nearest.max() < 1e-3, "each is the own value of a state"
    policys = np.ravel(recorded(run)[800]["seeds"][0]["policy"]["values"])
    assert np.abs(policys[None] - shown[:, None]).min(axis=1).max() > 1e-2, "not that of the policy"
