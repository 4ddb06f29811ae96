"""`holdfast start --members`: several member processes under one command."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.aio import BlockingClient
from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.config import load
from holdfast.core.model.member_status import MemberStatus
from holdfast.errors import ConfigError, HoldfastError
from holdfast.runtime.memory import limit_of
from holdfast.runtime.supervisor import cores, places, told
from holdfast_lab.processes.fork_server import COMMAND, run_program, start_program
from holdfast_lab.processes.local_cluster import HOST, PORTS

QUICK = ["--partitions", "31", "--set", "cluster.heartbeat_ms=200", "--set", "cluster.suspect_after_ms=10000"]


def neighbours(count: int) -> int:
    """The first of so many free ports in a row."""
    for first in random.sample(PORTS[:-count], 1000):
        with ExitStack() as stack:
            try:
                for number in range(count):
                    stack.enter_context(socket.socket()).bind((HOST, first + number))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def until(reached: Callable[[], object], why: Callable[[], str], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)


class Running:
    """A supervisor with its members."""

    def __init__(self, folder: Path, count: int, *more: str) -> None:
        self.log = folder / "log"
        self.count = count
        self.first = neighbours(2 * count)
        command = [*COMMAND, "start", "--members", str(count), "--name", "t", *QUICK, *more]
        command += ["--member-port", str(self.first), "--client-port", str(self.first + count)]
        with self.log.open("wb") as out:
            self.process = start_program(command, out, {})

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def pids(self, name: str = r"t-\d+") -> list[int]:
        """Of every process of this member, or of all, oldest first."""
        return [int(pid) for pid in re.findall(rf"member {name} is process (\d+)", self.said())]

    def status(self, number: int = 1) -> MemberStatus:
        with Client(f"{HOST}:{self.first + self.count + number - 1}", timeout_s=5) as client:
            return client.status()

    def whole(self) -> bool:
        """Whether all are in one cluster, and it is safe."""
        try:
            seen = [self.status(number) for number in range(1, self.count + 1)]
        except (HoldfastError, OSError):
            return False
        return all(one.safe and len(one.members) == self.count for one in seen)

    def until(self, reached: Callable[[], object]) -> None:
        until(reached, self.said)

    def gone(self) -> bool:
        return not any(map(runs, self.pids()))


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@contextmanager
def running(folder: Path, count: int, *more: str) -> Iterator[Running]:
    one = Running(folder, count, *more)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        for pid in filter(runs, one.pids()):
            os.kill(pid, signal.SIGKILL)


def test_members_under_one_command_are_one_cluster_and_end_together(tmp_path: Path) -> None:
    with running(tmp_path, 2) as one:
        one.until(one.whole)
        assert "WARNING supervisor: if one of two members crashes" in one.said()
        seen = one.status()
        assert sorted(member.name for member in seen.members) == ["t-1", "t-2"]
        # A line comes through the supervisor, and may be later than the answer to a client.
        for name in ("t-1", "t-2"):
            one.until(lambda name=name: re.search(rf"^{name} \| .*ready uuid=", one.said(), re.MULTILINE))
        if len(cores()) >= 2:
            assert [os.sched_getaffinity(pid) for pid in one.pids()] == [{core} for core in cores()[:2]]

        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 0, one.said()
        assert one.gone()
        assert one.said().count("ended with status 0") == 2


def test_a_member_that_dies_is_named_and_started_again(tmp_path: Path) -> None:
    with running(tmp_path, 3) as one:
        one.until(one.whole)
        with Client(f"{HOST}:{one.first + 3}") as client:
            for number in range(50):
                client.set("m", b"%d" % number, b"value")
        (pid,) = one.pids("t-1")
        os.kill(pid, signal.SIGKILL)
        one.until(lambda: len(one.pids("t-1")) == 2)
        assert "no majority when" not in one.said()
        assert "member t-1 was killed by signal 9; it is started again in 1 s" in one.said()
        one.until(one.whole)
        with Client(f"{HOST}:{one.first + 4}") as client:
            assert all(client.get("m", b"%d" % number) == b"value" for number in range(50))


def test_one_that_an_operator_lets_go_stays_away(tmp_path: Path) -> None:
    with running(tmp_path, 2) as one:
        one.until(one.whole)
        drained = run_program(["member", "drain", f"{HOST}:{one.first + 3}"])
        assert drained.returncode == 0, drained.stderr
        one.until(lambda: "member t-2 ended with status 0" in one.said())
        one.until(lambda: len(one.status().members) == 1)
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(60) == 0, one.said()
        assert len(one.pids("t-2")) == 1


def test_members_of_a_supervisor_that_is_killed_leave(tmp_path: Path) -> None:
    with running(tmp_path, 2) as one:
        one.until(one.whole)
        one.process.kill()
        one.process.wait()
        one.until(one.gone)


def test_a_port_that_is_taken_ends_all(tmp_path: Path) -> None:
    with running(tmp_path, 2) as one:
        one.until(one.whole)
        # Another two, of which the second wants the first one's door.
        command = ["start", "--members", "2", *QUICK, "--member-port", str(neighbours(2))]
        again = run_program([*command, "--client-port", one.first - 1])
        assert again.returncode == 2, again.stdout
        assert f"client_port = {one.first}: cannot listen on" in again.stdout
        assert (
            "member member-2 ended with status 2: it could not be started, so all others end" in again.stdout
        )


# -- what each has for itself


def test_each_member_has_doors_a_name_a_directory_and_its_share_of_memory() -> None:
    settings = load(
        None,
        {},
        {
            "member.name": "n",
            "member.member_port": 7000,
            "member.client_port": 8000,
            "persistence.directory": "/data",
            "cluster.seeds": ["10.0.0.1:7000"],
            "cluster.bootstrap": True,
        },
    )
    first, second = (dict(place.own) for place in places(settings, 2))
    assert [place.name for place in places(settings, 2)] == ["n-1", "n-2"]
    seeds = ["10.0.0.1:7000", "127.0.0.1:7000", "127.0.0.1:7001"]
    assert first.pop("cluster.seeds") == second.pop("cluster.seeds") == seeds
    memory = first.pop("limits.memory_bytes")
    assert memory == second.pop("limits.memory_bytes")
    assert memory == limit_of(0).size // 2
    assert first == {
        "cluster.bootstrap": True,
        "member.member_port": 7000,
        "member.client_port": 8000,
        "member.name": "n-1",
        "persistence.directory": "/data/member-1",
    }
    assert second == {
        "cluster.bootstrap": False,
        "member.member_port": 7001,
        "member.client_port": 8001,
        "member.name": "n-2",
        "persistence.directory": "/data/member-2",
    }


def test_ports_for_http_are_one_after_the_other_if_one_is_set() -> None:
    first, second = places(load(None, {}, {"http.port": 9000}), 2)
    assert (first.own["http.port"], second.own["http.port"]) == (9000, 9001)
    assert "http.port" not in places(load(None, {}, {}), 2)[0].own, "each takes the next free one"


def test_members_have_cores_of_their_own_if_there_are_enough() -> None:
    settings = load(None, {}, {})
    assert [place.core for place in places(settings, len(cores()))] == cores()
    assert {place.core for place in places(settings, len(cores()) + 1)} == {None}
    given = load(None, {}, {"limits.memory_bytes": 500_000_000})
    assert "limits.memory_bytes" not in places(given, 2)[0].own


def test_settings_are_told_as_arguments_that_mean_the_same() -> None:
    given = {
        "cluster.seeds": ["a:1", "b:2"],
        "member.lite": True,
        "maps.default.backups": 2,
        "member.name": "x",
    }
    arguments = told(given)
    assert arguments[:2] == ["--set", "cluster.seeds=a:1,b:2"]
    pairs = dict(argument.split("=", 1) for argument in arguments[1::2])
    settings = load(None, {}, pairs)
    assert (settings.cluster.seeds, settings.member.lite) == (["a:1", "b:2"], True)
    assert (settings.maps["default"].backups, settings.member.name) == (2, "x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--members", "0"], "--members 0 is not allowed: it must be a number from 1 to"),
        (["--members", "many"], "--members many is not allowed"),
        (["--members", "2", "--member-port", "0"], "member.member_port = 0 is not allowed with --members"),
        (["--members", "2", "--client-port", "65535"], "--members 2 needs as many ports"),
        (["--members", "9", "--member-port", "5705"], "are too near each other"),
        (["--members", "2", "--set", "member.lite=maybe"], "member.lite"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(arguments: list[str], message: str) -> None:
    told = CliRunner().invoke(holdfast, ["start", *arguments])
    assert told.exit_code == 2
    assert message in told.output + told.stderr


def test_ports_must_be_known() -> None:
    with pytest.raises(ConfigError, match="each must know the others"):
        places(load(None, {}, {"member.member_port": 0}), 2)


@pytest.mark.slow
def test_members_are_restarted_one_after_the_other(tmp_path: Path) -> None:
    """Under load: no write fails and none is lost, and each process is another one than before."""
    with running(tmp_path, 3) as one:
        one.until(one.whole)
        doors = [f"{HOST}:{one.first + one.count + number}" for number in range(one.count)]
        stop, written = threading.Event(), list[int]()

        def write() -> int:
            with BlockingClient(doors) as client:
                flights = client.map("m")
                while not stop.is_set():
                    flights.put(len(written), "v")
                    written.append(len(written))
                return int(flights.size())

        with ThreadPoolExecutor(1) as threads:
            size = threads.submit(write)
            words = ["cluster", "restart", "--yes", "--json", "-a", ",".join(doors), "--timeout", "2min"]
            told = CliRunner().invoke(holdfast, words)
            stop.set()
            assert told.exit_code == 0, told.output + one.said()
            assert size.result(60) == len(written) > 0
        assert [len(one.pids(name)) for name in ("t-1", "t-2", "t-3")] == [2, 2, 2]
        assert one.whole()
