"""Where host and device meet: programs that are started before what they compute with is there.

To start a program takes the host several times as long as a GPU takes to act for a few environments. So one is started
while the environments still step, and waits. When they have stepped, the host writes what they show into memory that it
shares with the GPU, and then that it is there; the GPU sees it, fetches it, acts, and writes the actions in the same
way. Nothing of JAX lies between one step of the environments and the next.

While a program waits, so does all that the device is asked for after it: ask for nothing before it has been answered.
What the driver then does for others, such as to load a program, may wait for it too, and the host for that. So someone
watches: a program that waits for long is let go without its news, and what it answers is not used.
"""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from platform import machine
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
PATIENCE = 5.0
"""Seconds: a program that waits for news at two looks so far apart is let go."""
SHARED = "pinned_host"
"""The kind of memory of the host that devices can read and write by themselves."""
ORDERED = ("x86_64", "AMD64")
"""Processors whose memory others see change in the order in which it was written."""
NUMBERS = 1 << 32
"""Meetings have numbers below this; after the last one comes 0."""


@runtime_checkable
class Orders(Protocol):
    """What can be asked of a device in its turn, by its stream. Places are in memory of the host that it shares."""

    def wait(self, stream: int, place: int, number: int) -> None:
        """Until this number is there, or a later one."""

    def write(self, stream: int, place: int, number: int) -> None: ...

    def fetch(self, stream: int, to: int, place: int, size: int) -> None:
        """From the host."""

    def bring(self, stream: int, place: int, source: int, size: int) -> None:
        """To the host."""


class Cuda:
    """By the driver's own library. A stream that waits takes nothing from the GPU, neither here nor from others."""

    def __init__(self) -> None:
        """Raises OSError or AttributeError, where there is no such library, or an old one."""
        library, word, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint32, ctypes.c_size_t
        place = stream = ctypes.c_void_p
        self._wait = _function(library.cuStreamWaitValue32_v2, stream, place, word, ctypes.c_uint)
        self._write = _function(library.cuStreamWriteValue32_v2, stream, place, word, ctypes.c_uint)
        self._fetch = _function(library.cuMemcpyHtoDAsync_v2, place, place, size, stream)
        self._bring = _function(library.cuMemcpyDtoHAsync_v2, place, place, size, stream)
        self._find = _function(library.cuMemHostGetDevicePointer_v2, place, place, ctypes.c_uint)
        self._found: dict[int, int] = {}
        """Where places are for the device."""

    def wait(self, stream: int, place: int, number: int) -> None:
        at_least = 0
        self._wait(stream, self._for_device(place), number, at_least)

    def write(self, stream: int, place: int, number: int) -> None:
        after_all_before = 0
        self._write(stream, self._for_device(place), number, after_all_before)

    def fetch(self, stream: int, to: int, place: int, size: int) -> None:
        self._fetch(to, place, size, stream)

    def bring(self, stream: int, place: int, source: int, size: int) -> None:
        self._bring(place, source, size, stream)

    def _for_device(self, place: int) -> int:
        if place not in self._found:
            answer = ctypes.c_void_p()
            self._find(ctypes.addressof(answer), place, 0)
            assert answer.value is not None
            self._found[place] = answer.value
        return self._found[place]


def _function(function: Any, *types: type) -> Callable[..., None]:
    function.argtypes, function.restype = types, ctypes.c_int

    def call(*arguments: int) -> None:
        if code := function(*arguments):
            raise RuntimeError(f"CUDA answered {function.__name__} with error {code}")

    return call


def orders_for(platform: str, memories: set[str]) -> Orders | None:
    """None: programs on such a device, with memories of these kinds, can't be started early."""
    if platform not in ("gpu", "cuda") or SHARED not in memories or machine() not in ORDERED:
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
        """The number of the latest meeting whose news are there, and of the latest whose answer is."""
        self._orders, self._number, self._fetched = orders, 0, 0
        """Numbers: of the latest meeting, and of the latest whose news the device was told to fetch."""
        self._looked_for: int | None = None
        """The number of the meeting whose news were awaited at the last look."""
        self._one_at_a_time = threading.Lock()
        """To say that news are there: who has them, and who watches."""
        self._fault: BaseException | None = None
        kind = "cpu" if device.platform == "cpu" else "CUDA"
        self._receive = jax.ffi.ffi_call(foreign.register(self._on_receive, self._failed, kind), news)
        self._deliver = jax.ffi.ffi_call(foreign.register(self._on_deliver, self._failed, kind), number)

    def receive(self) -> Array:
        """The news, in a program."""
        return self._receive()

    def deliver(self, answer: Array) -> Array:
        """In a program, which must also give what this gives: so that XLA sees that it is wanted."""
        return self._deliver(answer)

    def begin(self) -> None:
        """A meeting: now start a program and put its news, in either order."""
        self._number = (self._number + 1) % NUMBERS

    def put(self, news: np.ndarray) -> bool:
        """False: too late, the program has been let go."""
        assert news.shape == self._news.inside.shape
        self._raise_fault()
        with self._one_at_a_time:
            if waits := self._waits():
                self._news.inside[...] = news
                self._put.inside[...] = self._number
        return waits

    def take(self, started: PyTree) -> np.ndarray:
        """The answer; `started`: what the program gives."""
        begun, answered = time.perf_counter(), ctypes.c_uint32.from_address(self._answered.place)
        while answered.value != self._number and self._fault is None:
            waited = time.perf_counter() - begun
            if waited > SOON:
                time.sleep(NAP)
            if waited > LONG:
                jax.block_until_ready(started)  # raises what went wrong
                if answered.value != self._number:
                    self._failed(RuntimeError("the device did not answer"))
        self._raise_fault()
        return self._answer.inside.copy()

    def let_go(self) -> None:
        """Whatever waits for news may go on without: nobody wants its answer."""
        with self._one_at_a_time:
            self._put.inside[...] = self._number

    def look(self) -> None:
        """To be called now and then, by someone who watches."""
        with self._one_at_a_time:
            awaited = self._number if self._waits() else None
            if awaited is not None and awaited == self._looked_for:
                self._put.inside[...] = awaited
            self._looked_for = awaited

    def _waits(self) -> bool:
        return int(self._put.inside) != self._number

    def _on_receive(self, stream: int, places: Sequence[int]) -> None:
        self._orders.wait(stream, self._put.place, self._number)
        self._orders.fetch(stream, places[0], self._news.place, self._news.inside.nbytes)
        self._fetched = self._number

    def _on_deliver(self, stream: int, places: Sequence[int]) -> None:
        if self._fetched != self._number:
            raise RuntimeError("a program answers without its news")
        self._orders.bring(stream, self._answer.place, places[0], self._answer.inside.nbytes)
        self._orders.write(stream, self._answered.place, self._number)

    def _failed(self, fault: BaseException) -> None:
        self._fault = self._fault or fault

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault


@contextlib.contextmanager
def watched(meetings: Sequence[Meeting]) -> Iterator[None]:
    """Meanwhile none of their programs waits for ever, and in the end none waits at all."""
    if not meetings:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(PATIENCE):
            for meeting in meetings:
                meeting.look()
        for meeting in meetings:  # here, where nothing interrupts
            meeting.let_go()

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        watcher.start()
        yield
    finally:
        over.set()
        watcher.join()


class _Shared(NamedTuple):
    array: Array
    inside: np.ndarray
    """Its own memory, to read and write; valid as long as the array is."""
    place: int


def _shared(form: jax.ShapeDtypeStruct, device: jax.Device) -> _Shared:
    """Memory of the host that the device can read and write by itself; all 0."""
    sharding = SingleDeviceSharding(device).with_memory_kind(SHARED)
    array = jax.block_until_ready(jax.device_put(np.zeros(form.shape, form.dtype), sharding))
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.unsafe_buffer_pointer())
    inside = np.ctypeslib.as_array(memory).view(form.dtype).reshape(form.shape)
    return _Shared(array, inside, array.unsafe_buffer_pointer())
