"""Who waits for the disk? What one member writes down in a step, and who is told when it is durable (DESIGN rule 8).

- journal/J-1: What a step writes down leaves as one group, at its end; a checkpoint divides it in two, for it is of one
  moment.
- journal/J-2: Groups become durable in the order in which they were written: who waits for one waits for all before.
- journal/J-3: Without a journal nothing is written, and nobody waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.core.machine import Append, Checkpoint, Outbox
from holdfast.core.model.journal_entries import Began, Dropped, Entry, Seen, Snapshot, TableAssignments, Wrote
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Record


class Log:
    """What this member writes down, and who waits for it."""

    def __init__(self, out: Outbox, *, on: bool) -> None:
        """`on`: whether this member has a journal at all."""
        self.on = on
        self._out = out
        self._entries: list[Entry] = []
        self._urgent = False
        self._number = 0
        self._durable = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._tickets = 0
        self._checkpoints: dict[int, Callable[[bool], None]] = {}

    def wrote(self, partition: int, term: int, records: list[Record], *, urgent: bool) -> None:
        """A copy that is held here has applied these records. `urgent`: somebody waits for them to be durable."""
        self._entries.append(Wrote(partition, term, records, self._out.wall_ms()))
        self._urgent = self._urgent or urgent

    def assigned(self, partition: int, row: Assignment) -> None:
        """This row is applied."""
        if not self.on:
            return
        last = self._entries[-1] if self._entries else None
        if isinstance(last, TableAssignments):
            last.rows.append((partition, row))
        else:
            self._entries.append(TableAssignments([(partition, row)]))

    def note(self, entry: Seen | Began | Dropped) -> None:
        """Something that a restart must know of, but nobody waits for."""
        if self.on:
            self._entries.append(entry)

    def when_durable(self, told: Callable[[], None]) -> None:
        """Call this when everything that was written down until now is durable; at once when it is already."""
        if self._entries:
            self._urgent = True
            self._waiting.append((self._number + 1, told))
        elif self._durable < self._number:
            self._waiting.append((self._number, told))
        else:
            told()

    def checkpoint(self, snapshot: Snapshot, told: Callable[[bool], None]) -> None:
        """Write this content out, and say when it is durable, or (False) that there was no room."""
        self.flush()
        self._tickets += 1
        self._checkpoints[self._tickets] = told
        self._out.effects.append(Checkpoint(self._tickets, snapshot, self._number))

    def flush(self) -> None:
        """The step ends, or a checkpoint is taken: what was written down until now leaves."""
        if self._entries:
            self._number += 1
            entries, self._entries = self._entries, []
            self._out.effects.append(Append(self._number, entries, self._urgent))
            self._urgent = False

    def on_durable(self, number: int) -> None:
        """Every group up to this one is durable."""
        self._durable = max(self._durable, number)
        while self._waiting and self._waiting[0][0] <= self._durable:
            self._waiting.popleft()[1]()

    def on_checkpoint(self, ticket: int, *, well: bool) -> None:
        """This checkpoint is durable, or there was no room."""
        if not well:
            self._out.note("no room for a checkpoint", level="warning")
        told = self._checkpoints.pop(ticket, None)
        if told is not None:
            told(well)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "entries not written": len(self._entries),
            "waits for the disk": len(self._waiting),
            "checkpoints": len(self._checkpoints),
        }
