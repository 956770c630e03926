"""Groups of seeds, each in a thread of its own."""

import dataclasses
import os
import threading
import time

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Recorder, small_config
from learning import SIL, begin, build
from probes import RandomStart

from self_imitation.errors import NonFiniteError
from self_imitation.storage import checkpoint
from self_imitation.storage.trees import to_arrays
from self_imitation.training import backends, devices, hints
from self_imitation.training.group import drop_unfinished
from self_imitation.training.run import start
from self_imitation.training.trainer import Trainer, _share, _SharedWork, _split


def trainer_of(tmp_path, env="key-door-treasure", **settings):
    config = small_config(tmp_path, env, **settings)
    backend = backends.create(config)
    return Trainer(dataclasses.replace(config, engine=backend.engine), backend)


def train(trainer, *iterations, stop=lambda: False):
    """State of all seeds after so many iterations, as arrays by name."""
    trainer.init()
    trainer.compile()
    done = [trainer.run(count, stop, lambda _: None) for count in iterations]
    arrays = to_arrays(trainer.saved())
    trainer.close()
    return arrays, done


def test_unfinished_episodes_of_both_replay_buffers_can_be_dropped():
    """The rest stays: what is stored, and what is known of the degree of self-imitation."""
    environment = RandomStart()
    sil = dataclasses.replace(SIL, updates_schedule="bandit")
    state = begin(environment, build(environment, "acper+sil", sil=sil)).agent
    three = jnp.full(8, 3)
    state = eqx.tree_at(
        lambda s: (s.buffer.pending.unfinished.length, s.learner_buffer.pending.unfinished.length),
        state,
        (three, three),
    )
    dropped = drop_unfinished(state)
    assert not dropped.buffer.pending.unfinished.length.any()
    assert not dropped.learner_buffer.pending.unfinished.length.any()
    assert set(dropped.learner_buffer.pending.extras) == {"log_probs", "terminal"}
    assert dropped.degree is state.degree
    assert dropped.learner_buffer.returns is state.learner_buffer.returns


@pytest.fixture(scope="module", params=[("key-door-treasure", "a2c+sil"), ("mujoco:Hopper", "a2c")])
def both(request, tmp_path_factory):
    """Three seeds in two groups; and each group as a run of its own, in one thread."""
    folder, (env, agent) = tmp_path_factory.mktemp("groups"), request.param
    settings = {"agent": agent, "num_envs": 2, "num_steps": 5, "sil.updates": 1}
    grouped = trainer_of(folder, env, seeds=3, workers=2, **settings)
    assert [group.seeds for group in grouped.groups] == [(0, 1), (2,)]
    together, _ = train(grouped, 8, 4)
    alone = [
        train(trainer_of(folder, env, seeds=count, seed=seed, workers=1, **settings), 12)[0]
        for seed, count in ((0, 2), (2, 1))
    ]
    return together, alone


def test_uneven_groups_train_as_runs_of_their_own(both):
    """Bit by bit: threads, and how a run is divided into calls, change nothing. Only the size of a group may."""
    together, alone = both
    assert together.keys() == alone[0].keys()
    for name, array in together.items():
        np.testing.assert_array_equal(array, np.concatenate([part[name] for part in alone]), err_msg=name)


def test_seeds_learn_independently(both):
    weights = both[0]["agents.train.params.policy_head.weight"]
    assert not np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_a_seed_is_the_same_in_groups_of_any_size(tmp_path):
    """Except for the last bits."""
    settings = {"agent": "a2c", "num_envs": 2, "num_steps": 5}
    one, three = (train(trainer_of(tmp_path, seeds=3, workers=workers, **settings), 10)[0] for workers in (1, 3))
    for name in one:
        np.testing.assert_allclose(one[name], three[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("env", ["key-door-treasure", "gym:CartPole-v1", "gym:self_imitation/KeyDoorTreasure-v0"])
def test_replay_buffers_are_updated_in_place(tmp_path, env):
    """One for each backend. A program that returns a buffer which it was not allowed to overwrite has to copy it."""
    trainer = trainer_of(tmp_path, env, seeds=1, num_envs=2, num_steps=5, **{"sil.updates": 1})
    trainer.init()
    trainer.compile()
    trainer.run(1, lambda: False, lambda _: None)  # the first one may move it

    def address():
        return trainer.states[0].agents.buffer.observation.unsafe_buffer_pointer()

    before = address()
    for _ in range(3):
        trainer.run(1, lambda: False, lambda _: None)
        assert address() == before
    trainer.close()


@pytest.mark.parametrize(("total", "parts"), [(3, 2), (7, 3), (4, 4), (5, 1)])
def test_seeds_are_divided_evenly(total, parts):
    slices = _split(total, parts)
    sizes = [part.stop - part.start for part in slices]
    assert sum(sizes) == total
    assert max(sizes) - min(sizes) <= 1
    assert [number for part in slices for number in range(total)[part]] == list(range(total))


@pytest.mark.parametrize(
    ("settings", "groups"),
    [({}, 3), ({"seeds": 9}, 4), ({"seeds": 9, "workers": 7}, 7), ({"seeds": 2, "workers": 7}, 2), ({"seeds": 1}, 1)],
)
def test_one_group_per_core_unless_workers_are_given(monkeypatch, tmp_path, settings, groups):
    monkeypatch.setattr(devices, "cores", lambda: 4)
    assert devices.seed_groups(small_config(tmp_path, **{"seeds": 3, **settings})) == groups


def test_large_networks_use_all_cores_in_one_group(tmp_path):
    trainer = trainer_of(tmp_path, agent="a2c", seeds=2, workers=2, **{"network.hidden": (512,)})
    assert len(trainer.groups) == 1
    trainer.close()


@pytest.mark.parametrize(
    ("groups", "cores"), [(1, [[3, 4, 8]]), (2, [[3, 4], [8]]), (3, [[3], [4], [8]]), (7, [[3], [4], [8]])]
)
def test_groups_share_the_cores(groups, cores):
    assert _share([3, 4, 8], groups) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads can't be pinned here")
def test_a_pinned_thread_and_those_that_it_starts_stay_on_their_core():
    before, core = os.sched_getaffinity(0), devices.core_numbers()[-1]
    seen = []
    with devices.pinned([core]):
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        seen.append(os.sched_getaffinity(0))
    assert seen == [{core}, {core}]
    assert os.sched_getaffinity(0) == before


class FakeGroup:
    """Counts its iterations; a slow one takes a millisecond for each."""

    def __init__(self, trainer, index, seconds=0.0, fails_at=None):
        self.seeds, self.state = trainer.groups[index].seeds, trainer.states[index]
        self.seconds, self.fails_at, self.done = seconds, fails_at, 0

    def run(self, state, count):
        self.done += count
        time.sleep(self.seconds * count)
        if self.fails_at is not None and self.done >= self.fails_at:
            raise ZeroDivisionError("seed 1 failed")
        return state, count

    def close(self):
        pass


@pytest.fixture
def fake(tmp_path):
    """Replaces the groups of a trainer of two seeds."""
    trainer = trainer_of(tmp_path, agent="a2c", seeds=2, workers=2)
    trainer.init()
    real = trainer.groups

    def replace(*options):
        trainer.groups = [FakeGroup(trainer, i, **own) for i, own in enumerate(options)]
        return trainer

    yield replace
    trainer.groups = real
    trainer.close()


def test_groups_make_the_same_number_of_iterations(fake):
    trainer = fake({}, {"seconds": 0.001})
    assert trainer.run(300, lambda: False, lambda _: None) == 300
    assert [group.done for group in trainer.groups] == [300, 300]


def test_stopping_lets_all_groups_end_at_the_same_iteration(fake):
    trainer, begun, progress = fake({"seconds": 0.0005}, {"seconds": 0.001}), time.monotonic(), []
    done = trainer.run(10**9, lambda: time.monotonic() - begun > 0.3, progress.append)
    assert [group.done for group in trainer.groups] == [done, done]
    assert 0 < done < 10**9
    assert progress == sorted(progress)


def test_an_exception_in_one_group_surfaces_and_stops_the_others(fake):
    trainer = fake({"seconds": 0.001}, {"seconds": 0.001, "fails_at": 20})
    with pytest.raises(ZeroDivisionError, match="seed 1 failed"):
        trainer.run(10**9, lambda: False, lambda _: None)
    assert trainer.groups[0].done < 10**6
    assert threading.active_count() < 50


def test_work_is_shared_up_to_the_target():
    work = _SharedWork(10, 2)
    assert [work.take(0, 8), work.take(0, 8), work.take(0, 8)] == [8, 2, 0]
    assert work.take(1, 3) == 3
    work.done(0, dropped=0)
    assert work.finished == 0
    work.stop()
    assert work.take(1, 100) == 7, "as far as the furthest group"


def test_iterations_that_an_interrupted_group_dropped_are_not_done():
    work = _SharedWork(10, 1)
    assert work.take(0, 4) == 4
    work.done(0, dropped=3)
    assert (work.finished, work.take(0, 4)) == (1, 0)


def test_a_non_finite_loss_is_named_with_seed_and_step(tmp_path):
    """A huge learning rate: the first gradient step spoils the weights, the second one shows it."""
    settings = {"agent": "a2c", "optimiser.learning_rate": 1e38, "checkpoint_seconds": 0.0, "seed": 3}
    config = small_config(tmp_path / "run", **settings)
    with pytest.raises(
        NonFiniteError,
        match=r"^a loss of seed [34] was not finite at step 40; training stopped, the checkpoint at step",
    ):
        start(config, [Recorder()])
    assert max(checkpoint.steps(tmp_path / "run" / "checkpoints")) < 40, "the last good checkpoint is kept"


def test_runs_report_how_fast_and_how_far(tmp_path):
    class Progress(Recorder):
        steps: tuple = ()

        def advanced(self, context):
            self.steps += (context.step,)
            assert context.steps_per_second > 0

    progress = Progress()
    start(small_config(tmp_path / "run", agent="a2c"), [progress])
    assert list(progress.steps) == sorted(progress.steps)
    assert progress.steps[-1] == 800


def warnings_of(config):
    """What a run reports, but for the time that a slow one takes."""
    recorder = Recorder()
    start(config, [recorder])
    return [message for message in recorder.messages if not message.endswith(" remaining")]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 60}, "no episode has ended yet: returns are unknown, and there is nothing to imitate"),
        ({"steps": 800}, "no episode of seeds [0, 1] had a return other than 0: nothing to learn from yet"),
        (
            {"steps": 800, "agent": "a2c"},
            "no episode of seeds [0, 1] had a return other than 0: nothing to learn from yet",
        ),
    ],
)
def test_a_run_without_rewards_warns_once(tmp_path, settings, says):
    """Nobody finds the key with 40 updates of a new policy in these episodes."""
    assert warnings_of(small_config(tmp_path / "run", **{"sil.keep": "positive", **settings})) == [says]


def test_an_empty_replay_buffer_is_reported(tmp_path):
    """All rewards are below 0: with `keep positive`, nothing is stored."""
    settings = {"env": "gym:Pendulum-v1", "sil.keep": "positive", "agent": "a2c+sil", "num_envs": 2, "steps": 4000}
    says = "the replay buffer of seeds [0, 1] is still empty (no episode had a reward above 0): nothing to imitate yet"
    assert warnings_of(small_config(tmp_path / "run", **settings)) == [says]


def test_a_replay_buffer_that_holds_too_little_is_reported(tmp_path):
    settings = {"env": "gym:CartPole-v1", "agent": "a2c+sil", "sil.learning_starts": 499, "steps": 400}
    (message,) = warnings_of(small_config(tmp_path / "run", **settings))
    assert message == (
        "self-imitation of seeds [0, 1] has not begun: their replay buffers never held more than "
        "sil.learning_starts = 499 steps"
    )


@pytest.mark.parametrize(
    ("settings", "noted"),
    [
        ({"sil.gamma": 0.9}, True),
        ({"sil.gamma": 0.99}, False),
        ({"sil.gamma": None, "a2c.gamma": 0.999}, False),
        ({"sil.gamma": 0.99, "a2c.gamma": 0.999}, True),
        ({"agent": "a2c", "a2c.gamma": 0.999}, False),
    ],
)
def test_a_discount_below_the_learners_is_noted(tmp_path, settings, noted):
    note = hints.discount_note(small_config(tmp_path, "gym:CartPole-v1", **settings))
    assert ("is below a2c.gamma" in note) == noted
    assert (f"sil.gamma {settings.get('sil.gamma')} " in note) == noted


def test_a_user_sees_the_note_on_the_discount(tmp_path):
    recorder = Recorder()
    start(small_config(tmp_path / "run", "gym:CartPole-v1", **{"sil.gamma": 0.9, "steps": 60}), [recorder])
    assert "sil.gamma 0.9 is below a2c.gamma 0.99: little will be imitated" in recorder.notes


@pytest.mark.parametrize(
    ("imitated", "advantage", "reported"), [(0.9, 0.5, True), (0.1, 0.5, False), (0.9, 0.01, False)]
)
def test_self_imitation_may_rest_where_little_is_left_to_imitate(tmp_path, imitated, advantage, reported):
    messages = []
    found = hints.Hints(small_config(tmp_path, seeds=1), [], messages.append)
    row = {
        "seed": 0,
        "episodes": 9,
        "return_mean": 1.0,
        "return_best": 1.0,
        "memory_size": 1e4,
        "sil_step_share": 0.001,
    }
    found.warn_if_nothing_to_learn_from(10**6, [{**row, "sil_imitated": imitated, "sil_advantage": advantage}])
    assert bool(messages) == reported


def test_self_imitation_that_moves_nothing_is_reported(tmp_path):
    settings = {"env": "gym:CartPole-v1", "sil.loss_coef": 0.0, "seeds": 1, "sil.learning_starts": 10, "workers": 1}
    (message,) = warnings_of(small_config(tmp_path / "run", **settings))
    assert message.startswith(
        "self-imitation hardly moves the networks of seeds [0]: its share of the steps is below 1%"
    )
