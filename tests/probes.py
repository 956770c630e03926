"""Tiny environments on the device whose values are known exactly, one difficulty at a time.

They implement `Environment`. Where a value is not learnt, the first probe that fails says what is broken: the value
alone, its dependence on the observation, the discount, the choice of actions, or what a time limit means.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from self_imitation.types import Continuous, Discrete, Spec, Step


class ProbeState(eqx.Module):
    observation: Float[Array, " numbers"]
    time: Int[Array, ""]


class Probe:
    """What the probes share: the state is the observation and a clock."""

    spec: Spec

    def reset(self, key: PRNGKeyArray) -> ProbeState:
        return ProbeState(self.first(key), jnp.int32(0))

    def observe(self, state: ProbeState) -> Float[Array, " numbers"]:
        return state.observation

    def first(self, key: PRNGKeyArray) -> Float[Array, " numbers"]:
        return jnp.zeros(self.spec.observation_shape)


def _step(state: ProbeState, observation: Array, reward: object, terminated: object, truncated: object = False) -> Step:
    return Step(
        ProbeState(observation, state.time + 1),
        observation,
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(terminated, bool),
        jnp.asarray(truncated, bool),
    )


class ConstantReward(Probe):
    """One step, reward 1, whatever is done. V = 1."""

    spec = Spec((1,), Discrete(2), 1, (1,))

    def step(self, state: ProbeState, action: Int[Array, ""]) -> Step:
        return _step(state, state.observation, 1.0, terminated=True)


class ObservedReward(Probe):
    """One step; the observation is -1 or 1, each half of the time, and the reward is the same. V(s) = s."""

    spec = Spec((1,), Discrete(2), 1)

    def first(self, key: PRNGKeyArray) -> Float[Array, " numbers"]:
        return jax.random.rademacher(key, (1,), jnp.float32)

    def step(self, state: ProbeState, action: Int[Array, ""]) -> Step:
        return _step(state, state.observation, state.observation[0], terminated=True)


class TwoSteps(Probe):
    """Observation 0, then 1, then the end with the only reward, 1. V(1) = 1 and V(0) = the discount."""

    spec = Spec((1,), Discrete(2), 2, (2,))

    def step(self, state: ProbeState, action: Int[Array, ""]) -> Step:
        last = state.time == 1
        return _step(state, jnp.ones(1), last, terminated=last)


class ChosenReward(Probe):
    """One step; action 1 is paid 1, any other costs 1. V = 2 pi(1) - 1, and 1 for the best policy."""

    spec = Spec((1,), Discrete(2), 1, (1,))

    def step(self, state: ProbeState, action: Int[Array, ""]) -> Step:
        return _step(state, state.observation, jnp.where(action == 1, 1.0, -1.0), terminated=True)


class ChosenNumber(Probe):
    """One step; the action is a number, paid 1 less the square of its distance from 2. The best policy's mean is 2."""

    spec = Spec((1,), Continuous((-10.0,), (10.0,)), 1)

    def step(self, state: ProbeState, action: Float[Array, " 1"]) -> Step:
        return _step(state, state.observation, 1.0 - jnp.square(action[0] - 2.0), terminated=True)


class OnlyTruncates(Probe):
    """Reward 1 at every step; nothing ever ends it but the time limit.

    If the limit is a cut, V = 1 / (1 - discount) everywhere. If it is an end, the value with k steps left is
    1 + discount + ... + discount^(k-1); `clock` shows the time as one-hot numbers, so that this can be told.
    """

    def __init__(self, limit: int, clock: bool = False):
        self.limit, self.clock = limit, clock
        self.spec = Spec((limit + 1 if clock else 1,), Discrete(2), limit)

    def first(self, key: PRNGKeyArray) -> Float[Array, " numbers"]:
        return self._show(jnp.int32(0))

    def step(self, state: ProbeState, action: Int[Array, ""]) -> Step:
        time = state.time + 1
        return _step(state, self._show(time), 1.0, terminated=False, truncated=time >= self.limit)

    def _show(self, time: Int[Array, ""]) -> Float[Array, " numbers"]:
        return jax.nn.one_hot(time, self.limit + 1) if self.clock else jnp.zeros(1)


class RandomStart(Probe):
    """Starts at a random number in [0, 1) and goes up by 1 with each of three steps; no reward. V = 0."""

    spec = Spec((1,), Discrete(2), 3)

    def first(self, key: PRNGKeyArray) -> Float[Array, " numbers"]:
        return jax.random.uniform(key, (1,))

    def step(self, state: ProbeState, action: Int[Array, ""]) -> Step:
        return _step(state, state.observation + 1.0, 0.0, terminated=state.time == 2)


class HiddenDoor(Probe):
    """One step; the reward, 1, is behind one of two doors that look the same, each half of the time. V = 1/2."""

    spec = Spec((1,), Discrete(2), 1, (1,))

    def reset(self, key: PRNGKeyArray) -> ProbeState:
        return ProbeState(jnp.zeros(1), jax.random.bernoulli(key).astype(jnp.int32))

    def step(self, state: ProbeState, action: Int[Array, ""]) -> Step:
        return _step(state, state.observation, action == state.time, terminated=True)
