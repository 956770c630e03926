"""Seeds shared out to processes: Python runs one thread at a time, but processes side by side.

Each lane is a `HostProgram` of its own for some of the run's seeds, which keeps their progress. Lanes share nothing.
They listen to this process alone, and end when it does.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec, registry

from self_imitation import agents, devices
from self_imitation.config import TrainConfig, override
from self_imitation.environments.host import engines
from self_imitation.errors import FaultyEnvironmentError
from self_imitation.runs.arrays import from_arrays, join, part, to_arrays
from self_imitation.runs.host_program import HostProgram, share_out
from self_imitation.runs.program import Shapes
from self_imitation.runs.tally import Progress, Tally

PATIENCE = 10.0
"""Seconds that a lane has to close its environments at the end."""


class Lanes:
    """The program of all seeds. Their progress stays in the lanes: what stands for it here is nothing."""

    columns = HostProgram.columns

    def __init__(self, config: TrainConfig, count: int):
        self.config = config
        self.places = share_out(config.seeds, count)
        self._lanes = [_Remote(config, *own) for own in zip(self.places, devices.shares(count), strict=True)]
        self.agent = agents.build(config)
        self.shapes = Shapes(config, self.agent)
        self.device = f"{count} x {self._ask('device')[0]}"

    def begin(self) -> None:
        self._ask("begin")

    def restore(self, saved: Progress, environments: Mapping[str, np.ndarray], step: int) -> tuple[None, str]:
        arrays = to_arrays(saved)
        return None, self._ask("restore", [(part(arrays, p), part(environments, p), step) for p in self.places])[0]

    def compile(self, progress: None) -> None:
        self._ask("compile")

    def advance(self, progress: None, iterations: int) -> None:
        self._ask("advance", [(iterations,)] * len(self._lanes))

    def clear_tally(self, progress: None) -> None:
        self._ask("clear_tally")

    def tally(self, progress: None) -> Tally:
        return jax.tree.map(lambda *parts: np.concatenate(parts), *self._ask("tally"))

    def whole(self, progress: None) -> Progress:
        return from_arrays(join(self._ask("whole")), self.shapes.all_seeds, "the lanes")

    def environments(self) -> dict[str, np.ndarray]:
        return join(self._ask("environments"))

    def own_metrics(self, seed: int) -> dict[str, float]:
        lane = next(i for i, place in enumerate(self.places) if seed < place.stop)
        return self._lanes[lane].ask("own_metrics", seed - self.places[lane].start)

    def close(self) -> None:
        for lane in self._lanes:
            lane.hang_up()
        for lane in self._lanes:
            lane.wait_for_its_end()

    def _ask(self, what: str, arguments: Sequence[tuple] | None = None) -> list[Any]:
        """Every lane at once, each with arguments of its own. All answer, before the first fault of one is raised."""
        for lane, given in zip(self._lanes, arguments or [()] * len(self._lanes), strict=True):
            lane.send(what, *given)
        answers = [lane.receive() for lane in self._lanes]
        for answer in answers:
            if isinstance(answer, BaseException):
                self.close()
                raise answer
        return answers


class _Remote:
    """This process's end of a lane."""

    def __init__(self, config: TrainConfig, place: slice, cores: set[int]):
        self.config = override(config, {"seed": config.seed + place.start, "seeds": place.stop - place.start})
        self._connection, theirs = multiprocessing.Pipe()
        # Not by multiprocessing, which would run the user's script once more, from its top.
        code = f"from self_imitation.runs import lanes; lanes.serve({theirs.fileno()})"
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,  # nothing is ever written: it ends when this process does
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # a terminal's Ctrl-C is for this process to hear
        )
        theirs.close()
        self._connection.send((self.config, cores, engines.registration(config.env)))

    def ask(self, what: str, *arguments: object) -> Any:
        self.send(what, *arguments)
        answer = self.receive()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def send(self, what: str, *arguments: object) -> None:
        with contextlib.suppress(OSError):  # that it is gone, `receive` will tell
            self._connection.send((what, arguments))

    def receive(self) -> Any:
        """Its answer, or what it raised, with where that was."""
        try:
            answer, where = self._connection.recv()
        except (EOFError, OSError):
            return FaultyEnvironmentError(f"environment {self.config.env}: {self._how_it_ended()}")
        if isinstance(answer, BaseException):
            answer.__cause__ = RuntimeError(f"in the process of its lane:\n{where}")
        return answer

    def _how_it_ended(self) -> str:
        code, first, last = self._process.wait(), self.config.seed_numbers[0], self.config.seed_numbers[-1]
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        return f"the process with {f'seed {first}' if first == last else f'seeds {first} to {last}'} ended {how}"

    def hang_up(self) -> None:
        self._connection.close()

    def wait_for_its_end(self) -> None:
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class _Lane:
    """What a lane can be asked for, in its own process."""

    def __init__(self, config: TrainConfig, cores: set[int], known: EnvSpec | None):
        if known is not None:
            registry.setdefault(known.id, known)
        devices.keep_to(cores)
        devices.prepare(config)
        self.program = HostProgram(config)
        self.progress: Any = None

    def device(self) -> str:
        return self.program.device

    def begin(self) -> None:
        self.progress = self.program.begin()

    def restore(self, arrays: dict[str, np.ndarray], environments: dict[str, np.ndarray], step: int) -> str:
        saved = from_arrays(arrays, self.program.shapes.all_seeds, "the run")
        self.progress, lost = self.program.restore(saved, environments, step)
        return lost

    def compile(self) -> None:
        self.program.compile(self.progress)

    def advance(self, iterations: int) -> None:
        self.progress = self.program.advance(self.progress, iterations)

    def clear_tally(self) -> None:
        self.progress = self.program.clear_tally(self.progress)

    def tally(self) -> Tally:
        return self.program.tally(self.progress)

    def whole(self) -> dict[str, np.ndarray]:
        return to_arrays(self.program.whole(self.progress))

    def environments(self) -> dict[str, np.ndarray]:
        return self.program.environments()

    def own_metrics(self, seed: int) -> dict[str, float]:
        return self.program.own_metrics(seed)


def serve(descriptor: int) -> None:
    """A lane's process: answer what is asked, until nobody can ask any more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection = Connection(descriptor)
    lane: _Lane | None = None
    try:
        given = connection.recv()
        while True:
            what, arguments = connection.recv()
            try:
                lane = lane or _Lane(*given)
                answer: tuple[Any, str] = getattr(lane, what)(*arguments), ""
            except Exception as error:
                answer = _sendable(error), traceback.format_exc()
            connection.send(answer)
    except (EOFError, OSError):
        pass
    finally:
        if lane is not None:
            lane.program.close()


def _end_with_parent() -> None:
    """Also in the middle of a step that takes for ever."""
    os.read(sys.stdin.fileno(), 1)  # not the file object: its lock would be held when this process comes to its end
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """Not every exception can travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
