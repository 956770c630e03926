"""Programs that are started before what they compute with is there. A CPU waits for it itself, when it is told to."""

import ctypes
import gc
import os
import signal
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLong
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import OrdersHere

from self_imitation.runs import foreign
from self_imitation.runs import meeting
from self_imitation.runs.meeting import Meeting

NEWS = jax.ShapeDtypeStruct((2, 3), np.float32)
DEVICE = jax.local_devices(backend="cpu")[0]


def doubling(orders=None):
    meeting = Meeting(NEWS, NEWS, DEVICE, orders or OrdersHere())

    @jax.jit
    def program(factor):
        answer = factor * meeting.receive()
        return answer, meeting.deliver(answer)

    return meeting, program


def test_a_program_waits_for_the_news_and_answers_them():
    meeting, double = doubling()
    with ThreadPoolExecutor(1) as thread:  # a CPU computes so little at once, in the thread that starts it
        for number in range(3):
            news = np.random.default_rng(number).random(NEWS.shape, np.float32)
            meeting.begin()
            started = thread.submit(double, 2.0)
            with pytest.raises(TooLong):
                started.result(timeout=0.1)
            meeting.put(news)
            np.testing.assert_array_equal(meeting.take(started.result()), 2 * news)


def test_news_may_be_there_before_the_program_and_may_never_come():
    meeting, double = doubling()
    news = np.ones(NEWS.shape, np.float32)
    for number in (1, 2):
        meeting.begin()
        meeting.put(number * news)
        np.testing.assert_array_equal(meeting.take(double(2.0)), 2 * number * news)
    with ThreadPoolExecutor(1) as thread:
        meeting.begin()
        started = thread.submit(double, 2.0)
        with pytest.raises(TooLong):
            started.result(timeout=0.1)
        meeting.let_go()
        started.result(timeout=10)
        meeting.let_go()
    meeting.begin()
    meeting.put(3 * news)
    np.testing.assert_array_equal(meeting.take(double(2.0)), 6 * news, err_msg="it goes on after that")


def test_a_program_that_waits_for_long_is_let_go_and_others_are_not(monkeypatch):
    monkeypatch.setattr(meeting, "PATIENCE", 0.2)
    meet, double = doubling()
    news = np.ones(NEWS.shape, np.float32)
    with ThreadPoolExecutor(1) as thread, meeting.watched([meet]):
        for number in range(6):  # together they wait for much longer
            meet.begin()
            started = thread.submit(double, 2.0)
            time.sleep(0.1)
            assert meet.put(number * news)
            np.testing.assert_array_equal(meet.take(started.result()), 2 * number * news)
        meet.begin()
        begun = time.perf_counter()
        thread.submit(double, 2.0).result(timeout=10)
        assert 0.2 <= time.perf_counter() - begun < 2
        assert not meet.put(news), "nobody waits for them any more"
        meet.begin()
        assert meet.put(3 * news)
        np.testing.assert_array_equal(meet.take(double(2.0)), 6 * news)
    threads = threading.active_count()
    with meeting.watched([]):
        assert threading.active_count() == threads, "of nothing"


def test_whether_news_are_too_late_is_decided_once(monkeypatch):
    """Who watches looks twice while they are put: the program gets them, or nobody believes that it did."""
    meet, double = doubling()
    waits = Meeting._waits

    def slowly(self):
        found = waits(self)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(Meeting, "_waits", slowly)
    news = np.ones(NEWS.shape, np.float32)
    with ThreadPoolExecutor(2) as thread:
        for number in range(1, 4):
            meet.begin()
            started = thread.submit(double, 2.0)
            meet.look()
            looking = thread.submit(meet.look)
            time.sleep(0.03 * number)
            believed = meet.put(number * news)
            looking.result()
            answer = meet.take(started.result())
            assert np.array_equal(answer, 2 * number * news) == believed


def test_numbers_of_meetings_begin_again():
    meet, double = doubling()
    for place in (meet._put, meet._answered):
        place.inside[...] = meeting.NUMBERS - 3
    meet._number = meeting.NUMBERS - 3
    for number in range(7):
        news = np.full(NEWS.shape, number, np.float32)
        meet.begin()
        meet.put(news)
        np.testing.assert_array_equal(meet.take(double(2.0)), 2 * news)
    assert meet._number == 4


def test_a_device_that_does_not_carry_out_its_orders_is_told(monkeypatch):
    class Refusing(OrdersHere):
        def write(self, stream, place, number):
            raise RuntimeError("CUDA answered cuStreamWriteValue32_v2 with error 801")

    class Silent(OrdersHere):
        def write(self, stream, place, number):
            pass

    monkeypatch.setattr(meeting, "LONG", 0.1)
    for orders, told in ((Refusing(), "cuStreamWriteValue32_v2 with error 801"), (Silent(), "did not answer")):
        meet, double = doubling(orders)
        meet.begin()
        meet.put(np.ones(NEWS.shape, np.float32))
        with pytest.raises(RuntimeError, match=told):
            meet.take(double(2.0))


def test_what_interrupts_an_order_is_raised_where_the_answer_is_awaited():
    class Interrupted(OrdersHere):
        def fetch(self, stream, to, place, size):
            raise KeyboardInterrupt

    meet, double = doubling(Interrupted())
    meet.begin()
    meet.put(np.ones(NEWS.shape, np.float32))
    with pytest.raises(KeyboardInterrupt):
        meet.take(double(2.0))


def test_a_fault_is_told_also_where_the_program_was_let_go():
    class Interrupted(OrdersHere):
        def fetch(self, stream, to, place, size):
            raise KeyboardInterrupt

    meet, double = doubling(Interrupted())
    meet.begin()
    meet.let_go()
    double(2.0)
    with pytest.raises(KeyboardInterrupt):
        meet.put(np.ones(NEWS.shape, np.float32))


def test_an_answer_without_news_is_none():
    """As where the order to fetch them was never given."""
    meet, news = Meeting(NEWS, NEWS, DEVICE, OrdersHere()), np.ones(NEWS.shape, np.float32)
    meet.begin()
    meet.put(news)
    with pytest.raises(RuntimeError, match="answers without its news"):
        meet.take(jax.jit(meet.deliver)(news))


def test_signals_wait_until_a_program_has_been_started():
    heard, handlers = [], [signal.getsignal(number) for number in foreign.SIGNALS]
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append("SIGUSR1"))

    @foreign.undisturbed()
    def start():
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        heard.append("started")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert heard == ["started", "SIGUSR1"]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handlers == [signal.getsignal(number) for number in foreign.SIGNALS]
    with ThreadPoolExecutor(1) as thread:
        thread.submit(foreign.undisturbed().__enter__).result()


def test_a_meeting_that_nobody_holds_is_gone():
    meet, double = doubling()
    meet.begin()
    meet.put(np.ones(NEWS.shape, np.float32))
    meet.take(double(2.0))
    there = weakref.ref(meet)
    del meet, double
    jax.clear_caches()
    gc.collect()
    assert there() is None


def test_only_a_gpu_with_shared_memory_and_cudas_own_library_can_wait(monkeypatch):
    class Library:
        def __getattr__(self, name):
            return SimpleNamespace(__name__=name)

    def none(name):
        raise OSError(f"{name}: cannot open shared object file")

    both = {"device", "pinned_host"}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(meeting, "machine", lambda: "x86_64")
    assert meeting.orders_for("gpu", both) is not None
    assert meeting.orders_for("cpu", both) is None
    assert meeting.orders_for("gpu", {"device"}) is None
    monkeypatch.setattr(meeting, "machine", lambda: "aarch64")
    assert meeting.orders_for("gpu", both) is None
    monkeypatch.setattr(meeting, "machine", lambda: "x86_64")
    monkeypatch.setattr(ctypes, "CDLL", none)
    assert meeting.orders_for("gpu", both) is None


def test_an_error_of_cuda_is_told_with_the_function_that_gave_it():
    answering = meeting._function(ctypes.CDLL(None).abs, ctypes.c_int)
    answering(0)
    with pytest.raises(RuntimeError, match="CUDA answered abs with error 700"):
        answering(-700)
