"""SIGTERM to the last process that holds data: a process that is joining takes it over, else a warning counts it."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cluster.test_cluster import fill, missing
from tests.cluster.test_commands_live import until

from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

ENTRIES = 50
CONFIG = "[partitions]\ncount = 31\n"
WARNING = "last data member leaves: entries are lost"


def log_of(member: ManagedMember) -> str:
    return member.log.read_text(encoding="utf-8")


def has_connected(member: ManagedMember) -> bool:
    """Whether the kernel holds a connection to its port for members, accepted or not."""
    port = int(member.member_address.rpartition(":")[2])
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    connections = [line.split()[1:4] for line in lines]
    return any(int(local.split(":")[1], 16) == port and state == "01" for local, _, state in connections)


def test_a_joiner_that_has_only_connected_takes_over_from_the_last_member(tmp_path: Path) -> None:
    """The joiner connects while the last member is stopped, which handles SIGTERM and the request when it continues, in
    either order.
    """
    with LocalCluster(1, CONFIG, log_dir=tmp_path) as cluster:
        first = cluster.members[0]
        fill(cluster, count=ENTRIES)
        first.process.send_signal(signal.SIGSTOP)
        second = cluster.start_member(wait=False)
        until(lambda: has_connected(first))
        first.process.send_signal(signal.SIGTERM)
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(120) == 0
        cluster.wait_ready([second])
        assert missing(cluster, ENTRIES) == []
        assert WARNING not in log_of(first)

        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(120) == 0
        assert WARNING in log_of(second)
        assert f"entries={ENTRIES}" in log_of(second)


def test_a_joiner_that_dies_holds_the_last_member_up_no_longer_than_its_drain_may_take(
    tmp_path: Path,
) -> None:
    config = f"{CONFIG}drain_timeout_s = 1\n[cluster]\nsuspect_after_ms = 60000\n"
    with LocalCluster(2, config, log_dir=tmp_path) as cluster:
        first, second = cluster.members
        cluster.wait_settled()
        fill(cluster, count=ENTRIES)
        second.process.send_signal(signal.SIGSTOP)
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(120) == 1
        assert "not drained within partitions.drain_timeout_s = 1" in log_of(first)
        second.process.send_signal(signal.SIGCONT)
