"""What a copy holds, as numbers that can be compared: one for all its entries, or one for each range of its keys.

The keys of a map in a partition fall into 64 ranges by their hash. Copies that are equal have equal sums in every
range; of those that are not, only the ranges that differ need to be read or sent again. Pure, and the same on every
member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mmh3 import hash64, mmh3_32_uintdigest

from holdfast.core.store.entry_mapping import PackedEntries

RANGES = 64
"""Ranges of the keys of one map in one partition."""

RANGE_SEED = 0x52414E47
"""Not that of `core.model.keys`: the keys of one partition must spread over all ranges."""

_SHIFT = 32 - 6
_MASK = 0xFFFF_FFFF_FFFF_FFFF


def range_of(key: bytes) -> int:
    """The range, 0 .. 63, that a serialised key falls into."""
    return mmh3_32_uintdigest(key, RANGE_SEED) >> _SHIFT


def entry_digest(key: bytes, value: bytes) -> int:
    """64 bits of one entry. Where key ends and value begins counts, too."""
    return hash64(key + value, len(key), signed=False)[0]


def whole(digests: Iterable[int]) -> int:
    """The digest of entries, or of ranges, together: their sum, modulo 2**64."""
    return sum(digests) & _MASK


def batch_digest(keys: Sequence[bytes], values: Sequence[bytes]) -> int:
    """The digest of these entries together. Both lists have the same length."""
    return (
        sum([hash64(key + value, len(key), True, False)[0] for key, value in zip(keys, values, strict=True)])
        & _MASK
    )


class RangeDigests:
    """The digests of the 64 ranges, kept up to date as they are told of changes."""

    __slots__ = ("sums",)

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        """Of these entries."""
        self.sums = RangeDigests.digests(entries)

    def absorb(self, touched: dict[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        """These keys have changed: from what is given (None: not there) to what the entries hold now."""
        sums = self.sums
        for key, old in touched.items():
            new = entries.get(key)
            if new != old:
                change = hash64(key + new, len(key), signed=False)[0] if new is not None else 0
                if old is not None:
                    change -= hash64(key + old, len(key), signed=False)[0]
                at = mmh3_32_uintdigest(key, RANGE_SEED) >> _SHIFT
                sums[at] = (sums[at] + change) & _MASK

    def complete(self, entries: Mapping[bytes, bytes]) -> bool:
        """All entries are about to go: these sums go on, with none."""
        self.sums = [0] * RANGES
        return True

    def end(self) -> None:
        """Nobody asks for them any more."""

    @staticmethod
    def digests(entries: Mapping[bytes, bytes] | PackedEntries) -> list[int]:
        """The 64 sums of these entries, whatever their order."""
        if isinstance(entries, PackedEntries):
            return entries.digests()
        sums = [0] * RANGES
        for key, value in entries.items():
            sums[mmh3_32_uintdigest(key, RANGE_SEED) >> _SHIFT] += hash64(
                key + value, len(key), signed=False
            )[0]
        return [one & _MASK for one in sums]


class TableDigests:
    """The same of a table, which keeps them itself: what is stored through pointers is counted at once, all else when
    this is told of it.
    """

    __slots__ = ("_table",)

    def __init__(self, table: PackedEntries) -> None:
        self._table = table
        table.keep_digests(table.digests())

    @property
    def sums(self) -> list[int]:
        """What they are now."""
        kept = self._table.kept_digests()
        assert kept is not None, "they are kept until this is let go"
        return kept

    @sums.setter
    def sums(self, sums: list[int]) -> None:
        self._table.keep_digests(sums)

    def absorb(self, touched: dict[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        """These keys have changed: from what is given (None: not there) to what the table holds now."""
        self._table.absorb(touched)

    def complete(self, entries: Mapping[bytes, bytes]) -> bool:
        """All entries are about to go: these sums go on, with none."""
        self._table.keep_digests([0] * RANGES)
        return True

    def end(self) -> None:
        """Keep them no longer."""
        self._table.keep_digests(None)
