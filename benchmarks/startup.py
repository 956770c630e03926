"""How long a user waits: for help, and for the first logged step of a run whose programs were compiled before."""

import subprocess
import sys
import tempfile
import time

SIL = (sys.executable, "-m", "self_imitation")
STARTS = 3
"""The first start also fills the compilation cache."""
COMMANDS = (
    "--help",
    "train --log-every 80",
    "train gym:CartPole-v1 --log-every 80",
    "train mujoco:Hopper --agent ppo+sil --seeds 8 --log-every 2048",
)


def measure() -> dict[str, float]:
    """Seconds, the best of several starts."""
    print(f"startup: until help is shown or the first step is logged, best of {STARTS}", flush=True)
    results = {}
    for command in COMMANDS:
        results[command] = min(_start(command.split()) for _ in range(STARTS))
        print(f"  {results[command]:5.2f} s  sil {command}", flush=True)
    return results


def _start(arguments: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", f"{folder}/run"] if arguments[0] == "train" else []
        start = time.perf_counter()
        with subprocess.Popen([*SIL, *arguments, *out], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            awaited = "step " if out else "usage: "
            found = any(line.startswith(awaited) for line in process.stdout)
            seconds = time.perf_counter() - start
            process.kill()
    if not found:
        raise RuntimeError(f"sil {' '.join(arguments)} ended early")
    return seconds
