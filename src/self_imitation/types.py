"""The structures that the parts exchange. T steps, N environments of one seed; K seeds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

Params: TypeAlias = Any
"""A pytree of arrays: the parameters of an actor-critic."""

Metrics: TypeAlias = dict[str, Float[Array, ""]]
"""Of one iteration of one seed."""

SeedMetrics: TypeAlias = dict[str, Float[Array, " K"]]
"""The same of K seeds."""

Observation: TypeAlias = PyTree
"""An array, or {"image": ..., "numbers": ...} where an image comes with numbers beside it."""


@runtime_checkable
class Distribution(Protocol):
    """A batch of action distributions."""

    def sample(self, key: PRNGKeyArray) -> Shaped[Array, "batch ..."]:
        """An action of each distribution."""

    def mode(self) -> Shaped[Array, "batch ..."]:
        """The most likely actions."""

    def log_prob(self, action: Shaped[Array, "batch ..."]) -> Float[Array, " batch"]:
        """The logarithm of each action's probability or density."""

    def entropy(self) -> Float[Array, " batch"]:
        """Of each distribution, in nats."""

    def kl(self, other: Any) -> Float[Array, " batch"]:
        """KL divergence to a distribution of the same kind."""


ActorCritic: TypeAlias = Callable[[Params, Observation], tuple[Distribution, Float[Array, " batch"]]]
"""From parameters and a batch of observations to action distributions and values."""


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
    """A vector of real numbers. The policy is unbounded; environments receive its actions clipped to these bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Actions: TypeAlias = Discrete | MultiDiscrete | Continuous


@dataclass(frozen=True)
class Spec:
    """Observations, actions and the time limit of an environment."""

    observation_shape: tuple[int, ...]
    """Of the image, where numbers come beside one."""
    actions: Actions
    """`Discrete`, `MultiDiscrete` or `Continuous`."""
    max_episode_steps: int | None
    """None: no time limit."""
    observation_levels: tuple[int, ...] | None = None
    """Number of values that each entry can take, where observations are small integers from 0; else None."""
    observation_kind: Literal["numbers", "image", "categories"] = "numbers"
    """A vector of float32; an image [height, width, channels] of uint8; or categories, each one of its `levels`."""
    stack: int = 1
    """Frames in an image observation, oldest first, along the channels. Frames before the episode began are 0."""
    numbers_beside_image: int = 0
    """Length of the vector that comes with each image; observations are then {"image": ..., "numbers": ...}."""

    @property
    def observation_dtype(self) -> type:
        return {"numbers": np.float32, "image": np.uint8, "categories": np.int32}[self.observation_kind]

    @property
    def observation(self) -> Observation:
        """Shape and dtype of one observation."""
        main = jax.ShapeDtypeStruct(self.observation_shape, self.observation_dtype)
        if not self.numbers_beside_image:
            return main
        return {"image": main, "numbers": jax.ShapeDtypeStruct((self.numbers_beside_image,), np.float32)}

    @property
    def observation_bytes(self) -> int:
        leaves = jax.tree.leaves(self.observation)
        return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)

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
    """Result of one action in a pure-JAX environment, before any reset."""

    state: Any
    """A pytree of arrays."""
    observation: Shaped[Array, "..."]
    """Of this state."""
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    """Whether the episode ended in the task."""
    truncated: Bool[Array, ""]
    """Whether a time limit ended the episode."""


@runtime_checkable
class Environment(Protocol):
    """A pure-JAX environment: functions of one copy of it; callers `vmap`."""

    @property
    def spec(self) -> Spec:
        """Observations, actions and the time limit."""

    def reset(self, key: PRNGKeyArray) -> Any:
        """The state in which an episode begins."""

    def observe(self, state: Any) -> Shaped[Array, "..."]:
        """What the policy sees of a state."""

    def step(self, state: Any, action: Shaped[Array, "..."]) -> Step:
        """What the action leads to, before any reset."""


@runtime_checkable
class Experience(Protocol):
    """What the replay buffer stores: a `Rollout`, or any other structure with these fields.

    A buffer that stores extras also reads the field `extras`, arrays by name; with `truncated_returns = "continued"`
    also `terminated` [T, N], which ends are not time limits.
    """

    @property
    def observation(self) -> Observation: ...
    @property
    def action(self) -> Shaped[Array, "T N ..."]: ...
    @property
    def reward(self) -> Float[Array, "T N"]: ...
    @property
    def ended(self) -> Bool[Array, "T N"]: ...
    @property
    def valid(self) -> Bool[Array, "T N"] | None: ...


class Rollout(eqx.Module):
    """T consecutive steps in each of N environments; environments reset themselves after an episode ends.

    Components see one seed's; the environments of a group of seeds are collected together, with the seeds first.
    """

    observation: Observation
    """[T, N, ...]: what the policy saw before each step."""
    action: Shaped[Array, "..."]
    """[T, N, ...]: as the policy sampled them, not clipped to bounds."""
    reward: Float[Array, "*seeds T N"]
    """As trained on: delayed or reduced to its sign where the run asks for that; without any bonus."""
    terminated: Bool[Array, "*seeds T N"]
    """Whether the step ended its episode in the task."""
    truncated: Bool[Array, "*seeds T N"]
    """Whether the step ended its episode by a time limit."""
    valid: Bool[Array, "*seeds T N"] | None
    """False for reset steps, in which the environment ignored the action: never used for training. None: all valid."""
    next_observation: Observation | None
    """Observation after each step, before any reset. None: the observation of the following row."""
    last_observation: Observation
    """What the policy sees after the last step."""
    episode_return: Float[Array, "*seeds T N"]
    """Undiscounted sum of the episode's raw rewards up to and including this step."""
    episode_length: Int[Array, "*seeds T N"]
    """Steps of the episode up to and including this one."""
    extras: dict[str, Array]
    """What the learner asked to be recorded while acting, such as log-probabilities."""

    @property
    def ended(self) -> Bool[Array, "*seeds T N"]:
        """Terminated or truncated."""
        return self.terminated | self.truncated


class TrainState(eqx.Module):
    """Parameters and the state of their optimiser."""

    params: Params
    """A pytree of arrays."""
    optimiser_state: Any
    """What the optimiser's `init` returned for these parameters, or its latest `update`."""
