"""Keys of a member's status that were renamed, and the names that they keep between a member and its client.

`holdfast status` and the console ask members of any build. They read the first name of a key, so a member sends that
one: a client that got `unsafe_reason` from a newer member would look for `why_unsafe` and fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ENCODED_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "awaited_members": "waits_for",
        "cluster_unsafe_reason": "why_cluster_unsafe",
        "desired_state": "wish",
        "join_refusal": "refusal",
        "lane_reason": "why_not_compiled",
        "leave_blocker": "why_kept",
        "low_memory": "short_of_memory",
        "missing_members": "missing",
        "pending_batches": "batches_waiting",
        "rejections": "doors",
        "shutting_down": "ending",
        "sockets_reason": "why_these_sockets",
        "unsafe_reason": "why_unsafe",
    },
    "backlog": {"rejecting": "refusing", "throttled": "crowded"},
    "files": {"problems": "doubts"},
    "member_secret": {"lacking_first": "not_the_first", "lacking_second": "not_the_second"},
    "metastore": {"pending": "under_way"},
    "partitions": {
        "awaited_members": "waits_for_members",
        "lost_by_map": "lost_to_maps",
        "missing_replicas": "holes",
        "without_copy": "waiting_for_copies",
    },
    "protocol": {"versions": "spoken"},
    "slow_operations": {"recent": "last", "running": "under_way"},
    "tls": {"error": "trouble"},
    "zones": {"eligible_members": "takes", "under_replicated": "lacking"},
}
"""By section of the status, "" for its top level: present key and encoded key."""

_DECODED: Final = {section: {old: new for new, old in keys.items()} for section, keys in ENCODED_KEYS.items()}

Status = dict[str, object]


def encoded_status(status: Status) -> Status:
    """The status as it is sent."""
    return _renamed(status, ENCODED_KEYS)


def decoded_status(status: Status) -> Status:
    """The status that a member sent. Keys that are not renamed stay, also those of other builds."""
    return _renamed(status, _DECODED)


def _renamed(status: Status, tables: Mapping[str, Mapping[str, str]]) -> Status:
    top = tables[""]
    return {
        top.get(key, key): _section(value, tables[key]) if key in tables else value
        for key, value in status.items()
    }


def _section(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        return {names.get(key, key): inner for key, inner in value.items()}
    if isinstance(value, list):
        return [_section(each, names) for each in value]
    return value
