"""Convolutions in blocks and over seeds, against the plain form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from self_imitation.networks import convolution
from self_imitation.networks.convolution import convolve


@pytest.fixture(params=["few images", "many"])
def number_of_images(request, monkeypatch):
    monkeypatch.setattr(convolution, "FEW_IMAGES", 128 if request.param == "few images" else 0)


def plain(x, weight, stride):
    """From the definition: a loop over the places of the output."""
    kernel = weight.shape[0]
    height, width = ((side - kernel) // stride + 1 for side in x.shape[1:3])
    rows = []
    for i in range(height):
        patches = [
            x[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel].reshape(len(x), -1)
            for j in range(width)
        ]
        rows.append(jnp.stack(patches, axis=1) @ weight.reshape(-1, weight.shape[-1]))
    return jnp.stack(rows, axis=1)


SHAPES = [(20, 16, 4, 8, 4), (9, 9, 2, 3, 1), (11, 13, 1, 3, 2)]


def example(height, width, channels, kernel, seeds=()):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*seeds, 2, height, width, channels)).astype(np.float32)
    return x, rng.normal(size=(*seeds, kernel, kernel, channels, 5)).astype(np.float32)


@pytest.mark.usefixtures("number_of_images")
@pytest.mark.parametrize(("height", "width", "channels", "kernel", "stride"), SHAPES)
def test_convolutions_and_their_gradients_match_the_plain_form(height, width, channels, kernel, stride):
    x, weight = example(height, width, channels, kernel)
    forward = (jax.jit(function, static_argnums=2)(x, weight, stride) for function in (convolve, plain))
    np.testing.assert_allclose(*forward, rtol=1e-4, atol=1e-4)

    def loss(function, x, weight):
        return jnp.sum(jnp.sin(function(x, weight, stride)))

    ours = jax.jit(jax.grad(lambda x, w: loss(convolve, x, w), argnums=(0, 1)))(x, weight)
    twins = jax.jit(jax.grad(lambda x, w: loss(plain, x, w), argnums=(0, 1)))(x, weight)
    for one, other in zip(ours, twins, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("number_of_images")
@pytest.mark.parametrize("shared", ["nothing", "weights", "images"])
def test_vmapped_seeds_match_single_ones(shared):
    x, weight = example(9, 10, 3, 4, seeds=(3,))
    axes = {"nothing": (0, 0), "weights": (0, None), "images": (None, 0)}[shared]
    x, weight = (x if axes[0] == 0 else x[0]), (weight if axes[1] == 0 else weight[0])

    def learn(x, weight):
        return jax.value_and_grad(lambda x, w: jnp.sum(convolve(x, w, 2) ** 2), argnums=(0, 1))(x, weight)

    together = jax.jit(jax.vmap(learn, axes))(x, weight)
    for seed in range(3):
        alone = jax.jit(learn)(x if axes[0] is None else x[seed], weight if axes[1] is None else weight[seed])
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(one[seed], other, rtol=1e-4)


@pytest.mark.parametrize("few", [0, 128])
def test_vmapped_seeds_compile_to_no_grouped_convolution(monkeypatch, few):
    """Grouped convolutions are slow on a GPU."""
    monkeypatch.setattr(convolution, "FEW_IMAGES", few)
    x, weight = example(20, 16, 4, 8, seeds=(3,))
    traced = jax.jit(jax.vmap(lambda x, w: convolve(x, w, 4))).trace(x, weight)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("stablehlo.convolution") == (0 if few else 3)
    assert text.count("stablehlo.dot_general") == (1 if few else 0), "of all seeds in one product"
    assert "feature_group_count = 3" not in text
    assert "batch_group_count = 3" not in text
