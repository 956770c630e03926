"""TensorBoard event files, written at once and in the caller's thread, so that a full disk is an error, not a hang."""

import math
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar


class EventFile:
    """The scalars of one seed."""

    def __init__(self, directory: Path, forget_from: int | None):
        """`forget_from`: TensorBoard drops what an interrupted stretch wrote from that step on."""
        directory.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(directory / "events"))
        if forget_from is not None:
            self._write(Event(step=forget_from, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            if math.isfinite(value):
                self._write(Event(step=step, summary=scalar(name, value)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write_event(event)
