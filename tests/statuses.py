"""Statuses of members, for tests: a quiet member alone in its cluster, changed as a test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.model.member_status import BaselineStatus, ListedMember, MemberStatus

MEMBER: dict[str, Any] = {
    "uuid": "a",
    "name": "a",
    "host": "127.0.0.1",
    "client_port": 5701,
    "member_port": 5801,
    "lite": False,
    "group": "",
    "consistent_id": "a",
    "outside": False,
    "leaving": False,
    "master": False,
    "primaries": 0,
    "backups": 0,
    "version": "0.1.0",
    "levels": [1, 4],
}
QUIET: dict[str, Any] = {
    "uuid": "a",
    "name": "a",
    "state": "member",
    "leaving": False,
    "desired_state": "",
    "leave_blocker": "",
    "join_refusal": "",
    "cluster_state": "active",
    "shutting_down": False,
    "missing_members": [],
    "cluster": "dev",
    "cluster_id": "c",
    "master": "a",
    "is_master": True,
    "view": 1,
    "quorum": "majority",
    "members": [MEMBER],
    "version": "0.1.0",
    "level": {"in_force": 4, "lowest": 1, "highest": 4, "possible": 4},
    "topology": {"major": 1, "minor": 0},
    "transactions": {"running": 0, "oldest_ms": 0, "orphans": 0},
    "baseline": None,
    "table": {"version": 12, "stamp": "00ff"},
    "partitions": {
        "count": 271,
        "replicas": 2,
        "holders": 2,
        "group_by": "member",
        "placement": "even",
        "lost": "wait",
        "primaries": 0,
        "backups": 0,
        "serving": 0,
        "missing_replicas": 0,
        "awaited_members": 0,
        "without_copy": 0,
        "lost_by_map": {},
    },
    "maps": [],
    "zone_maps": {},
    "map_settings": [],
    "migrations": {
        "active": 0,
        "queued": 0,
        "completed": 0,
        "failed": 0,
        "delayed_ms": 0,
        "completed_kept": 0,
        "sent_bytes": 0,
        "process": None,
        "running": [],
    },
    "replicas": {
        "compared": 0,
        "differed": 0,
        "repaired": 0,
        "filled": {},
        "history_bytes": 0,
        "ranges_bytes": 0,
        "full_bytes": 0,
    },
    "entries": {"primary": 0, "all": 0},
    "updates": 0,
    "metastore": None,
    "zones": [],
    "cuts": {"kept": 0, "marks": 0, "changed_keys": 0},
    "awaited_members": [],
    "full_disks": [],
    "low_memory": {},
    "retained_change_bytes": 0,
    "pending_batches": 0,
    "backlog": {"bytes": 0, "throttled": False, "rejecting": False},
    "safe": True,
    "unsafe_reason": "",
    "cluster_safe": True,
    "cluster_unsafe_reason": "",
    "files": None,
    "memory": None,
    "member_secret": {
        "set": False,
        "second": False,
        "lacking_first": [],
        "lacking_second": [],
        "refused": [],
    },
    "tls": None,
}
WHOLE: dict[str, dict[str, Any]] = {
    "files": {
        "directory": "data",
        "store": "s",
        "opened": 1,
        "segments": 0,
        "journal_bytes": 0,
        "checkpoints": 0,
        "checkpoints_written": 0,
        "last_checkpoint_ms": None,
        "full": False,
        "problems": [],
    },
    "memory": {"limit_bytes": 1, "limit_from": "", "used_bytes": 0, "resident_bytes": 0, "room": "plenty"},
    "tls": {
        "certificate": "",
        "client_certificates": "none",
        "minimum_version": "1.2",
        "member_certificate_ends": "both",
        "loaded": 1,
        "error": "",
    },
    "baseline": {
        "members": [],
        "outside": [],
        "adjust_ms": None,
        "adjusts_in_ms": None,
        "changes": 1,
        "history": ["a"],
    },
    "metastore": {
        "leader": "",
        "voters": [],
        "learners": [],
        "revision": 0,
        "keys": 0,
        "compacted": 0,
        "pending": 0,
        "time_ms": 0,
        "history_bytes": 0,
    },
}
"""Parts that a quiet member does not have."""


def status(given: Mapping[str, Any] | None = None, **changed: Any) -> MemberStatus:
    """A status with these values; in its parts, too, only those that differ have to be given."""
    plain = dict(QUIET)
    for name, value in {**(given or {}), **changed}.items():
        part = plain.get(name) or WHOLE.get(name)
        whole = (
            isinstance(part, dict) and isinstance(value, Mapping) and name not in ("zone_maps", "low_memory")
        )
        plain[name] = {**part, **value} if whole and part is not None else value
    plain["members"] = [listed(row) for row in plain["members"]]
    return msgspec.convert(msgspec.to_builtins(plain), MemberStatus)


def listed(given: Mapping[str, Any] | ListedMember) -> ListedMember:
    """A row of a status."""
    return given if isinstance(given, ListedMember) else msgspec.convert({**MEMBER, **given}, ListedMember)


def baseline(given: Mapping[str, Any]) -> BaselineStatus:
    return msgspec.convert({**WHOLE["baseline"], **given}, BaselineStatus)
