"""The update in PyTorch equals ours in JAX: same parameters, same batch, same result."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

th = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from gymnasium import spaces
from learning import AUTHORS, PAPER
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from self_imitation.algorithm import imitation_value
from self_imitation.algorithm import optimiser as optimisers
from self_imitation.algorithm.self_imitation import batch_loss, gradient_step
from self_imitation.networks.actor_critic import Network
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import Batch
from self_imitation.sb3 import SelfImitation, loss
from self_imitation.sb3.own_value import OwnValue
from self_imitation.sb3.tensors import actions_to_torch
from self_imitation.settings import NetworkConfig, OptimiserConfig
from self_imitation.types import Continuous, Discrete, MultiDiscrete, Spec, TrainState

pytestmark = pytest.mark.extras

SIZE, INPUTS = 48, 5
KINDS = {
    "discrete": (Discrete(4), spaces.Discrete(4)),
    "multi-discrete": (MultiDiscrete((3, 2, 4)), spaces.MultiDiscrete([3, 2, 4])),
    "box": (Continuous((-1.0, -1.0), (1.0, 1.0)), spaces.Box(-1, 1, (2,), np.float32)),
}
PRESETS = {"authors": dataclasses.replace(AUTHORS, min_imitated=4), "paper": PAPER}
LARGE = 1e6

loss_of_ours = jax.jit(jax.value_and_grad(batch_loss, has_aux=True), static_argnames=("actor_critic", "config"))
step_of_ours = jax.jit(gradient_step, static_argnames=("actor_critic", "optimiser", "config"))
sample = jax.jit(replay.sample, static_argnames="config")
update_priorities = jax.jit(replay.update_priorities, static_argnames="config")
every_kind = pytest.mark.parametrize("kind", KINDS)
every_preset = pytest.mark.parametrize("preset", PRESETS)


def twins(kind, optimizer_class=th.optim.SGD, lr=1.0, **optimizer_kwargs):
    """Our actor-critic, and SB3's policy with the same weights; not the initial ones, which have no scale."""
    actions, action_space = KINDS[kind]
    ours = Network(Spec((INPUTS,), actions, None), NetworkConfig(), np.random.default_rng(0))
    generator = np.random.default_rng(1)
    ours = jax.tree.map(lambda leaf: leaf + 0.2 * generator.standard_normal(leaf.shape).astype(np.float32), ours)
    theirs = ActorCriticPolicy(
        spaces.Box(-np.inf, np.inf, (INPUTS,), np.float32),
        action_space,
        lambda _: lr,
        optimizer_class=optimizer_class,
        optimizer_kwargs=optimizer_kwargs,
    )
    copy_to(theirs, ours)
    return ours, theirs


def pairs(theirs, ours):
    """Parameters of SB3's policy and the same ones of ours."""
    extractor = theirs.mlp_extractor
    layers = [
        (extractor.policy_net[0], ours.policy_body.layers[0]),
        (extractor.policy_net[2], ours.policy_body.layers[1]),
        (extractor.value_net[0], ours.value_body.layers[0]),
        (extractor.value_net[2], ours.value_body.layers[1]),
        (theirs.action_net, ours.policy_head),
        (theirs.value_net, ours.value_head),
    ]
    for linear, own in layers:
        yield linear.weight, own.weight.T
        yield linear.bias, own.bias
    if ours.log_std is not None:
        yield theirs.log_std, ours.log_std


def copy_to(theirs, ours):
    for parameter, own in pairs(theirs, ours):
        parameter.data = th.tensor(np.asarray(own))


def sample_batch(kind):
    """Returns on both sides of the values, importance weights, some empty entries."""
    generator = np.random.default_rng(2)
    action = {
        "discrete": generator.integers(0, 4, SIZE),
        "multi-discrete": generator.integers(0, [3, 2, 4], (SIZE, 3)),
        "box": generator.normal(0, 2, (SIZE, 2)).astype(np.float32),  # outside the bounds: as sampled
    }[kind]
    weight = generator.uniform(0.05, 1, SIZE).astype(np.float32)
    weight[-7:] = 0
    return Batch(
        slot=jnp.arange(SIZE),
        observation=jnp.asarray(generator.normal(0, 2, (SIZE, INPUTS)).astype(np.float32)),
        action=jnp.asarray(action),
        returns=jnp.asarray(generator.normal(1, 2, SIZE).astype(np.float32)),
        weight=jnp.asarray(weight),
    )


def step_of_theirs(policy, batch, config, kind, max_grad_norm):
    tensors = [th.from_dlpack(array) for array in (batch.observation, batch.returns, batch.weight)]
    action = actions_to_torch(batch.action, KINDS[kind][1], th.device("cpu"))
    return loss.gradient_step(policy, policy.optimizer, tensors[0], action, *tensors[1:], max_grad_norm, config)


def actor_critic(params, observation):
    return params(observation)


@every_kind
@every_preset
def test_loss_and_gradient_are_ours(kind, preset):
    config, batch = PRESETS[preset], sample_batch(kind)
    ours, theirs = twins(kind)
    (expected, (advantage, metrics)), gradient = loss_of_ours(ours, actor_critic, batch, config)
    found, found_metrics = step_of_theirs(theirs, batch, config, kind, LARGE)
    assert 0.1 < metrics["sil_imitated"] < 0.9
    assert found_metrics["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert {f"sil_{name}" for name in found_metrics} == set(metrics)
    for name, value in found_metrics.items():
        assert value == pytest.approx(float(metrics[f"sil_{name}"]), rel=1e-5), name
    np.testing.assert_allclose(found.numpy(), advantage, atol=1e-5)
    for parameter, own in pairs(theirs, gradient):
        np.testing.assert_allclose(parameter.grad.numpy(), own, atol=1e-5)


OPTIMISERS = {
    "sgd": (optax.sgd(0.1), th.optim.SGD, {"lr": 0.1}),
    "adam": (optax.adam(1e-2, eps=1e-5), th.optim.Adam, {"lr": 1e-2, "eps": 1e-5}),
    "rmsprop": (None, RMSpropTFLike, {"lr": 1.0, "alpha": 0.99, "eps": 1e-5}),
}


@every_preset
@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("max_grad_norm", [0.05, LARGE], ids=["clipped", "not clipped"])
def test_parameters_after_updates_are_ours(name, preset, max_grad_norm):
    config, batch = PRESETS[preset], sample_batch("discrete")
    step, optimizer_class, kwargs = OPTIMISERS[name]
    if step is None:
        optimiser = optimisers.create(OptimiserConfig(learning_rate=1.0, max_grad_norm=max_grad_norm), 1)
    else:
        optimiser = optax.chain(optax.clip_by_global_norm(max_grad_norm), step)
    ours, theirs = twins("discrete", optimizer_class, **kwargs)
    state = TrainState(ours, optimiser.init(ours))
    for _ in range(3):
        state, _, _ = step_of_ours(actor_critic, optimiser, state, batch, config)
        step_of_theirs(theirs, batch, config, "discrete", max_grad_norm)
    moved = 0.0
    for (parameter, own), (_, start) in zip(pairs(theirs, state.params), pairs(theirs, ours), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), own, atol=1e-5)
        moved = max(moved, float(np.abs(own - start).max()))
    assert moved > 1e-3


def test_updates_of_the_callback_are_ours():
    """Sampling, four gradient steps and new priorities, on a replay buffer that the callback filled."""
    env = make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=4)
    policy = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}}
    model = A2C("MlpPolicy", env, policy_kwargs=policy, seed=3, device="cpu")
    callback = SelfImitation(keep="all", batch_size=32, learning_starts=0, buffer_size=1000, value="shared")
    model.learn(300, callback=callback)
    ours, _ = twins("discrete")
    copy_to(model.policy, ours)  # values of any scale: some returns beat them
    model.policy.optimizer.state.clear()

    config, own = callback.config, callback.memory
    buffer, key = jax.tree.map(jnp.copy, own.buffer), jax.random.key(own.seed)
    optimiser = optimisers.create(OptimiserConfig(), 1)
    state = TrainState(ours, optimiser.init(ours))
    for number in range(own.samples + 1, own.samples + 5):
        batch = sample(buffer, jax.random.fold_in(key, number), config)
        state, advantage, metrics = step_of_ours(actor_critic, optimiser, state, batch, config)
        buffer = update_priorities(buffer, batch, advantage, config)
    callback._update_due = True
    callback._update_if_due()

    assert metrics["sil_imitated"] > 0.1
    for parameter, expected in pairs(model.policy, state.params):
        np.testing.assert_allclose(parameter.detach().numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(own.buffer.tree.sums, buffer.tree.sums, atol=1e-4)


def test_values_with_a_second_axis_are_refused():
    """(B, 1) - (B,) would be (B, B): every action imitated in every state."""
    numbers = th.ones(4)
    with pytest.raises(ValueError, match="shapes must be the same"):
        loss.self_imitation_loss(numbers, numbers, numbers[:, None], numbers, numbers, PAPER)


def test_ppo_has_its_own_defaults():
    env = make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=1)
    callback = SelfImitation()
    with pytest.warns(UserWarning, match="nothing to imitate"):
        PPO("MlpPolicy", env, n_steps=64, gamma=0.9, device="cpu").learn(64, callback=callback)
    assert (callback.config.updates, callback.config.ent_coef, callback.config.gamma) == (10, 0.0, 0.9)


def test_the_own_value_takes_the_gradient_steps_of_ours():
    """Adam on E[1/2 (R - V)^2], from the same parameters."""
    batch, config = sample_batch("discrete"), dataclasses.replace(PAPER, value="own", value_learning_rate=0.01)
    params, policy = twins("discrete")
    own = OwnValue(policy, config)
    copy_to(own.network, params)
    optimiser = optax.adam(0.01)
    state = TrainState(params, optimiser.init(params))

    def error(params):
        return imitation_value.value_loss(actor_critic(params, batch.observation)[1], batch.returns, batch.weight > 0)

    for _ in range(3):
        expected, gradient = jax.value_and_grad(error)(state.params)
        state = optimisers.apply_gradients(optimiser, state, gradient)
        given = [th.tensor(np.asarray(column)) for column in (batch.observation, batch.returns, batch.weight)]
        assert own.gradient_step(*given) == pytest.approx(float(expected), rel=1e-5)
    values = actor_critic(state.params, batch.observation)[1]
    np.testing.assert_allclose(own(given[0]).numpy(), values, atol=1e-4)


def test_with_a_value_of_its_own_that_of_the_policy_is_left_to_the_model():
    env = make_vec_env("self_imitation/KeyDoorTreasure-v0", n_envs=4)
    model = A2C("MlpPolicy", env, seed=3, device="cpu")
    callback = SelfImitation(keep="all", batch_size=32, learning_starts=0, buffer_size=1000)
    model.learn(300, callback=callback)
    assert callback.config.value == "own"
    before = {name: parameter.detach().clone() for name, parameter in model.policy.named_parameters()}
    callback._update_due = True
    callback._update_if_due()
    moved = {name for name, own in model.policy.named_parameters() if not th.equal(own, before[name])}
    assert moved
    assert not any("value" in name for name in moved)
