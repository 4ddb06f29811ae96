"""Choice of an entry that goes because its map exceeds its limit.

Only a sample of neighbouring entries is compared, as in Redis and Hazelcast: the choice costs the same in a map of any
size, and needs no list of all entries in the order of their uses. The entry that was used longest ago of 15 belongs
to the oldest fifth of the map in 96 of 100 cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from holdfast.core.store.map_state import MapState

SAMPLE: Final = 15
SKIPPED: Final = 1000
"""A sample of a dictionary begins at one of its first entries, because all entries before it are walked over."""
_SPREAD: Final = 0x9E3779B1
"""Multiplied by this, consecutive numbers are far apart (Knuth's multiplicative hash)."""


def sample_of(state: MapState, number: int, count: int = SAMPLE) -> list[bytes]:
    """Keys of a map; `number` says where it begins."""
    begin = (number * _SPREAD) & 0xFFFFFFFF
    if state.packed is not None:
        return state.packed.sample(begin, count)
    first = begin % max(1, min(SKIPPED, len(state.entries) - count + 1))
    return list(islice(state.entries, first, first + count))


def used_first(state: MapState, keys: Sequence[bytes]) -> bytes:
    """The one of these entries that was used longest ago; of equal ones the first. An entry that was stored before the
    map had `lru` counts as never used.
    """
    expiries = state.expiries
    return min(keys, key=lambda key: expiry.accessed_ns if (expiry := expiries.get(key)) is not None else 0)
