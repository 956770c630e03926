"""Counts of hashed observations (Tang et al. 2017, "#Exploration"): r_exp = beta / sqrt(n(phi(s'))).

phi(s) = sign(A g(s)) with a fixed Gaussian matrix A: observations in similar directions of g have the same bits and
are counted together. g is the observation itself; of an image, its newest frame, small and grey, or the binary code
that an autoencoder has learnt for it. The bits are a number; each of several tables counts it modulo a prime, and
where two codes collide in one table, the smallest count over the tables keeps them apart.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from self_imitation.algorithm.components import Bonus, Exploration
from self_imitation.algorithm.normalisation import Moments
from self_imitation.algorithm.rollouts import flatten_time, reached_observation
from self_imitation.arrays import masked_mean, select
from self_imitation.errors import bad_value
from self_imitation.exploration import autoencoder
from self_imitation.exploration.autoencoder import CODE_UNITS, SIDE, AutoencoderState
from self_imitation.exploration.counts import count_bonus, count_visits
from self_imitation.exploration.frames import downsample, newest_grey_frame
from self_imitation.networks.actor_critic import encode, encoded_width
from self_imitation.settings import one_of, or_none, real, setting, whole
from self_imitation.types import Metrics, Observation, Rollout, Spec

PRIMES = np.array([199_999, 199_967, 199_961, 199_933, 199_931, 199_909])
"""Sizes of the tables: 4.8 MB in all. The authors' code has six of a million entries. Powers of 2 take at least a
quarter of all values modulo each of them."""
ROUNDING = 1e-5
"""Numbers whose standard deviation is below this fraction of their size count as constant."""


@dataclass(frozen=True)
class SimHashConfig:
    """Counts of hashed observations. Defaults: SimHash paper, appendix, where it gives a value."""

    scale: float = setting(0.01, real(0))
    """beta, the bonus for the first visit to a code (authors' code: 0.01)."""
    bits: int | None = setting(None, or_none(whole(1, 1024)))
    """k, bits of the hash: more bits tell more observations apart. None: 32, or 256 for images (paper)."""
    hash: Literal["static", "learned"] = setting("static", one_of("static", "learned"))
    """static: of the observation itself; learned: of the code of an autoencoder that is trained on what was visited,
    for images."""
    normalise_steps: int = setting(10_000, whole(0))
    """Environment steps whose mean and standard deviation normalise vectors of numbers; later steps don't change them,
    so that codes stay the same. 0: numbers as they are (paper). Then the largest numbers decide all bits, and states in
    the same direction from the origin are one: a random policy in MountainCar sees 5 codes instead of hundreds."""
    renew_steps: int = setting(25_000, whole(1, 10**9))
    """Environment steps after which learned codes become those of the autoencoder as it is then. What was visited
    before keeps its counts, under its old codes (authors' code: every 5 iterations of 5000 steps)."""
    learning_rate: float = setting(3e-4, real(0, above=True))
    """Adam's learning rate for the autoencoder (authors' code: 3e-4)."""


class SimHashState(eqx.Module):
    projection: Float[Array, "features bits"]
    """A, transposed."""
    counts: Int[Array, " entries"]
    """The tables, one after the other."""
    observation: Moments | None
    """Of the first observations, where numbers are normalised."""
    autoencoder: AutoencoderState | None
    """Of the learned hash."""


class SimHash(Bonus):
    Config = SimHashConfig

    def __init__(self, config: SimHashConfig, spec: Spec):
        image = spec.observation_kind == "image"
        if config.hash == "learned" and not (image and min(spec.observation_shape[:2]) >= SIDE):
            raise bad_value("simhash.hash", "learned", f"it is for images of at least {SIDE} x {SIDE} pixels")
        super().__init__(config, spec)
        self.image = image
        self.bits = (256 if image else 32) if config.bits is None else config.bits
        self.normalises = spec.observation_kind == "numbers" and config.normalise_steps > 0
        self.optimiser = optax.adam(config.learning_rate)

    def init(self, key: PRNGKeyArray, num_envs: int) -> SimHashState:
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
        learned = autoencoder.create(generator, self.optimiser) if self.config.hash == "learned" else None
        moments = Moments.create((encoded_width(self.spec),)) if self.normalises else None
        projection = generator.standard_normal((self._features(), self.bits), np.float32)
        return SimHashState(jnp.asarray(projection), jnp.zeros(PRIMES.sum(), jnp.int32), moments, learned)

    def _features(self) -> int:
        """Length of g(s)."""
        if self.config.hash == "learned":
            return CODE_UNITS
        if self.image:
            height, width = (min(side, SIDE) for side in self.spec.observation_shape[:2])
            return height * width
        return encoded_width(self.spec) + self.normalises

    def update(
        self, state: SimHashState, rollout: Rollout, key: PRNGKeyArray
    ) -> tuple[SimHashState, Exploration, Metrics]:
        reached, valid = flatten_time(reached_observation(rollout)), flatten_time(rollout.valid)
        state = self._with_first_moments(state, reached, valid)
        index = table_index(self.code(state, reached)).reshape(*rollout.reward.shape, len(PRIMES))
        counts, visits = count_visits(state.counts, index, rollout.valid)
        bonus = count_bonus(self.config.scale, visits, rollout.valid)
        metrics = {"simhash_bonus": masked_mean(bonus, rollout.valid)}
        learned = state.autoencoder
        if learned is not None:
            learned = autoencoder.insert(learned, self._frames(reached), valid)
            steps = -(-rollout.reward.size // autoencoder.TRAIN_EVERY)
            learned, metrics["simhash_loss"] = autoencoder.train(learned, self.optimiser, steps, key)
            visited = jnp.int32(rollout.reward.size) if valid is None else jnp.sum(valid)
            learned = autoencoder.renew_codes(learned, visited, self.config.renew_steps)
        return SimHashState(state.projection, counts, state.observation, learned), Exploration(reward=bonus), metrics

    def code(self, state: SimHashState, observation: Observation) -> Bool[Array, "batch bits"]:
        """phi(s): whether each entry of A g(s) is positive."""
        features = self._preprocessed(state, observation)
        return jnp.matmul(features, state.projection, precision=jax.lax.Precision.HIGHEST) > 0

    def _preprocessed(self, state: SimHashState, observation: Observation) -> Float[Array, "batch features"]:
        """g(s)"""
        if self.image:
            frames = self._frames(observation) / 255.0
            if state.autoencoder is not None:
                return jnp.round(state.autoencoder.coder(frames))
            return frames.reshape(frames.shape[0], -1)
        encoded = encode(self.spec, observation)
        if state.observation is None:
            return encoded
        return with_offset(standardise(state.observation, encoded))

    def _frames(self, observation: Observation) -> Float[Array, "batch height width"]:
        return downsample(newest_grey_frame(observation, self.spec), SIDE)

    def _with_first_moments(
        self, state: SimHashState, reached: Observation, valid: Bool[Array, " batch"] | None
    ) -> SimHashState:
        if state.observation is None:
            return state
        updated = state.observation.update(encode(self.spec, reached), valid)
        first = select(state.observation.count < self.config.normalise_steps, updated, state.observation)
        return SimHashState(state.projection, state.counts, first, state.autoencoder)


def standardise(moments: Moments, x: Float[Array, "batch numbers"]) -> Float[Array, "batch numbers"]:
    """Numbers in standard deviations from their mean, on a logarithmic scale far from it: none decides all bits.

    A number that was constant, such as a flag that is rarely set, is only centred.
    """
    constant = moments.variance <= ROUNDING**2 * (1 + jnp.square(moments.mean))
    deviation = jnp.where(constant, 1.0, jnp.sqrt(moments.variance))
    return jnp.arcsinh((x - moments.mean) / deviation)


def with_offset(x: Float[Array, "batch numbers"]) -> Float[Array, "batch more"]:
    """Append a constant, so that the planes between codes lie at random distances from the mean."""
    return jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=-1)


def table_index(code: Bool[Array, "batch bits"]) -> Int[Array, "batch tables"]:
    """Each code's entry in each table: the number that its bits make, modulo the table's prime."""
    bits = code.shape[-1]
    powers = np.array([[pow(2, i, int(prime)) for prime in PRIMES] for i in range(bits)], np.int32)
    start = np.cumsum(PRIMES) - PRIMES
    return (code.astype(jnp.int32) @ powers) % PRIMES.astype(np.int32) + start.astype(np.int32)
