"""Connecting to Ray, and whether it has what the runs need. Each failure is one sentence, within half a minute."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from self_imitation.errors import UsageError, bad_value, first_line
from self_imitation.settings import BOOLEAN, or_none, real, setting, whole

ANSWER_SECONDS = 10
"""Within which an address must accept a connection; connecting to Ray has twice as long."""
ADDRESSES = "HOST:PORT, ray://HOST:PORT, auto or local"
TRY = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR')"
GIB = 1 << 30


@dataclass(frozen=True)
class Resources:
    """What each run is given on a node."""

    cpus: float = setting(1, real(0, 4096, above=True))
    """CPU cores per run; its groups of seeds are trained by as many threads."""
    gpus: float = setting(0, real(0, 64))
    """GPUs per run. A fraction such as 0.25 lets several runs share one, each with its share of the memory."""
    memory: float | None = setting(None, or_none(real(0, above=True)))
    """GiB of memory per run, by which Ray decides how many fit on a node. None: not considered."""
    retries: int = setting(10, whole(-1, 10**6))
    """How often a run is started again after its worker died or its node was lost. -1: always."""

    wait_for_nodes: bool = setting(False, BOOLEAN)
    """Wait for nodes that have what a run needs, on a cluster that starts nodes by itself. Otherwise it is an error if
    no node has it."""

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus"):
            value = getattr(self, name)
            if isinstance(value, int | float) and value > 1 and value != int(value):
                raise bad_value(name, value, "allowed: at most 1, or a whole number")

    @property
    def options(self) -> dict[str, Any]:
        """Options of a Ray task."""
        memory = {} if self.memory is None else {"memory": int(self.memory * GIB)}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries, **memory}

    @property
    def needed(self) -> dict[str, float]:
        """By the names that Ray gives them."""
        memory = 0 if self.memory is None else int(self.memory * GIB)
        return {name: amount for name, amount in (("CPU", self.cpus), ("GPU", self.gpus), ("memory", memory)) if amount}


def require_ray(what: str = "engine: 'ray'") -> None:
    """Raise a `UsageError` that says `what` needs it, if Ray is not installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise UsageError(f"{what} needs the package ray: pip install 'self-imitation[ray]'") from None


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to the Ray cluster at this address; None: that of the variable RAY_ADDRESS, or one that is started
    here and ends with this process.
    """
    require_ray()
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address not in ("local", "auto"):
        _require_answer(address)
    import ray

    # Ray's own variable for workers that see no GPU; its present default, which hides none, is to change.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    try:
        ray.init(address, include_dashboard=None, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise bad_value("address", address, f"no Ray cluster there: {first_line(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Without this, Ray waits for minutes and then ends the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.%\w]+\]", host) or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise bad_value("address", address, f"allowed: {ADDRESSES}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except UnicodeError:  # a part of the name is empty or too long
        raise bad_value("address", address, f"allowed: {ADDRESSES}") from None
    except OSError as error:
        raise UsageError(f"address: {address!r} does not answer: {error.strerror or error}") from None
    _require_ray_cluster(address)


def _require_ray_cluster(address: str) -> None:
    """Connect in another process, which Ray may end."""
    command = [sys.executable, "-c", TRY, address]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        silent = f"address: {address!r} accepts connections, but does not answer as a Ray cluster"
        hint = "if it has token authentication, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        raise UsageError(silent if "RAY_AUTH_MODE" in os.environ else f"{silent}; {hint}") from None
    if tried.returncode:
        lines = tried.stderr.strip().splitlines()
        cause = f": {lines[-1]}" if tried.returncode == 1 and lines else ""  # otherwise Ray has ended the process
        raise UsageError(f"address: can't connect to a Ray cluster at {address!r}{cause}")


def require_resources(resources: Resources) -> None:
    """Raise a `UsageError` if no node has enough, unless it is to wait for nodes that do."""
    import ray

    if resources.wait_for_nodes:
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= amount for name, amount in resources.needed.items()) for node in nodes):
        return
    wanted = ", ".join(_in_words(name, amount) for name, amount in resources.needed.items())
    largest = {name: max(node.get(name, 0) for node in nodes) for name in resources.needed}
    most = ", ".join(_in_words(name, amount) for name, amount in largest.items())
    hint = "if the cluster starts nodes by itself, add --wait-for-nodes"
    raise UsageError(f"no node of the cluster has {wanted} for a run; the most that nodes have: {most}; {hint}")


def _in_words(name: str, amount: float) -> str:
    return f"{amount / GIB:.4g} GiB of memory" if name == "memory" else f"{amount:g} {name}{'s' * (amount != 1)}"
