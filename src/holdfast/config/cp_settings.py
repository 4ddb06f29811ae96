"""The section `cp`: locks, semaphores and other objects of the CP subsystem of Hazelcast."""

from __future__ import annotations

from holdfast.config.sections import Section, Text, about, sized, whole


class CpSettings(Section, frozen=True, kw_only=True):
    """Locks, semaphores, latches and atomic values of Hazelcast's CP subsystem, and the sessions of their clients."""

    raft_zone: Text = about(
        "",
        "The zone whose Raft groups keep all CP groups (`holdfast zone`). Empty: they have a primary, and as many sync "
        "backups as any map has copies.",
    )
    session_ttl_ms: int = whole(
        300_000,
        1000,
        86_400_000,
        "Time after the last heartbeat of a client until its session is closed: others get the locks and permits that "
        "it holds.",
    )
    heartbeat_ms: int = whole(
        5000, 100, 3_600_000, "Interval at which clients send heartbeats of their sessions."
    )
    sessionless_semaphores: list[str] = sized(
        [],
        64,
        "Patterns (`*`, `?`) of the names of semaphores whose permits belong to no session, so that any client may "
        "release them, and none are released when a client is lost.",
    )
