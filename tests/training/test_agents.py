"""Agents by name: every one that makes sense can be trained on grid worlds, vectors and images; others are refused."""

import dataclasses
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import arrays, small_config, small_run

from self_imitation import registry
from self_imitation.errors import DeviceMemoryError, UsageError
from self_imitation.training import agents, backends, memory
from self_imitation.training.trainer import Trainer

ENVIRONMENTS = {"grid world": "key-door-treasure", "vector": "gym:CartPole-v1", "image": "atari:Pong"}
SMALL = {"seeds": 1, "num_envs": 2, "num_steps": 4, "steps": 16, "log_every": 16}
SMALLER = {
    "a2c": {},
    "ppo": {"ppo.num_minibatches": 1, "ppo.update_epochs": 1},
    "acer": {"acer.learning_starts": 4, "acer.batch_size": 2, "acer.segment_steps": 3, "acer.buffer_size": 64},
    "acper": {"acper.learning_starts": 4, "acper.batch_size": 2, "acper.segment_steps": 3, "acper.buffer_size": 64},
    "cts": {"cts.side": 6, "cts.levels": 2},
}
"""Settings that make a component cheap."""
REFUSED = {
    ("exp", "vector"): "can't be counted",
    ("exp", "image"): "can't be counted",
    ("cts", "grid world"): "'cts' models images",
    ("cts", "vector"): "'cts' models images",
    ("pixelcnn", "grid world"): "'pixelcnn' models images",
    ("pixelcnn", "vector"): "'pixelcnn' models images",
}
"""By bonus and kind of observation: why not."""


def settings_of(agent):
    """Of a cheap run with this agent."""
    parts = registry.parse_agent(agent)
    own = {name: value for part in parts.components for name, value in SMALLER.get(part, {}).items()}
    return {"agent": agent, **SMALL, **own}


@cache
def backend_of(kind):
    return backends.create(small_config("unused", ENVIRONMENTS[kind], agent="a2c", **SMALL))


PARTS_ONCE = [
    *(learner + sil for learner in registry.learners() for sil in ("", "+sil")),
    *(f"a2c+sil+{bonus}" for bonus in registry.bonuses()),
]
"""The parts know nothing of each other, so not every combination needs a test."""


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@pytest.mark.parametrize("agent", PARTS_ONCE)
def test_every_agent_can_be_traced_or_is_refused_with_the_reason(tmp_path, kind, agent):
    """Initial state and one iteration, by their shapes alone: nothing is compiled."""
    backend, config = backend_of(kind), small_config(tmp_path, ENVIRONMENTS[kind], **settings_of(agent))
    why = [REFUSED[bonus, kind] for bonus in registry.parse_agent(agent).bonuses if (bonus, kind) in REFUSED]
    if why:
        with pytest.raises(UsageError, match=why[0]):
            agents.build(config, backend.spec)
        return
    trainer = Trainer(dataclasses.replace(config, engine=backend.engine), backend)
    state, metrics = trainer.groups[0].one_seed
    trainer.close()
    parts = registry.parse_agent(agent)
    assert set(state.components) == set(parts.components)
    assert (state.buffer is not None) == parts.self_imitation
    assert (state.learner_buffer is not None) == (parts.learner in ("acer", "acper"))
    assert {"loss", "entropy"} <= set(metrics.sums)


@pytest.mark.parametrize(
    ("kind", "settings", "steps"),
    [
        ("grid world", {}, 50),
        ("vector", {}, 500),
        ("vector", {"sil.max_pending_steps": 30}, 30),
        ("image", {"sil.buffer_size": 1000}, 500),
    ],
)
def test_an_episode_waits_as_a_whole_and_images_share_the_size_of_the_buffer(tmp_path, kind, settings, steps):
    """Time limits are 50, 500 and thousands of steps; there are two environments."""
    config = small_config(
        tmp_path, ENVIRONMENTS[kind], **{**settings_of("a2c+sil"), "sil.buffer_size": 5000, **settings}
    )
    trainer = Trainer(dataclasses.replace(config, engine=backend_of(kind).engine), backend_of(kind))
    state, _ = trainer.groups[0].one_seed
    trainer.close()
    assert state.buffer.pending.max_pending_steps == steps


@pytest.mark.parametrize(("own", "expected"), [(0.03, 0.03), (None, 0.001)])
def test_self_imitation_has_the_learning_rate_that_was_asked_for(tmp_path, own, expected):
    """The first step of Adam has the size of the learning rate."""
    settings = {"optimiser.kind": "adam", "optimiser.learning_rate": 0.001, "optimiser.schedule": "constant"}
    settings |= {"sil.optimiser": "own", "sil.learning_rate": own}
    agent = agents.build(small_config(tmp_path, **settings), backend_of("grid world").spec)
    params = np.zeros(3, np.float32)
    for optimiser, size in ((agent.imitation_optimiser, expected), (agent.optimiser, 0.001)):
        step, _ = optimiser.update(np.ones(3, np.float32), optimiser.init(params), params)
        np.testing.assert_allclose(step, -size, rtol=1e-3)


@pytest.mark.parametrize(
    ("limit", "settings"),
    [(200, {"engine": "envpool"}), (20, {"engine": "gymnasium", "env.max_episode_steps": 20})],
)
@pytest.mark.parametrize("time_limit", ["bootstrap", "terminal"])
def test_stored_returns_and_values_agree_on_what_a_time_limit_is(tmp_path, limit, settings, time_limit):
    """Each step costs 1 and the car never gets up the hill: for ever where values bootstrap, else until the limit."""
    ours = {"time_limit": time_limit, "a2c.gamma": 0.9, "sil.learning_starts": 499, "steps": 2 * limit + 8}
    run = small_run(tmp_path / "run", "gym:MountainCar-v0", **{**settings_of("a2c+sil"), **ours, **settings})
    saved = arrays(run.path, run.config.total_steps)
    assert saved["agents.buffer.size"] == 2 * limit, "an episode in each of two environments"
    left = np.tile(np.arange(limit, 0, -1), 2)
    expected = np.full(2 * limit, -10.0) if time_limit == "bootstrap" else -(1 - 0.9**left) / 0.1
    np.testing.assert_allclose(saved["agents.buffer.returns"][0][: 2 * limit], expected, rtol=1e-5)


IMAGES = {"sil.batch_size": 4, "sil.buffer_size": 60, "sil.learning_starts": 1, "sil.updates": 1, "steps": 24}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "agent", "settings"),
    [
        ("vector", "ppo+sil+simhash", {"steps": 160, "log_every": 160}),
        ("image", "a2c+sil+cts", IMAGES),
    ],
)
def test_short_runs(tmp_path, kind, agent, settings):
    run = small_run(tmp_path / "run", ENVIRONMENTS[kind], **{**settings_of(agent), **settings})
    last = run.metrics()[-1]
    assert last["step"] >= settings["steps"]
    finite = {name: value for name, value in last.items() if not name.startswith(("return", "length"))}
    assert np.isfinite(list(finite.values())).all(), finite


@pytest.mark.slow
def test_acer_learns_to_balance_a_pole(tmp_path):
    """A random policy keeps it up for about 20 steps."""
    settings = {"num_envs": 16, "network.hidden": (64, 64), "acer.learning_starts": 2000, "log_every": 20_000}
    run = small_run(tmp_path / "run", "gym:CartPole-v1", agent="acer", steps=40_000, **{**settings, "seeds": 1})
    assert run.metrics()[-1]["return_latest"] > 50


def test_a_bonus_that_does_not_fit_into_memory_is_refused_with_what_to_lower(tmp_path, monkeypatch):
    """Before the machine runs out of it: while components are initialised there are several copies of their states."""
    monkeypatch.setattr(memory, "os", SimpleNamespace(sysconf=lambda name: 1000))  # a million bytes
    monkeypatch.setattr(memory, "_bytes", lambda tree: 300_000)
    with pytest.raises(DeviceMemoryError, match=r"lower seeds \(now 1\), cts\.levels \(now 2\), cts\.side \(now 6\)"):
        small_run(tmp_path / "run", "atari:Pong", **settings_of("a2c+sil+cts"))
    assert not (tmp_path / "run").exists()
