"""Gymnasium environments that misbehave, each in one way: `gym:campaign.hostile:NAME-v0`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from campaign.faults import FAULT_STEP, FAULTS


class Hostile(gymnasium.Env):
    """Sound but for its fault. Episodes take four steps; one more reward for action 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, fault: str, render_mode: str | None = None):
        self.render_mode, self.faults, self.time, self.life = render_mode, FAULTS[fault], 0, 0
        self.observation_space: Any = spaces.Box(-10, 10, (3,), np.float32)
        self.action_space: Any = spaces.Discrete(2)
        self.observation = np.zeros(3, np.float32)
        self.at("init", None)

    def at(self, moment: str, result: Any) -> Any:
        """The result, or what the fault makes of it."""
        if moment not in self.faults or (moment == "step" and self.life < FAULT_STEP):
            return result
        self.result = result
        changed = self.faults[moment](self)
        return result if changed is None else changed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.observation = np.zeros(3, np.float32)
        return self.at("reset", (self.observation, {}))

    def step(self, action: Any) -> Any:
        self.time += 1
        self.life += 1
        self.observation = np.full(3, self.time, np.float32)
        return self.at("step", (self.observation, float(np.sum(action)), self.time >= 4, False, {}))

    def render(self) -> Any:
        return self.at("render", np.full((20, 20, 3), 50 * self.time, np.uint8))

    def close(self) -> None:
        self.at("close", None)


def result(name: str, *, observation: Any = None, reward: Any = None, ends: Any = None, info: Any = None) -> None:
    """An environment whose step returns something else in one place."""

    def changed(env: Hostile) -> Any:
        was = env.result
        return (
            was[0] if observation is None else observation,
            was[1] if reward is None else reward,
            was[2] if ends is None else ends,
            was[3],
            was[4] if info is None else info,
        )

    FAULTS[name] = {"step": changed}


def raises(name: str, error: BaseException, *moments: str) -> None:
    def throw(_: Hostile) -> Any:
        raise error

    FAULTS[name] = dict.fromkeys(moments or ("step",), throw)


def has_space(name: str, **attributes: Any) -> None:
    FAULTS[name] = {"init": lambda env: env.__dict__.update(attributes)}


class Strange:
    """Not a number, though it can be turned into one, with an effect."""

    def __float__(self) -> float:
        raise RuntimeError("no number today")

    def __repr__(self) -> str:
        return "two\nlines and \x1b[31mred"


class StrangeError(Exception):
    """Can't be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text either")


result("ObservationTooShort", observation=np.zeros(2, np.float32))
result("ObservationTooLong", observation=np.zeros((3, 3), np.float32))
result("ObservationEmpty", observation=np.zeros(0, np.float32))
result("ObservationScalar", observation=1.0)
result("ObservationNaN", observation=np.array([0, np.nan, 0], np.float32))
result("ObservationInfinite", observation=np.array([0, np.inf, 0], np.float32))
result("ObservationDouble", observation=np.zeros(3, np.float64))
result("ObservationInteger", observation=np.zeros(3, np.int64))
result("ObservationComplex", observation=np.zeros(3, np.complex64))
result("ObservationObjects", observation=np.array([0, None, "x"], object))
result("ObservationText", observation="hello")
result("ObservationDict", observation={"a": 1})
result("ObservationGenerator", observation=(0.0 for _ in range(3)))
result("ObservationList", observation=[0.0, 1.0, 2.0])
result("ObservationRagged", observation=[[0.0], [1.0, 2.0]])
result("ObservationOutside", observation=np.full(3, 99, np.float32))
result("ObservationHuge", observation=np.full(3, 3e38, np.float32))
result("ObservationMasked", observation=np.ma.masked_all(3, np.float32))
result("RewardNaN", reward=float("nan"))
result("RewardInfinite", reward=float("inf"))
result("RewardHuge", reward=1e300)
result("RewardInteger", reward=10**400)
result("RewardComplex", reward=1 + 2j)
result("RewardComplexArray", reward=np.complex64(1 + 2j))
result("RewardText", reward="1")
result("RewardBool", reward=True)
result("RewardArray", reward=np.ones(1))
result("RewardStrange", reward=Strange())
result("EndsWithOne", ends=1)
result("EndsWithArray", ends=np.array([True, False]))
result("InfoIsNone", info=0)
result("InfoIsHuge", info={str(i): np.zeros(1000) for i in range(100)})
raises("Raises", ZeroDivisionError("the ball left the field"))
raises("RaisesEscapes", RuntimeError("\x1b[31mred\x1b[0m \x1b]0;title\x07\nsecond line"))
raises("RaisesLongText", RuntimeError("x" * 100_000))
raises("RaisesUnprintable", StrangeError())
raises("RaisesAtReset", ConnectionError("the server is away"), "reset")
raises("RaisesWhenMade", OSError("no licence"), "init")
raises("RaisesAtClose", RuntimeError("can't close"), "close")
raises("RaisesAtRender", RuntimeError("no screen"), "render")
raises("KeyboardInterruptAtStep", KeyboardInterrupt())
raises("KeyboardInterruptAtReset", KeyboardInterrupt(), "reset")
raises("SystemExitThree", SystemExit(3))
raises("SystemExitZero", SystemExit(0))
raises("SystemExitWhenMade", SystemExit(0), "init")
raises("GeneratorExits", GeneratorExit())
raises("StopsIteration", StopIteration())
raises("OutOfMemory", MemoryError())
raises("BrokenPipe", BrokenPipeError("my own pipe"))
raises("OSErrorAtStep", OSError(28, "No space left on device"))
has_space("HugeDiscrete", action_space=spaces.Discrete(2**62))
has_space("HugeDiscreteObservation", observation_space=spaces.Discrete(2**40))
has_space("HugeMultiDiscrete", action_space=spaces.MultiDiscrete([2**31, 2**40]))
has_space("NoSpaces", action_space=None, observation_space=None)
has_space("TextActions", action_space=spaces.Text(5))
has_space("SequenceObservation", observation_space=spaces.Sequence(spaces.Discrete(3)))
has_space("InfiniteActions", action_space=spaces.Box(-np.inf, np.inf, (2,), np.float64))
has_space("NegativeBounds", action_space=spaces.Box(np.float32(-1e38), np.float32(3e38), (1,)))


for _name in FAULTS:
    gymnasium.register(f"{_name}-v0", entry_point="campaign.hostile:Hostile", kwargs={"fault": _name})
