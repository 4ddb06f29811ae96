"""Order of the items of a queue or list, and new keys for items between two others.

Keys are compared as bytes. A key is a sequence of 64-bit digits, and never ends with the digit 0, so there is always
room between two keys. Example: between the keys 5 and 6 is (5, 2^63), and between 5 and that one (5, 2^62).

- collections/O-1: The order is derived from the keys. It is built where a request needs it first, follows the updates
  from then on, and is never replicated: replicas with the same entries have the same order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

DIGIT_BYTES = 8
_ABOVE = 1 << (8 * DIGIT_BYTES)
MIDDLE = (_ABOVE >> 1).to_bytes(DIGIT_BYTES, "big")
"""The key of a first item, where others may have to go before it."""
ONE_BY_ONE = 16
"""So many changed keys are looked up one by one."""
FREED = 4096
TRIMMED = 1024
"""So many removed first items may stay in the list of keys."""


class ItemOrder:
    """An `Observer`. Removing the first item, and adding one at the end, take constant time."""

    __slots__ = ("_cleared", "_head", "_keys")

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self._keys: list[bytes] = sorted(entries)
        self._head = 0
        """Keys before this place belong to removed items."""
        self._cleared: list[bytes] = []
        """Keys of a time before the last CLEAR. They are freed in small amounts, which takes no noticeable time."""

    def __len__(self) -> int:
        return len(self._keys) - self._head

    @property
    def first(self) -> bytes:
        """Empty: there are no items."""
        return self._keys[self._head] if len(self) else b""

    @property
    def last(self) -> bytes:
        return self._keys[-1] if len(self) else b""

    def at(self, index: int) -> bytes:
        """The key at this position, which has an item."""
        return self._keys[self._head + index]

    def keys(self, start: int = 0, end: int | None = None) -> Sequence[bytes]:
        """From position `start` to before `end`; None: all that follow."""
        return self._keys[self._head + start : None if end is None else self._head + end]

    def walk(self, *, backwards: bool = False) -> Iterator[bytes]:
        """All keys, none of them copied."""
        keys, size = self._keys, len(self._keys)
        places = range(size - 1, self._head - 1, -1) if backwards else range(self._head, size)
        return map(keys.__getitem__, places)

    def absorb(self, touched: Mapping[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        del self._cleared[-FREED:]
        added = [key for key, former in touched.items() if former is None and key in entries]
        removed = [key for key, former in touched.items() if former is not None and key not in entries]
        if len(added) + len(removed) > ONE_BY_ONE:
            self._change_many(sorted(added), removed)
            return
        for key in added:
            self._add(key)
        for key in removed:
            self._remove(key)

    def complete(self, entries: Mapping[bytes, bytes]) -> bool:
        self._cleared, self._keys, self._head = self._keys, [], 0
        return True

    def _change_many(self, added: list[bytes], removed: list[bytes]) -> None:
        """Moves the keys behind a place once, not for each of these keys."""
        keys = self._keys
        if added:
            at = bisect_left(keys, added[0], self._head)
            if at == len(keys) or added[-1] < keys[at]:
                keys[at:at] = added
            else:
                keys += added
                del keys[: self._head]
                self._head = 0
                keys.sort()
        gone, head = sorted(removed), self._head
        if keys[head : head + len(gone)] == gone:
            for key in gone:
                self._remove(key)
        else:
            known = frozenset(gone)
            self._keys = [key for key in keys[head:] if key not in known]
            self._head = 0

    def _add(self, key: bytes) -> None:
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
        else:
            keys.insert(bisect_left(keys, key, self._head), key)

    def _remove(self, key: bytes) -> None:
        keys, head = self._keys, self._head
        if keys[head] != key:
            del keys[bisect_left(keys, key, head)]
            return
        self._head = head = head + 1
        if head == len(keys) or (head >= TRIMMED and head * 2 >= len(keys)):
            del keys[:head]
            self._head = 0


def keys_between(low: bytes, high: bytes, count: int, stride: int = 1) -> list[bytes]:
    """New keys in ascending order, above `low` and below `high` (empty: unbounded). Unbounded on one side they are
    `stride` apart, as far as there is room.
    """
    assert not high or low < high, "there is a place between them"
    prefix, at, bounded = b"", 0, bool(high)
    while True:
        first = int.from_bytes(low[at : at + DIGIT_BYTES], "big")
        last = int.from_bytes(high[at : at + DIGIT_BYTES], "big") if bounded else _ABOVE
        room = last - first - 1
        if room >= count:
            if not high:
                step = min(stride, room // count)
            elif not low and bounded:
                step = min(stride, room // count)
                first = last - step * (count + 1)
            else:
                step = (room + 1) // (count + 1)
            places = range(first + step, first + step * count + 1, step)
            return [prefix + place.to_bytes(DIGIT_BYTES, "big") for place in places]
        prefix += first.to_bytes(DIGIT_BYTES, "big")
        # Below a digit that is less than that of `high` everything is less than `high`.
        bounded = bounded and last == first
        at += DIGIT_BYTES
