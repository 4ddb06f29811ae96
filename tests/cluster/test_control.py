"""Member processes under an operator's commands: what they do, what they say, and with which status they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result
from tests.cluster.test_cluster import MAP, fill, missing, text

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.errors import Passive
from holdfast_lab.processes.fork_server import COMMAND
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

CONFIG = "[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 10000\n[partitions]\ncount = 31\n"
NO_BACKUPS = CONFIG + "[maps.default]\nbackups = 0\n"
GUARDED = CONFIG + "[security]\nusername = 'ada'\npassword = 'a long enough secret'\n"
PASSWORD = {"HOLDFAST_SECURITY_PASSWORD": "a long enough secret"}
ENTRIES = 500


def run(*arguments: str, environ: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(holdfast, arguments, env=environ, catch_exceptions=False)


def wait_for(member: ManagedMember, words: str, seconds: float = 120.0) -> str:
    """The line of a member's log that has these words."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for line in member.log.read_text(encoding="utf-8").splitlines():
            if words in line:
                return line
        time.sleep(0.05)
    raise AssertionError(f"{member.name} never said {words!r}:\n{member.log_tail()}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as running:
        running.wait_settled()
        yield running


class Watching:
    """`holdfast cluster watch --json` in a process of its own."""

    def __init__(self, *addresses: str) -> None:
        command = [*COMMAND, "cluster", "watch", "--json", "-a", ",".join(addresses)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        self.until(lambda: bool(self.kinds("listening")))
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self._thread.join()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def until(self, reached: Callable[[], bool], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < deadline, self.events[-5:]
            time.sleep(0.02)


# -- states


def test_the_state_is_shown_and_changed_through_any_member(cluster: LocalCluster) -> None:
    fill(cluster, count=ENTRIES)
    addresses = [member.client_address for member in cluster.members]
    assert run("cluster", "state", "-a", addresses[2]).output == "active\n"
    told = run("cluster", "state", "passive", "-a", addresses[1])
    assert (told.exit_code, told.output) == (0, "the cluster is passive\n")
    assert {run("cluster", "state", "-a", address).output for address in addresses} == {"passive\n"}

    assert missing(cluster, ENTRIES) == [], "scans go on: audits, and Spark"
    with Client(cluster.client_addresses(), timeout_s=120) as client:
        before = time.monotonic()
        with pytest.raises(Passive):
            client.put_columns(MAP, [text("k1")], [text("new")])
        with pytest.raises(Passive):
            client.set(MAP, text("k1"), text("new"))
        assert time.monotonic() - before < 60, "it is refused at once, not tried again and again"
        assert client.get(MAP, text("k1")) == text("v1")
        assert client.size(MAP) == ENTRIES
        run("cluster", "state", "frozen", "-a", addresses[0])
        client.set(MAP, text("k1"), text("v1"))

    # A stranger is told what to do, and ends with the status of what was not started.
    stranger = cluster.start_member(wait=False)
    assert stranger.process.wait(120) == 2
    assert "the cluster is frozen" in stranger.log_tail()
    assert "holdfast cluster state active" in stranger.log_tail()

    # Of several addresses the first that answers is asked; and the dead one is missed.
    cluster.kill(cluster.members[0])
    both = f"{addresses[0]},{addresses[1]}"
    deadline = time.monotonic() + 120
    while "and without m1" not in (told := run("cluster", "safe", "-a", both)).output:
        assert time.monotonic() < deadline, told.output
        time.sleep(0.1)
    assert told.exit_code == 1
    shown = run("status", addresses[1]).output
    assert "missing: m1; their slots are kept while the cluster is frozen" in shown
    told = run("cluster", "state", "active", "-a", both)
    assert (told.exit_code, told.output) == (0, "the cluster is active\n")
    told = run("cluster", "safe", "--wait", "30", "-a", both)
    assert (told.exit_code, told.output) == (0, "safe\n")
    assert missing(cluster, ENTRIES) == []


# -- leaving


def test_members_are_drained_and_the_cluster_is_ended(tmp_path: Path) -> None:
    with LocalCluster(4, CONFIG, log_dir=tmp_path) as cluster, ExitStack() as ends:
        cluster.wait_settled()
        fill(cluster, count=ENTRIES)
        watch = [*COMMAND, "cluster", "watch", "-a", cluster.members[1].client_address]
        process = ends.enter_context(subprocess.Popen(watch, stdout=subprocess.PIPE, text=True))
        ends.callback(process.kill)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "watching dev through m2: active" in next(lines)

        going = [cluster.members[0], cluster.members[3]]
        told = run("member", "drain", *(member.client_address for member in going))
        assert told.exit_code == 0, told.output
        assert "partition replicas still here" in told.output
        for member in going:
            left = "left the cluster; everything it held is on other members"
            assert f"{member.client_address}: {left}" in told.output
            assert member.process.wait(120) == 0
            assert "draining: leaving when every partition is safe elsewhere" in member.log_tail()
            assert member.log_tail(1).endswith(left)
        assert missing(cluster, ENTRIES) == []
        told = run("member", "drain", going[0].client_address)
        assert told.exit_code == 4
        assert "cannot connect" in told.output

        seen = []
        # The second order may replace the plan of the first before anything of the leavers has moved.
        while not (
            seen and "finished" in seen[-1] and any("m4 to m" in line or "m1 to m" in line for line in seen)
        ):
            seen.append(next(lines))
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            process.kill()  # these tests run in the background of a shell, and so does what they start
        else:
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0, "Ctrl-C is how it ends"
        assert "started: " in seen[0]
        moves = [line for line in seen if " partition " in line]
        assert any("m4 to m" in line or "m1 to m" in line for line in moves)
        assert all(" replica " in line and line.endswith(" ms\n") for line in moves)
        assert " done, 0 failed, " in seen[-1]

        address = cluster.members[2].client_address
        refused = CliRunner().invoke(holdfast, ["cluster", "shutdown", "-a", address], input="n\n")
        assert refused.exit_code == 1
        assert "End all 2 members" in refused.output
        assert len(cluster.alive) == 2
        told = run("cluster", "shutdown", "--yes", "-a", address)
        assert told.exit_code == 0, told.output
        assert told.output.count("left the cluster, which was shut down as a whole") == 2
        for member in cluster.members[1:3]:
            assert member.process.wait(120) == 0
            assert "the cluster is being shut down: leaving with all other members" in member.log_tail()
            assert member.log_tail(1).endswith("left the cluster, which was shut down as a whole")


class LooksRarely(LocalCluster):
    """Its members' logs look once at whether they leave, and then for a minute no more."""

    def program(self, name: str) -> list[str]:
        words = "from holdfast.runtime import process; process.LOOK_S = 60.0; "
        return [*COMMAND[:-1], words + COMMAND[-1]]


def test_why_a_member_leaves_is_in_its_log_however_quick_that_is(tmp_path: Path) -> None:
    with LooksRarely(2, CONFIG, log_dir=tmp_path) as cluster:
        cluster.wait_settled()
        one, two = cluster.members
        assert run("member", "drain", one.client_address).exit_code == 0
        assert one.process.wait(120) == 0
        assert "draining: leaving when every partition is safe elsewhere" in one.log_tail(2)
        assert run("cluster", "shutdown", "--yes", "-a", two.client_address).exit_code == 0
        assert two.process.wait(120) == 0
        assert "the cluster is being shut down: leaving with all other members" in two.log_tail(2)


def test_a_member_with_the_only_copies_is_not_let_go_while_frozen(tmp_path: Path) -> None:
    with LocalCluster(2, NO_BACKUPS, log_dir=tmp_path) as cluster:
        cluster.wait_settled()
        fill(cluster, count=ENTRIES)
        one, two = cluster.members
        run("cluster", "state", "frozen", "-a", one.client_address)
        told = run("member", "demote", one.client_address, "--timeout", "0.5")
        assert told.exit_code == 1, "it was taken back"
        assert "replicas are still here; the cluster is frozen: set the state to active" in told.output
        told = run("member", "drain", two.client_address, "--timeout", "0.5")
        assert told.exit_code == 3, told.output
        assert "this member holds the only copy of 15 partitions; set the state to active" in told.output
        assert "The command was accepted" in told.output
        assert "m2 cannot leave yet: the cluster is frozen" in run("status", one.client_address).output
        line = wait_for(two, "holds the only copy of")
        assert (
            "set the state to active, so that they can move, or stop it at once with a second signal" in line
        )
        run("cluster", "state", "active", "-a", one.client_address)
        assert two.process.wait(120) == 0, "the order stood"
        assert missing(cluster, ENTRIES) == []

        three = cluster.start_member()
        cluster.wait_settled()
        run("cluster", "state", "frozen", "-a", one.client_address)
        three.process.send_signal(signal.SIGTERM)
        wait_for(three, "or stop it at once with a second signal")
        assert three.alive
        three.process.send_signal(signal.SIGTERM)
        assert three.process.wait(120) == 1
        assert "ending at once, before the drain is complete" in three.log_tail()


# -- watching, and lite members


def test_what_happens_is_watched_also_when_the_watched_member_dies(cluster: LocalCluster) -> None:
    fill(cluster, count=ENTRIES)
    first, second, third = cluster.members
    with Watching(second.client_address) as watching:
        cluster.start_member()
        watching.until(lambda: bool(watching.kinds("finished")))
        began, ended = watching.kinds("started")[0], watching.kinds("finished")[0]
        done = watching.kinds("completed")
        assert began["planned"] == ended["planned"] == ended["completed"] == len(done) > 0
        assert [event["completed"] for event in done] == list(range(1, len(done) + 1))
        assert {event["migration"]["form"] for event in done} <= {
            "MOVE",
            "COPY",
            "SHIFT DOWN",
            "SHIFT UP",
            "EXCHANGE",
        }

        with Client(first.client_address) as client:
            owned = sorted(row.partition for row in client.table() if row.owner == second.uuid)
        cluster.kill(second)
        watching.until(lambda: len(watching.kinds("listening")) == 2)
        watching.until(
            lambda: sorted(event["loss"]["partition"] for event in watching.kinds("lost")) == owned
        )
        assert {event["loss"]["lost_backups"] for event in watching.kinds("lost")} == {0}
        watching.until(lambda: len(watching.kinds("finished")) == len(watching.kinds("started")) == 3)
        assert watching.kinds("gap") == []
        numbers = [tuple(event["number"]) for event in watching.events if "number" in event]
        assert numbers == sorted(set(numbers)), "each once, in order"

    fourth = cluster.members[3]
    for address in (first.client_address, third.client_address):
        told = run("member", "demote", address)
        assert told.exit_code == 0, told.output
        assert "is a lite member" in told.output
    told = run("member", "demote", fourth.client_address)
    assert told.exit_code == 1
    assert "this is the last data member" in told.output
    shares = {row.name: row.primaries for row in cluster.status().members}
    assert shares == {"m1": 0, "m3": 0, "m4": 31}
    told = run("member", "promote", first.client_address)
    assert told.exit_code == 0, told.output
    assert run("cluster", "safe", "--wait", "20", "-a", third.client_address).exit_code == 0
    assert missing(cluster, ENTRIES) == []


# -- who may


def test_orders_need_the_credentials_of_clients(tmp_path: Path) -> None:
    with LocalCluster(1, GUARDED, log_dir=tmp_path) as cluster:
        address = cluster.members[0].client_address
        for command in (
            ["cluster", "state", "frozen", "-a", address],
            ["cluster", "shutdown", "--yes", "-a", address],
            ["cluster", "safe", "-a", address],
            ["cluster", "watch", "-a", address],
            ["member", "drain", address],
            ["member", "demote", address],
        ):
            told = run(*command)
            assert told.exit_code == 1, command
            assert "the credentials are missing or wrong" in told.output
        told = run("cluster", "state", "frozen", "-a", address, "--username", "ada", environ=PASSWORD)
        assert told.output == "the cluster is frozen\n"
        told = run("cluster", "shutdown", "--yes", "-a", address, "--username", "ada", environ=PASSWORD)
        assert told.exit_code == 0, told.output
        assert cluster.members[0].process.wait(120) == 0


# -- a member that breaks, and settings


def test_an_error_inside_a_member_ends_its_process_with_a_status_of_its_own() -> None:
    code = """
from holdfast.core.member import Member
from holdfast.errors import InvariantBroken
from holdfast.cli.main import main

def timer(self, name, before=Member.on_timer):
    if name == "sweep" and self.table.assigned:
        raise InvariantBroken("partition 4 diverged")
    before(self, name)

Member.on_timer = timer
main()
"""
    told = subprocess.run(
        [sys.executable, "-c", code, "start", "--member-port", "0", "--client-port", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert told.returncode == 70, told.stdout
    assert "this member stops, because of an error inside it: partition 4 diverged" in told.stdout


def test_members_wait_for_enough_others_and_say_so(tmp_path: Path) -> None:
    config = CONFIG.replace("[partitions]", "initial_members = 3\n[partitions]")
    with LocalCluster(0, config, log_dir=tmp_path) as cluster:
        for _ in range(2):
            member = cluster.start_member(wait=False)
            wait_for(member, "in the cluster; partitions are not assigned yet")
        assert run("cluster", "safe", "-a", member.client_address).exit_code == 0, (
            "there is nothing to lose yet"
        )
        told = run("status", member.client_address)
        assert "1 more data members" in told.output
        cluster.start_member(wait=False)
        cluster.wait_ready()
        assert run("cluster", "safe", "--wait", "20", "-a", member.client_address).exit_code == 0
