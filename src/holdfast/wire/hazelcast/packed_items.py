"""Keys or values of one long request, packed in one object.

A request of 16 MB can have a million keys. As a list, the garbage collector would look at each of them for 20 ms, again
and again, and freeing them would take as long.
"""

from __future__ import annotations

from array import array


class PackedItems:
    """A list of byte strings that only grows."""

    __slots__ = ("_bytes", "_ends")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q", (0,))
        """End of each item, after the beginning of the first."""

    def append(self, item: bytes) -> None:
        self._bytes += item
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> bytes:
        with memoryview(self._bytes) as view:
            return bytes(view[self._ends[place] : self._ends[place + 1]])


Items = list[bytes] | PackedItems
