"""JAX's set-up for a run: devices, threads, memory, determinism and the compilation cache."""

import contextlib
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from self_imitation.config import TrainConfig
from self_imitation.errors import bad_value
from self_imitation.types import Spec

DETERMINISTIC_FLAG = "--xla_gpu_deterministic_ops=true"
SMALL_LAYER = 256
"""Up to this width a layer is so little work that dividing it among threads costs more than it saves."""
CACHE_VARIABLE = "SELF_IMITATION_CACHE"
"""Directory of the compilation cache, if not the user's cache directory."""


def prepare(config: TrainConfig, spec: Spec) -> None:
    """Set JAX up for this run. Variables that the user set are respected; once JAX runs, nothing can be changed."""
    if config.compilation_cache:
        enable_compilation_cache()
    if jax_is_running():
        if config.deterministic and DETERMINISTIC_FLAG not in os.environ.get("XLA_FLAGS", ""):
            raise bad_value(
                "deterministic", True, f"JAX is running already; set XLA_FLAGS={DETERMINISTIC_FLAG} before it starts"
            )
        return
    if config.deterministic:
        _add_flag(DETERMINISTIC_FLAG)
    if runs_on_cpu(config, spec) and "JAX_PLATFORMS" not in os.environ:
        jax.config.update("jax_platforms", "cpu")
    if is_small(config, spec):
        _add_flag("--xla_cpu_multi_thread_eigen=false")
        os.environ.setdefault("PJRT_NPROC", str(seed_groups(config)))  # threads in XLA's pool
        # Programs run in the threads that start them: groups of seeds side by side, actions without a thread switch.
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def enable_compilation_cache() -> None:
    """Keep compiled programs on disk. Without a directory to write to, nothing is kept."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR") or getattr(jax.config, "jax_compilation_cache_dir", None):
        return  # the user has one
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(directory, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_raise_persistent_cache_errors", False)
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")


def cache_directory() -> Path:
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "self-imitation" / f"jax-{jax.__version__}"


def jax_is_running() -> bool:
    """Whether JAX has initialised its devices, and so read its environment variables."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def runs_on_cpu(config: TrainConfig, spec: Spec) -> bool:
    steps_on_host = config.engine != "jax"
    return config.device == "cpu" or (config.device == "auto" and steps_on_host and is_small(config, spec))


def is_small(config: TrainConfig, spec: Spec) -> bool:
    """Whether the networks are too small to gain from several threads or a GPU."""
    hidden = config.network.resolved(spec.observation_kind == "image").hidden
    return spec.observation_kind != "image" and max(hidden or (0,)) <= SMALL_LAYER


def seed_groups(config: TrainConfig) -> int:
    """Groups of seeds with small networks on a CPU: one per core."""
    return min(config.workers or cores(), config.seeds)


def available(config: TrainConfig, spec: Spec) -> list[jax.Device]:
    """The devices that the run may use."""
    if config.device == "gpu" and jax.default_backend() == "cpu":
        raise bad_value("device", "gpu", "JAX finds no GPU (pip install 'self-imitation[cuda]'); allowed: auto, cpu")
    found = jax.local_devices(backend="cpu" if runs_on_cpu(config, spec) else None)
    if config.devices is not None and config.devices > len(found):
        seen = f"JAX sees {len(found)} of the kind that this run uses ({found[0].device_kind})"
        raise bad_value("devices", config.devices, f"{seen}; allowed: at most {len(found)}")
    return found[: config.devices]


def require_division(config: TrainConfig, in_program: bool) -> None:
    """Raise a `UsageError` if seeds are to be spread over devices, but can't be divided into groups."""
    if (config.devices or 1) > 1 and not in_program:
        why = f"engine {config.engine} trains all seeds together, on one device"
        raise bad_value("devices", config.devices, f"{why}; allowed: 1")


def cores() -> int:
    """Number of cores that this process may use."""
    return len(core_numbers())


def core_numbers() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def pinned(numbers: Sequence[int]) -> Iterator[None]:
    """Keep this thread, and those that it starts, on these cores.

    A program and the engine that steps its environments take turns; on one core, neither waits for the other to wake up
    elsewhere.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, numbers)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def machine(device: jax.Device) -> str:
    """The machine in words."""
    count = cores()
    own = f"{count} core{'s' if count > 1 else ''} ({platform.machine()})"
    return own if device.platform == "cpu" else f"{device.device_kind}, {own}"


def _add_flag(flag: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()
