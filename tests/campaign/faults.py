"""What misbehaving environments do, by name and moment. Faults that need more than a value or an error are here.

A fault is a function of the environment; what it returns replaces the result of the method, which is `env.result`.
"""

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

Fault = Callable[[Any], Any]
FAULTS: dict[str, dict[str, Fault]] = {}
"""By name: what happens, by moment: init, reset, step, render or close."""
MUCH = b"printed by an environment " * 4
FAULT_STEP = 5
"""The step of a copy's life from which on it misbehaves, unless its fault is elsewhere."""


def fault(name: str, *moments: str) -> Callable[[Fault], Fault]:
    def register(function: Fault) -> Fault:
        FAULTS[name] = dict.fromkeys(moments or ("step",), function)
        return function

    return register


@fault("ExitsZero")
def _(env: Any) -> None:
    os._exit(0)


@fault("ExitsThree", "reset")
def _(env: Any) -> None:
    os._exit(3)


@fault("ChangesDirectory")
def _(env: Any) -> None:
    os.makedirs("../output/elsewhere", exist_ok=True)
    os.chdir("../output/elsewhere")


@fault("ChangesDirectoryWhenMade", "init")
def _(env: Any) -> None:
    os.makedirs("../output/elsewhere", exist_ok=True)
    os.chdir("../output/elsewhere")


@fault("WritesIntoTheRun")
def _(env: Any) -> None:
    for run in Path.cwd().parent.glob("output/new"):
        (run / "checkpoints" / "junk").mkdir(exist_ok=True)
        (run / "checkpoints" / "99999").mkdir(exist_ok=True)
        (run / "notes.txt").write_text("hello")


@fault("DeletesMetrics")
def _(env: Any) -> None:
    for file in Path.cwd().parent.glob("output/new/metrics.csv"):
        file.unlink()


@fault("DeletesCheckpoints")
def _(env: Any) -> None:
    for folder in Path.cwd().parent.glob("output/new/checkpoints/*"):
        shutil.rmtree(folder)


@fault("DeletesTheRun")
def _(env: Any) -> None:
    shutil.rmtree(Path.cwd().parent / "output" / "new", ignore_errors=True)


@fault("Prints", "init", "reset", "step")
def _(env: Any) -> None:
    print("\x1b[32mwords of an environment", file=sys.stderr)


@fault("PrintsMuch")
def _(env: Any) -> None:
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            os.write(descriptor, MUCH * 500 + b"\n")


@fault("ClosesStreams")
def _(env: Any) -> None:
    sys.stdout.close()


@fault("ReplacesStreams")
def _(env: Any) -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


@fault("ChangesSpaces")
def _(env: Any) -> None:
    env.observation_space = spaces.Box(-1, 1, (7,), np.float32)
    env.action_space = spaces.Discrete(9)


@fault("NeverEnds")
def _(env: Any) -> Any:
    return *env.result[:2], False, False, {}


@fault("EndsAtOnce")
def _(env: Any) -> Any:
    return *env.result[:2], True, True, {}


@fault("SlowSteps")
def _(env: Any) -> None:
    time.sleep(0.02)


@fault("IgnoresSignals", "init")
def _(env: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@fault("StartsThreads")
def _(env: Any) -> None:
    threading.Thread(target=time.sleep, args=(1,), daemon=True).start()


@fault("ThreadRaises", "init")
def _(env: Any) -> None:
    threading.Thread(target=lambda: time.sleep(0.01), daemon=True).start()


@fault("Recurses")
def _(env: Any) -> None:
    def deeper(depth: int) -> int:
        return deeper(depth + 1)

    deeper(0)


@fault("ReadOnlyObservations")
def _(env: Any) -> None:
    env.observation.setflags(write=False)


@fault("SameArrayAlways", "reset", "step")
def _(env: Any) -> Any:
    env.__dict__.setdefault("array", np.zeros(3, np.float32))[:] = env.time
    return env.array, *env.result[1:]


@fault("FourResults")
def _(env: Any) -> Any:
    return env.result[:4]


@fault("ReturnsNothing")
def _(env: Any) -> Any:
    return ()


@fault("ResetReturnsObservation", "reset")
def _(env: Any) -> Any:
    return env.result[0]


@fault("TakesDescriptors")
def _(env: Any) -> None:
    env.__dict__.setdefault("opened", []).extend(open(os.devnull) for _ in range(50))  # noqa: SIM115


@fault("SeedsNumPy", "reset", "step")
def _(env: Any) -> None:
    np.random.seed(0)  # noqa: NPY002
    np.seterr(all="raise")


@fault("ChangesUmask", "init")
def _(env: Any) -> None:
    os.umask(0o777)


@fault("ForksAProcess")
def _(env: Any) -> None:
    if env.life == FAULT_STEP and not os.fork():
        os._exit(0)


@fault("WarnsMuch", "step")
def _(env: Any) -> None:
    warnings.warn("this environment is deprecated", stacklevel=2)
