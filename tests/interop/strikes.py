"""What happens to members while a client writes: one is killed, and others are drained."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_lab.processes.local_cluster import LocalCluster

MEMBERS = 4


def kill_and_drain(cluster: LocalCluster, between: Callable[[], None]) -> None:
    """Kill one of four members, and drain all others but the last: a client was connected to one of these for certain.
    `between` is called when the first is gone and everything is safe again.
    """
    *going, _ = cluster.members
    cluster.kill(going[0])
    cluster.wait_safe()
    between()
    for member in going[1:]:
        cluster.drain(member)
    cluster.wait_safe()
