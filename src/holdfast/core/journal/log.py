"""Who waits for the disk? What one member writes down in a step, and who is told when it is durable (DESIGN rule 8).

- journal/J-1: What a step writes down leaves as one group, at its end; a checkpoint divides it in two, for it is of one
  moment.
- journal/J-2: Groups become durable in the order in which they were written: who waits for one waits for all before.
- journal/J-3: Without a journal nothing is written, and nobody waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from holdfast.core.machine import Append, Checkpoint, Outbox
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
        self._checkpoints: set[int] = set()

    def wrote(self, partition: int, term: int, records: list[Record], *, urgent: bool) -> None:
        """A copy that is held here has applied these records. `urgent`: somebody waits for them to be durable."""
        assert self.on, "without a journal nothing is written (journal/J-3)"
        assert records, "what is written down says something"
        self._entries.append(Wrote(partition, term, records, self._out.wall_ms()))
        self._urgent = self._urgent or urgent

    def stored(self, stored: Iterable[tuple[int, int, Puts]], *, urgent: bool) -> None:
        """The same of packed stores, each with partition and term, as the level in force has them (membership/L-4)."""
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
        """A replica of a group has this to remember. Whether somebody waits for it says `when_durable`."""
        assert self.on, "without a journal nothing is written (journal/J-3)"
        self._entries.append(GroupWrote(number, data))

    def on_assignment(self, notice: AssignmentChanged) -> None:
        """This row is applied."""
        if not self.on:
            return
        partition, row = notice.partition, notice.new
        last = self._entries[-1] if self._entries else None
        if isinstance(last, TableAssignments):
            last.rows.append((partition, row))
        else:
            self._entries.append(TableAssignments([(partition, row)]))

    def on_view(self, notice: ViewInstalled) -> None:
        """A view was installed."""
        if notice.new is not None:
            self.note(seen(notice.new))

    def on_files(self, notice: FilesHeardOf) -> None:
        """What is known of everybody's files is another thing than was written down."""
        self.note(seen(notice.view))

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
            assert not self._waiting or self._waiting[0][0] <= self._durable, "who waits is just being told"
            told()
            return
        assert self._waiting[0][0] <= self._waiting[-1][0], "groups become durable in order (journal/J-2)"

    def tell_when_durable(self, notice: Notice) -> None:
        """The same, as a notice."""
        self.when_durable(partial(self._out.tell, notice))

    def checkpoint(self, snapshot: Snapshot) -> int:
        """Write this content out. Answers the ticket under which `CheckpointEnded` says what has come of it."""
        self.flush()
        assert not self._entries, "what was written before is in the groups before (journal/J-1)"
        self._tickets += 1
        assert self._tickets not in self._checkpoints, "a ticket names one checkpoint"
        self._checkpoints.add(self._tickets)
        self._out.effects.append(Checkpoint(self._tickets, snapshot, self._number))
        return self._tickets

    def flush(self) -> None:
        """The step ends, or a checkpoint is taken: what was written down until now leaves."""
        if self._entries:
            assert self.on, "without a journal nothing is written (journal/J-3)"
            self._number += 1
            assert self._number > self._durable, "what leaves now is not durable yet"
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
            self._out.note("no disk space for a checkpoint", level="warning")
        if ticket in self._checkpoints:
            self._checkpoints.discard(ticket)
            self._out.tell(CheckpointEnded(ticket, well))

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "entries not written": len(self._entries),
            "waits for the disk": len(self._waiting),
            "checkpoints": len(self._checkpoints),
        }
