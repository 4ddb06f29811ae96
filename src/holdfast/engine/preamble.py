"""The first entries of every segment: owner, newest assignments and view. With them all older segments may go."""

from __future__ import annotations

from holdfast.core.model.ids import MemberId
from holdfast.core.model.journal_entries import Entry, Meta, Seen, TableAssignments, seen
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import View
from holdfast.engine.restore import IdentityFile
from holdfast.engine.segments import BlockContent

_NOTED = frozenset({Seen, TableAssignments})


class Preamble:
    def __init__(self, rows: dict[int, Assignment], view: View | None, stores: dict[MemberId, str]) -> None:
        self._rows = rows
        self._view = view
        self._stores = dict(stores)

    def note(self, content: BlockContent) -> None:
        if _NOTED.isdisjoint(content.kinds):
            return
        for entry in content.entries:
            if isinstance(entry, TableAssignments):
                self._rows.update(entry.rows)
            elif isinstance(entry, Seen):
                if self._view is None or self._view.number <= entry.view.number:
                    self._view = entry.view
                self._stores.update({info.uuid: info.store for info in entry.view.members if info.store})

    def entries(self, mine: IdentityFile) -> list[Entry]:
        named = {member for row in self._rows.values() for member in row.replicas}
        self._stores = {uuid: store for uuid, store in self._stores.items() if uuid in named}
        start: list[Entry] = [Meta(mine.store, mine.incarnation, mine.cluster_id, self._stores)]
        if self._rows:
            start.append(TableAssignments(sorted(self._rows.items())))
        if self._view is not None:
            start.append(seen(self._view))
        return start
