"""ONNX models compute what the policy computes."""

import dataclasses
import re
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from helpers import small_config, small_run

from self_imitation.algorithm.iteration import Policy as PolicyState
from self_imitation.cli.main import main
from self_imitation.environments.gymnasium.spaces import describe
from self_imitation.errors import UsageError
from self_imitation.export import outputs
from self_imitation.networks import actor_critic, distributions
from self_imitation.networks.actor_critic import Linear, encode, encoded_width
from self_imitation.training import agents
from self_imitation.training.policy import Policy

pytestmark = pytest.mark.extras
pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DOCS = Path(__file__).parents[2] / "docs"
VECTOR = spaces.Box(-5, 5, (2, 3), np.float32)
IMAGE = spaces.Box(0, 255, (44, 52, 3), np.uint8)
TASKS = {
    "vector": (VECTOR, spaces.Discrete(4)),
    "actions that start at 3": (VECTOR, spaces.Discrete(4, start=3)),
    "several choices": (VECTOR, spaces.MultiDiscrete([[2, 3], [1, 4]])),
    "continuous": (VECTOR, spaces.Box(-0.1, np.array([[0.1, np.inf]], np.float32), (1, 2), np.float32)),
    "categories": (spaces.MultiDiscrete([3, 5]), spaces.Discrete(4)),
    "image": (IMAGE, spaces.Discrete(4)),
    "image and numbers": (spaces.Dict(image=IMAGE, speed=spaces.Box(-1, 1, (2,))), spaces.Box(-1, 1, (2,))),
}


def make_policy(tmp_path, observation_space, action_space, agent_name="a2c", **settings):
    """A policy with random weights and statistics."""
    found = describe(observation_space, action_space, None, "mine")
    config = small_config(tmp_path / "run", agent=agent_name, **settings)
    agent = agents.build(config, found.spec)
    rng = np.random.default_rng(0)

    def random(leaf):
        return jnp.asarray(leaf + 0.1 * np.abs(rng.normal(size=leaf.shape)), leaf.dtype)

    normaliser = None if agent.normaliser is None else jax.tree.map(random, agent.normaliser.init())
    state = PolicyState(jax.tree.map(random, agents.initial_params(config, agent, 0)), normaliser)
    return Policy(agent, state, 7, found), agent, state, found


def observations(spec, batch):
    rng = np.random.default_rng(1)

    def draw(leaf):
        if leaf.dtype == np.uint8:
            return rng.integers(256, size=(batch, *leaf.shape), dtype=np.uint8)
        if leaf.dtype == np.int32:
            return rng.integers(spec.observation_levels, size=(batch, *leaf.shape)).astype(np.int32)
        return rng.normal(size=(batch, *leaf.shape)).astype(np.float32)

    return jax.tree.map(draw, spec.observation)


def run_model(path, observation):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = observation if isinstance(observation, dict) else {"observation": observation}
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True)), session


def assert_equal(path, agent, state, found, batch):
    observation = observations(agent.spec, batch)
    expected = outputs.compute(agent, state, found, jax.tree.map(jnp.asarray, observation))
    got, _ = run_model(path, observation)
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
    return got


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("shared", [True, False])
def test_outputs_are_those_of_the_policy_for_any_batch(tmp_path, task, shared):
    policy, agent, state, found = make_policy(tmp_path, *TASKS[task], **{"network.shared": shared})
    policy.export(tmp_path / "policy.onnx")
    for batch in (1, 5):
        got = assert_equal(tmp_path / "policy.onnx", agent, state, found, batch)
        assert got["action"].shape == (batch, *found.action_space.shape)
        assert all(found.action_space.contains(one.astype(found.action_space.dtype)) for one in got["action"])


@pytest.mark.parametrize("task", ["vector", "image and numbers"])
def test_observations_are_normalised_inside_the_model(tmp_path, task):
    settings = {"normalise.observations": True, "normalise.clip": 1.5}
    policy, agent, state, found = make_policy(tmp_path, *TASKS[task], **settings)
    policy.export(tmp_path / "policy.onnx")
    normalised = assert_equal(tmp_path / "policy.onnx", agent, state, found, 5)["value"]
    raw = dataclasses.replace(agent, normaliser=None)
    seen = jax.tree.map(jnp.asarray, observations(agent.spec, 5))
    other = outputs.compute(raw, PolicyState(state.params, None), found, seen)["value"]
    assert np.abs(normalised - other).max() > 1e-3


def test_action_values_are_outputs_too(tmp_path):
    policy, agent, state, found = make_policy(tmp_path, *TASKS["vector"], agent_name="acer")
    policy.export(tmp_path / "policy.onnx")
    assert assert_equal(tmp_path / "policy.onnx", agent, state, found, 3)["action_values"].shape == (3, 4)


def test_the_greedy_action_is_the_policys(tmp_path):
    policy, *_ = make_policy(tmp_path, *TASKS["actions that start at 3"])
    policy.export(tmp_path / "policy.onnx", {"env": "mine"})
    raw = np.random.default_rng(0).normal(size=(50, 2, 3)).astype(np.float32)
    got, session = run_model(tmp_path / "policy.onnx", raw.reshape(50, 6))
    np.testing.assert_array_equal(got["action"], policy.act(raw, greedy=True))
    assert len(set(got["action"].tolist())) > 1
    assert session.get_modelmeta().custom_metadata_map == {"env": "mine", "seed": "7"}


class OneLayer(eqx.Module):
    layer: Linear
    actions: object = eqx.field(static=True)
    spec: object = eqx.field(static=True)

    def __init__(self, spec, config, generator):
        self.layer = Linear(encoded_width(spec), distributions.outputs(spec.actions) + 1, 1.0, generator)
        self.actions, self.spec = spec.actions, spec

    def __call__(self, observation):
        x = jax.nn.relu(self.layer(encode(self.spec, observation)))
        return distributions.from_outputs(self.actions, x[:, 1:], None), x[:, 0]


def test_a_network_of_ones_own_is_exported_by_jax2onnx(tmp_path, monkeypatch):
    pytest.importorskip("jax2onnx")
    monkeypatch.setattr(actor_critic, "_factories", {**actor_critic._factories, "mine": OneLayer})
    settings = {"network.kind": "mine", "normalise.observations": True}
    policy, agent, state, found = make_policy(tmp_path, *TASKS["actions that start at 3"], **settings)
    policy.export(tmp_path / "policy.onnx")
    for batch in (1, 5):
        assert_equal(tmp_path / "policy.onnx", agent, state, found, batch)


def test_a_network_of_ones_own_needs_jax2onnx(tmp_path, monkeypatch):
    monkeypatch.setattr(actor_critic, "_factories", {**actor_critic._factories, "mine": OneLayer})
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    policy, *_ = make_policy(tmp_path, *TASKS["vector"], **{"network.kind": "mine"})
    with pytest.raises(UsageError, match=r"is not installed: pip install jax2onnx$"):
        policy.export(tmp_path / "policy.onnx")


def test_the_function_of_the_page_loads_a_model(tmp_path):
    policy, *_ = make_policy(tmp_path, *TASKS["vector"])
    policy.export(tmp_path / "policy.onnx")
    (code,) = re.findall(r"```python\n(# onnx_policy.*?)```", (DOCS / "deployment.md").read_text(), re.DOTALL)
    space = {}
    exec(code, space)
    raw = np.random.default_rng(0).normal(size=(50, 2, 3))
    actions = space["load_model"](tmp_path / "policy.onnx")(raw.reshape(50, 6))
    np.testing.assert_array_equal(actions, policy.act(raw, greedy=True))


def test_the_command_exports_a_seed_of_a_run(tmp_path, monkeypatch, capsys):
    run = small_run(tmp_path / "run", steps=400, eval_every=400, eval_episodes=1)
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run.path), "model.onnx", "--seed", "1"]) == 0
    assert capsys.readouterr().out == "Model: model.onnx (seed 1)\n"
    observation = np.array([[2, 8, 1, 1, 1], [3, 8, 1, 1, 1]], np.float32)
    got, session = run_model(tmp_path / "model.onnx", observation)
    np.testing.assert_array_equal(got["action"], run.policy(1).act(observation, greedy=True))
    assert main(["export", str(run.path), "--best", "--seed", "0"]) == 0
    best, _ = run_model(tmp_path / "policy.onnx", observation)
    np.testing.assert_array_equal(best["action"], run.policy(0, best=True).act(observation, greedy=True))
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata == {"env": "key-door-treasure", "agent": "a2c+sil", "seed": "1"}
