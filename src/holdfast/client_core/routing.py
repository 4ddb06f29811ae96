"""Destinations of requests and meanings of answers: the part of a client that needs no socket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

from holdfast import errors
from holdfast.config import addresses
from holdfast.core.model.ids import Address
from holdfast.core.model.keys import partitions_of
from holdfast.core.model.operations import Outcome, Status
from holdfast.wire import own

DEFAULT_PORT = 5701


def parse_addresses(given: str | Iterable[str]) -> list[Address]:
    """Addresses from `host:port`, `host` or `[ipv6]:port`, several separated by commas.

    Raises ConfigError, naming the part that is wrong.
    """
    return [Address(*pair) for pair in addresses.parse_addresses(given, "address", DEFAULT_PORT)]


@dataclass(frozen=True, slots=True)
class TableRow:
    partition: int
    replicas: tuple[str | None, ...]
    version: int = 0

    @property
    def owner(self) -> str | None:
        return self.replicas[0] if self.replicas else None


class RoutingTable:
    """The members and the partition table as one member reported them. Iterates over the partitions in order."""

    def __init__(self, told: own.TableIs) -> None:
        self.version = told.version
        self.stamp = told.stamp
        """Equal on members with equal tables."""
        self.members = {member.uuid: member for member in told.members}
        uuids = [member.uuid for member in told.members]
        self.rows = [
            TableRow(partition, tuple(None if at == own.NOBODY else uuids[at] for at in row), version)
            for partition, (row, version) in enumerate(
                zip(told.replicas, told.versions or repeat(0), strict=False)
            )
        ]

    def __iter__(self) -> Iterator[TableRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def owner(self, partition: int) -> str | None:
        return self.rows[partition].owner

    @property
    def data_members(self) -> list[own.MemberRow]:
        return [member for member in self.members.values() if not member.lite]

    def shares(self, parts: int, partitions: Iterable[int] | None = None) -> list[list[int]]:
        """All partitions, or these, in at most `parts` even shares, each with as few owners as possible; none is empty.

        Adjacent shares have different owners where possible, so that workers that take a few at a time, in this
        order, keep all members busy.
        """
        wanted = range(len(self.rows)) if partitions is None else partitions
        ranked = sorted(wanted, key=lambda partition: (self.owner(partition) or "", partition))
        parts = max(1, min(parts, len(ranked)))
        ends = [len(ranked) * part // parts for part in range(parts + 1)]
        cut = [ranked[start:end] for start, end in pairwise(ends) if end > start]
        seen: Counter[str | None] = Counter()
        turns: list[tuple[int, int]] = []
        for at, share in enumerate(cut):
            owner = self.owner(share[0])
            turns.append((seen[owner], at))
            seen[owner] += 1
        return [cut[at] for _, at in sorted(turns)]


@dataclass(frozen=True, slots=True)
class PartitionRows:
    partition: int
    rows: list[int]


def group_rows(keys: Sequence[bytes], partition_count: int) -> list[PartitionRows]:
    return group_by(partitions_of(keys, partition_count), partition_count)


def group_by(partitions: Iterable[int], partition_count: int) -> list[PartitionRows]:
    rows: list[list[int]] = [[] for _ in range(partition_count)]
    for row, partition in enumerate(partitions):
        rows[partition].append(row)
    return [PartitionRows(partition, some) for partition, some in enumerate(rows) if some]


def pack(
    groups: Iterable[PartitionRows], sizes: Sequence[int], *, rows_max: int, bytes_max: int
) -> Iterator[list[PartitionRows]]:
    packed: list[PartitionRows] = []
    rows = size = 0
    for group in groups:
        group_size = sum(map(sizes.__getitem__, group.rows))
        if rows + len(group.rows) <= rows_max and size + group_size <= bytes_max:
            packed.append(group)
            rows += len(group.rows)
            size += group_size
            continue
        start = 0
        for at, row in enumerate(group.rows):
            if rows and (rows == rows_max or size + sizes[row] > bytes_max):
                if at > start:
                    packed.append(PartitionRows(group.partition, group.rows[start:at]))
                yield packed
                packed, rows, size, start = [], 0, 0, at
            rows += 1
            size += sizes[row]
        packed.append(PartitionRows(group.partition, group.rows[start:]))
    if rows:
        yield packed


_FAULTS: dict[own.FaultKind, type[errors.HoldfastError]] = {
    own.FaultKind.DENIED: errors.Denied,
    own.FaultKind.MOVED: errors.Moved,
    own.FaultKind.NOT_READY: errors.NotReady,
    own.FaultKind.CLOSING: errors.Closing,
    own.FaultKind.TOO_LARGE: errors.TooLarge,
    own.FaultKind.UNSUPPORTED: errors.Unsupported,
    own.FaultKind.MALFORMED: errors.ProtocolError,
    own.FaultKind.UNKNOWN: errors.Unknown,
    own.FaultKind.PASSIVE: errors.Passive,
    own.FaultKind.NO_ROOM: errors.NoRoom,
    own.FaultKind.FAILED: errors.Refused,
    own.FaultKind.NO_MEMORY: errors.NoMemory,
    own.FaultKind.LOST: errors.PartitionLost,
}

_STATUSES: dict[Status, type[errors.RequestError]] = {
    Status.UNKNOWN: errors.Unknown,
    Status.MOVED: errors.Moved,
    Status.NOT_READY: errors.NotReady,
    Status.CLOSING: errors.Closing,
    Status.TOO_LARGE: errors.TooLarge,
    Status.PASSIVE: errors.Passive,
    Status.NO_ROOM: errors.NoRoom,
    Status.NO_DATA_MEMBER: errors.NoDataMember,
    Status.FAILED: errors.Refused,
    Status.NO_MEMORY: errors.NoMemory,
    Status.LOST: errors.PartitionLost,
    Status.PROCESSOR_FAILED: errors.ProcessorFailed,
}

PASSING = (errors.Moved, errors.NotReady, errors.Closing)
"""Rejections that a newer table, or another member, may resolve. The request was certainly not applied."""


def error_of_fault(fault: own.Fault) -> errors.HoldfastError:
    return _FAULTS[fault.kind](fault.detail)


def error_of_outcome(outcome: Outcome) -> errors.RequestError | None:
    """None if the outcome is OK."""
    if outcome.status is Status.OK:
        return None
    return _STATUSES[outcome.status](outcome.detail or outcome.status.name.lower())
