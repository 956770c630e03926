"""The optimisers by hand and against NumPy."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from self_imitation import optimisation
from self_imitation.config import OptimiserConfig
from self_imitation.types import Learner


def after(config, *gradients, start=2.0):
    """One weight after steps with these gradients."""
    optimiser = optimisation.create(config)
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
    optimiser = optimisation.create(config)
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
