"""The partition table as one member knows it (source 001 §1.1, H1).

Each partition has an assignment: a version, the members that hold its replicas (index 0 is the primary; lower indices
are promoted earlier), and the epoch of its content. Only the master makes new assignments; one whose version is not
higher is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import mmh3
import msgspec
from msgspec import structs

from holdfast.core.model.ids import MemberId
from holdfast.errors import InvariantBroken

Name = TypeVar("Name", bound=str)
VERSION_MASK = (1 << 63) - 1


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """The assignment of one partition. Version 0: never assigned."""

    version: int = 0
    replicas: tuple[MemberId | None, ...] = ()
    epoch: int = 0
    """Raised when the partition began again empty after a loss."""
    behind: tuple[MemberId, ...] = ()
    """Backups that are named but incomplete: they were missing while the table was frozen."""
    lost: tuple[str, ...] = ()
    """Configured maps with a declared loss, sorted, until the operator resets it. Only those that do not
    ignore it (`maps.*.loss_policy`); `default` stands for all that are not configured.
    """

    @property
    def owner(self) -> MemberId | None:
        """The primary; None before the first assignment."""
        return self.replicas[0] if self.replicas else None

    @property
    def holding(self) -> tuple[MemberId | None, ...]:
        """The replicas without those that are behind (DESIGN rule 4)."""
        if not self.behind:
            return self.replicas
        return tuple(None if member in self.behind else member for member in self.replicas)

    def index_of(self, member: MemberId) -> int:
        return self.replicas.index(member) if member in self.replicas else -1

    def changed(self, replicas: tuple[MemberId | None, ...], *, extra: int = 0) -> Assignment:
        """The version grows by one for each index that differs, plus `extra`."""
        width = max(len(replicas), len(self.replicas))
        before = self.replicas + (None,) * (width - len(self.replicas))
        after = replicas + (None,) * (width - len(replicas))
        slots = sum(1 for old, new in zip(before, after, strict=True) if old != new)
        behind = tuple(member for member in self.behind if member in replicas)
        assert extra >= 0, "versions rise"
        return Assignment(self.version + max(1, slots) + extra, replicas, self.epoch, behind, self.lost)

    def losing(self, maps: Iterable[str]) -> Assignment:
        """See migration/M-7."""
        return structs.replace(self, lost=tuple(sorted({*self.lost, *maps})))


def survivors(
    replicas: tuple[Name | None, ...], present: Collection[Name]
) -> tuple[tuple[Name | None, ...], int | None]:
    """The replicas without absent members, the survivor of lowest index promoted; and its former index (None: no
    survivor).
    """
    slots = [member if member in present else None for member in replicas]
    hottest = next((slot for slot, member in enumerate(slots) if member is not None), None)
    if hottest:
        slots[0], slots[hottest] = slots[hottest], None
    return tuple(slots), hottest


class Table:
    __slots__ = ("_versions", "rows")

    def __init__(self, partition_count: int) -> None:
        self.rows = [Assignment()] * partition_count
        self._versions = 0

    @property
    def assigned(self) -> bool:
        return self.rows[0].version > 0

    @property
    def version(self) -> int:
        """A number of 63 bits: different after every change, and higher except after an overflow."""
        return self._versions & VERSION_MASK

    @property
    def stamp(self) -> int:
        """64 bits over all assignments, to compare tables; 0 before the first assignment."""
        packed = msgspec.msgpack.encode(self.rows)
        return int(mmh3.hash64(packed, signed=False)[0]) if self.assigned else 0

    def apply(self, partition: int, row: Assignment) -> Assignment | None:
        """Returns the previous assignment, or None if this one is not newer. Raises InvariantBroken if an
        equal version names other replicas: there are two histories.
        """
        old = self.rows[partition]
        if row.version < old.version:
            return None
        if row.version == old.version:
            if (row.replicas, row.behind, row.lost) != (old.replicas, old.behind, old.lost):
                raise InvariantBroken(
                    f"partition {partition} diverged at version {row.version}: {old} and {row}"
                )
            return None
        assert row.version > old.version, "versions rise"
        self.rows[partition] = row
        self._versions += row.version - old.version
        return old
