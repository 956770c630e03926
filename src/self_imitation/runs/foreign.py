"""Functions of Python that a compiled program calls when it is started, by XLA's binary interface for foreign functions
(its `ffi/api/c_api.h`, whose structures these are, as far as they are needed). They are told where arguments and
results are on the device, and ask it to do something with them in its turn.
"""

import ctypes
from collections.abc import Callable, Sequence

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


def register(enqueue: Enqueue, failed: Callable[[BaseException], None], platform: str) -> str:
    """The name by which programs call it. What it raises goes to `failed`: it must not come to XLA, who called."""
    name = f"self_imitation.foreign.{len(_handlers)}"

    @_Handler
    def handler(call: "ctypes._Pointer[_Call]") -> None:
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
