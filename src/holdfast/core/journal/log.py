"""The journal of one member: entries of a step, and callbacks when they are durable (DESIGN rule 8).

- journal/J-1: The entries of a step are appended as one group at its end. A checkpoint splits the group, because a
  checkpoint is of one moment.
- journal/J-2: Groups become durable in the order of writing: waiting for one includes all before it.
- journal/J-3: Without a journal nothing is written, and every wait ends at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from holdfast.core.effects import Append, Checkpoint
from holdfast.core.model.journal_entries import (
    Began,
    Dropped,
    Entry,
    GroupWrote,
    Seen,
    Snapshot,
    TableAssignments,
    Wrote,
    WrotePuts,
    seen,
)
from holdfast.core.model.levels import PACKED
from holdfast.core.model.notices import (
    AssignmentChanged,
    CheckpointEnded,
    FilesHeardOf,
    Notice,
    ViewInstalled,
)
from holdfast.core.model.records import Puts, Record
from holdfast.core.outbox import Outbox


class Log:
    def __init__(self, out: Outbox, *, on: bool) -> None:
        self.on = on
        self._out = out
        self._entries: list[Entry] = []
        self._urgent = False
        self._number = 0
        self._durable = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._tickets = 0
        self._checkpoints: set[int] = set()

    def wrote(self, partition: int, term: int, records: list[Record], *, urgent: bool) -> None:
        """`urgent`: an acknowledgement waits for the records to be durable."""
        assert self.on, "without a journal nothing is written (journal/J-3)"
        assert records, "records are not empty"
        self._entries.append(Wrote(partition, term, records, self._out.wall_ms()))
        self._urgent = self._urgent or urgent

    def stored(self, stored: Iterable[tuple[int, int, Puts]], *, urgent: bool) -> None:
        """Packed puts, with partition and term, in the format of the level in force (membership/L-4)."""
        assert self.on, "without a journal nothing is written (journal/J-3)"
        wall_ms = self._out.wall_ms()
        if self._out.does(PACKED):
            self._entries += [WrotePuts(partition, term, puts, wall_ms) for partition, term, puts in stored]
        else:
            self._entries += [
                Wrote(partition, term, puts.records(), wall_ms) for partition, term, puts in stored
            ]
        self._urgent = self._urgent or urgent

    def group_wrote(self, number: int, data: bytes) -> None:
        """Data of a Raft replica. Use `when_durable` to wait for it."""
        assert self.on, "without a journal nothing is written (journal/J-3)"
        self._entries.append(GroupWrote(number, data))

    def on_assignment(self, notice: AssignmentChanged) -> None:
        if not self.on:
            return
        partition, row = notice.partition, notice.new
        last = self._entries[-1] if self._entries else None
        if isinstance(last, TableAssignments):
            last.rows.append((partition, row))
        else:
            self._entries.append(TableAssignments([(partition, row)]))

    def on_view(self, notice: ViewInstalled) -> None:
        if notice.new is not None:
            self.note(seen(notice.new))

    def on_files(self, notice: FilesHeardOf) -> None:
        self.note(seen(notice.view))

    def note(self, entry: Seen | Began | Dropped) -> None:
        """Write an entry for a restart; no callback waits for it."""
        if self.on:
            self._entries.append(entry)

    def when_durable(self, done: Callable[[], None]) -> None:
        """Call `done` when everything written until now is durable; at once if it already is."""
        if self._entries:
            self._urgent = True
            self._waiting.append((self._number + 1, done))
        elif self._durable < self._number:
            self._waiting.append((self._number, done))
        else:
            assert not self._waiting or self._waiting[0][0] <= self._durable, (
                "only callbacks that are being called are left"
            )
            done()
            return
        assert self._waiting[0][0] <= self._waiting[-1][0], "groups become durable in order (journal/J-2)"

    def notify_when_durable(self, notice: Notice) -> None:
        self.when_durable(partial(self._out.notify, notice))

    def checkpoint(self, snapshot: Snapshot) -> int:
        """Returns the ticket; `CheckpointEnded` reports the result."""
        self.flush()
        assert not self._entries, "earlier entries are in earlier groups (journal/J-1)"
        self._tickets += 1
        assert self._tickets not in self._checkpoints, "a ticket names one checkpoint"
        self._checkpoints.add(self._tickets)
        self._out.effects.append(Checkpoint(self._tickets, snapshot, self._number))
        return self._tickets

    def flush(self) -> None:
        if self._entries:
            assert self.on, "without a journal nothing is written (journal/J-3)"
            self._number += 1
            assert self._number > self._durable, "a new group is not durable yet"
            entries, self._entries = self._entries, []
            self._out.effects.append(Append(self._number, entries, self._urgent))
            self._urgent = False

    def on_durable(self, number: int) -> None:
        self._durable = max(self._durable, number)
        while self._waiting and self._waiting[0][0] <= self._durable:
            self._waiting.popleft()[1]()

    def on_checkpoint(self, ticket: int, *, well: bool) -> None:
        if not well:
            self._out.note("no disk space for a checkpoint", level="warning")
        if ticket in self._checkpoints:
            self._checkpoints.discard(ticket)
            self._out.notify(CheckpointEnded(ticket, well))

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "entries not written": len(self._entries),
            "waits for the disk": len(self._waiting),
            "checkpoints": len(self._checkpoints),
        }
