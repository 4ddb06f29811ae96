"""The share of each partition in the limit of a map (`max_size`, `max_bytes`), as entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from holdfast.config import Settings
from holdfast.core.store.eviction_sample import sample_of
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

SAMPLED_COPIES: Final = 16
SAMPLED: Final = 16
"""Entries in each of them whose sizes are measured."""
UNLIMITED: Final = 1 << 60


class LedCopies(Protocol):
    def led_copies(self, name: str) -> Sequence[PartitionCopy]:
        """The copies in which this member decides on entries of a map."""


class PartitionShares:
    """Shares are computed when they are first needed, and again after `renew`. Example: a member serves 90 partitions
    and the map has `max_size` 9000, so each of them holds 100 entries at most.
    """

    def __init__(self, settings: Settings, source: LedCopies) -> None:
        self._settings = settings
        self._source = source
        self._shares: dict[str, int] = {}
        self.on = False
        """Some map has `eviction`."""
        self.renew()

    def renew(self) -> None:
        """The number of partitions, the settings, or the sizes of entries may have changed."""
        self._shares.clear()
        self.on = any(chosen.evicts for chosen in self._settings.maps.values())

    def of(self, name: str) -> int:
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = self._share(name)
        return share

    def excess(self, held: MapReplica) -> int:
        """Entries above the share; not positive if there are none."""
        return len(held.state.entries) - self.of(held.name)

    def _share(self, name: str) -> int:
        chosen, served = self._settings.map(name), self._source.led_copies(name)
        if not served:
            return UNLIMITED
        share = chosen.max_size // len(served) if chosen.max_size else UNLIMITED
        if chosen.max_bytes and (average := _average_bytes(name, served)):
            share = min(share, chosen.max_bytes // len(served) // average)
        return max(1, share)


def _average_bytes(name: str, served: Iterable[PartitionCopy]) -> int:
    """Bytes of a key and its value; 0: the map is empty."""
    count = size = 0
    filled = (held for copy in served if (held := copy.maps.get(name)) is not None and held.state.entries)
    for held in islice(filled, SAMPLED_COPIES):
        entries = held.state.entries
        for key in sample_of(held.state, held.counter, SAMPLED):
            count += 1
            size += len(key) + len(entries[key])
    return max(1, size // count) if count else 0
