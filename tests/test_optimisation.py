"""The optimisers by hand and against NumPy."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from self_imitation import agents, algorithm, optimisation
from self_imitation.config import OptimiserConfig, resolve
from self_imitation.types import Learner


def after(config, *gradients, start=2.0, gradient_steps=1):
    """One weight after steps with these gradients."""
    optimiser = optimisation.create(config, gradient_steps)
    params = {"weight": jnp.array([start])}
    learner = Learner(params, optimiser.init(params))
    for gradient in gradients:
        learner = optimisation.descend(optimiser, learner, {"weight": jnp.array([gradient])})
    return float(learner.params["weight"][0])


def test_rmsprop_by_hand():
    """One weight, gradient 0.3: mean square 0.99 * 1 + 0.01 * 0.09 = 0.9909; step 0.1 * 0.3 / sqrt(0.99091)."""
    assert after(OptimiserConfig(learning_rate=0.1), 0.3) == pytest.approx(2.0 - 0.1 * 0.3 / np.sqrt(0.99091), rel=1e-6)


def test_epsilon_of_rmsprop_is_inside_the_root():
    """After a zero gradient the mean square is nothing, and with the next one next to nothing: 1e-8 against 1e-5."""
    moved = after(OptimiserConfig(learning_rate=1.0, decay=0.0), 0.0, 1e-4, start=0.0)
    assert moved == pytest.approx(-1e-4 / np.sqrt(1e-8 + 1e-5), rel=1e-4)


def test_adam_by_hand():
    """The first step is as long as the learning rate, less for epsilon, which is outside the root."""
    config = OptimiserConfig("adam", learning_rate=0.1, epsilon=0.01)
    assert after(config, 0.3) == pytest.approx(2.0 - 0.1 * 0.3 / (0.3 + 0.01), rel=1e-6)
    assert after(config, -0.003) == pytest.approx(2.0 + 0.1 * 0.003 / (0.003 + 0.01), rel=1e-6)
    # then 0.3 and 0.1: the mean (0.9 * 0.03 + 0.1 * 0.1) / 0.19, the mean square (0.999 * 9e-5 + 1e-5) / 0.001999
    first = 2.0 - 0.1 * 0.3 / 0.31
    mean, square = (0.9 * 0.03 + 0.01) / 0.19, (0.999 * 9e-5 + 1e-5) / 0.001999
    assert after(config, 0.3, 0.1) == pytest.approx(first - 0.1 * mean / (np.sqrt(square) + 0.01), rel=1e-5)


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_a_linear_schedule_falls_to_nothing_at_the_end_of_the_run(kind):
    """Of four steps, the second one is made with three quarters of the step size, and a fifth one would be none."""
    config = OptimiserConfig(kind, learning_rate=0.1, schedule="linear")
    steady = dataclasses.replace(config, schedule="constant")
    before = 0.0
    for done, share in enumerate((1.0, 0.75, 0.5, 0.25, 0.0)):
        gradients = [0.3] * (done + 1)
        step = after(steady, *gradients) - after(steady, *gradients[:-1])
        now = after(config, *gradients, gradient_steps=4) - 2.0
        assert now - before == pytest.approx(share * step, abs=1e-6)
        before = now


@pytest.mark.parametrize("agent", ["a2c", "a2c+sil", "ppo", "ppo+sil"])
def test_a_linear_schedule_knows_how_many_gradient_steps_a_run_takes(agent):
    small = {"agent": agent, "envs": 2, "rollout": 50, "steps": 400, "optimiser.schedule": "linear"}
    config = resolve("key-door-treasure", "paper", {**small, "sil.start_after": 10, "sil.batch": 16, "ppo.epochs": 2})
    built = agents.build(config)
    state = agents.begin(built, agents.initial_params(config, built, 0), jnp.int32(0))
    for _ in range(config.iterations):
        state, _, _ = jax.jit(algorithm.iteration, static_argnums=0)(built, state)
    counts = {int(leaf) for leaf in jax.tree.leaves(state.learner.optimiser_state) if leaf.dtype == jnp.int32}
    on_policy = 4 * 2 * 32 if "ppo" in agent else 4
    assert counts == {on_policy + {"a2c+sil": 4 * 4, "ppo+sil": 4 * 10}.get(agent, 0)}
    moved = optimisation.descend(built.optimiser, state.learner, jax.tree.map(jnp.ones_like, state.learner.params))
    assert eqx.tree_equal(moved.params, state.learner.params), "nothing is left of the step size"


class RMSProp:
    def __init__(self, config, shape):
        self.config, self.square = config, np.ones(shape)

    def step(self, gradient):
        self.square = self.config.decay * self.square + (1 - self.config.decay) * gradient**2
        return self.config.learning_rate * gradient / np.sqrt(self.square + self.config.epsilon)


class Adam:
    def __init__(self, config, shape):
        self.config, self.mean, self.square, self.count = config, np.zeros(shape), np.zeros(shape), 0

    def step(self, gradient):
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean, square = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.999**self.count)
        return self.config.learning_rate * mean / (np.sqrt(square) + self.config.epsilon)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 30.0], ids=["small", "near the clip", "clipped"])
@pytest.mark.parametrize(
    "others",
    [{}, {"learning_rate": 0.05, "decay": 0.5, "epsilon": 0.3, "max_gradient_norm": 2.0}],
    ids=["authors", "other"],
)
@pytest.mark.parametrize(("kind", "twin"), [("rmsprop", RMSProp), ("adam", Adam)], ids=["rmsprop", "adam"])
def test_several_steps_equal_numpy(kind, twin, others, scale):
    """The gradient is scaled down to the global norm first, all arrays together."""
    config = OptimiserConfig(kind, **others)
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 2), "b": (4,)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    twins = {name: twin(config, shape) for name, shape in shapes.items()}
    optimiser = optimisation.create(config, gradient_steps=1)
    start = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    learner = Learner(start, optimiser.init(start))
    for _ in range(6):
        gradient = {name: scale * rng.normal(size=shape) for name, shape in shapes.items()}
        learner = optimisation.descend(
            optimiser, learner, {name: jnp.asarray(g, jnp.float32) for name, g in gradient.items()}
        )
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
        for name, g in gradient.items():
            params[name] = params[name] - twins[name].step(g * min(1.0, config.max_gradient_norm / norm))
    for name, start_value in start.items():
        moved = np.asarray(learner.params[name] - start_value)
        np.testing.assert_allclose(moved, params[name] - np.asarray(start_value), rtol=1e-3, atol=1e-6)


def test_descend_serves_any_optimiser():
    optimiser, params = optax.sgd(0.5), {"weight": jnp.array([1.0])}
    learner = optimisation.descend(optimiser, Learner(params, optimiser.init(params)), {"weight": jnp.array([2.0])})
    assert learner.params["weight"].tolist() == [0.0]
