"""Changes of maps in a write of a zone's group to the journal, for those who read files of members that do not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from holdfast.core.model.ids import GroupNumber, PartitionId, place_of
from holdfast.core.model.operations import STEPS, Op, Request
from holdfast.core.model.transactions import PrepareBranch, decode_step
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.multiraft.persistence import decode_write
from holdfast.core.raft_partition.partition_commands import decode_command


class LoggedChange(NamedTuple):
    """A change in an entry of the log. Whether the entry was committed, the journal says later, if at all."""

    zone: int
    group: PartitionId
    """As the zone numbers its partitions."""
    partition: PartitionId
    """As clients number them."""
    term: int
    log_index: int
    map: str
    operation: str
    """In lower case. `prepare set` and `prepare remove`: with the commit of a transaction."""
    key: bytes
    value: bytes
    ttl_ms: int
    """0: none, or that of the map."""


def changes_in(number: GroupNumber, data: bytes) -> list[LoggedChange]:
    """Empty for a write without changes of maps, such as that of the metastore."""
    zone, group = place_of(number)
    if not zone:
        return []
    try:
        entries = decode_write(data).entries
        return [
            LoggedChange(zone, group, partition, entry.term, entry.index, *change)
            for entry in entries
            if entry.data
            for partition, change in _changes(entry.data, group)
        ]
    except msgspec.MsgspecError:
        return []


def _changes(
    command: bytes, group: PartitionId
) -> Iterator[tuple[PartitionId, tuple[str, str, bytes, bytes, int]]]:
    for part in decode_command(command).parts:
        if isinstance(part, ZoneWrites):
            partition = part.partition if part.partition >= 0 else group
            for name, key, value, ttl_ms, _ in part.writes:
                operation = "remove" if value is None else "set"
                yield partition, (name, operation, key, value or b"", ttl_ms)
        elif isinstance(part, ZoneRequests):
            for request in part.requests:
                if request.op in STEPS:
                    yield from ((request.partitions[0], change) for change in _changes_of_step(request))
                    continue
                operation = request.op.name.lower()
                ttl_ms = max(0, request.ttl_ms)
                entries = [(request.key, request.value)]
                if request.op is Op.PUT_ALL:
                    entries = list(zip(request.items[::2], request.items[1::2], strict=False))
                for each in request.partitions:
                    for key, value in entries:
                        yield each, (request.map, operation, key, value, ttl_ms)


def _changes_of_step(request: Request) -> Iterator[tuple[str, str, bytes, bytes, int]]:
    """A prepare has the writes of a transaction; if this is its only partition, they are applied at once."""
    step = decode_step(request.value)
    if not isinstance(step, PrepareBranch):
        operation = type(step).__name__.removesuffix("Branch").removesuffix("Branches").lower()
        yield request.map, operation, b"", b"", 0
        return
    later = "prepare " if len(step.participants) > 1 else ""
    for write in step.writes:
        operation = later + ("remove" if write.value is None else "set")
        yield write.map, operation, write.key, write.value or b"", write.ttl_ms
