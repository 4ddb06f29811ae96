"""Forecasts what `holdfast map move` copies: from which members to which, and how many bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a map."""

    zone: str
    """Empty: the partitions with a primary and backups."""
    rows: tuple[tuple[str, ...], ...]
    """By partition of the cluster: the members that hold it, the primary or leader first."""

    def __str__(self) -> str:
        return f"zone {self.zone}" if self.zone else "the partitions with a primary"


class MoveFlow(msgspec.Struct, frozen=True):
    """Partitions that one member copies to another."""

    source: Annotated[str, Meta(description="primary or leader of the source")]
    target: Annotated[str, Meta(description="primary or leader of the target")]
    partitions: int
    bytes: int


class MoveLoad(msgspec.Struct, frozen=True):
    """Bytes of the map on one member."""

    member: str
    before: int
    during: Annotated[int, Meta(description="until the old copies are removed")]
    after: int


class MoveFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a move of a map."""

    partitions: Annotated[int, Meta(description="partitions of the cluster")]
    entries: int
    bytes: Annotated[int, Meta(description="keys and values, once")]
    replicas_before: Annotated[int, Meta(description="of the partition with the fewest")]
    replicas_after: int
    copied_bytes: Annotated[int, Meta(description="from the leaders of the source to those of the target")]
    local_bytes: Annotated[int, Meta(description="those of them that stay on one member")]
    replicated_bytes: Annotated[int, Meta(description="from the leaders of the target to its other replicas")]
    flows: list[MoveFlow]
    loads: list[MoveLoad]


def foresee_move(source: Place, target: Place, sizes: Sequence[int], entries: int = 0) -> MoveFigures:
    """`sizes`: bytes of the map in each partition. Raises ConfigError."""
    if not len(source.rows) == len(target.rows) == len(sizes):
        raise ConfigError(f"{source} and {target} are of clusters with different numbers of partitions")
    for place in (source, target):
        if empty := [partition for partition, row in enumerate(place.rows) if not row]:
            raise ConfigError(f"partition {empty[0]} of {place} is on no member: the move would wait for it")
    flows, bytes_of = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    before, after = Counter[str](), Counter[str]()
    for old, new, size in zip(source.rows, target.rows, sizes, strict=True):
        flows[old[0], new[0]] += 1
        bytes_of[old[0], new[0]] += size
        before.update(dict.fromkeys(old, size))
        after.update(dict.fromkeys(new, size))
    return MoveFigures(
        partitions=len(sizes),
        entries=entries,
        bytes=sum(sizes),
        replicas_before=min(map(len, source.rows)),
        replicas_after=min(map(len, target.rows)),
        copied_bytes=sum(sizes),
        local_bytes=sum(size for (old, new), size in bytes_of.items() if old == new),
        replicated_bytes=sum(size * (len(row) - 1) for row, size in zip(target.rows, sizes, strict=True)),
        flows=[MoveFlow(*way, flows[way], bytes_of[way]) for way in sorted(flows)],
        loads=[
            MoveLoad(member, before[member], before[member] + after[member], after[member])
            for member in sorted(before.keys() | after.keys())
        ],
    )
