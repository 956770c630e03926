"""Pseudo-counts from a PixelCNN density model (Ostrovski et al. 2017): r_exp = beta / sqrt(N(s')).

The model gives each frame a density rho. A gradient step on the frame raises it to rho'; by how much (the prediction
gain) says how new the frame is: N = 1 / (exp(c n^(-1/2) (log rho' - log rho)+) - 1) after n frames.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from self_imitation.algorithm.components import Bonus, Exploration
from self_imitation.arrays import masked_mean, select
from self_imitation.exploration.counts import MAX_COUNT
from self_imitation.exploration.frames import frames_reached, require_images
from self_imitation.networks.actor_critic import Linear
from self_imitation.settings import real, setting
from self_imitation.types import Metrics, Rollout, Spec

# The network and its inputs (PixelCNN pseudo-count paper, appendix).
SIDE = 42
LEVELS = 8
REACH = 3
"""Pixels that the 7 x 7 masked convolution reaches in each direction."""
PLANES = 16
BLOCKS = 2
HIDDEN = 64

EARLIER = [(i, j) for i in range(REACH + 1) for j in range(2 * REACH + 1) if i < REACH or j < REACH]
"""Rows and columns, within 7 x 7 pixels, of those before the one in the middle."""

# Deviation: smaller pseudo-counts are rewarded as this one. In the first steps, a frame gains hundreds of nats and N is
# below 1e-10.
MIN_COUNT = 1.0


@dataclass(frozen=True)
class PixelCNNConfig:
    """Pseudo-counts from a PixelCNN density model. Defaults: PixelCNN pseudo-count paper."""

    scale: float = setting(1.0, real(0))
    """beta, the largest bonus."""
    gain_coef: float = setting(0.1, real(0, above=True))
    """c, coefficient of the prediction gain (paper: 0.1)."""
    learning_rate: float = setting(1e-3, real(0, above=True))
    """RMSProp's learning rate (decay, momentum and epsilon: paper, appendix)."""


class GatedBlock(eqx.Module):
    """x + W (tanh(a) * sigmoid(b)), where a and b are linear in x."""

    gates: Linear
    output: Linear

    def __init__(self, generator: np.random.Generator):
        self.gates = Linear(PLANES, 2 * PLANES, 1.0, generator)
        self.output = Linear(PLANES, PLANES, 1.0, generator)

    def __call__(self, x: Float[Array, "pixels planes"]) -> Float[Array, "pixels planes"]:
        value, gate = jnp.split(self.gates(x), 2, axis=-1)
        return x + self.output(jnp.tanh(value) * jax.nn.sigmoid(gate))


class PixelCNN(eqx.Module):
    """A 7 x 7 masked convolution, two gated residual blocks of 1 x 1 convolutions, and two more of these.

    Only the first layer sees other pixels than its own: those above, and those to the left in the same row.
    """

    first: Linear
    """The weights of the masked convolution that are not masked."""
    blocks: tuple[GatedBlock, ...]
    hidden: Linear
    logits: Linear

    def __init__(self, generator: np.random.Generator, levels: int = LEVELS):
        self.first = Linear(len(EARLIER), PLANES, 1.0, generator)
        self.blocks = tuple(GatedBlock(generator) for _ in range(BLOCKS))
        self.hidden = Linear(PLANES, HIDDEN, 2.0**0.5, generator)
        self.logits = Linear(HIDDEN, levels, 0.01, generator)

    def log_probs(self, frames: Int[Array, "batch height width"]) -> Float[Array, "batch height width levels"]:
        """Log-probabilities of each pixel's levels, given the pixels before it."""
        levels = self.logits.bias.shape[-1]
        x = self.first(earlier_pixels(2 * frames / (levels - 1) - 1).reshape(-1, len(EARLIER)))
        for block in self.blocks:
            x = block(x)
        logits = self.logits(jax.nn.relu(self.hidden(jax.nn.relu(x))))
        return jax.nn.log_softmax(logits).reshape(*frames.shape, levels)

    def log_density(self, frames: Int[Array, "batch height width"]) -> Float[Array, "batch height width"]:
        """Log rho by pixel: that of a frame is the sum of its pixels."""
        return jnp.take_along_axis(self.log_probs(frames), frames[..., None], axis=-1)[..., 0]


def earlier_pixels(x: Float[Array, "batch height width"]) -> Float[Array, "batch height width earlier"]:
    """The pixels that may be known when each pixel is predicted; 0 outside of the frame."""
    height, width = x.shape[1:]
    x = jnp.pad(x, ((0, 0), (REACH, 0), (REACH, REACH)))
    return jnp.stack([x[:, i : i + height, j : j + width] for i, j in EARLIER], axis=-1)


class PixelCNNState(eqx.Module):
    model: PixelCNN
    optimiser_state: optax.OptState
    frames: Int[Array, ""]
    """n, the frames seen so far."""


class PixelCNNBonus(Bonus):
    Config = PixelCNNConfig

    def __init__(self, config: PixelCNNConfig, spec: Spec):
        require_images(spec, "pixelcnn")
        super().__init__(config, spec)
        self.optimiser = optax.rmsprop(config.learning_rate, decay=0.95, eps=1e-4, momentum=0.9)

    def init(self, key: PRNGKeyArray, num_envs: int) -> PixelCNNState:
        model = PixelCNN(np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist()))
        return PixelCNNState(model, self.optimiser.init(model), jnp.int32(0))

    def update(
        self, state: PixelCNNState, rollout: Rollout, key: PRNGKeyArray
    ) -> tuple[PixelCNNState, Exploration, Metrics]:
        frames = frames_reached(self.spec, rollout, SIDE, LEVELS).astype(jnp.int32)
        frames = frames.reshape(*rollout.reward.shape, *frames.shape[1:])
        valid = jnp.ones_like(rollout.terminated) if rollout.valid is None else rollout.valid

        def step(state: PixelCNNState, now: tuple) -> tuple[PixelCNNState, tuple]:
            frames, valid = now
            after, log_density, gain = self.train(state, frames, valid)
            bonus = self.config.scale / jnp.sqrt(jnp.maximum(self.pseudo_count(gain, after.frames), MIN_COUNT))
            return after, (jnp.where(valid, bonus, 0.0), log_density, gain)

        state, (bonus, log_density, gain) = jax.lax.scan(step, state, (frames, valid))
        metrics = {
            "pixelcnn_bonus": masked_mean(bonus, valid),
            "pixelcnn_log_density": masked_mean(log_density, valid),
            "pixelcnn_gain": masked_mean(gain, valid),
        }
        return state, Exploration(reward=bonus), metrics

    def train(
        self, state: PixelCNNState, frames: Int[Array, "N height width"], valid: Bool[Array, " N"]
    ) -> tuple[PixelCNNState, Float[Array, " N"], Float[Array, " N"]]:
        """One gradient step; returns each frame's log density before it, and how much the step raised it.

        Deviation: one step on the frames of all environments together; the paper makes one step per frame, for which
        all but one environment would wait.
        """

        def loss(model: PixelCNN) -> tuple[Float[Array, ""], Float[Array, "N height width"]]:
            log_density = model.log_density(frames)
            return -masked_mean(jnp.mean(log_density, axis=(1, 2)), valid), log_density

        gradient, before = jax.grad(loss, has_aux=True)(state.model)
        updates, optimiser_state = self.optimiser.update(gradient, state.optimiser_state)
        model = optax.apply_updates(state.model, updates)
        gain = jnp.sum(model.log_density(frames) - before, axis=(1, 2))  # by pixel: the sums are large and nearly equal
        seen = jnp.minimum(state.frames + jnp.sum(valid), MAX_COUNT)
        after = select(jnp.any(valid), PixelCNNState(model, optimiser_state, seen), state)
        return after, jnp.sum(before, axis=(1, 2)), gain

    def pseudo_count(self, gain: Float[Array, " N"], frames: Int[Array, ""]) -> Float[Array, " N"]:
        """N = 1 / (exp(c n^(-1/2) (gain)+) - 1); infinite without a gain."""
        shrunk = (
            self.config.gain_coef * jax.lax.rsqrt(jnp.maximum(frames, 1).astype(jnp.float32)) * jnp.maximum(gain, 0.0)
        )
        return 1.0 / jnp.expm1(shrunk)
