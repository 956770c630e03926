"""Where host and device meet: programs that are started before what they compute with is there.

To start a program takes the host several times as long as a GPU takes to act for a few environments. So one is started
while the environments still step, and waits. When they have stepped, the host writes what they show into memory that it
shares with the GPU, and then that it is there; the GPU sees it, fetches it, acts, and writes the actions in the same
way. Nothing of JAX lies between one step of the environments and the next.

While a program waits, so does all that the device is asked for after it: ask for nothing before it has been answered.
"""

import contextlib
import ctypes
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, PyTree

from self_imitation.runs import foreign

SOON, NAP, LONG = 2e-3, 2e-5, 1.0
"""Seconds: for so long the host looks for an answer without a pause, then with such pauses, and in the end it asks JAX
what has become of the program.
"""
MOST = 1 << 32
"""Meetings have numbers from 1 to below this, and then again."""


@runtime_checkable
class Orders(Protocol):
    """What can be asked of a device in its turn, by its stream. Places are in memory of the host that it shares."""

    def wait(self, stream: int, place: int, number: int) -> None:
        """Until this number is there."""

    def write(self, stream: int, place: int, number: int) -> None: ...

    def fetch(self, stream: int, to: int, place: int, size: int) -> None:
        """From the host."""

    def bring(self, stream: int, place: int, source: int, size: int) -> None:
        """To the host."""


class Cuda:
    """By the driver's own library. A stream that waits takes nothing from the GPU, neither here nor from others."""

    EQUAL = 1

    def __init__(self) -> None:
        """Raises OSError or AttributeError, where there is no such library, or an old one."""
        library, word, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint32, ctypes.c_size_t
        place = stream = ctypes.c_void_p
        self._wait = _function(library.cuStreamWaitValue32_v2, stream, place, word, ctypes.c_uint)
        self._write = _function(library.cuStreamWriteValue32_v2, stream, place, word, ctypes.c_uint)
        self._fetch = _function(library.cuMemcpyHtoDAsync_v2, place, place, size, stream)
        self._bring = _function(library.cuMemcpyDtoHAsync_v2, place, place, size, stream)

    def wait(self, stream: int, place: int, number: int) -> None:
        self._wait(stream, place, number, self.EQUAL)

    def write(self, stream: int, place: int, number: int) -> None:
        self._write(stream, place, number, 0)

    def fetch(self, stream: int, to: int, place: int, size: int) -> None:
        self._fetch(to, place, size, stream)

    def bring(self, stream: int, place: int, source: int, size: int) -> None:
        self._bring(place, source, size, stream)


def _function(function: Any, *types: type) -> Callable[..., None]:
    function.argtypes, function.restype = types, ctypes.c_int

    def call(*arguments: int) -> None:
        if code := function(*arguments):
            raise RuntimeError(f"CUDA answered {function.__name__} with error {code}")

    return call


@cache
def orders_for(platform: str) -> Orders | None:
    """None: programs on such devices can't be started early."""
    if platform not in ("gpu", "cuda"):
        return None
    try:
        return Cuda()
    except (OSError, AttributeError):
        return None


class Meeting:
    """Of the host with one program after another, each of which is given news and answers."""

    def __init__(self, news: jax.ShapeDtypeStruct, answer: jax.ShapeDtypeStruct, device: jax.Device, orders: Orders):
        number = jax.ShapeDtypeStruct((), np.uint32)
        self._news, self._answer = _shared(news, device), _shared(answer, device)
        self._put, self._answered = _shared(number, device), _shared(number, device)
        """The number of the meeting whose news are there, and of that whose answer is."""
        self._orders, self._fault = orders, ""
        self._numbers = {who: itertools.cycle(range(1, MOST)) for who in ("receive", "put", "deliver", "take")}
        platform = "cpu" if device.platform == "cpu" else "CUDA"
        self._receive = jax.ffi.ffi_call(foreign.register(self._on_receive, platform), news)
        self._deliver = jax.ffi.ffi_call(foreign.register(self._on_deliver, platform), number)

    def receive(self) -> Array:
        """The news, in a program."""
        return self._receive()

    def deliver(self, answer: Array) -> Array:
        """In a program, which must also give what this gives: so that XLA sees that it is wanted."""
        return self._deliver(answer)

    def put(self, news: np.ndarray | None) -> None:
        """For the program that was started, or is to be; None: it may go on, for nobody wants its answer."""
        if news is not None:
            self._news.inside[...] = news
        self._put.inside[...] = next(self._numbers["put"])

    def take(self, started: PyTree) -> np.ndarray:
        """The answer; `started`: what the program gives."""
        number, answered = next(self._numbers["take"]), ctypes.c_uint32.from_address(self._answered.place)
        begun = time.perf_counter()
        while answered.value != number:
            waited = time.perf_counter() - begun
            if waited > SOON:
                time.sleep(NAP)
            if waited > LONG:
                jax.block_until_ready(started)  # raises what went wrong
                if answered.value != number:
                    self._fault = self._fault or "the device did not answer"
                    break
        if self._fault:
            raise RuntimeError(self._fault)
        return self._answer.inside.copy()

    def _on_receive(self, stream: int, places: Sequence[int]) -> None:
        with self._noted():
            self._orders.wait(stream, self._put.place, next(self._numbers["receive"]))
            self._orders.fetch(stream, places[0], self._news.place, self._news.inside.nbytes)

    def _on_deliver(self, stream: int, places: Sequence[int]) -> None:
        with self._noted():
            self._orders.bring(stream, self._answer.place, places[0], self._answer.inside.nbytes)
            self._orders.write(stream, self._answered.place, next(self._numbers["deliver"]))

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Faults: XLA, which calls, can't be told of them."""
        try:
            yield
        except Exception as fault:
            self._fault = str(fault)


class _Shared(NamedTuple):
    array: Array
    inside: np.ndarray
    """Its own memory, to read and write; valid as long as the array is."""
    place: int


def _shared(form: jax.ShapeDtypeStruct, device: jax.Device) -> _Shared:
    """Memory of the host that the device can read and write by itself; all 0."""
    sharding = SingleDeviceSharding(device).with_memory_kind("pinned_host")
    array = jax.block_until_ready(jax.device_put(np.zeros(form.shape, form.dtype), sharding))
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.unsafe_buffer_pointer())
    inside = np.ctypeslib.as_array(memory).view(form.dtype).reshape(form.shape)
    return _Shared(array, inside, array.unsafe_buffer_pointer())
