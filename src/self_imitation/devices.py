"""What JAX must be told before it looks for its devices: how many, how many threads, whether bits must repeat."""

import os
import sys

from self_imitation.config import TrainConfig
from self_imitation.errors import bad_value

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
SMALL_LAYER = 256
"""Up to this width a layer is so little work that sharing it between threads costs more than it brings."""


def prepare(config: TrainConfig) -> None:
    """Set JAX up for this run. What the user set in the environment stays; once JAX runs, nothing can be changed."""
    if _jax_runs():
        if config.deterministic and DETERMINISTIC not in os.environ.get("XLA_FLAGS", ""):
            raise bad_value("deterministic", True, f"JAX runs already; set XLA_FLAGS={DETERMINISTIC} before it does")
        return
    if config.deterministic:
        _add_flag(DETERMINISTIC)
    if max(config.network.hidden) <= SMALL_LAYER:
        count = host_devices(config.seeds, os.cpu_count() or 1)
        _add_flag("--xla_cpu_multi_thread_eigen=false")
        _add_flag(f"--xla_force_host_platform_device_count={count}")
        os.environ.setdefault("PJRT_NPROC", str(count))


def _jax_runs() -> bool:
    """Whether JAX has looked for its devices, and so read its environment; to import it is not enough."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def host_devices(seeds: int, cores: int) -> int:
    """Seeds are spread over the cores, each core a device of its own, as many as divide the seeds evenly."""
    return max(count for count in range(1, cores + 1) if seeds % count == 0)


def _add_flag(flag: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    name = flag.partition("=")[0]
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()
