"""The optimisers by hand and against NumPy."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from self_imitation.algorithm import optimiser as optimisers
from self_imitation.settings import OptimiserConfig
from self_imitation.types import TrainState


@cache
def compiled(config, gradient_steps):
    optimiser = optimisers.create(config, gradient_steps)
    return optimiser, jax.jit(partial(optimisers.apply_gradients, optimiser))


def after(config, *gradients, start=2.0, gradient_steps=1):
    """One weight after steps with these gradients."""
    optimiser, step = compiled(config, gradient_steps)
    params = {"weight": jnp.array([start])}
    train_state = TrainState(params, optimiser.init(params))
    for gradient in gradients:
        train_state = step(train_state, {"weight": np.array([gradient], np.float32)})
    return float(train_state.params["weight"][0])


def test_rmsprop_by_hand():
    """One weight, gradient 0.3: mean square 0.99 * 1 + 0.01 * 0.09 = 0.9909; step 0.1 * 0.3 / sqrt(0.99091)."""
    assert after(OptimiserConfig(learning_rate=0.1), 0.3) == pytest.approx(2.0 - 0.1 * 0.3 / np.sqrt(0.99091), rel=1e-6)


def test_epsilon_of_rmsprop_is_inside_the_root():
    """After a zero gradient the mean square is 0, and after the next one still tiny: 1e-8 against 1e-5."""
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
def test_linear_schedule_decays_to_zero_at_the_last_gradient_step(kind):
    """Of four steps, the second is made with three quarters of the learning rate, and a fifth would not move."""
    config = OptimiserConfig(kind, learning_rate=0.1, schedule="linear")
    constant = dataclasses.replace(config, schedule="constant")
    before = 0.0
    for done, share in enumerate((1.0, 0.75, 0.5, 0.25, 0.0)):
        gradients = [0.3] * (done + 1)
        step = after(constant, *gradients) - after(constant, *gradients[:-1])
        now = after(config, *gradients, gradient_steps=4) - 2.0
        assert now - before == pytest.approx(share * step, abs=1e-6)
        before = now


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


OTHER = {"learning_rate": 0.05, "decay": 0.5, "epsilon": 0.3, "max_grad_norm": 2.0}


@pytest.mark.parametrize("scale", [1e-3, 0.1, 30.0], ids=["small", "near the clip", "clipped"])
@pytest.mark.parametrize("others", [{}, OTHER], ids=["authors", "other"])
@pytest.mark.parametrize(("kind", "twin"), [("rmsprop", RMSProp), ("adam", Adam)], ids=["rmsprop", "adam"])
def test_several_steps_match_numpy(kind, twin, others, scale):
    """Gradients are clipped to the global norm first, all arrays together."""
    config = OptimiserConfig(kind, **others)
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 2), "b": (4,)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    twins = {name: twin(config, shape) for name, shape in shapes.items()}
    optimiser, step = compiled(config, 1)
    start = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    train_state = TrainState(start, optimiser.init(start))
    for _ in range(6):
        gradient = {name: scale * rng.normal(size=shape) for name, shape in shapes.items()}
        train_state = step(train_state, {name: g.astype(np.float32) for name, g in gradient.items()})
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
        for name, g in gradient.items():
            params[name] = params[name] - twins[name].step(g * min(1.0, config.max_grad_norm / norm))
    for name in start:
        moved = np.asarray(train_state.params[name]) - np.asarray(start[name])
        np.testing.assert_allclose(moved, params[name] - np.asarray(start[name]), rtol=1e-3, atol=1e-6)


def test_any_optax_optimiser_can_be_used():
    optimiser, params = optax.sgd(0.5), {"weight": jnp.array([1.0])}
    train_state = TrainState(params, optimiser.init(params))
    train_state = optimisers.apply_gradients(optimiser, train_state, {"weight": jnp.array([2.0])})
    assert train_state.params["weight"].tolist() == [0.0]
