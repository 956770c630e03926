"""What JAX must be told before it looks for its devices: how many, how many threads, how much of a GPU's memory,
whether bits must repeat.
"""

import os
import platform
import sys
from typing import TYPE_CHECKING

from self_imitation.config import TrainConfig
from self_imitation.environments import catalogue
from self_imitation.errors import bad_value

if TYPE_CHECKING:
    import jax

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
SMALL_LAYER = 256
"""Up to this width a layer is so little work that sharing it between threads costs more than it brings."""
OF_MEMORY = 0.9
"""Of a GPU's that several processes share."""
MEMORY_SETTINGS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE")
"""By which JAX is told how much of a GPU's memory to take; whoever set one of them knows better."""


def prepare(config: TrainConfig) -> None:
    """Set JAX up for this run. What the user set in the environment stays; once JAX runs, nothing can be changed."""
    if _jax_runs():
        if config.deterministic and DETERMINISTIC not in os.environ.get("XLA_FLAGS", ""):
            raise bad_value("deterministic", True, f"JAX runs already; set XLA_FLAGS={DETERMINISTIC} before it does")
        return
    if config.deterministic:
        _add_flag(DETERMINISTIC)
    if _on_cpu(config):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if _small(config):
        count = 1 if _on_host(config) else host_devices(config.seeds, cores())
        _add_flag("--xla_cpu_multi_thread_eigen=false")
        _add_flag(f"--xla_force_host_platform_device_count={count}")
        os.environ.setdefault("PJRT_NPROC", str(count))
    if _on_host(config):
        import jax  # the environment has no variable for this

        # An action is worked out in less time than another thread takes to wake up for it.
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def environment(processes: int) -> dict[str, str]:
    """Of one process among so many that each prepare JAX for themselves: it takes its share of a GPU's memory, where
    one by itself would take three quarters.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PJRT_NPROC")}
    if processes == 1 or any(name in inherited for name in MEMORY_SETTINGS):
        return inherited
    return {**inherited, MEMORY_SETTINGS[0]: f"{OF_MEMORY / processes:.3f}"}


def _jax_runs() -> bool:
    """Whether JAX has looked for its devices, and so read its environment; to import it is not enough."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def cores() -> int:
    """That this process may use."""
    return len(_own_cores())


def shares(count: int) -> list[set[int]]:
    """These cores, dealt out; where there are more shares than cores, some have one in common."""
    own = sorted(_own_cores())
    return [set(own[i::count]) or {own[i % len(own)]} for i in range(count)]


def keep_to(share: set[int]) -> None:
    """This process, to these cores: a thread that wakes another one up on its own core is served sooner."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share)


def _own_cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def lanes(config: TrainConfig, known_everywhere: bool) -> int:
    """Processes among which the seeds of a run with environments on the host are shared out. One, where a lane would
    get in another's way: on a GPU, or where an engine or large networks use all cores anyway.

    `known_everywhere`: whether another process can make the environment too.
    """
    if config.lanes == 1 or config.seeds == 1:
        return 1
    if config.lanes is not None:
        if not _on_cpu(config) and available(config)[0].platform != "cpu":
            raise bad_value("lanes", config.lanes, "a GPU serves one process; allowed: 1, or with device = cpu")
        if not known_everywhere:
            raise bad_value("lanes", config.lanes, f"only this process knows {config.env!r}; allowed: 1")
        return min(config.seeds, config.lanes)
    alone = config.engine == "processes" or not _on_cpu(config) or not _small(config) or not known_everywhere
    return 1 if alone else min(config.seeds, cores())


def available(config: TrainConfig) -> "list[jax.Device]":
    """Those of the kind that the run is to use."""
    import jax

    if config.device == "gpu" and jax.default_backend() == "cpu":
        raise bad_value(
            "device", "gpu", "JAX finds no GPU here (pip install 'self-imitation[cuda]'?); allowed: auto, cpu"
        )
    return jax.local_devices(backend="cpu" if _on_cpu(config) else None)


def machine(config: TrainConfig) -> str:
    """What the run is trained on here, in words."""
    kind, count = available(config)[0].device_kind, cores()
    own = f"{count} core{'s' if count > 1 else ''} ({platform.machine()})"
    return own if kind == "cpu" else f"{kind}, {own}"


def _on_host(config: TrainConfig) -> bool:
    return catalogue.find(config.env).host_id is not None


def _on_cpu(config: TrainConfig) -> bool:
    return config.device == "cpu" or (config.device == "auto" and _on_host(config) and _small(config))


def _small(config: TrainConfig) -> bool:
    return max(config.network.hidden or (0,)) <= SMALL_LAYER


def host_devices(seeds: int, cores: int) -> int:
    """Seeds are spread over the cores, each core a device of its own, as many as divide the seeds evenly."""
    return max(count for count in range(1, cores + 1) if seeds % count == 0)


def _add_flag(flag: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    name = flag.partition("=")[0]
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()
