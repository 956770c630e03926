"""Image observations: learning while the environments step, one iteration behind, or in the order of Algorithm 1."""

import dataclasses

import numpy as np
import pytest
from helpers import small_config

from self_imitation.storage.trees import to_arrays
from self_imitation.training import backends
from self_imitation.training.in_program_group import InProgramGroup
from self_imitation.training.overlapped_group import OverlappedGroup
from self_imitation.training.trainer import Trainer

ATARI = {
    "env": "atari:Pong",
    "seeds": 1,
    "num_envs": 2,
    "num_steps": 2,
    "sil.batch_size": 8,
    "sil.buffer_size": 40,
    "sil.learning_starts": 1,
    "sil.updates": 1,
    "rewards": "raw",
}


def trainer_of(tmp_path, **settings):
    config = small_config(tmp_path, **{**ATARI, **settings})
    backend = backends.create(config)
    return Trainer(dataclasses.replace(config, engine=backend.engine), backend)


def train(tmp_path, *iterations, **settings):
    """States after so many iterations each, as arrays by name."""
    trainer, found = trainer_of(tmp_path, **settings), []
    trainer.init()
    found.append(to_arrays(trainer.saved()))
    trainer.compile()
    for count in iterations:
        assert trainer.run(count, lambda: False, lambda _: None) == count
        found.append(to_arrays(trainer.saved()))
    trainer.close()
    return found


WEIGHT = "agents.train.params.policy_head.weight"


@pytest.mark.slow
def test_with_overlap_the_first_iteration_learns_nothing_and_the_next_ones_do(tmp_path):
    first, one, two, three = train(tmp_path, 1, 1, 1, agent="a2c", overlap="on")
    for name in first:
        if name.startswith("agents.train.params"):
            np.testing.assert_array_equal(first[name], one[name], err_msg=name)
    assert not np.array_equal(one[WEIGHT], two[WEIGHT])
    assert not np.array_equal(two[WEIGHT], three[WEIGHT])
    assert three["metrics.iterations"].tolist() == [3]


@pytest.mark.slow
def test_without_overlap_every_iteration_learns(tmp_path):
    first, one, two = train(tmp_path, 1, 1, agent="a2c", overlap="off")
    assert not np.array_equal(first[WEIGHT], one[WEIGHT])
    assert not np.array_equal(one[WEIGHT], two[WEIGHT])


@pytest.mark.slow
def test_overlap_repeats_bit_by_bit_however_it_is_divided_into_calls(tmp_path, monkeypatch):
    """With short episodes, so that there is something to imitate."""
    from self_imitation.environments.xla import envpool

    monkeypatch.setitem(envpool.ATARI_OPTIONS, "max_episode_steps", 3)
    settings = {"agent": "a2c+sil", "overlap": "on"}
    (*_, whole), (*_, parts) = train(tmp_path, 8, **settings), train(tmp_path, 2, 5, 1, **settings)
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)
    assert whole["agents.buffer.size"].item() > 0
    assert whole["metrics.episodes"].item() >= 6
    assert whole["metrics.length_sum"].item() == 3 * whole["metrics.episodes"].item(), "whole episodes, no reset steps"


@pytest.mark.slow
def test_overlap_replays_and_imitates_as_often_as_the_schedule_says(tmp_path, monkeypatch):
    """All that a changing number of updates asks for is done in the first step of a rollout."""
    from self_imitation.environments.xla import envpool

    monkeypatch.setitem(envpool.ATARI_OPTIONS, "max_episode_steps", 3)
    settings = {
        "agent": "acper+sil",
        "overlap": "on",
        "acper.batch_size": 2,
        "acper.segment_steps": 2,
        "acper.replay_ratio": 1,
        "acper.learning_starts": 1,
        "acper.buffer_size": 40,
        "sil.keep": "all",
        "sil.temperature": 0.1,
        "sil.bound": "n-step",
        "sil.n_steps": 1,
        "sil.updates_schedule": "bandit",
        "sil.bandit_window": 2,
    }
    *_, after = train(tmp_path, 8, **settings)
    assert after["agents.learner_buffer.size"].item() > 0
    left = after["agents.learner_buffer.extras.steps_left"][0][: after["agents.learner_buffer.size"].item()]
    assert set(left.tolist()) == {0, 1, 2}, "episodes of three steps, without reset steps"
    assert after["agents.degree.iteration"].item() == 8
    assert after["metrics.sums.sil_updates"].item() > 8


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"overlap": "on"}, OverlappedGroup),
        ({"overlap": "off"}, InProgramGroup),
        ({"overlap": "on", "engine": "ale"}, InProgramGroup),
        ({"overlap": "on", "agent": "ppo", "ppo.num_minibatches": 1}, InProgramGroup),
        ({"overlap": "on", "agent": "vtrace"}, OverlappedGroup),
        ({"overlap": "on", "env": "gym:CartPole-v1"}, InProgramGroup),
    ],
)
def test_when_learning_overlaps(tmp_path, settings, kind):
    """With images, EnvPool, and a learner that tolerates a policy that is one iteration behind."""
    trainer = trainer_of(tmp_path, **{"agent": "a2c", **settings})
    assert type(trainer.groups[0]) is kind
    trainer._threads.shutdown()
