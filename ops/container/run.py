"""Runs `holdfast` in a container, which stays after a member was not started because of a wrong setting.

A container is started again after any exit status (compose: on-failure, Kubernetes: always). After 4 (no cluster found)
and 70 (an error inside the member) that helps. After 2 the same settings would be wrong again: the container stays,
unhealthy, with the error as the last line of its log, until it is stopped.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

MISUSED = 2
COMMAND = Path(sys.executable).with_name("holdfast")


def main(arguments: list[str]) -> int:
    """Run the command, pass signals on, and return its exit status, as a shell would."""
    stopped = threading.Event()
    process = subprocess.Popen([COMMAND, *arguments])

    def pass_on(number: int, _: FrameType | None) -> None:
        stopped.set()
        if process.poll() is None:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    status = process.wait()
    if status == MISUSED and arguments[:1] == ["start"] and not stopped.is_set():
        sys.stderr.write("holdfast: not started; correct the settings, and replace this container\n")
        while not stopped.wait(60):
            pass
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
