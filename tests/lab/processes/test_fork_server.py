"""Processes as forks of a server: they are processes like any other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast_lab.processes.fork_server import COMMAND, SERVERS, ForkedProcess, ForkServer, start_program

START = [*COMMAND, "start", "--member-port", "0", "--client-port", "0"]
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def member(server: ForkServer, tmp_path: Path) -> Iterator[ForkedProcess]:
    with (tmp_path / "log").open("wb") as out:
        process = server.start(START, out)
    yield process
    process.kill()
    process.wait()


def run(server: ForkServer, tmp_path: Path, *words: str) -> tuple[int, str]:
    with (tmp_path / "out").open("wb") as out:
        status = server.start([*COMMAND, *words], out).wait(PATIENCE_S)
    return status, (tmp_path / "out").read_text()


def test_the_program_gets_its_arguments_and_its_exit_status_is_known(
    server: ForkServer, tmp_path: Path
) -> None:
    status, text = run(server, tmp_path, "--version")
    executed = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert (status, text) == (0, executed.stdout)
    status, text = run(server, tmp_path, "start", "--member-port", "none")
    assert (status, "none" in text) == (2, True)


def test_a_process_has_the_environment_and_the_folder_of_its_start(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_MEMBER_NAME", "from the environment")
    (tmp_path / "own.toml").write_text("[cluster]\nname = 'from the folder'\n")
    status, text = run(server, tmp_path, "config", "own.toml")
    assert status == 0, text
    monkeypatch.setenv("HOLDFAST_MEMBER_NAMES", "unknown")
    status, text = run(server, tmp_path, "config", "own.toml")
    assert (status, "HOLDFAST_MEMBER_NAMES" in text) == (2, True)


def test_a_process_is_waited_for_and_killed_like_any_other(member: ForkedProcess) -> None:
    assert member.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        member.wait(0.01)
    member.kill()
    assert (member.wait(PATIENCE_S), member.poll(), member.returncode) == (-9, -9, -9)
    member.send_signal(signal.SIGTERM)  # nothing happens to a process that has ended


def test_an_ended_process_keeps_its_pid_until_it_is_asked_for(member: ForkedProcess) -> None:
    os.kill(member.pid, signal.SIGKILL)
    signal.pidfd_send_signal(member._handle, 0)
    assert Path(f"/proc/{member.pid}").exists()
    assert member.wait(PATIENCE_S) == -9
    assert not Path(f"/proc/{member.pid}").exists()


def test_a_process_has_a_session_of_its_own(server: ForkServer, member: ForkedProcess) -> None:
    assert os.getsid(member.pid) == member.pid != os.getsid(server._process.pid)


def test_processes_outlive_their_server(tmp_path: Path) -> None:
    server = ForkServer()
    with (tmp_path / "log").open("wb") as out:
        member = server.start(START, out)
    server.close()
    signal.pidfd_send_signal(member._handle, 0)  # it is still there
    signal.pidfd_send_signal(member._handle, signal.SIGKILL)


def test_another_program_or_environment_is_executed(tmp_path: Path) -> None:
    """The suite enables forks (tests/conftest.py); these are commands for which a fork would be another program."""
    with (tmp_path / "log").open("wb") as out:
        forked = start_program([*COMMAND, "--version"], out, {})
        others = [
            start_program([COMMAND[0], "-c", "import os; print(os.getppid())"], out, {}),
            start_program([*COMMAND, "--version"], out, {"PYTHONHASHSEED": "1"}),
        ]
        assert [one.wait(PATIENCE_S) for one in [forked, *others]] == [0, 0, 0]
    assert isinstance(forked, ForkedProcess)
    assert all(isinstance(other, subprocess.Popen) for other in others)
    assert str(os.getpid()) in (tmp_path / "log").read_text().splitlines()


def test_members_that_start_together_are_forks_of_different_servers(tmp_path: Path) -> None:
    """With one hash seed, a placement that depends on the order of a set would be the same in all members."""
    with (tmp_path / "log").open("wb") as out:
        members = [start_program(START, out, {}) for _ in range(SERVERS)]
    parents = {
        Path(f"/proc/{member.pid}/stat").read_text().rpartition(")")[2].split()[1] for member in members
    }
    for member in members:
        member.kill()
        member.wait()
    assert len(parents) == SERVERS > 1


def test_threads_may_ask_for_the_end_of_a_process_at_the_same_time(
    server: ForkServer, tmp_path: Path
) -> None:
    """As an onlooker's thread and a test do that kills a member."""
    with (tmp_path / "out").open("wb") as out:
        process = server.start([*COMMAND, "--version"], out)
    poll = select.poll()
    poll.register(process._handle, select.POLLIN)
    assert poll.poll(PATIENCE_S * 1000), "it has ended, and its status was not asked for"
    together = threading.Barrier(8)

    def status() -> int | None:
        together.wait()
        return process.poll()

    with ThreadPoolExecutor(8) as pool:
        assert {one.result() for one in [pool.submit(status) for _ in range(8)]} == {0}
    assert run(server, tmp_path, "--version")[0] == 0, "the server lives"
