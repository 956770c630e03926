"""On a solved task nothing is left to imitate: with a value of its own, R - V goes to 0."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import self_imitation
from self_imitation.environments.registry import register_environment
from self_imitation.types import Discrete, Spec, Step

pytestmark = pytest.mark.slow


class Waiting(eqx.Module):
    time: jax.Array


class RewardAfter300Steps:
    """A reward of 1 after 300 steps, whatever is done: solved from the start."""

    spec = Spec((1,), Discrete(2), 300)

    def reset(self, key):
        return Waiting(jnp.int32(0))

    def observe(self, state):
        return (state.time / 300).astype(jnp.float32)[None]

    def step(self, state, action):
        following = Waiting(state.time + 1)
        ended = following.time >= 300
        return Step(following, self.observe(following), ended.astype(jnp.float32), ended, jnp.array(False))


register_environment("reward-after-300-steps", RewardAfter300Steps)


@pytest.mark.parametrize(("value", "stops"), [("own", True), ("shared", False)])
def test_what_was_imitated_stops_with_a_value_of_its_own(tmp_path, value, stops):
    settings = {"sil.value": value, "sil.batch_size": 64, "log_every": 10_000}
    run = self_imitation.train(
        "reward-after-300-steps", agent="a2c+sil", steps=40_000, seeds=1, out=tmp_path / "run", settings=settings
    )
    last = run.metrics()[-1]
    assert last["return_mean"] == 1.0
    assert (last["sil_advantage"] < 0.1) == stops
