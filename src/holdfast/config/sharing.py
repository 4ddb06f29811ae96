"""Settings that all members must share, and the names under which settings are sent and stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

LATER: frozenset[str] = frozenset(
    {
        "queues.transactional",
        "lists.transactional",
        "sets.transactional",
        "queues.raft_zone",
        "lists.raft_zone",
        "sets.raft_zone",
        "maps.eviction",
        "maps.max_size",
        "maps.max_bytes",
        "cp.raft_zone",
        "cp.sessionless_semaphores",
    }
)
"""Keys of `schema.SHARED`, and fields of maps and services (`maps.backups`), that are newer than the first build with
feature levels. Older members do not know them, so they are sent only with values other than the default; until then
builds can be mixed.
"""

ENCODED_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "cluster": {"on_missing_data_dirs": "missing_stores"},
    "member": {"availability_zone": "zone"},
    "partitions": {"max_in_flight_bytes": "flight_bytes", "max_in_flight_bytes_total": "flight_bytes_total"},
    "replication": {"unknown_writes": "on_unknown"},
    "http": {"allowed_hosts": "hosts"},
    "limits": {
        "auth_frame_bytes": "greeting_bytes",
        "auth_timeout_ms": "greeting_timeout_ms",
        "unauthenticated_connections": "half_open_connections",
        "idle_timeout_ms": "silent_ms",
        "output_buffer_bytes": "unread_bytes",
        "total_output_buffer_bytes": "all_unread_bytes",
        "async_backlog_bytes": "async_bytes",
    },
    "maps": {"raft_zone": "zone"},
}
"""By section: renamed keys, with the names that they keep where they are sent or stored.

Members compare their shared settings as text when one joins, `config set` sends keys to members of any build, and
recorded runs contain settings: all of these use the first name of a key. For example, a member that sent
`replication.unknown_writes` could not join a cluster of members that send `replication.on_unknown`.
"""


def encoded_key(dotted: str) -> str:
    """The name of this dotted key where it is sent and stored."""
    section, _, name = dotted.rpartition(".")
    return f"{section}.{_renamed(section).get(name, name)}"


def key_of_encoded(dotted: str) -> str:
    """The inverse of `encoded_key`."""
    section, _, name = dotted.rpartition(".")
    found = {old: new for new, old in _renamed(section).items()}
    return f"{section}.{found.get(name, name)}"


def _renamed(section: str) -> Mapping[str, str]:
    """`section` may name a table, as in `maps.NAME`."""
    return ENCODED_NAMES.get(section.partition(".")[0], {})


def told(kind: str, settings: msgspec.Struct, usual: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """Fields of a map or service that are sent to other members, with their values."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if f"{kind}.{name}" not in LATER or value != getattr(usual, name):
            yield name, value


def disagreement(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """Why two members with these `shared` settings cannot be in one cluster; None if they can."""
    for key in sorted({*mine, *theirs}):
        if mine.get(key) != theirs.get(key):
            return (
                f"{key_of_encoded(key)} is {mine.get(key, 'not configured')} here and "
                f"{theirs.get(key, 'not configured')} there; all members of a cluster must have the same value"
            )
    return None
