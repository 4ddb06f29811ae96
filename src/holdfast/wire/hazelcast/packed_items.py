"""Keys or values of one long request, packed: without an object for each.

A request of 16 MB can have a million keys. In a list the cyclic collector looks at each of them, for 20 ms, again and
again; and to free them takes as long. Here both are nothing: there is one object.
"""

from __future__ import annotations

from array import array


class PackedItems:
    """A row of byte strings that only grows."""

    __slots__ = ("_bytes", "_ends")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q", (0,))
        """Where each item ends in these bytes, after the beginning of the first."""

    def append(self, item: bytes) -> None:
        """Keep a copy of this."""
        self._bytes += item
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> bytes:
        with memoryview(self._bytes) as view:
            return bytes(view[self._ends[place] : self._ends[place + 1]])


Items = list[bytes] | PackedItems
