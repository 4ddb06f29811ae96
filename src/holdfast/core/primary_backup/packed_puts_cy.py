"""Packed puts: how plain stores travel from the end of a read buffer to the backups (H8; DESIGN rules 2, 3 and 8).

Most turns consist of plain stores alone. Instead of a `Record` for each, the primary appends to two buffers per map and
partition. Example: updates 18 and 19 store ab = x and c = yz. Then

    sizes   (2, 1) (1, 2)      two 32-bit lengths for each store: of its key and of its value
    data    ab x c yz          keys and values without separators
    start   17                 the counter before the first store

At the end of the turn `lay_out` turns the buffers into one `Puts` per map and partition for each backup, where `take`
applies it. A `Puts` covers the range (17, 19], so a backup at 17 needs one comparison to know that nothing is missing.

It runs as plain Python, the reference, and compiled (`build_lane.py`). `PendingAcks` and `LocalReplicas` handle the
unusual cases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from holdfast.core.messages import Section
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Changes, Puts
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.backlog import RECORD_BYTES
from holdfast.core.store import uncompiled as cython
from holdfast.core.store.map_state import FOLD_AT, MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, UnsentPuts
from holdfast.core.store.tail import Tail

PAIR = cython.declare(cython.Py_ssize_t, 8)
"""Two lengths."""
COST = cython.declare(cython.Py_ssize_t, RECORD_BYTES)
FOLDED = cython.declare(cython.Py_ssize_t, FOLD_AT)

MOST = cython.declare(cython.longlong, 2**63 - 1)
"""As in `wire.bounds`."""

Sections = dict[int, Section]
"""By partition, to one member."""


class PackedPuts(Protocol):
    def close(
        self,
        batch: AckBatch,
        puts: list[MapReplica],
        of_partitions: dict[int, dict[int, AckBatch]],
        unsent: list[MapReplica],
        slow: set[str],
        /,
    ) -> int: ...

    def settle(self, puts: list[MapReplica], unsent: list[MapReplica], /) -> None: ...

    def targets_of(self, puts: list[MapReplica], /) -> tuple[str, ...] | None: ...

    def lay_out(
        self,
        puts: list[MapReplica],
        rows: list[Assignment],
        terms: list[int],
        tail_bytes: int,
        to: dict[str, Sections],
        stored: list[tuple[int, int, Puts]],
        /,
    ) -> list[MapReplica]: ...

    def take(
        self,
        sections: list[Section],
        sender: MemberId,
        me: MemberId,
        rows: list[Assignment],
        filling: Collection[int],
        copies: Mapping[int, PartitionCopy],
        now_ns: int,
        tail_bytes: int,
        /,
    ) -> tuple[list[Section], list[Section]]: ...

    def are_sound(self, sections: list[Section], partition_count: int, /) -> bool: ...


def close(
    batch: AckBatch,
    puts: list[MapReplica],
    of_partitions: dict[int, dict[int, AckBatch]],
    unsent: list[MapReplica],
    slow: set[str],
) -> int:
    """The batch of an ended read buffer waits for the backups of these replicas, and gets the puts when they are taken.
    Returns their bytes. `of_partitions`: open batches. `unsent`: gets the replicas that were not in it. `slow`: async
    backups that are waited for (primary_backup/K-3).
    """
    size: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t
    length: cython.Py_ssize_t
    closed: cython.Py_ssize_t
    closed_bytes: cython.Py_ssize_t
    held: MapReplica
    parts: dict[int, Any] = batch.records
    for held in puts:
        each: UnsentPuts | None = held.unsent
        assert each is not None, "a replica with unsent puts has a buffer"
        sizes: bytearray = each.sizes
        data: bytearray = each.data
        count = len(sizes) // PAIR
        length = len(data)
        closed = each.closed
        closed_bytes = each.closed_bytes
        size += COST * (count - closed) + length - closed_bytes
        each.opened = False
        each.closed = count
        each.closed_bytes = length
        partition = each.partition
        waiting: list[Any] = each.parts
        part = parts.get(partition)
        if part is None:
            part = parts[partition] = []
            others = of_partitions.get(partition)
            if others is None:
                of_partitions[partition] = {batch.number: batch}
            else:
                others[batch.number] = batch
        elif waiting and waiting[len(waiting) - 1] is part:
            continue
        if count:
            if not waiting:
                unsent.append(held)
            waiting.append(part)
        sync: frozenset[str] = held.sync
        targets: tuple[str, ...] = held.targets
        for member in targets:
            waits: dict[str, set[int]] = (
                batch.need if member in sync else batch.slow_async if member in slow else batch.late
            )
            places = waits.get(member)
            if places is None:
                waits[member] = {partition}
            else:
                places.add(partition)
        if held.journal == "sync" and batch.on_disk:
            batch.wait_for_disk()
    return size


def settle(puts: list[MapReplica], unsent: list[MapReplica]) -> None:
    """End a read buffer whose responses do not wait for its puts. `unsent`: as in `close`."""
    held: MapReplica
    for held in puts:
        each: UnsentPuts | None = held.unsent
        assert each is not None, "a replica with unsent puts has a buffer"
        sizes: bytearray = each.sizes
        data: bytearray = each.data
        each.opened = False
        if not each.closed and sizes:
            unsent.append(held)
        each.closed = len(sizes) // PAIR
        each.closed_bytes = len(data)


def targets_of(puts: list[MapReplica]) -> tuple[str, ...] | None:
    """The members that get the puts of all these replicas; None: they differ, or some must be on this disk first."""
    held: MapReplica = puts[0]
    targets: tuple[str, ...] = held.targets
    for held in puts:
        others: tuple[str, ...] = held.targets
        if held.journal == "sync" or (others is not targets and others != targets):
            return None
    return targets


@cython.cfunc
@cython.inline
def _keep(held: MapReplica, term: int, puts: Puts, notes: bytes, limit: int) -> cython.void:
    """The usual case of `Replica.keep_puts`: the tail ends with packed updates of the same term and kind."""
    tail: Tail | None = held.tail
    if tail is None or not tail.run_sizes or tail.end != puts.start:
        held.keep_puts(term, puts, limit)
        return
    run_notes: list[bytes] = tail.run_notes
    if (len(notes) > 0) != (len(run_notes) > 0):
        held.keep_puts(term, puts, limit)
        return
    terms: list[tuple[int, int]] = tail.terms
    if terms[len(terms) - 1][0] != term:
        held.keep_puts(term, puts, limit)
        return
    sizes: bytes = puts.sizes
    data: bytes = puts.data
    run_sizes: list[bytes] = tail.run_sizes
    run_data: list[bytes] = tail.run_data
    start: cython.longlong = puts.start
    size: cython.Py_ssize_t = len(sizes) + len(data) + len(notes)
    run_bytes: cython.Py_ssize_t = tail.run_bytes
    whole: cython.Py_ssize_t = tail.size
    run_sizes.append(sizes)
    run_data.append(data)
    if notes:
        run_notes.append(notes)
    tail.end = start + len(sizes) // PAIR
    run_bytes += size
    whole += size
    tail.run_bytes = run_bytes
    tail.size = whole
    if run_bytes > tail.run_most or whole > tail.limit:
        tail.settle()


def lay_out(
    puts: list[MapReplica],
    rows: list[Assignment],
    terms: list[int],
    tail_bytes: int,
    to: dict[str, Sections],
    stored: list[tuple[int, int, Puts]],
) -> list[MapReplica]:
    """At the end of a turn add the unsent puts of these replicas to their tails, to the sections in `to`, and, if they
    are journalled, to `stored`, with partition and term. Replicas of an open read buffer are left alone, and returned,
    and so are those whose updates leave as records: with a change stream, for a backup or the journal.
    """
    left: list[MapReplica] = []
    packed: Any
    held: MapReplica
    row: Assignment
    for held in puts:
        each: UnsentPuts | None = held.unsent
        assert each is not None, "a replica with unsent puts has a buffer"
        sizes: bytearray = each.sizes
        if not sizes and not each.opened:
            continue
        data: bytearray = each.data
        notes: bytearray = each.notes
        targets: tuple[str, ...] = held.targets
        if each.opened or (notes and (targets or held.journal != "off")):
            left.append(held)
            continue
        updates: UpdateCounter = held.updates
        last: cython.longlong = updates.hwm
        start: cython.longlong = last - len(sizes) // PAIR
        noted = b""
        if notes:
            noted = bytes(notes)
            packed = Changes(held.name, start, bytes(sizes), bytes(data), noted)
            notes.clear()
        else:
            packed = Puts(held.name, start, bytes(sizes), bytes(data))
        taken: Puts = packed
        sizes.clear()
        data.clear()
        each.closed = each.closed_bytes = 0
        parts: list[Any] = each.parts
        for part in parts:
            part.append((held, taken))
        parts.clear()
        partition = each.partition
        term = terms[partition]
        limit = held.changes or tail_bytes
        if limit:
            _keep(held, term, taken, noted, limit)
        state: MapState = held.state
        touched = state.touched
        if touched is not None and len(touched) >= FOLDED:
            state.fold()
        if held.journal != "off":
            stored.append((partition, term, taken))
        row = rows[partition]
        for target in targets:
            sections = to.get(target)
            if sections is None:
                sections = to[target] = {}
            section = sections.get(partition)
            if section is None:
                sections[partition] = Section(partition, row.version, [], term, [taken])
            else:
                section.puts.append(taken)
    return left


def are_sound(sections: list[Section], partition_count: int) -> bool:
    """Whether these sections have only packed puts, and nothing that cannot be (`wire.bounds`, which says what is
    wrong).
    """
    section: Section
    puts: Puts
    count: cython.longlong = partition_count
    number: cython.longlong
    at: cython.Py_ssize_t
    length: cython.Py_ssize_t
    left: cython.longlong
    try:
        for section in sections:
            number = section.partition
            if number < 0 or number >= count or section.records:
                return False
            number = section.version
            if number < 0 or number > MOST:
                return False
            number = section.term
            if number < 0 or number > MOST:
                return False
            packed: list[Puts] = section.puts
            for puts in packed:
                sizes: bytes = puts.sizes
                data: bytes = puts.data
                length = len(sizes)
                number = puts.start
                if not length or length % PAIR or number < 0 or number > MOST - length // PAIR:
                    return False
                left = len(data)
                for at in range(0, length, 4):
                    left -= _number_at(sizes, at)
                if left:
                    return False
    except OverflowError:
        return False
    return True


@cython.cfunc
@cython.inline
def _number_at(sizes: bytes, at: cython.Py_ssize_t) -> cython.longlong:
    if not cython.compiled:
        return int.from_bytes(sizes[at : at + 4], "little")
    low: cython.longlong = sizes[at]
    second: cython.longlong = sizes[at + 1]
    third: cython.longlong = sizes[at + 2]
    high: cython.longlong = sizes[at + 3]
    return low | second << 8 | third << 16 | high << 24


def take(
    sections: list[Section],
    sender: MemberId,
    me: MemberId,
    rows: list[Assignment],
    filling: Collection[int],
    copies: Mapping[int, PartitionCopy],
    now_ns: int,
    tail_bytes: int,
) -> tuple[list[Section], list[Section]]:
    """Apply the usual sections: puts in one map, its next updates, from the primary at its version (primary_backup/B-1,
    primary_backup/B-2), of a partition that is not being filled. Returns these, and the others, untouched.
    """
    taken: list[Section] = []
    rest: list[Section] = []
    section: Section
    row: Assignment
    for section in sections:
        partition = section.partition
        row = rows[partition]
        replicas: tuple[MemberId | None, ...] = row.replicas
        packed: list[Puts] = section.puts
        if (
            len(packed) == 1
            and not section.records
            and section.version == row.version
            and replicas
            and sender == replicas[0]
            and me in replicas
            and partition not in filling
        ):
            copy: PartitionCopy | None = copies.get(partition)
            if copy is not None and _apply(copy, packed[0], section.term, now_ns, tail_bytes):
                taken.append(section)
                continue
        rest.append(section)
    return taken, rest


@cython.cfunc
@cython.inline
def _apply(copy: PartitionCopy, puts: Puts, term: int, now_ns: int, tail_bytes: int) -> cython.bint:
    """`Replica.apply_puts` for an existing map."""
    maps: dict[str, MapReplica] = copy.maps
    held: MapReplica | None = maps.get(puts.map)
    if held is None:
        return False
    updates: UpdateCounter = held.updates
    start: cython.longlong = puts.start
    if updates.lwm != start or updates.hwm != start:
        return False
    lineage: list[tuple[int, int]] = held.lineage
    if not lineage or lineage[len(lineage) - 1][0] < term:
        # A term begins at the counter before its first update.
        held.enter(term)
    state: MapState = held.state
    table = state.packed
    if table is None:
        state.store_all(puts, now_ns)
    else:
        touched = state.touched
        table.put_all(puts.sizes, puts.data, touched, state.counts)
        if touched is not None and len(touched) >= FOLDED:
            state.fold()
    sizes: bytes = puts.sizes
    end = start + len(sizes) // PAIR
    updates.lwm = updates.hwm = end
    limit = held.changes or tail_bytes
    if limit:
        _keep(held, term, puts, b"", limit)
    return True
