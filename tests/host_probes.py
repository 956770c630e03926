"""Tiny Gymnasium environments whose every observation, reward and end is known beforehand.

As a module that Gymnasium imports by itself: `gym:host_probes:Counter-v0`. Where an environment fails, it does so at a
known step, or not at all while the variable PROBES_ARE_SOUND is set.
"""

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SOUND = "PROBES_ARE_SOUND"


def as_flags(settings: dict[str, Any]) -> list[str]:
    """Settings by their dotted names, as words of a command line."""
    return [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else [value]))
    ]


class Probe(gymnasium.Env):
    """What the probes share: the seed, the number of the episode and the step in it."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it so)
    observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode
        self.seed, self.episode, self.time, self.life = 0, -1, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.time = 0
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is no action")
        self.time += 1
        self.life += 1
        return self.show(), self.reward(action), *self.ends(), {}

    def show(self) -> Any:
        return np.array([self.seed, self.episode, self.time], float)

    def reward(self, action: Any) -> Any:
        return float(self.time)

    def ends(self) -> tuple[Any, Any]:
        return False, False


class Counter(Probe):
    """Observation [seed, episode, step]; the reward is 100 x episode + step.

    Episode e of the copy with seed s takes 2 + (s + e) % 3 steps; its end is a termination, a truncation and both at
    once, in turn.
    """

    def reward(self, action: Any) -> float:
        return 100.0 * self.episode + self.time

    def ends(self) -> tuple[bool, bool]:
        over = self.time == 2 + (self.seed + self.episode) % 3
        return over and self.episode % 3 != 1, over and self.episode % 3 != 0


class Endless(Probe):
    """Nothing but a `TimeLimit` ends it. Reward 1, -2, 3, -4 ..."""

    def reward(self, action: Any) -> float:
        return float(self.time if self.time % 2 else -self.time)


class ThreeSteps(Probe):
    """Terminates at step 3."""

    def ends(self) -> tuple[bool, bool]:
        return self.time == 3, False


class Chain(Probe):
    """Right (1) pays 1, left (0) nothing; five steps. Short episodes for those who start with left: one step."""

    observation_space = spaces.Box(-1, 5, (1,), np.float64)

    def show(self) -> np.ndarray:
        return np.array([self.time], float)

    def reward(self, action: Any) -> float:
        return float(action)

    def ends(self) -> tuple[bool, bool]:
        return self.time == 5 or (self.time == 1 and self.went_left), False

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.went_left = action == 0
        return super().step(action)


ACTIONS: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(3, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 5], [-1, 0]]),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "Box": spaces.Box(
        np.array([[-1, -2, 0], [-0.5, 10, -np.inf]]), np.array([[1, 2, 3], [0.5, 11, np.inf]]), dtype=np.float64
    ),
}


class Echo(Probe):
    """Observation: the seed, the step and the last action, number by number. Four steps."""

    def __init__(self, actions: str, render_mode: str | None = None):
        super().__init__(render_mode)
        self.action_space = ACTIONS[actions]
        size = int(np.prod(self.action_space.shape or ()))
        self.observation_space = spaces.Box(-np.inf, np.inf, (2 + size,), np.float64)
        self.action = np.zeros(size)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.action = np.asarray(action, float).reshape(-1)
        return super().step(action)

    def show(self) -> np.ndarray:
        return np.array([self.seed, self.time, *self.action])

    def ends(self) -> tuple[bool, bool]:
        return self.time == 4, False


SIGHTS: dict[str, spaces.Space[Any]] = {
    "Double": spaces.Box(-5, 5, (2, 3), np.float64),
    "Single": spaces.Box(-5, 5, (4,), np.float32),
    "Scalar": spaces.Box(-5, 5, (), np.float32),
    "Whole": spaces.Box(np.array([0, 0]), np.array([3, 6]), dtype=np.int64),
    "Negative": spaces.Box(-3, 3, (2,), np.int32),
    "Discrete": spaces.Discrete(5, start=3),
    "MultiDiscrete": spaces.MultiDiscrete([[3, 2], [2, 4]], start=[[1, 0], [-2, 7]]),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "HWC": spaces.Box(0, 255, (40, 37, 3), np.uint8),
    "CHW": spaces.Box(0, 255, (4, 36, 38), np.uint8),
    "HW": spaces.Box(0, 255, (36, 40), np.uint8),
    "Bytes": spaces.Box(0, 255, (4, 5), np.uint8),
}


class Sights(Probe):
    """At each step of each copy another member of the space, see `sight`. Three steps."""

    def __init__(self, sights: str, render_mode: str | None = None):
        super().__init__(render_mode)
        self.sights = sights
        self.observation_space = SIGHTS[sights]

    def show(self) -> Any:
        return sight(self.sights, self.seed, self.episode, self.time)

    def ends(self) -> tuple[bool, bool]:
        return self.time == 3, False


def sight(name: str, seed: int, episode: int, time: int) -> Any:
    """What is seen at that moment: any member of the space, but always the same one."""
    generator = np.random.default_rng([seed, episode, time])
    space = SIGHTS[name]
    match space:
        case spaces.Discrete():
            return space.start + generator.integers(space.n)
        case spaces.MultiDiscrete():
            return (space.start + generator.integers(space.nvec)).astype(space.dtype)
        case spaces.MultiBinary():
            return generator.integers(2, size=space.shape).astype(space.dtype)
        case spaces.Box() if np.issubdtype(space.dtype, np.integer):
            return generator.integers(space.low, space.high, endpoint=True, dtype=space.dtype)
        case _:
            return generator.uniform(-5, 5, space.shape).astype(space.dtype)


UNSUPPORTED: dict[str, dict[str, spaces.Space[Any]]] = {
    "DictObservation": {"observation_space": spaces.Dict(a=spaces.Discrete(2))},
    "TupleObservation": {"observation_space": spaces.Tuple([spaces.Discrete(2)])},
    "TextObservation": {"observation_space": spaces.Text(5)},
    "NoObservation": {"observation_space": spaces.Box(0, 1, (0,))},
    "WholeActions": {"action_space": spaces.Box(0, 5, (2,), np.int64)},
    "DictActions": {"action_space": spaces.Dict(a=spaces.Discrete(2))},
    "NoActions": {"action_space": spaces.Box(0, 1, (0,))},
}


class Unsupported(Probe):
    """With spaces that no agent here can take."""

    def __init__(self, spaces_of: str, render_mode: str | None = None):
        super().__init__(render_mode)
        for kind, space in UNSUPPORTED[spaces_of].items():
            setattr(self, kind, space)


class Elsewhere(Probe):
    """Shows what is not in its space."""

    observation_space = spaces.Discrete(5)

    def show(self) -> Any:
        return 99


class Chatty(Counter):
    """Tells something else at each step, and something of another kind."""

    def step(self, action: Any) -> Any:
        *answer, _ = super().step(action)
        return *answer, [{"path": np.arange(self.time)}, {"path": "far"}, {"path": None}, None][self.life % 4]


class Sleeper(Counter):
    """Falls asleep at its third step."""

    def step(self, action: Any) -> Any:
        if self.life == 2:
            time.sleep(600)
        return super().step(action)


FAULT_STEP = 8
"""The step of a copy's life at which it fails. Episodes take 3 steps: it is the second step of the third one."""


class Faulty(Counter):
    """Sound until the eighth step of its life, or where its fault says so."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, fault: str, render_mode: str | None = None):
        super().__init__(render_mode)
        self.fault = None if os.environ.get(SOUND) else fault
        if self.fault == "RaisesWhenMade":
            raise RuntimeError("no licence found\nask your administrator")
        if self.fault == "LacksPackage":
            raise gymnasium.error.DependencyNotInstalled("a package is missing: pip install it")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer = super().reset(seed=seed)
        if self.fault == "RaisesAtReset":
            raise ConnectionError("the game server is away")
        if self.fault == "RaisesAtThirdReset" and self.episode == 2:
            raise ConnectionError("the game server is away")
        if self.fault == "NotFiniteAtReset":
            return np.array([0, np.inf, 0], np.float32), {}
        if self.fault == "WrongShapeAtReset":
            return answer[0][:2], {}
        if self.fault == "ResetGivesNoTuple":
            return answer[0]  # type: ignore[return-value]
        return answer

    def show(self) -> np.ndarray:
        return super().show().astype(np.float32)

    def ends(self) -> tuple[bool, bool]:
        return self.time == 3, False

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.fault == "NotANumberAtItsEnd" and terminated:
            observation[1] = np.nan
        if self.life != FAULT_STEP:
            return observation, reward, terminated, truncated, info
        match self.fault:
            case "Raises":
                raise ZeroDivisionError("the ball left the field")
            case "Dies":
                os._exit(1)
            case "RaisesInOne" if self.seed == 22:
                raise ZeroDivisionError("the ball left the field")
            case "NotANumber":
                observation[1] = np.nan
            case "InfiniteReward":
                reward = np.inf
            case "WrongShape":
                observation = observation[:2]
            case "WrongType":
                observation = observation.astype(complex)
            case "NoReward":
                reward = None
            case "RewardOfTwo":
                reward = np.ones(2)
            case "TerminatedIsOne":
                terminated = 1
            case "TruncatedIsNone":
                truncated = None
            case "FourAnswers":
                return observation, reward, terminated, info
            case "LeavesPython":
                raise SystemExit(3)
            case "RaisesTwoLines":
                raise RuntimeError("no more lives\nsee the manual")
            case "HugeReward":
                reward = 1e300
            case "Words":
                observation = "hello"
        return observation, reward, terminated, truncated, info


FAULTS_WHILE_TRAINING = {
    "Raises": "it raised ZeroDivisionError: the ball left the field",
    "NotANumber": "its observation had nan at place [1]",
    "InfiniteReward": "its reward was inf",
    "WrongShape": "its observation has shape (2,), not (3,)",
    "WrongType": "its observation has type complex128, not float32",
    "NoReward": "its reward was None, not a number",
    "RewardOfTwo": "its reward was array([1., 1.]), not a number",
    "TerminatedIsOne": "its terminated was 1, not True or False",
    "TruncatedIsNone": "its truncated was None, not True or False",
    "FourAnswers": "its step gave (array(",
    "LeavesPython": "it raised SystemExit: 3",
    "RaisesTwoLines": "it raised RuntimeError: no more lives, at",
    "HugeReward": "its reward was 1e+300",
    "Words": "its observation was 'hello', not an array of numbers",
}
FAULTS_AT_RESET = {
    "RaisesAtReset": "it raised ConnectionError: the game server is away",
    "NotFiniteAtReset": "its observation had a number that is not finite",
    "WrongShapeAtReset": "its observation has shape (2,), not (3,)",
    "ResetGivesNoTuple": "its reset gave array(",
}
OTHER_FAULTS = ("RaisesAtThirdReset", "RaisesInOne", "NotANumberAtItsEnd", "Dies")
"""`RaisesInOne`: in the copy with seed 22 alone. `NotANumberAtItsEnd`: in the last state of every episode. `Dies`: its
process ends there and then."""
FAULTS_WHEN_MADE = {
    "RaisesWhenMade": "can't be made; it raised RuntimeError: no licence found",
    "LacksPackage": "needs a package that is not installed: a package is missing: pip install it",
}


class Drawn(Probe):
    """Two steps; its picture of 30 x 41 pixels, an odd width, becomes lighter with each."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def ends(self) -> tuple[bool, bool]:
        return self.time == 2, False

    def render(self) -> Any:
        return np.full((30, 41, 3), 100 * self.time, np.uint8)


class Bare(gymnasium.Env):
    """As short as one can write it: no `__init__`, no metadata, no seed."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.ones(1, np.float32), 1.0, True, False, {}


def _register(name: str, kind: type, limit: int | None = None, **arguments: Any) -> None:
    entry_point = f"host_probes:{kind.__name__}"
    gymnasium.register(f"{name}-v0", entry_point=entry_point, max_episode_steps=limit, kwargs=arguments)


def register_all() -> None:
    for kind in (Counter, Endless, ThreeSteps, Chain, Drawn, Bare, Elsewhere, Chatty, Sleeper):
        _register(kind.__name__, kind)
    _register("Limited", Endless, limit=4)
    _register("LimitedAtItsEnd", ThreeSteps, limit=3)
    for name in ACTIONS:
        _register(f"Echo{name}", Echo, actions=name)
    for name in SIGHTS:
        _register(f"Sights{name}", Sights, sights=name)
    for name in UNSUPPORTED:
        _register(name, Unsupported, spaces_of=name)
    for name in (*FAULTS_WHILE_TRAINING, *FAULTS_AT_RESET, *FAULTS_WHEN_MADE, *OTHER_FAULTS):
        _register(name, Faulty, fault=name)


register_all()
