"""An environment whose process dies once, for workers that import it."""

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium_probes import Chain

MARKER = "DYING_PROBE_MARKER"
"""Variable with the path of the file that says that it has died."""


class DiesOnce(Chain):
    """Ends its process at a step in the middle of training, as the kernel does when memory runs out."""

    steps = 0

    def step(self, action: Any) -> Any:
        marker = Path(os.environ[MARKER])
        DiesOnce.steps += 1
        if DiesOnce.steps == 1200 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


gymnasium.register("DiesOnce-v0", DiesOnce)
