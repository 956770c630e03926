"""The structures that the parts hand to each other: shapes written once. T steps, N environments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

Params: TypeAlias = Any
"""A pytree of arrays: whatever the actor-critic is a function of."""

Metrics: TypeAlias = dict[str, Float[Array, ""]]


@runtime_checkable
class Distribution(Protocol):
    """A batch of action distributions."""

    def sample(self, key: PRNGKeyArray) -> Shaped[Array, "batch ..."]: ...
    def mode(self) -> Shaped[Array, "batch ..."]: ...
    def log_prob(self, action: Shaped[Array, "batch ..."]) -> Float[Array, " batch"]: ...
    def entropy(self) -> Float[Array, " batch"]: ...


ActorCritic: TypeAlias = Callable[[Params, Shaped[Array, "batch ..."]], tuple[Distribution, Float[Array, " batch"]]]
"""From parameters and a batch of observations to the policy's distribution and the values."""


@dataclass(frozen=True)
class Discrete:
    """One of `count` actions."""

    count: int


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, the i-th one of `counts[i]`."""

    counts: tuple[int, ...]


@dataclass(frozen=True)
class Continuous:
    """A vector of real numbers. The policy's are not bounded; the environment gets them clipped to these bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Actions: TypeAlias = Discrete | MultiDiscrete | Continuous


@dataclass(frozen=True)
class Spec:
    """What an environment looks like from outside."""

    observation_shape: tuple[int, ...]
    actions: Actions
    max_episode_steps: int | None
    """None: nothing but the environment itself ends an episode."""
    observation_levels: tuple[int, ...] | None = None
    """Where observations are small whole numbers from 0: how many values each can take. Else they can't be counted."""
    observation_kind: Literal["numbers", "image", "categories"] = "numbers"
    """A vector of numbers; an image [height, width, channels] of uint8; or categories, each one of its `levels`."""
    stack: int = 1
    """Of an image: how many frames its channels are, the latest of the episode, the newest last. Before an episode's
    first frame all is 0."""

    @property
    def observation_dtype(self) -> type:
        return {"numbers": np.float32, "image": np.uint8, "categories": np.int32}[self.observation_kind]

    @property
    def action_shape(self) -> tuple[int, ...]:
        match self.actions:
            case Discrete():
                return ()
            case MultiDiscrete(counts):
                return (len(counts),)
            case Continuous(low):
                return (len(low),)

    @property
    def action_dtype(self) -> type:
        return np.float32 if isinstance(self.actions, Continuous) else np.int32


class Step(eqx.Module):
    """What one action led to, before any reset."""

    state: Any
    observation: Shaped[Array, "..."]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


@runtime_checkable
class Environment(Protocol):
    """An environment on the device: pure functions, for one copy of it; callers `vmap`."""

    @property
    def spec(self) -> Spec: ...
    def reset(self, key: PRNGKeyArray) -> Any: ...
    def observe(self, state: Any) -> Shaped[Array, "..."]: ...
    def step(self, state: Any, action: Int[Array, ""]) -> Step: ...


@runtime_checkable
class Experience(Protocol):
    """What the memory takes in: a `Rollout`, or any other structure with these four."""

    @property
    def observation(self) -> Shaped[Array, "T N ..."]: ...
    @property
    def action(self) -> Shaped[Array, "T N ..."]: ...
    @property
    def reward(self) -> Float[Array, "T N"]: ...
    @property
    def ended(self) -> Bool[Array, "T N"]: ...


class Rollout(eqx.Module):
    """T consecutive steps in each of N environments; an environment that ended starts anew at the next step."""

    observation: Shaped[Array, "T N ..."]
    action: Shaped[Array, "T N ..."]
    reward: Float[Array, "T N"]
    """The environment's own, raw."""
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    successor: Shaped[Array, "T N ..."]
    """The state that each step led to, before any reset."""
    last_observation: Shaped[Array, "N ..."]
    """What the policy sees after the last step, after any reset."""
    episode_return: Float[Array, "T N"]
    """Undiscounted sum of the episode's rewards up to and with this step."""
    episode_length: Int[Array, "T N"]

    @property
    def ended(self) -> Bool[Array, "T N"]:
        return self.terminated | self.truncated


class Learner(eqx.Module):
    """What gradient steps change."""

    params: Params
    optimiser_state: Any
