"""Start `holdfast` processes as forks of an interpreter that has imported the program.

Imports are four fifths of the processor time of a member's start (0.55 of 0.7 s), and the tests start hundreds of
members. Such a fork is still a real process, with its own pid, session, environment and exit status.

    process = start_program([*COMMAND, "start", "--name", "one"], log, {})

`subprocess.Popen` is used where forks are not enabled, for another program than `COMMAND`, and for commands with
additional environment variables, since these may matter to the imports.

- Forks of one server have the same hash seed, so their sets have the same order. The servers (`SERVERS`, each with its
  own seed) take turns, so that tests bring members together that disagree because of such an order.
- The server reaps an ended process only when asked for its status. Until then the pid is a zombie's, as with `Popen`,
  so a signal never reaches another process that was given the same pid.
- The servers end with the process that started them: they read the end of the socket.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

COMMAND = [sys.executable, "-c", "from holdfast.cli.main import main; main()"]
SERVERS = 2
MESSAGE_BYTES = 1 << 20
SERVE = "import sys; from holdfast_lab.processes.fork_server import serve; serve(int(sys.argv[1]))"
IMPORTED = (
    "holdfast.cli.main",
    "holdfast.cli.start",
    "holdfast.runtime.process",
    "holdfast.runtime.control",
    "holdfast.client.blocking",
)


class Process(Protocol):
    """The part of `subprocess.Popen` that a started program has."""

    pid: int
    returncode: int | Any

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Does nothing after the end, like `kill`."""

    def kill(self) -> None: ...


class ForkedProcess:
    def __init__(self, server: ForkServer, pid: int, command: list[str]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._command = command
        self._handle = os.pidfd_open(pid)
        self._asking = threading.Lock()
        """The server knows a status until it is asked once, and would end if another thread asked again."""

    def __del__(self) -> None:
        os.close(self._handle)

    def poll(self) -> int | None:
        with self._asking:
            if self.returncode is None:
                self.returncode = self._server.ask({"status": self.pid})
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ends = select.poll()
            ends.register(self._handle, select.POLLIN)
            if not ends.poll(None if timeout is None else max(0.0, timeout) * 1000):
                assert timeout is not None
                raise subprocess.TimeoutExpired(self._command, timeout)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            # Before they have their own, its forks have the server's output: none.
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )

    def ask(self, request: dict[str, Any], *files: int) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            answer = self._socket.recv(MESSAGE_BYTES)
        if not answer:
            raise ConnectionError("the fork server has ended: its error is above")
        return json.loads(answer)

    def start(self, command: list[str], out: IO[bytes], error: IO[bytes] | None = None) -> ForkedProcess:
        """Start `COMMAND` with these arguments in its own session; `out` is also for errors without `error`."""
        request = {
            "start": command[len(COMMAND) :],
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
        }
        pid = self.ask(request, out.fileno(), (error or out).fileno())
        return ForkedProcess(self, pid, command)

    def close(self) -> None:
        """End the server; processes that it started continue."""
        self._socket.close()
        self._process.wait()


class _Servers:
    def __init__(self) -> None:
        self.enabled = False
        self._owner = 0
        self._running: list[ForkServer] = []
        self._turn = 0

    def next(self) -> ForkServer:
        if self._owner != os.getpid():  # a fork of a process with servers needs its own
            self._owner, self._running = os.getpid(), []
            self._turn = 0
        if self._turn == len(self._running):
            self._running.append(ForkServer())
        server = self._running[self._turn]
        self._turn = (self._turn + 1) % SERVERS
        return server

    def close(self) -> None:
        if self._owner == os.getpid():
            for server in self._running:
                server.close()
        self._running = []


_servers = _Servers()


def enable_forks() -> None:
    """From now on start programs as forks, where the system supports that (Linux)."""
    _servers.enabled = hasattr(os, "pidfd_open")


def end_servers() -> None:
    _servers.close()


def start_program(command: list[str], out: IO[bytes], environment: Mapping[str, str]) -> Process:
    """Start a program in its own session, with its output and errors in `out` and no input. `environment` is
    added to that of this process.
    """
    if _servers.enabled and not environment and command[: len(COMMAND)] == COMMAND:
        return _servers.next().start(command, out)
    # In its own session, Ctrl-C at the terminal reaches only this process, which ends the members in order.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **environment},
    )


def run_program(words: Iterable[object], timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Returns exit status, output and errors. Raises subprocess.TimeoutExpired."""
    command = [*COMMAND, *map(str, words)]
    if not _servers.enabled:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as error:
        process = _servers.next().start(command, out, error)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (out, error):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(command, status, *texts)


# -- in the server


def serve(number: int) -> None:
    """Handle the requests that arrive on this socket until it is closed. In a new process: run the program."""
    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as requests:
        while (start := _until_start(requests)) is not None:
            request, files = start
            begun, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                requests.close()
                os.close(begun)
                _become(request, files)
                os.close(tell)
                _run()
            for file in [*files, tell]:
                os.close(file)
            os.read(begun, 1)  # until it has its session, or has ended
            os.close(begun)
            requests.send(json.dumps(pid).encode())


def _until_start(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Answer questions about statuses until a program has to be started; None at the end."""
    while True:
        text, files, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 2)
        if not text:
            return None
        request = json.loads(text)
        if "start" in request:
            return request, files
        pid, status = os.waitpid(request["status"], os.WNOHANG)
        requests.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())


def _become(request: dict[str, Any], files: list[int]) -> None:
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    out, error = files
    os.dup2(out, 1)
    os.dup2(error, 2)
    for file in files:
        os.close(file)
    sys.argv = ["-c", *request["start"]]


def _run() -> None:
    """Run the program, and exit without the teardown of the interpreter: that would visit all that was
    imported, and copy each page of it, for 0.1 s of processor time.
    """
    from holdfast.cli.main import main

    try:
        main()
        code: object = None
    except SystemExit as end:
        code = end.code
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - as the interpreter does at its end
    atexit._run_exitfuncs()  # noqa: SLF001 - the same
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else bool(code))
