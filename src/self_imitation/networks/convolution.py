"""Convolutions in the fastest form for the device: strides moved into channels, a loop over seeds, and matrix products
on a CPU or for few images.

All forms compute the same sums. A convolution whose stride divides its kernel equals one of stride 1 over blocks of
stride x stride pixels with correspondingly more channels (first layer of the Nature network: 64 instead of 4). A `vmap`
over weights would become a grouped convolution, which is slow: 19 ms instead of 5 for eight seeds on an H200.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

FEW_IMAGES = 128
"""Up to this many images, a GPU uses matrix products, too: the launch of kernels dominates, and XLA can put products
into CUDA graphs."""

Images = Float[Array, "_ _ _ _"]
"""[batch, height, width, channels]"""
Kernels = Float[Array, "_ _ _ _"]
"""[height, width, inputs, outputs]"""


def convolve(x: Images, weight: Kernels, stride: int) -> Images:
    """A convolution without padding."""
    kernel = weight.shape[0]
    height, width = (side - (side - kernel) % stride for side in x.shape[1:3])
    if stride == 1 or kernel % stride or height % stride or width % stride:
        return _convolve(x, weight, stride)
    return _convolve(_blocks(x[:, :height, :width], stride), _kernels_of_blocks(weight, stride), 1)


def _blocks(x: Images, side: int) -> Images:
    """Blocks of side x side pixels, each as one pixel with many channels."""
    batch, height, width, channels = x.shape
    split = x.reshape(batch, height // side, side, width // side, side, channels)
    return split.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // side, width // side, -1)


def _kernels_of_blocks(weight: Kernels, side: int) -> Kernels:
    kernel, _, inputs, outputs = weight.shape
    split = weight.reshape(kernel // side, side, kernel // side, side, inputs, outputs)
    return split.transpose(0, 2, 1, 3, 4, 5).reshape(kernel // side, kernel // side, -1, outputs)


def loop_over_batch(function: Callable) -> Callable:
    """The function; under `vmap`, a loop over the batch, unrolled within one program."""
    looped = jax.custom_batching.custom_vmap(function)

    @looped.def_vmap
    def _(axis_size: int, in_batched: list[bool], *arguments: Array) -> tuple:
        def member(i: int) -> list[Array]:
            return [whole[i] if batched else whole for whole, batched in zip(arguments, in_batched, strict=True)]

        results = [looped(*member(i)) for i in range(axis_size)]
        return jax.tree.map(lambda *each: jnp.stack(each), *results), jax.tree.map(lambda _: True, results[0])

    return looped


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(x: Images, weight: Kernels, stride: int) -> Images:
    if x.shape[0] <= FEW_IMAGES:
        return _product(stride, x, weight)
    return loop_over_batch(partial(_by_platform, partial(_plain, stride), partial(_product, stride)))(x, weight)


def _forward(x: Images, weight: Kernels, stride: int) -> tuple[Images, tuple[Images, Kernels]]:
    return _convolve(x, weight, stride), (x, weight)


def _backward(stride: int, kept: tuple[Images, Kernels], gradient: Images) -> tuple[Images, Kernels]:
    def pull_back(function: Callable, x: Images, weight: Kernels, gradient: Images) -> tuple[Images, Kernels]:
        return jax.vjp(partial(function, stride), x, weight)[1](gradient)

    if kept[0].shape[0] <= FEW_IMAGES:
        return pull_back(_product, *kept, gradient)
    backward = partial(_by_platform, partial(pull_back, _plain), partial(pull_back, _product))
    return loop_over_batch(backward)(*kept, gradient)


_convolve.defvjp(_forward, _backward)


def _by_platform(elsewhere: Callable, on_cpu: Callable, *arguments: Array) -> Any:
    return jax.lax.platform_dependent(*arguments, cpu=on_cpu, default=elsewhere)


def _product(stride: int, x: Images, weight: Kernels) -> Images:
    """Each patch as a row: XLA's convolutions are slow on a CPU, above all their gradients."""
    kernel, _, inputs, outputs = weight.shape
    height, width = ((side - kernel) // stride + 1 for side in x.shape[1:3])
    patches = [
        x[:, i : i + stride * (height - 1) + 1 : stride, j : j + stride * (width - 1) + 1 : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return jnp.concatenate(patches, axis=-1) @ weight.reshape(kernel * kernel * inputs, outputs)


def _plain(stride: int, x: Images, weight: Kernels) -> Images:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), "VALID", dimension_numbers=layout)
