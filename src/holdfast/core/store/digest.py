"""Digests: numbers by which copies are compared, one for all entries or one for each key range.

The keys of a map in a partition fall into 64 ranges by their hash. The digest of a range is the sum of its entries'
hashes modulo 2**64: it does not depend on their order, and a change of an entry changes it by a difference. Only ranges
that differ need be read or sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mmh3 import hash64, mmh3_32_uintdigest

from holdfast.core.store.entry_mapping import PackedEntries

RANGES = 64

RANGE_SEED = 0x52414E47
"""Not the seed of `core.model.keys`: the keys of one partition must spread over all ranges."""

_SHIFT = 32 - 6
_MASK = 0xFFFF_FFFF_FFFF_FFFF


def range_of(key: bytes) -> int:
    return mmh3_32_uintdigest(key, RANGE_SEED) >> _SHIFT


def entry_digest(key: bytes, value: bytes) -> int:
    """The boundary between key and value counts, too."""
    return hash64(key + value, len(key), signed=False)[0]


def whole(digests: Iterable[int]) -> int:
    return sum(digests) & _MASK


def batch_digest(keys: Sequence[bytes], values: Sequence[bytes]) -> int:
    return (
        sum([hash64(key + value, len(key), True, False)[0] for key, value in zip(keys, values, strict=True)])
        & _MASK
    )


class RangeDigests:
    """The digests of the 64 ranges, kept up to date by observing a state (`state.Observer`)."""

    __slots__ = ("sums",)

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self.sums = RangeDigests.digests(entries)

    def absorb(self, touched: dict[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        """Former values (None: not there); `entries` has the new ones."""
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
        self.sums = [0] * RANGES
        return True

    def end(self) -> None: ...

    @staticmethod
    def digests(entries: Mapping[bytes, bytes] | PackedEntries) -> list[int]:
        if isinstance(entries, PackedEntries):
            return entries.digests()
        sums = [0] * RANGES
        for key, value in entries.items():
            sums[mmh3_32_uintdigest(key, RANGE_SEED) >> _SHIFT] += hash64(
                key + value, len(key), signed=False
            )[0]
        return [one & _MASK for one in sums]


class TableDigests:
    """The same for a table, which keeps its sums itself: it counts stores through pointers, and this observer
    adds everything else.
    """

    __slots__ = ("_table",)

    def __init__(self, table: PackedEntries) -> None:
        self._table = table
        table.keep_digests(table.digests())

    @property
    def sums(self) -> list[int]:
        kept = self._table.kept_digests()
        assert kept is not None, "digests are kept until `end`"
        return kept

    @sums.setter
    def sums(self, sums: list[int]) -> None:
        self._table.keep_digests(sums)

    def absorb(self, touched: dict[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        self._table.absorb(touched)

    def complete(self, entries: Mapping[bytes, bytes]) -> bool:
        self._table.keep_digests([0] * RANGES)
        return True

    def end(self) -> None:
        self._table.keep_digests(None)
