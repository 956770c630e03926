"""An autoencoder whose code layer becomes binary (Tang et al. 2017, section 2.3), trained on the frames visited.

The units b of the code layer are sigmoids. Noise that is added to them can only be overcome by values near 0 and 1, and
a penalty pushes units there that the reconstruction does not need. Rounded, they are the code of a frame.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from self_imitation.arrays import select
from self_imitation.networks.actor_critic import Convolution, Linear

SIDE = 52
"""Pixels of a frame in each direction (SimHash paper, appendix)."""
CODE_UNITS = 512
"""D, units of the code layer (authors' code)."""
NOISE = 0.3
"""a: noise from U(-a, a) is added to the code; with more than 1/4, distinct frames need distinct codes (paper)."""
BINARY_COEF = 10.0
"""lambda, coefficient of the penalty for units that are neither 0 nor 1 (authors' code)."""
BATCH_SIZE = 32
"""Frames per gradient step (authors' code)."""
CODE_GAIN = 3.0
"""Initial gain of the normalised code units; with 1, they take much longer to become binary."""
AVERAGE = 0.95
"""Weight of the past in the running statistics of the code layer."""
TRAIN_EVERY = 128
"""Environment steps per gradient step."""
POOL_SIZE = 2048
"""Frames of the pool that is trained on: 5.5 MB."""

# Deviation: three small convolutions, and batch normalisation of the code layer alone. The authors have 96 channels in
# each layer and 1024 units before and after the code, whose training would take longer than that of the agent.
CHANNELS = (1, 16, 16, 32)
KERNELS = (6, 6, 4)
STRIDE = 2
SMALLEST = 4
"""Pixels in each direction after the last convolution: 52, 24, 10, 4."""


FLAT = SMALLEST * SMALLEST * CHANNELS[-1]
LAYERS = tuple(zip(CHANNELS[:-1], CHANNELS[1:], KERNELS, strict=True))


class Statistics(eqx.Module):
    """Mean and variance of the code layer's inputs."""

    mean: Float[Array, " 512"]
    variance: Float[Array, " 512"]


class Encoder(eqx.Module):
    convolutions: tuple[Convolution, ...]
    hidden: Linear
    gain: Float[Array, " 512"]
    bias: Float[Array, " 512"]

    def __init__(self, generator: np.random.Generator):
        self.convolutions = tuple(Convolution(few, many, kernel, STRIDE, generator) for few, many, kernel in LAYERS)
        self.hidden = Linear(FLAT, CODE_UNITS, 1.0, generator)
        self.gain = jnp.asarray(np.full(CODE_UNITS, CODE_GAIN, np.float32))
        self.bias = jnp.asarray(np.zeros(CODE_UNITS, np.float32))

    def code_inputs(self, frames: Float[Array, "batch 52 52"]) -> Float[Array, "batch 512"]:
        """What the code layer normalises, of frames from 0 to 1."""
        x = frames[..., None]
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        return self.hidden(x.reshape(x.shape[0], -1))

    def code(self, inputs: Float[Array, "batch 512"], statistics: Statistics) -> Float[Array, "batch 512"]:
        """b, the code before rounding.

        Normalised, each unit begins with values on both sides of 1/2, however little the frames differ. Otherwise a
        small moving object is lost, and all frames soon have the same code.
        """
        normalised = (inputs - statistics.mean) * jax.lax.rsqrt(statistics.variance + 1e-8)
        return jax.nn.sigmoid(self.gain * normalised + self.bias)


class Coder(eqx.Module):
    """A trained encoder with its running statistics: the code of a frame does not depend on others."""

    encoder: Encoder
    statistics: Statistics

    def __call__(self, frames: Float[Array, "batch 52 52"]) -> Float[Array, "batch 512"]:
        return self.encoder.code(self.encoder.code_inputs(frames), self.statistics)


class Decoder(eqx.Module):
    input: Linear
    convolutions: tuple[Convolution, ...]

    def __init__(self, generator: np.random.Generator):
        self.input = Linear(CODE_UNITS, FLAT, 1.0, generator)
        self.convolutions = tuple(
            Convolution(many, STRIDE * STRIDE * few, kernel // STRIDE, 1, generator)
            for few, many, kernel in reversed(LAYERS)
        )

    def __call__(self, code: Float[Array, "batch 512"]) -> Float[Array, "batch 52 52"]:
        """Logits of the pixels."""
        x = jax.nn.relu(self.input(code)).reshape(-1, SMALLEST, SMALLEST, CHANNELS[-1])
        *hidden, last = self.convolutions
        for convolution in hidden:
            x = jax.nn.relu(transposed(convolution, x))
        return transposed(last, x)[..., 0]


class Autoencoder(eqx.Module):
    encoder: Encoder
    decoder: Decoder

    def loss(self, frames: Float[Array, "batch 52 52"], key: PRNGKeyArray) -> tuple[Float[Array, ""], Statistics]:
        """-log p(s) + lambda / D sum_i min((1 - b_i)^2, b_i^2), the mean over frames; and the batch's statistics.

        Deviation: log p is the Bernoulli log-likelihood of intensities instead of that of 64 discrete ones, which needs
        64 outputs per pixel.
        """
        inputs = self.encoder.code_inputs(frames)
        statistics = Statistics(jnp.mean(inputs, axis=0), jnp.var(inputs, axis=0))
        code = self.encoder.code(inputs, statistics)
        logits = self.decoder(code + jax.random.uniform(key, code.shape, minval=-NOISE, maxval=NOISE))
        log_likelihood = -jnp.sum(optax.sigmoid_binary_cross_entropy(logits, frames), axis=(1, 2))
        penalty = jnp.mean(jnp.minimum(jnp.square(1 - code), jnp.square(code)), axis=-1)
        return jnp.mean(-log_likelihood + BINARY_COEF * penalty), statistics


def transposed(convolution: Convolution, x: Float[Array, "batch _ _ inputs"]) -> Float[Array, "batch _ _ outputs"]:
    """A transposed convolution: each pixel of a plain one becomes `STRIDE` x `STRIDE` pixels."""
    border = convolution.weight.shape[0] - 1
    x = convolution(jnp.pad(x, ((0, 0), (border, border), (border, border), (0, 0))))
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height, width, STRIDE, STRIDE, channels // STRIDE**2)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * STRIDE, width * STRIDE, -1)


class AutoencoderState(eqx.Module):
    network: Autoencoder
    optimiser_state: optax.OptState
    statistics: Statistics
    """Running averages over batches."""
    coder: Coder
    """The encoder as it was when the codes were last renewed. While it is trained, most codes change all the time."""
    age: Int[Array, ""]
    """Environment steps since then."""
    pool: UInt8[Array, "frames 52 52"]
    """The frames visited last."""
    filled: Int[Array, ""]
    """Frames in the pool."""
    position: Int[Array, ""]
    """Where the next frame goes."""


def create(generator: np.random.Generator, optimiser: optax.GradientTransformation) -> AutoencoderState:
    network = Autoencoder(Encoder(generator), Decoder(generator))
    statistics = Statistics(jnp.zeros(CODE_UNITS), jnp.ones(CODE_UNITS))
    coder = jax.tree.map(jnp.copy, Coder(network.encoder, statistics))  # a buffer may be donated only once
    return AutoencoderState(
        network=network,
        optimiser_state=optimiser.init(network),
        statistics=statistics,
        coder=coder,
        age=jnp.int32(0),
        pool=jnp.zeros((POOL_SIZE, SIDE, SIDE), jnp.uint8),
        filled=jnp.int32(0),
        position=jnp.int32(0),
    )


def insert(
    state: AutoencoderState, frames: Float[Array, "batch 52 52"], valid: Bool[Array, " batch"] | None
) -> AutoencoderState:
    """Add frames from 0 to 255 to the pool, where they replace the oldest; of a large rollout, every n-th."""
    every = -(-frames.shape[0] // POOL_SIZE)
    frames = frames[::every]
    valid = jnp.ones(frames.shape[0], bool) if valid is None else valid[::every]
    place = (state.position + jnp.cumsum(valid) - 1) % POOL_SIZE
    pool = state.pool.at[jnp.where(valid, place, POOL_SIZE)].set(jnp.round(frames).astype(jnp.uint8), mode="drop")
    added = jnp.sum(valid)
    return eqx.tree_at(
        lambda s: (s.pool, s.filled, s.position),
        state,
        (pool, jnp.minimum(state.filled + added, POOL_SIZE), (state.position + added) % POOL_SIZE),
    )


def train(
    state: AutoencoderState, optimiser: optax.GradientTransformation, steps: int, key: PRNGKeyArray
) -> tuple[AutoencoderState, Float[Array, ""]]:
    """Gradient steps on frames of the pool; returns the mean loss."""

    def step(now: AutoencoderState, key: PRNGKeyArray) -> tuple[AutoencoderState, Float[Array, ""]]:
        key_sample, key_noise = jax.random.split(key)
        sample = jax.random.randint(key_sample, (BATCH_SIZE,), 0, jnp.maximum(state.filled, 1))
        frames = state.pool[sample].astype(jnp.float32) / 255.0
        (loss, batch), gradient = jax.value_and_grad(Autoencoder.loss, has_aux=True)(now.network, frames, key_noise)
        updates, optimiser_state = optimiser.update(gradient, now.optimiser_state)
        network = optax.apply_updates(now.network, updates)
        statistics = jax.tree.map(lambda mean, new: AVERAGE * mean + (1 - AVERAGE) * new, now.statistics, batch)
        trained = (network, optimiser_state, statistics)
        return eqx.tree_at(lambda s: (s.network, s.optimiser_state, s.statistics), now, trained), loss

    state, losses = jax.lax.scan(step, state, jax.random.split(key, steps))
    return state, jnp.mean(losses)


def renew_codes(state: AutoencoderState, steps: Int[Array, ""], every: int) -> AutoencoderState:
    """After these environment steps, and once in `every` of them, codes are those of the encoder as it is now."""
    age = state.age + steps
    renew = age >= every
    coder = select(renew, Coder(state.network.encoder, state.statistics), state.coder)
    return eqx.tree_at(lambda s: (s.coder, s.age), state, (coder, jnp.where(renew, 0, age)))
