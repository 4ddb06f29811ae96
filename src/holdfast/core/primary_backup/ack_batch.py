"""A batch of records, and the members whose acknowledgements it waits for."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.ids import MemberId
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.records import Puts, Recorded
from holdfast.core.store.replica import AnyReplica

Completion = Callable[[bool], None]
Written = tuple[int, AnyReplica, Recorded]
"""Partition, replica, update."""
NO_MEMBERS: frozenset[str] = frozenset()
NAMED = 5
"""Messages list so many partitions, and then give the count."""
ALL_MAPS = "(all maps)"
"""For operators: an answer waits for the writes to all maps of a partition (`ANY_MAP`)."""


class AckBatch:
    """Records that are sent together, or responses without records (`pending_reads`), until their backups
    have acknowledged. Callers wait for `need`, `slow_async`, `open_links` and `on_disk`. The records stay
    until `late` is empty too, because a changed assignment sends them again (primary_backup/P-2).
    """

    __slots__ = (
        "asked_ns",
        "callbacks",
        "charged",
        "late",
        "links",
        "need",
        "number",
        "on_disk",
        "open_links",
        "pending_reads",
        "records",
        "since",
        "since_ns",
        "size",
        "slow_async",
    )

    def __init__(self, number: int, now_ns: int) -> None:
        self.number = number
        self.since_ns = now_ns
        self.asked_ns = now_ns
        """When the youngest caller began to wait."""
        self.size = 0
        """Approximate."""
        self.charged: tuple[str, ...] = ()
        """Async backups in whose backlog it is counted."""
        self.callbacks: list[Completion] = []
        self.records: dict[int, list[tuple[AnyReplica, Recorded]]] = {}
        """By partition; empty for one in `pending_reads`."""
        self.pending_reads: dict[int, set[str]] = {}
        """Partition -> maps that responses have read without changing them (primary_backup/P-7). A batch with any has
        no records.
        """
        self.since = 0
        """With `pending_reads`: other batches up to this number are of earlier turns."""
        self.links: set[int] = set()
        """Batches that finish first, because the responses may have seen their records."""
        self.open_links = 0
        self.need: dict[str, set[int]] = {}
        """Member -> partitions that callers wait for it to hold."""
        self.slow_async: dict[str, set[int]] = {}
        """The same for slow async backups, until the timeout (primary_backup/K-3)."""
        self.late: dict[str, set[int]] = {}
        """The same for async backups that no caller waits for."""
        self.on_disk = True
        """Everything that must survive a power failure is durable here."""

    def wait_for(self, partition: int, held: AnyReplica, slow: set[str]) -> None:
        """Wait for the members that get the records of this replica. `slow`: async backups that callers wait for
        too.
        """
        sync = held.sync
        for member in held.targets:
            waits = self.need if member in sync else self.slow_async if member in slow else self.late
            parts = waits.get(member)
            if parts is None:
                waits[member] = {partition}
            else:
                parts.add(partition)

    def wait_for_disk(self) -> None:
        self.on_disk = False

    @property
    def open(self) -> bool:
        return bool(self.need or self.slow_async or self.open_links) or not self.on_disk

    def add_read(self, partition: int, name: str, sync: frozenset[str]) -> None:
        """Wait until the map's sync backups confirm that they still follow this primary."""
        self.pending_reads.setdefault(partition, set()).add(name)
        for member in sorted(sync):
            self.need.setdefault(member, set()).add(partition)

    def forget(self, partition: int) -> None:
        for waits in (self.need, self.slow_async, self.late):
            for member in list(waits):
                waits[member].discard(partition)
                if not waits[member]:
                    del waits[member]

    def operation(self) -> OpenOperation:
        places: dict[str, set[int]] = {}
        count = 0
        for partition, part in self.records.items():
            for held, update in part:
                places.setdefault(held.name, set()).add(partition)
                count += update.count if isinstance(update, Puts) else 1
        for partition, names in self.pending_reads.items():
            for name in names:
                places.setdefault(name or ALL_MAPS, set()).add(partition)
        words = ["backups to acknowledge"] if self.need or self.slow_async else []
        if not self.on_disk:
            words.append("this member's own disk")
        if self.open_links:
            words.append("earlier writes")
        kind = "confirmed answers" if self.pending_reads else "writes"
        members = tuple(MemberId(each) for each in sorted({*self.need, *self.slow_async}))
        count = max(count, len(self.callbacks))
        return OpenOperation(
            ("batch", self.number), kind, count, places, self.since_ns, " and ".join(words), members
        )

    def missing(self) -> str:
        words = [
            f"backup {member} ({f'partitions {sorted(parts)}' if len(parts) <= NAMED else f'{len(parts)} partitions'})"
            for member, parts in sorted(self.need.items())
        ]
        if not self.on_disk:
            words.append("this member's own disk")
        if self.open_links:
            words.append("earlier writes")
        return ", ".join(words)


def when_all_done(batches: list[AckBatch], done: Completion, now_ns: int) -> None:
    """Call `done` once; with False when the outcome of a batch is unknown."""
    left = len(batches)
    assert left, "at least one batch is waited for"

    def one_done(known: bool) -> None:
        nonlocal left
        if left <= 0:
            return
        left = left - 1 if known else 0
        if not left:
            done(known)

    for batch in batches:
        if not batch.callbacks:
            batch.asked_ns = now_ns
        batch.callbacks.append(one_done)


def by_map(records: list[Written]) -> dict[tuple[int, AnyReplica], list[Recorded]]:
    found: dict[tuple[int, AnyReplica], list[Recorded]] = {}
    for partition, held, update in records:
        part = found.get((partition, held))
        if part is None:
            found[partition, held] = [update]
        else:
            part.append(update)
    return found
