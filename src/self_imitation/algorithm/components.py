"""The forms that learners and exploration bonuses take, and the agent that is made of them.

A component is a class with a `Config` dataclass of its settings. Its state is a pytree that lives in the training
state under the component's name: it is saved, restored and `vmap`ped over seeds with everything else, and its metrics
become columns of metrics.csv.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import optax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from self_imitation.algorithm.normalisation import Normaliser
from self_imitation.replay.buffer import Batch, ReplayBuffer
from self_imitation.settings import ReplayConfig, SelfImitationConfig
from self_imitation.types import ActorCritic, Distribution, Metrics, Params, Rollout, Spec, TrainState


class Exploration(eqx.Module):
    """What a bonus adds to on-policy learning. It never reaches self-imitation. None: nothing."""

    reward: Float[Array, "T N"] | None = None
    """Added to the rewards."""
    advantage: Float[Array, "T N"] | None = None
    """Added to the advantages of the policy loss, for a bonus with a value function of its own."""

    def total_reward(self, rollout: Rollout) -> Float[Array, "T N"]:
        """The rollout's rewards with the bonus."""
        return rollout.reward if self.reward is None else rollout.reward + self.reward

    def __add__(self, other: "Exploration") -> "Exploration":
        return Exploration(_sum(self.reward, other.reward), _sum(self.advantage, other.advantage))


def _sum(a: Array | None, b: Array | None) -> Array | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


class Learner(ABC):
    """A way to learn from on-policy experience: A2C, PPO ..."""

    Config: ClassVar[type]
    """Dataclass of the learner's settings; it has a field `gamma`, the discount."""
    defaults: ClassVar[Mapping[str, object]] = {}
    """Settings of a run that this learner changes, by dotted names."""
    preset_defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    """The same, by preset."""
    tolerates_lag: ClassVar[bool] = False
    """Whether it may learn from rollouts that an older policy collected."""
    action_values: ClassVar[bool] = False
    """Whether it needs a network with action values: `distribution.action_values`, as `CategoricalWithValues` has."""
    refuses_bonuses: ClassVar[str] = ""
    """Why it can't be combined with an exploration bonus; empty if it can."""
    replay_extras: ClassVar[tuple[str, ...]] = ()
    """What its replay buffer stores beside observations, actions and returns (see `replay.buffer.create`)."""

    def __init__(self, config: Any, bootstrap_time_limits: bool):
        self.config = config
        self.bootstrap_time_limits = bootstrap_time_limits

    @classmethod
    def check(cls, config: Any, num_envs: int, num_steps: int) -> None:
        """Raise a `UsageError` if the settings do not fit the size of a rollout."""
        return

    def check_spec(self, spec: Spec) -> None:
        """Raise a `UsageError` if it can't learn in such environments."""
        return

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per update, for learning rate schedules."""
        return 1

    @property
    def replay(self) -> ReplayConfig | None:
        """Settings of a replay buffer of its own, from which `update_off_policy` learns. None: it has none."""
        return None

    def init(self, key: PRNGKeyArray, spec: Spec, params: Params) -> Any:
        """The learner's own state; None if it has none."""
        return None

    def extras(
        self, distribution: Distribution, action: Shaped[Array, "N ..."], value: Float[Array, " N"]
    ) -> dict[str, Array]:
        """What to record at each step, in addition to the fields of `Rollout`."""
        return {}

    @abstractmethod
    def update(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        state: Any,
        train_state: TrainState,
        rollout: Rollout,
        exploration: Exploration,
        key: PRNGKeyArray,
    ) -> tuple[Any, TrainState, Metrics]:
        """Learn from one rollout.

        Args:
            actor_critic: from parameters and observations [batch, ...] to distributions and values [batch].
            optimiser: to which the state in `train_state` belongs.
            state: what `init` or the latest update returned.
            train_state: parameters and the state of their optimiser.
            rollout: T steps in each of N environments. Observations and rewards are normalised where the run
                normalises them. Steps that are not `valid` must not be learnt from.
            exploration: what bonuses add to rewards and advantages.
            key: for random numbers.

        Returns:
            The learner's new state, the new train state, and metrics, which become columns of metrics.csv.
        """

    def to_replay(self, rollout: Rollout) -> Rollout:
        """The raw rollout with what its replay buffer stores in its extras."""
        return rollout

    def update_off_policy(
        self,
        actor_critic: ActorCritic,
        optimiser: optax.GradientTransformation,
        state: Any,
        train_state: TrainState,
        buffer: ReplayBuffer,
        key: PRNGKeyArray,
        normalise: Callable[[Batch], Batch],
    ) -> tuple[Any, TrainState, ReplayBuffer, Metrics]:
        """Learn from the replay buffer, after `update`. The buffer is raw: `normalise` what is sampled."""
        raise NotImplementedError


class Bonus(ABC):
    """A reward for novelty."""

    Config: ClassVar[type]
    """Dataclass of the bonus's settings."""
    memory_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that its memory depends on, where it needs much."""

    def __init__(self, config: Any, spec: Spec):
        """Raises a `UsageError` if it can't be used with such observations."""
        self.config, self.spec = config, spec

    @abstractmethod
    def init(self, key: PRNGKeyArray, num_envs: int) -> Any:
        """The bonus's own state, a pytree of arrays."""

    @abstractmethod
    def update(self, state: Any, rollout: Rollout, key: PRNGKeyArray) -> tuple[Any, Exploration, Metrics]:
        """Take a rollout into account, then reward it.

        Args:
            state: what `init` or the latest update returned.
            rollout: T steps in each of N environments, not normalised. Steps that are not `valid` don't count.
            key: for random numbers.

        Returns:
            The bonus's new state, what it adds to on-policy learning, and metrics, which become columns of metrics.csv.
        """


@dataclass(frozen=True)
class Agent:
    """What an agent is made of. The parts know nothing of each other."""

    spec: Spec
    actor_critic: ActorCritic
    optimiser: optax.GradientTransformation
    imitation_optimiser: optax.GradientTransformation | None
    """Self-imitation's own; None: it shares the other one."""
    value_optimiser: optax.GradientTransformation | None
    """Of self-imitation's own value, which is the value output of a second network; None: R is compared with V."""
    num_envs: int
    num_steps: int
    iterations: int
    """Of the whole run, for schedules."""
    learner_name: str
    learner: Learner
    bonuses: Mapping[str, Bonus]
    self_imitation: SelfImitationConfig | None
    normaliser: Normaliser | None
    recorded_extras: tuple[str, ...] = ()
    """What self-imitation's replay buffer stores in addition, only to be looked at."""
