"""A learner, a bonus and a network that a user registers train like the built-in ones."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import SMALL, arrays

import self_imitation
from self_imitation import registry
from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.components import Bonus, Exploration, Learner
from self_imitation.algorithm.rollouts import flatten_time
from self_imitation.errors import UsageError
from self_imitation.networks import actor_critic, distributions
from self_imitation.settings import real, setting


@dataclass(frozen=True)
class ReinforceConfig:
    gamma: float = setting(0.9, real(0, 1))
    scale: float = setting(1.0, real(0))


class Reinforce(Learner):
    """The immediate reward times log pi; counts its updates."""

    Config = ReinforceConfig
    defaults = {"num_steps": 3}  # noqa: RUF012

    def init(self, key, spec, params):
        return {"updates": jnp.int32(0)}

    def extras(self, distribution, action, value):
        return {"value": value}

    def update(self, network, optimiser, state, train_state, rollout, exploration, key):
        reward = rollout.reward + exploration.reward

        def loss(params):
            distribution, _ = network(params, flatten_time(rollout.observation))
            log_prob = distribution.log_prob(flatten_time(rollout.action))
            return -self.config.scale * jnp.mean(log_prob * flatten_time(reward))

        value, gradient = jax.value_and_grad(loss)(train_state.params)
        train_state = optimisers.apply_gradients(optimiser, train_state, gradient)
        metrics = {"my_loss": value, "my_value": jnp.mean(rollout.extras["value"])}
        return {"updates": state["updates"] + 1}, train_state, metrics


@dataclass(frozen=True)
class ConstantConfig:
    amount: float = setting(0.25, real(0))


class Constant(Bonus):
    """The same reward for every step; counts the steps."""

    Config = ConstantConfig

    def init(self, key, num_envs):
        return jnp.int32(0)

    def update(self, state, rollout, key):
        reward = jnp.full_like(rollout.reward, self.config.amount)
        return state + rollout.reward.size, Exploration(reward=reward), {"my_bonus": jnp.mean(reward)}


class Tabular(eqx.Module):
    """One linear layer."""

    weight: jax.Array
    actions: object = eqx.field(static=True)

    def __init__(self, spec, config, generator):
        inputs = actor_critic.encoded_width(spec)
        outputs = distributions.outputs(spec.actions) + 1
        self.weight = jnp.asarray(generator.normal(size=(inputs, outputs)) * 0.01, jnp.float32)
        self.actions = spec.actions

    def __call__(self, observation):
        outputs = observation @ self.weight
        return distributions.from_outputs(self.actions, outputs[:, 1:], None), outputs[:, 0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((registry, "_learners"), (registry, "_bonuses"), (actor_critic, "_factories")):
            patch.setattr(module, name, dict(getattr(module, name)))
        registry.register_learner("mine", Reinforce, "my own")
        registry.register_bonus("novel", Constant, "my own")
        actor_critic.register_network("tabular", Tabular)
        settings = {**SMALL, "network.kind": "tabular", "mine.scale": 0.5, "novel.amount": 0.125, "log_every": 120}
        settings.pop("seeds")
        yield self_imitation.train(
            agent="mine+sil+novel", steps=240, seeds=2, out=tmp_path_factory.mktemp("mine") / "run", settings=settings
        )


def test_their_settings_and_defaults_hold(run):
    assert (run.config.num_steps, run.config.components["mine"].scale) == (3, 0.5)
    assert run.config.components["novel"].amount == 0.125


def test_their_metrics_become_columns(run):
    row = run.metrics()[-1]
    assert row["my_bonus"] == 0.125
    assert np.isfinite(row["my_loss"])
    assert np.isfinite(row["my_value"])


def test_their_states_are_saved(run):
    saved = arrays(run.path, 240)
    assert saved["agents.components.mine.updates"].tolist() == [20, 20]
    assert saved["agents.components.novel"].tolist() == [240, 240]
    assert saved["agents.train.params.weight"].shape == (2, 5, 5)


def test_they_resume_and_act(run):
    longer = self_imitation.resume(run.path, steps=360)
    assert arrays(run.path, 360)["agents.components.mine.updates"].tolist() == [30, 30]
    assert longer.policy(0).act(np.zeros((4, 5))).shape == (4,)


def test_their_settings_are_refused_with_other_agents(run):
    with pytest.raises(UsageError, match=r"mine\.scale has no effect with agent 'a2c'"):
        self_imitation.train(agent="a2c", settings={"mine.scale": 2.0})


def test_an_unknown_network_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"network\.kind: 'mlp' is unknown; known: "):
        self_imitation.train(agent="a2c", out=tmp_path / "run", settings={"network.kind": "mlp"})


def test_a_network_is_passed_to_train_and_registered_again_to_load(tmp_path, monkeypatch):
    monkeypatch.setattr(actor_critic, "_factories", dict(actor_critic._factories))
    settings = {"num_envs": 4, "log_every": 80}
    run = self_imitation.train(agent="a2c", steps=80, seeds=1, out=tmp_path / "run", settings=settings, network=Tabular)
    assert run.config.network.kind == "Tabular"
    del actor_critic._factories["Tabular"]
    with pytest.raises(UsageError, match=r"; register a network .* self_imitation\.register_network\('Tabular', "):
        self_imitation.load(run.path).policy()
    self_imitation.register_network("Tabular", Tabular)
    assert self_imitation.load(run.path).policy().act(np.zeros((4, 5))).shape == (4,)


def test_a_network_is_named_once(tmp_path):
    with pytest.raises(UsageError, match=r"'network\.kind' is not allowed; it is given by train\(network=\.\.\.\)"):
        self_imitation.train(out=tmp_path / "run", settings={"network.kind": "default"}, network=Tabular)


def test_a_network_with_wrong_outputs_leaves_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(actor_critic, "_factories", dict(actor_critic._factories))

    class Column(Tabular):
        def __call__(self, observation):
            distribution, value = super().__call__(observation)
            return distribution, value[:, None]

    with pytest.raises(UsageError, match=r"^network 'Column': for 7 observations, the value is float32\[7, 1\]"):
        self_imitation.train(agent="a2c", steps=80, seeds=1, out=tmp_path / "run", network=Column)
    assert not (tmp_path / "run").exists()
