"""Small helpers for arrays."""

import jax.numpy as jnp
import numpy as np
import pytest

from self_imitation.arrays import masked_mean, require_same_shape, select


def test_shapes_that_would_broadcast_are_refused_without_the_type_checker_too():
    with pytest.raises(ValueError, match=r"shapes must be the same: value \(3, 1\), returns \(3,\)"):
        require_same_shape(value=jnp.ones((3, 1)), returns=jnp.ones(3))
    require_same_shape(value=jnp.ones(3), returns=jnp.ones(3))


def test_masked_mean():
    x = jnp.array([1.0, 2.0, 6.0])
    assert float(masked_mean(x, None)) == 3.0
    assert float(masked_mean(x, jnp.array([True, True, False]))) == 1.5
    assert float(masked_mean(jnp.array([1.0, jnp.nan, jnp.inf]), jnp.array([True, False, False]))) == 1.0
    assert float(masked_mean(x, jnp.zeros(3, bool))) == 0.0


def test_select_broadcasts_the_condition_over_trailing_axes():
    yes, no = {"a": jnp.ones((2, 3)), "b": jnp.ones(2)}, {"a": jnp.zeros((2, 3)), "b": jnp.zeros(2)}
    chosen = select(jnp.array([True, False]), yes, no)
    np.testing.assert_array_equal(chosen["a"], [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(chosen["b"], [1, 0])
