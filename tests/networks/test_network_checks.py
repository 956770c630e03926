"""Mistakes of a network of one's own are named in one line."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from self_imitation.errors import UsageError
from self_imitation.networks.checks import require_usable
from self_imitation.networks.distributions import Categorical, MultiCategorical
from self_imitation.types import Discrete, Spec

SPEC = Spec((3,), Discrete(4), None)


class Mine(eqx.Module):
    """A network whose outputs a test changes."""

    weight: jax.Array
    change: object = eqx.field(static=True)

    def __call__(self, observation):
        outputs = observation @ self.weight
        return self.change(Categorical(outputs[:, 1:]), outputs[:, 0])


def check(change, **options):
    require_usable(Mine(jnp.zeros((3, 5)), change), "mine", SPEC, **options)


def test_a_good_network_passes():
    check(lambda distribution, value: (distribution, value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, v: (d, v[:, None]), "for 7 observations, the value is float32[7, 1]; expected: float32[7]"),
        (lambda d, v: (d, v.astype(jnp.int32)), "for 7 observations, the value is int32[7]; expected: float32[7]"),
        (lambda d, v: d, "it returns Categorical; expected: a tuple of a distribution and values"),
        (
            lambda d, v: (d.logits, v),
            "has no method sample; expected: sample, mode, log_prob, entropy, kl",
        ),
        (
            lambda d, v: (MultiCategorical((d,)), v),
            "for 7 observations, mode() is int32[7, 1]; expected: int32[7]",
        ),
        (
            lambda d, v: (Categorical(d.logits[:, :3]), v),
            "its distribution has 3 logits; expected: 4, one for each action",
        ),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(UsageError) as error:
        check(change)
    assert str(error.value).startswith("network 'mine': ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_leaves_that_are_no_arrays_are_named():
    with pytest.raises(UsageError, match=r"^network 'mine': layers\.1 is function, not an array; expected: equinox"):
        require_usable({"layers": [np.zeros(3), check]}, "mine", SPEC)


def test_half_precision_needs_a_second_argument():
    with pytest.raises(UsageError, match=r"^precision: 'bfloat16' is not allowed; network 'mine' takes no dtype"):
        check(lambda distribution, value: (distribution, value), precision="bfloat16")
