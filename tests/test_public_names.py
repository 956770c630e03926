"""What `import self_imitation` offers, and how its functions refuse wrong shapes."""

import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import self_imitation
from self_imitation import SelfImitationConfig, TrainState, UsageError, imitate, replay, self_imitation_loss

CONFIG = SelfImitationConfig(buffer_size=100, batch_size=8, learning_starts=4)


def test_all_names_are_found_and_completed():
    assert set(self_imitation.__all__) <= set(dir(self_imitation))
    assert all(getattr(self_imitation, name) is not None for name in self_imitation.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = self_imitation.nothing


def test_the_import_needs_no_jax():
    code = "import sys, self_imitation; dir(self_imitation); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Steps(NamedTuple):
    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    ended: jax.Array
    valid: jax.Array | None = None


def steps(**changes):
    """Six steps in each of three environments."""
    usual = Steps(jnp.zeros((6, 3, 2)), jnp.zeros((6, 3), jnp.int32), jnp.ones((6, 3)), jnp.ones((6, 3), bool))
    return usual._replace(**changes)


@pytest.fixture
def as_users(monkeypatch):
    """Without the type checker of the tests, which would complain first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.usefixtures("as_users")
@pytest.mark.parametrize("name", ["log_prob", "entropy", "value", "returns", "weight"])
def test_the_loss_names_the_array_that_is_no_vector(name):
    arrays = {other: jnp.ones(64) for other in ("log_prob", "entropy", "value", "returns", "weight")}
    reference = "entropy" if name == "log_prob" else "log_prob"
    message = rf"^{name}: shape \(64, 1\) is not allowed; expected \(64,\), as {reference} has, one number per sample$"
    with pytest.raises(UsageError, match=message):
        self_imitation_loss(**{**arrays, name: jnp.ones((64, 1))}, config=CONFIG)


@pytest.mark.usefixtures("as_users")
def test_the_loss_refuses_vectors_of_different_lengths():
    ones = jnp.ones(64)
    with pytest.raises(UsageError, match=r"^returns: shape \(32,\) is not allowed; expected \(64,\), as log_prob has"):
        self_imitation_loss(ones, ones, ones, jnp.ones(32), ones, CONFIG)


@pytest.mark.usefixtures("as_users")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.ones(6)}, r"reward: float64\[6\] is not allowed; expected \[T, N\]"),
        ({"observation": np.zeros((3, 6, 2))}, r"observation: float64\[3, 6, 2\] is not allowed; expected \(6, 3\)"),
        ({"action": np.zeros(18)}, r"action: float64\[18\] is not allowed; expected \(6, 3\) first, as reward has"),
    ],
)
def test_a_buffer_for_wrong_shapes_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        replay.create(steps(**changes), CONFIG, max_pending_steps=10)


@pytest.mark.usefixtures("as_users")
def test_a_buffer_with_bad_settings_is_refused():
    with pytest.raises(UsageError, match="keep: 'some' is not allowed"):
        replay.create(steps(), SelfImitationConfig(keep="some"), max_pending_steps=10)


@pytest.mark.usefixtures("as_users")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": jnp.ones((5, 3))}, r"reward: float32\[5, 3\] is not allowed; expected \(T, 3\), with the T"),
        ({"reward": jnp.ones((6, 4))}, r"reward: float32\[6, 4\] is not allowed; expected \(T, 3\)"),
        ({"ended": jnp.ones((6, 3))}, r"ended: float32\[6, 3\] is not allowed; expected bool\[6, 3\]"),
        ({"valid": jnp.ones(6, bool)}, r"valid: bool\[6\] is not allowed; expected bool\[6, 3\]"),
        (
            {"action": jnp.ones((6, 3))},
            r"action: float32\[6, 3\] is not allowed; expected int32\[6, 3\], as the buffer",
        ),
        ({"observation": jnp.ones((6, 3, 1))}, r"observation: float32\[6, 3, 1\] .* expected float32\[6, 3, 2\]"),
        ({"observation": {"a": jnp.ones((6, 3, 2))}}, "observation: not the structure"),
    ],
)
def test_steps_that_do_not_fit_the_buffer_are_refused(changes, message):
    buffer = replay.create(steps(), CONFIG, max_pending_steps=10)
    with pytest.raises(UsageError, match=message):
        jax.eval_shape(lambda b, s: replay.insert(b, s, CONFIG), buffer, steps(**changes))


@pytest.mark.usefixtures("as_users")
def test_an_actor_critic_with_values_in_a_column_is_refused():
    def actor_critic(params, observation):
        return self_imitation.Categorical(observation @ params["policy"]), observation @ params["value"]

    params = {"policy": jnp.zeros((2, 4)), "value": jnp.zeros((2, 1))}
    optimiser = optax.sgd(0.1)
    buffer = replay.create(steps(), CONFIG, max_pending_steps=10)
    arguments = TrainState(params, optimiser.init(params)), buffer, jax.random.key(0)
    with pytest.raises(UsageError, match=r"^value: shape \(8, 1\) is not allowed; expected \(8,\), as log_prob has"):
        jax.eval_shape(lambda *given: imitate(actor_critic, optimiser, *given, CONFIG), *arguments)
