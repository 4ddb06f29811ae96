"""What is waited for together: the records of some read buffers, and the members that have to hold them."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.ids import MemberId
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.records import Puts, Recorded
from holdfast.core.store.replica import AnyReplica

Completion = Callable[[bool], None]
Written = tuple[int, AnyReplica, Recorded]
"""Partition, the map's share of it, and what was done to it."""
NOBODY: frozenset[str] = frozenset()
NAMED = 5
"""Of more partitions that miss an acknowledgement only the count is told."""


class AckBatch:
    """Records that wait for their backups: the callers for the sync ones, the records for all."""

    __slots__ = (
        "after",
        "asked_ns",
        "charged",
        "courtesy",
        "late",
        "links",
        "need",
        "number",
        "on_disk",
        "records",
        "resting",
        "since",
        "since_ns",
        "size",
        "told",
    )

    def __init__(self, number: int, now_ns: int) -> None:
        self.number = number
        self.since_ns = now_ns
        self.asked_ns = now_ns
        """Since when its youngest callers wait."""
        self.size = 0
        """Bytes of its records, at about."""
        self.charged: tuple[str, ...] = ()
        """The async backups whose backlog it is counted in."""
        self.told: list[Completion] = []
        self.records: dict[int, list[tuple[AnyReplica, Recorded]]] = {}
        """By partition; of one in which answers only rest on what is there, none."""
        self.resting: dict[int, set[str]] = {}
        """Partition -> the maps in it that answers rest on without having changed them (primary_backup/P-7). A batch
        that has any has no records.
        """
        self.since = 0
        """Of a batch that has any: all other batches up to this number are of earlier turns."""
        self.links: set[int] = set()
        """The batches that it has to come after, because its answers may have seen what is in them."""
        self.after = 0
        """How many of these are still open."""
        self.need: dict[str, set[int]] = {}
        """Member -> partitions that the callers wait for it to hold."""
        self.courtesy: dict[str, set[int]] = {}
        """The same of async backups that are waited for only as they are slow, and not for ever
        (primary_backup/K-3).
        """
        self.late: dict[str, set[int]] = {}
        """The same of async backups: nobody waits, but what is lost on the way must be sent again."""
        self.on_disk = True
        """Whether all that must survive a power cut is durable on this member."""

    def wait_for(self, partition: int, held: AnyReplica, slow: set[str]) -> None:
        """Wait for this map's backups to hold the partition's records; for those async ones that are slow, too."""
        sync = held.sync
        for member in held.targets:
            waits = self.need if member in sync else self.courtesy if member in slow else self.late
            parts = waits.get(member)
            if parts is None:
                waits[member] = {partition}
            else:
                parts.add(partition)

    def wait_for_disk(self) -> None:
        """Wait until what must survive a power cut is durable on this member."""
        self.on_disk = False

    @property
    def open(self) -> bool:
        """Whether its callers have to wait."""
        return bool(self.need or self.courtesy or self.after) or not self.on_disk

    def rest_on(self, partition: int, name: str, sync: frozenset[str]) -> None:
        """Wait for the map's sync backups to confirm that they still follow this primary."""
        self.resting.setdefault(partition, set()).add(name)
        for member in sorted(sync):
            self.need.setdefault(member, set()).add(partition)

    def forget(self, partition: int) -> None:
        """Wait for nobody to hold the partition's records."""
        for waits in (self.need, self.courtesy, self.late):
            for member in list(waits):
                waits[member].discard(partition)
                if not waits[member]:
                    del waits[member]

    def told_of(self) -> OpenOperation:
        """What is waited for together, for people."""
        places: dict[str, set[int]] = {}
        count = 0
        for partition, part in self.records.items():
            for held, update in part:
                places.setdefault(held.name, set()).add(partition)
                count += update.count if isinstance(update, Puts) else 1
        for partition, names in self.resting.items():
            for name in names:
                places.setdefault(name, set()).add(partition)
        words = ["backups to acknowledge"] if self.need or self.courtesy else []
        if not self.on_disk:
            words.append("this member's own disk")
        if self.after:
            words.append("what was written before")
        kind = "answers that rest on what was found" if self.resting else "writes"
        members = tuple(MemberId(each) for each in sorted({*self.need, *self.courtesy}))
        count = max(count, len(self.told))
        return OpenOperation(
            ("batch", self.number), kind, count, places, self.since_ns, " and ".join(words), members
        )

    def missing(self) -> str:
        """Who has not acknowledged, in words."""
        words = [
            f"backup {member} ({f'partitions {sorted(parts)}' if len(parts) <= NAMED else f'{len(parts)} partitions'})"
            for member, parts in sorted(self.need.items())
        ]
        if not self.on_disk:
            words.append("this member's own disk")
        if self.after:
            words.append("what was written before")
        return ", ".join(words)


def when_all_done(batches: list[AckBatch], done: Completion, now_ns: int) -> None:
    """Call `done` once: when all of these are done, or with False as soon as that is not known of one of them."""
    left = len(batches)
    assert left, "somebody is waited for"

    def told(known: bool) -> None:
        nonlocal left
        if left <= 0:
            return
        left = left - 1 if known else 0
        if not left:
            done(known)

    for batch in batches:
        if not batch.told:
            batch.asked_ns = now_ns
        batch.told.append(told)


def by_map(records: list[Written]) -> dict[tuple[int, AnyReplica], list[Recorded]]:
    """The updates of each map and partition, in the order of the writes."""
    found: dict[tuple[int, AnyReplica], list[Recorded]] = {}
    for partition, held, update in records:
        part = found.get((partition, held))
        if part is None:
            found[partition, held] = [update]
        else:
            part.append(update)
    return found
