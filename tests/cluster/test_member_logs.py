"""What the logs of real members say when something goes wrong: by name, as warnings, in text and in JSON."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.client.blocking import Client
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

SETTINGS = """
[cluster]
heartbeat_ms = 100
suspect_after_ms = 10000
[partitions]
count = 11
[log]
format = "{format}"
stall_ms = 0
[maps.default]
backups = {backups}
"""
Line = tuple[str, str]
"""Level and message."""


class LoggingCluster(LocalCluster):
    """One of the members writes its log to the file itself, in a thread."""

    def arguments(self, name: str) -> list[str]:
        return ["--set", f"log.file={self.log_dir / name}.log"] if name == "m2" else []

    def lines(self, member: ManagedMember) -> list[Line]:
        """What a member has written to its log."""
        text = member.log.read_text(encoding="utf-8")
        if 'format = "json"' in self.config:
            told = [json.loads(line) for line in text.splitlines()]
            assert {line["member"] for line in told[-1:]} == {member.name}
            return [(line["level"], line["message"]) for line in told]
        return [(level, said) for _, _, level, said in (line.split(" ", 3) for line in text.splitlines())]

    def warned(self, member: ManagedMember) -> list[Line]:
        """Those that somebody has to look at."""
        return [line for line in self.lines(member) if line[0] in ("WARNING", "ERROR", "CRITICAL")]


def seen(found: Callable[[], bool], seconds: float = 120.0) -> bool:
    until_s = time.monotonic() + seconds
    while not (there := found()) and time.monotonic() < until_s:
        time.sleep(0.05)
    return there


@pytest.mark.parametrize("form", ["text", "json"])
def test_survivors_name_who_was_lost_and_what_is(form: str) -> None:
    with LoggingCluster(members=3, config=SETTINGS.format(format=form, backups=0)) as cluster:
        victim, *survivors = cluster.members[1], cluster.members[0], cluster.members[2]
        if form == "json":
            victim, survivors = cluster.members[2], cluster.members[:2]
        # Who has been given nothing yet takes nothing along.
        cluster.wait_settled(120)
        for one in survivors:
            assert cluster.warned(one) == []
        cluster.kill(victim)
        for one in survivors:
            assert seen(lambda one=one: any("partitions lost" in said for _, said in cluster.warned(one)))
            warned = cluster.warned(one)
            (gone,) = [said for level, said in warned if said.startswith("member gone without leaving")]
            assert f"name={victim.name} " in gone
            # Who hears of the view before he has noticed himself knows no more than that.
            assert re.search(
                r"reason=(its port refuses connections|silent for|other members suspect it)", gone
            )
            (lost,) = [
                said for level, said in warned if said.startswith("partitions lost") and level == "ERROR"
            ]
            assert "wait for a copy to return" in lost
            views = [said for _, said in cluster.lines(one) if said.startswith("view ")]
            assert f"removed=['{victim.name}']" in views[-1]
        views = [said for _, said in cluster.lines(cluster.members[0]) if said.startswith("view ")]
        assert set(re.findall(r"\bm\d", " ".join(re.findall(r"joined=(\[.*?\])", " ".join(views))))) == {
            "m2",
            "m3",
        }


def test_a_member_that_is_not_heard_is_suspected_by_name_and_a_minority_says_so() -> None:
    config = SETTINGS.format(format="text", backups=1).replace("stall_ms = 0", "stall_ms = 400")
    with LoggingCluster(members=3, config=config) as cluster:
        first, second, third = cluster.members
        for one in (second, third):
            one.process.send_signal(signal.SIGSTOP)
        try:
            assert seen(lambda: any("no majority" in said for _, said in cluster.warned(first)))
            warned = cluster.warned(first)
            suspected = [said for level, said in warned if said.startswith("member suspected")]
            assert {name for name in ("m2", "m3") for said in suspected if f"name={name} " in said} == {
                "m2",
                "m3",
            }
            assert all("reason=silent for " in said for said in suspected)
            (minority,) = [line for line in warned if "no majority" in line[1]]
            assert minority[0] == "ERROR"
            assert "silent=['m2', 'm3'] members=3" in minority[1]
            assert re.search("holdfast member evict (m2 m3|m3 m2) --without-majority", minority[1])
        finally:
            for one in (second, third):
                one.process.send_signal(signal.SIGCONT)
        assert seen(lambda: any("majority restored" in said for _, said in cluster.warned(first)))
        # Who is heard first makes a majority, which may go on without the other one.
        ends = ("member responds again", "member gone without leaving")
        assert seen(
            lambda: (
                {
                    name
                    for name in ("m2", "m3")
                    for _, said in cluster.warned(first)
                    if said.startswith(ends) and f"name={name}" in said
                }
                == {"m2", "m3"}
            )
        )
        assert any(said.startswith("member responds again") for _, said in cluster.warned(first))
        assert seen(
            lambda: any("of this member was blocked for" in said for _, said in cluster.warned(third))
        )


def test_a_view_says_who_has_left_after_draining_and_warns_nobody() -> None:
    with LoggingCluster(members=2, config=SETTINGS.format(format="text", backups=1)) as cluster:
        first, second = cluster.members
        cluster.drain(second)
        assert seen(lambda: any("left_after_draining=['m2']" in said for _, said in cluster.lines(first)))
        assert cluster.warned(first) == []
        assert any(said.startswith("ready ") for _, said in cluster.lines(second)), "its file has everything"


def test_a_write_that_waits_for_a_backup_is_told_with_its_name_and_without_its_key() -> None:
    config = SETTINGS.format(format="json", backups=1)
    with LoggingCluster(members=2, config=config) as cluster:
        cluster.wait_safe()
        first, second = cluster.members

        def write(number: int) -> None:
            with Client(first.client_address, timeout_s=120) as client:
                client.set("flights", b"secret-%d" % number, b"hidden")

        with ThreadPoolExecutor(12) as threads:
            list(threads.map(write, range(12)))
            second.process.send_signal(signal.SIGSTOP)
            try:
                writing = threads.map(write, range(12))
                assert seen(
                    lambda: any(
                        one.members == ["m2"] for one in cluster.status(first).slow_operations.running
                    )
                )
            finally:
                second.process.send_signal(signal.SIGCONT)
            list(writing)
        assert seen(lambda: cluster.status(first).slow_operations.count > 0)
        told = cluster.status(first).slow_operations
        waited = [one for one in told.recent if one.members == ["m2"]]
        assert waited
        assert {name for one in waited for name in one.places} == {"flights"}
        assert all(one.took_ms >= told.limit_ms for one in waited)
        lines = [said for _, said in cluster.lines(first) if said.startswith("slow operation: ")]
        assert lines
        assert not [said for _, said in cluster.lines(first) if "secret" in said or "hidden" in said]
