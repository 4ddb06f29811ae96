"""Changes of the partition table as one member saw them, for the console's picture of owners over time.

- observe/T-1: At most `CHANGES` changes are kept. Older ones become part of the base table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo

CHANGES: Final = 10_000
NAMES: Final = 4_096
"""Names of members that have gone are dropped beyond this number."""

Row = tuple[str | None, ...]
Change = tuple[int, int, Row]
"""Unix time in ms, partition, and its replicas from then on, the owner first."""


class TableHistory:
    def __init__(self, kept: int = CHANGES) -> None:
        self._kept: deque[Change] = deque()
        self._room = kept
        self._rows: list[Assignment] = []
        self._base: list[Row] = []
        self._base_ms = 0
        self._names: dict[str, str] = {}
        self.number = 0

    def look(self, at_ms: int, rows: Sequence[Assignment], members: Iterable[MemberInfo]) -> bool:
        """Record changes since the last look; returns whether there were any. `at_ms`: since 1970."""
        self._names.update((info.uuid, info.name) for info in members)
        if not self._rows:
            self._rows = list(rows)
            self._base = [row.replicas for row in rows]
            self._base_ms = at_ms
            return False
        before = self.number
        for partition, row in enumerate(rows):
            known = self._rows[partition]
            if row is known:
                continue
            self._rows[partition] = row
            if row.replicas != known.replicas:
                self._changed((at_ms, partition, row.replicas))
        return self.number != before

    def _changed(self, change: Change) -> None:
        self.number += 1
        self._kept.append(change)
        if len(self._kept) > self._room:
            self._base_ms, partition, row = self._kept.popleft()
            self._base[partition] = row
        if len(self._names) > NAMES:
            mentioned: set[str | None] = {uuid for row in self._rows for uuid in row.replicas}
            mentioned.update(uuid for _, _, row in self._kept for uuid in row)
            mentioned.update(uuid for row in self._base for uuid in row)
            self._names = {uuid: name for uuid, name in self._names.items() if uuid in mentioned}

    def told(self, since: int = -1) -> dict[str, object]:
        """Changes after number `since` as plain data, or everything with the base table if some of them are
        not kept. Rows refer to members by their place in `members`; -1 is no member.
        """
        first = self.number - len(self._kept)
        whole = not first <= since <= self.number
        places: dict[str | None, int] = {None: -1}
        named: list[list[str]] = []

        def place(uuid: str | None) -> int:
            if uuid is not None and uuid not in places:
                places[uuid] = len(named)
                named.append([uuid, self._names.get(uuid, uuid[:8])])
            return places[uuid]

        base = [[place(uuid) for uuid in row] for row in self._base] if whole else None
        begin = 0 if whole else since - first
        changes = [
            (at_ms, partition, [place(uuid) for uuid in row])
            for number, (at_ms, partition, row) in enumerate(self._kept)
            if number >= begin
        ]
        return {
            "number": self.number,
            "members": named,
            "base": base,
            "base_ms": self._base_ms,
            "changes": changes,
        }
