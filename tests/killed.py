"""The command `sil`, killed at a moment that the variable KILL names: python -m killed train ..."""

import os
import signal
import sys

from self_imitation.cli.main import main
from self_imitation.storage import files
from self_imitation.storage.metrics_file import MetricsWriter

write_through, write_rows = files.write_through, MetricsWriter.write
count = 0


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_while_writing(path, content):
    """In the middle of the third checkpoint's state."""
    global count
    if path.name == "state.safetensors":
        count += 1
        if count == 3:
            write_through(path, content[: len(content) // 2])
            kill()
    write_through(path, content)


def kill_after_row(writer, rows):
    """Between the third row and the next checkpoint."""
    global count
    write_rows(writer, rows)
    count += 1
    if count == 3:
        kill()


if __name__ == "__main__":
    match os.environ["KILL"]:
        case "checkpoint":
            files.write_through = kill_while_writing
        case "row":
            MetricsWriter.write = kill_after_row
    sys.exit(main(sys.argv[1:]))
