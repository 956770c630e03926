"""How long a user waits: for help, and for the first training step."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRIES = 3
SIL = (sys.executable, "-m", "self_imitation")


def measure() -> dict[str, float]:
    """Seconds, the best of three new processes each."""
    return {
        "help_seconds": min(_help() for _ in range(TRIES)),
        "first_step_seconds": min(_first_step() for _ in range(TRIES)),
    }


def _help() -> float:
    begun = time.perf_counter()
    subprocess.run([*SIL, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def _first_step() -> float:
    """Of `sil train` as it is by default, from the start of the process to the line that its first row prints."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*SIL, "train", "--out", str(Path(folder) / "run"), "--log-every", "80"]
        begun = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("step "):
                    seconds = time.perf_counter() - begun
                    break
            else:
                raise RuntimeError(f"{' '.join(command)} ended without a training step")
            process.kill()
    return seconds
