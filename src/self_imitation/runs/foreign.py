"""Functions of Python that a compiled program calls when it is started, by XLA's binary interface for foreign functions
(its `ffi/api/c_api.h`, whose structures these are, as far as they are needed). They are told where arguments and
results are on the device, and ask it to do something with them in its turn.
"""

import contextlib
import ctypes
import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import jax

Enqueue = Callable[[int, Sequence[int]], None]
"""From the stream of a GPU (0 elsewhere), and where arguments and results are, arguments first."""


class _Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    ]


class _Metadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _Extension(ctypes.Structure):
    """A question about a function, instead of a call: what it was made for."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("following", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    ]


class _Stream(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


class _Interface(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 4),
        ("get_stream", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Stream))),
    ]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
    ]


class _Buffers(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("buffers", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(_Extension)),
        ("interface", ctypes.POINTER(_Interface)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
    ]


ASKED_WHAT_FOR = 1
"""The kind of that question."""

_Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Call))
_handlers: list[Callable] = []
"""XLA knows only where they are: they stay for good."""


SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]
"""Those that people stop a program with, or tell it the time."""


def register(enqueue: Enqueue, failed: Callable[[BaseException], None], platform: str) -> str:
    """The name by which programs call it; they must not outlive the object whose methods these are, which is not kept.
    What it raises goes to `failed`: it must not come to XLA, who called.
    """
    name = f"self_imitation.foreign.{len(_handlers)}"
    methods = weakref.WeakMethod(enqueue), weakref.WeakMethod(failed)

    @_Handler
    def handler(call: "ctypes._Pointer[_Call]") -> None:
        enqueue, failed = methods[0](), methods[1]()
        if enqueue is None or failed is None:
            return  # nor is there anyone who waits for it
        try:
            if call.contents.extension:
                _say_what_for(call.contents)
            else:
                stream = 0 if platform == "cpu" else _stream(call.contents)
                enqueue(stream, _places(call.contents.arguments) + _places(call.contents.results))
        except BaseException as fault:
            failed(fault)

    _handlers.append(handler)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.cast(handler, ctypes.c_void_p)), platform=platform)
    return name


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """To start programs in that call such functions: signals are heeded when that is done. What one of them raises
    could otherwise come before a function's first line, where it would be lost, and with it what the function is for.
    """
    if threading.current_thread() is not threading.main_thread():  # no signal comes here
        yield
        return
    noted: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Callable] = {
        number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))
    }
    try:
        for number in handlers:
            signal.signal(number, lambda *given: noted.append(given))
        yield
    finally:
        for number, handler in reversed(handlers.items()):
            signal.signal(number, handler)
        for number, frame in noted:
            handlers[number](number, frame)


def _say_what_for(call: _Call) -> None:
    """For XLA's own version, if it says which that is; and not to be put into CUDA graphs."""
    question = call.extension.contents
    if question.kind == ASKED_WHAT_FOR and call.interface:
        question.metadata.contents.version = call.interface.contents.version
        question.metadata.contents.traits = 0


def _stream(call: _Call) -> int:
    asked = _Stream(ctypes.sizeof(_Stream), None, call.context, None)
    if call.interface.contents.get_stream(ctypes.byref(asked)) or not asked.stream:
        raise RuntimeError("XLA does not tell the stream of its program")
    return asked.stream


def _places(buffers: _Buffers) -> list[int]:
    return [buffers.buffers[i].contents.data for i in range(buffers.count)]
