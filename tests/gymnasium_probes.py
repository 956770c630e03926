"""Tiny Gymnasium environments whose every observation, reward and end is known exactly.

Gymnasium imports this module by itself: `gymnasium_probes:Counter-v0`. Faulty ones fail at a known step, or never while
the variable PROBES_ARE_SOUND is set.
"""

import contextlib
import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SOUND = "PROBES_ARE_SOUND"


class Probe(gymnasium.Env):
    """Common part: counts episodes, and steps in the episode and in its life."""

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
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not an action")
        self.time += 1
        self.life += 1
        return self.observe(), self.reward(action), *self.ends(), {}

    def observe(self) -> Any:
        return np.array([self.seed, self.episode, self.time], float)

    def reward(self, action: Any) -> Any:
        return float(self.time)

    def ends(self) -> tuple[Any, Any]:
        return False, False


class Counter(Probe):
    """Observation [seed, episode, step]; the reward is 100 x episode + step.

    Episode e of the copy with seed s takes 2 + (s + e) % 3 steps and ends by termination, truncation and both at once,
    in turn.
    """

    def reward(self, action: Any) -> float:
        return 100.0 * self.episode + self.time

    def ends(self) -> tuple[bool, bool]:
        over = self.time == 2 + (self.seed + self.episode) % 3
        return over and self.episode % 3 != 1, over and self.episode % 3 != 0


class Endless(Probe):
    """Ends by a `TimeLimit` only. Rewards 1, -2, 3, -4 ..."""

    def reward(self, action: Any) -> float:
        return float(self.time if self.time % 2 else -self.time)


class ThreeSteps(Probe):
    """Terminates at step 3."""

    def ends(self) -> tuple[bool, bool]:
        return self.time == 3, False


class Chain(Probe):
    """Right (1) pays 1, left (0) nothing; five steps, or one step if the first action is left."""

    observation_space = spaces.Box(-1, 5, (1,), np.float64)

    def observe(self) -> np.ndarray:
        return np.array([self.time], float)

    def reward(self, action: Any) -> float:
        return float(action)

    def ends(self) -> tuple[bool, bool]:
        return self.time == 5 or (self.time == 1 and self.went_left), False

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.went_left = action == 0
        return super().step(action)


ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(3, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 5], [-1, 0]]),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "Box": spaces.Box(
        np.array([[-1, -2, 0], [-0.5, 10, -np.inf]]), np.array([[1, 2, 3], [0.5, 11, np.inf]]), dtype=np.float64
    ),
}


class Echo(Probe):
    """Observation: the seed, the step and the last action, flattened. Four steps."""

    def __init__(self, actions: str, render_mode: str | None = None):
        super().__init__(render_mode)
        self.action_space = ACTION_SPACES[actions]
        size = int(np.prod(self.action_space.shape or ()))
        self.observation_space = spaces.Box(-np.inf, np.inf, (2 + size,), np.float64)
        self.action = np.zeros(size)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.action = np.asarray(action, float).reshape(-1)
        return super().step(action)

    def observe(self) -> np.ndarray:
        return np.array([self.seed, self.time, *self.action])

    def ends(self) -> tuple[bool, bool]:
        return self.time == 4, False


PLAIN_SPACES: dict[str, spaces.Space[Any]] = {
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
COMPOSITE_SPACES: dict[str, spaces.Space[Any]] = {
    "Dict": spaces.Dict(b=PLAIN_SPACES["Double"], a=PLAIN_SPACES["Discrete"], c=PLAIN_SPACES["MultiBinary"]),
    "Tuple": spaces.Tuple([PLAIN_SPACES["MultiDiscrete"], PLAIN_SPACES["Scalar"]]),
    "Nested": spaces.Dict(
        goal=spaces.Tuple([PLAIN_SPACES["Single"], spaces.Dict(x=PLAIN_SPACES["Negative"], hint=spaces.Text(5))]),
        pace=PLAIN_SPACES["Discrete"],
    ),
    "ImageAndNumbers": spaces.Dict(camera=PLAIN_SPACES["CHW"], speed=PLAIN_SPACES["Single"], text=spaces.Text(5)),
    "ImageAlone": spaces.Dict(camera=PLAIN_SPACES["HWC"], mission=spaces.Text(5)),
    "TwoImages": spaces.Dict(colour=spaces.Box(0, 255, (36, 38, 3), np.uint8), depth=PLAIN_SPACES["CHW"]),
}
SPACES = {**PLAIN_SPACES, **COMPOSITE_SPACES}


class Sampled(Probe):
    """Observes another member of the space at each step of each copy, see `sample`. Three steps."""

    def __init__(self, space: str, render_mode: str | None = None):
        super().__init__(render_mode)
        self.observation_space = SPACES[space]

    def observe(self) -> Any:
        return sample(self.observation_space, self.seed, self.episode, self.time)

    def ends(self) -> tuple[bool, bool]:
        return self.time == 3, False


def sample(space: spaces.Space[Any], seed: int, episode: int, time: int) -> Any:
    """The observation at that step: any member of the space, but always the same one."""
    generator = np.random.default_rng([seed, episode, time])
    match space:
        case spaces.Dict():
            return {key: sample(child, seed, episode, time) for key, child in space.spaces.items()}
        case spaces.Tuple():
            return tuple(sample(child, seed, episode, time) for child in space.spaces)
        case spaces.Text():
            return "abcde"[: 1 + generator.integers(5)]
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
    "TextObservation": {"observation_space": spaces.Text(5)},
    "DictOfText": {"observation_space": spaces.Dict(a=spaces.Text(5))},
    "EmptyObservation": {"observation_space": spaces.Box(0, 1, (0,))},
    "WholeActions": {"action_space": spaces.Box(0, 5, (2,), np.int64)},
    "DictActions": {"action_space": spaces.Dict(a=spaces.Discrete(2))},
    "HugeActions": {"action_space": spaces.Discrete(2**62)},
    "EmptyActions": {"action_space": spaces.Box(0, 1, (0,))},
}


class Unsupported(Probe):
    """Has a space that is not supported."""

    def __init__(self, spaces_of: str, render_mode: str | None = None):
        super().__init__(render_mode)
        for kind, space in UNSUPPORTED[spaces_of].items():
            setattr(self, kind, space)


class OutsideItsSpace(Probe):
    observation_space = spaces.Discrete(5)

    def observe(self) -> Any:
        return 99


class LacksKey(Probe):
    """Its observation has no "b"."""

    observation_space = spaces.Dict(a=spaces.Discrete(5), b=spaces.Discrete(5))

    def observe(self) -> Any:
        return {"a": 0}


class SameArray(ThreeSteps):
    """Writes every observation into the same array."""

    def __init__(self, render_mode: str | None = None):
        super().__init__(render_mode)
        self.array = np.zeros(3)

    def observe(self) -> np.ndarray:
        self.array[:] = super().observe()
        return self.array


class ChangingInfo(Counter):
    """Its `info` has another structure at each step."""

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        return *result, [{"path": np.arange(self.time)}, {"path": "far"}, {"path": None}, None][self.life % 4]


class Sleeper(Counter):
    """Sleeps at its third step."""

    def step(self, action: Any) -> Any:
        if self.life == 2:
            time.sleep(600)
        return super().step(action)


class Counted(ThreeSteps):
    """Counts how often it was built, in this process."""

    built = 0

    def __init__(self, render_mode: str | None = None):
        super().__init__(render_mode)
        type(self).built += 1


FAULT_STEP = 8
"""The step of a copy's life at which it fails. Episodes take 3 steps: it is the second step of the third one."""


class Faulty(Counter):
    """Sound until the eighth step of its life, unless its fault says otherwise."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, fault: str, render_mode: str | None = None):
        super().__init__(render_mode)
        self.fault = None if os.environ.get(SOUND) else fault
        if self.fault == "RaisesWhenMade":
            raise RuntimeError("no licence found\nask your administrator")
        if self.fault == "ExitsWhenMade":
            os._exit(0)
        if self.fault == "LeavesPythonWhenMade":
            raise SystemExit(3)
        if self.fault == "LacksPackage":
            raise gymnasium.error.DependencyNotInstalled("a package is missing: pip install it")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = super().reset(seed=seed)
        match self.fault:
            case "RaisesAtReset":
                raise ConnectionError("the game server is away")
            case "RaisesAtThirdReset" if self.episode == 2:
                raise ConnectionError("the game server is away")
            case "NotFiniteAtReset":
                return np.array([0, np.inf, 0], np.float32), {}
            case "WrongShapeAtReset":
                return result[0][:2], {}
            case "ResetReturnsNoTuple":
                return result[0]  # type: ignore[return-value]
        return result

    def observe(self) -> np.ndarray:
        return super().observe().astype(np.float32)

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
            case "TwoRewards":
                reward = np.ones(2)
            case "TerminatedIsOne":
                terminated = 1
            case "TruncatedIsNone":
                truncated = None
            case "FourResults":
                return observation, reward, terminated, info
            case "LeavesPython":
                raise SystemExit(3)
            case "ExitsAtOnce":
                with contextlib.suppress(Exception):
                    os._exit(0)
            case "ComplexReward":
                reward = np.array(1 + 2j)
            case "RaisesTwoLines":
                raise RuntimeError("no more lives\nsee the manual")
            case "HugeReward":
                reward = 1e300
            case "Words":
                observation = "hello"
            case "Ragged":
                observation = [[0.0], [1.0, 2.0]]
        return observation, reward, terminated, truncated, info


FAULTS_WHILE_TRAINING = {
    "Raises": "raised ZeroDivisionError: the ball left the field",
    "NotANumber": "observation is nan at index [1]",
    "InfiniteReward": "reward is inf",
    "WrongShape": "observation has shape (2,), not (3,)",
    "WrongType": "observation has dtype complex128, not float32",
    "NoReward": "reward is None, not a number",
    "TwoRewards": "reward is array([1., 1.]), not a number",
    "TerminatedIsOne": "terminated is 1, not True or False",
    "TruncatedIsNone": "truncated is None, not True or False",
    "FourResults": "step() returned (array(",
    "LeavesPython": "raised SystemExit: 3",
    "ExitsAtOnce": "called os._exit(0)",
    "ComplexReward": "reward is array(1.+2.j), not a number",
    "RaisesTwoLines": "raised RuntimeError: no more lives",
    "HugeReward": "reward is 1e+300, beyond the range of float32",
    "Words": "observation is 'hello', not an array of numbers",
    "Ragged": "observation is [[0.0], [1.0, 2.0]], not an array",
}
FAULTS_AT_RESET = {
    "RaisesAtReset": "raised ConnectionError: the game server is away",
    "NotFiniteAtReset": "observation is inf at index [1]",
    "WrongShapeAtReset": "observation has shape (2,), not (3,)",
    "ResetReturnsNoTuple": "reset() returned array(",
}
OTHER_FAULTS = ("RaisesAtThirdReset", "RaisesInOne", "NotANumberAtItsEnd", "Dies")
"""`RaisesInOne`: only in the copy with seed 22. `NotANumberAtItsEnd`: in the last observation of every episode. `Dies`:
its process exits."""
FAULTS_WHEN_MADE = {
    "RaisesWhenMade": "can't be created; it raised RuntimeError: no licence found",
    "ExitsWhenMade": "can't be created; it called os._exit(0)",
    "LeavesPythonWhenMade": "can't be created; it raised SystemExit: 3",
    "LacksPackage": "needs a package that is not installed: a package is missing: pip install it",
}


class Drawn(Probe):
    """Two steps; its picture of 30 x 41 pixels, an odd width, becomes lighter with each."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def ends(self) -> tuple[bool, bool]:
        return self.time == 2, False

    def render(self) -> Any:
        return np.full((30, 41, 3), 100 * self.time, np.uint8)


class RefusesOtherModes(Probe):
    """As Gymnasium's tutorial writes it."""

    metadata = {"render_modes": ["human"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None):
        assert render_mode is None or render_mode in self.metadata["render_modes"]
        super().__init__(render_mode)


class Bare(gymnasium.Env):
    """As short as possible: no `__init__`, no metadata, no seed."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.ones(1, np.float32), 1.0, True, False, {}


def _register(name: str, kind: type, limit: int | None = None, **arguments: Any) -> None:
    entry_point = f"gymnasium_probes:{kind.__name__}"
    gymnasium.register(f"{name}-v0", entry_point=entry_point, max_episode_steps=limit, kwargs=arguments)


def register_all() -> None:
    for kind in (Counter, Endless, ThreeSteps, Chain, Drawn, Bare, SameArray, ChangingInfo, Sleeper, Counted):
        _register(kind.__name__, kind)
    for kind in (OutsideItsSpace, LacksKey, RefusesOtherModes):
        _register(kind.__name__, kind)
    _register("Limited", Endless, limit=4)
    _register("LimitedAtItsEnd", ThreeSteps, limit=3)
    for name in ACTION_SPACES:
        _register(f"Echo{name}", Echo, actions=name)
    for name in SPACES:
        _register(f"Sampled{name}", Sampled, space=name)
    for name in UNSUPPORTED:
        _register(name, Unsupported, spaces_of=name)
    for name in (*FAULTS_WHILE_TRAINING, *FAULTS_AT_RESET, *FAULTS_WHEN_MADE, *OTHER_FAULTS):
        _register(name, Faulty, fault=name)


register_all()
